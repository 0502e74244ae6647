"""Nemeses, the register of all nemeses, and the schedule that follows from a seed. Pure.

A nemesis is a generator. The code before its ``yield`` begins the fault, and the code behind it ends the fault. In
between, other nemeses begin and end:

    @nemesis("broker-kill", places=SIDES, struck=BROKER_KILLED)
    def broker_kill(stage: Stage, strike: Strike) -> Iterator[None]:
        side.kill(broker)
        yield
        side.start(broker, wait=False)

``struck`` is the evidence that the nemesis needs, and ``places`` are the places that it may strike. No two nemeses have
the same place at the same time. So a broker that is down is not killed, and the evidence of one nemesis is not taken
for that of another.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from chaos.errors import ChaosError
from lab.evidence import Evidence

if TYPE_CHECKING:
    from chaos.play.stage import Stage

__all__ = ["NEMESES", "Act", "Nemesis", "Strike", "draw", "nemesis"]

Act = Callable[["Stage", "Strike"], Iterator[None]]
T = TypeVar("T")

_SOON_S = (0.5, 3.0)
"""Shortest and longest time between the beginnings of two strikes."""
_LASTS_S = (3.5, 8.0)
"""Shortest and longest duration of a strike. It exceeds the time above, so that the first two strikes always overlap,
and most others do."""
_MOST = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Nemesis:
    """A kind of fault.

    Attributes:
        name: its name in schedules and in the report.
        places: names of the places that it may strike.
        struck: the evidence that it needs.
        act: the generator that begins and ends the fault.
        also: further places that no other nemesis may strike meanwhile.
    """

    name: str
    places: tuple[str, ...]
    struck: Evidence
    act: Act
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.struck, Evidence):
            raise ChaosError(f"nemesis {self.name} names no evidence", "give struck=")

    def takes(self, place: str) -> frozenset[str]:
        """Returns the places that no other nemesis may strike while this one strikes ``place``."""
        return frozenset((place, *self.also))


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A strike of a nemesis; an entry of a schedule.

    Attributes:
        nemesis: name of the nemesis.
        place: name of the place that it strikes.
        begins_s, ends_s: seconds since the beginning of the schedule. A step that takes longer delays the steps after
            it.
        chance: random number that decides every further choice.
    """

    nemesis: str
    place: str
    begins_s: float
    ends_s: float
    chance: int

    def pick(self, options: Sequence[T]) -> T:
        """Returns one of the options, chosen by ``chance``."""
        return options[self.chance % len(options)]

    def __str__(self) -> str:
        return f"{self.nemesis} at {self.place} from {self.begins_s:.1f} to {self.ends_s:.1f} s"


NEMESES: dict[str, Nemesis] = {}
"""All registered nemeses."""


def nemesis(
    name: str, *, places: tuple[str, ...], struck: Evidence, also: tuple[str, ...] = ()
) -> Callable[[Act], Act]:  # fmt: skip
    """Registers the decorated function as a nemesis. Arguments: see ``Nemesis``."""

    def register(act: Act) -> Act:
        assert name not in NEMESES, name
        NEMESES[name] = Nemesis(name=name, places=places, struck=struck, act=act, also=also)
        return act

    return register


def draw(seed: int | str, menu: Sequence[Nemesis], count: int) -> tuple[Strike, ...]:
    """Returns the schedule for a seed, in the order in which the strikes begin.

    The same seed gives the same schedule on any machine. No nemesis is drawn again before all have been drawn. No
    strike begins at a place before the previous strike there has ended.

    Args:
        seed: decides the whole schedule.
        menu: the nemeses to draw from.
        count: number of strikes.
    """
    chance = random.Random(f"nemeses/{seed}")
    free: dict[str, float] = {}
    out: list[Strike] = []
    left: list[Nemesis] = []
    at, last = 0.0, frozenset[str]()
    while len(out) < count:
        if not left:
            left = chance.sample(menu, len(menu))
        # Prefer a nemesis that does not have to wait for the one before it, so that they overlap.
        choices = [(one, place) for one in left for place in one.places if not one.takes(place) & last]
        one, place = chance.choice([pair for pair in choices if pair[0] is choices[0][0]]) if choices else (
            left[0], chance.choice(left[0].places)
        )  # fmt: skip
        left.remove(one)
        last = one.takes(place)
        at = max([at + chance.uniform(*_SOON_S) if out else 0.0, *(free.get(taken, 0.0) for taken in last)])
        ends = at + chance.uniform(*_LASTS_S)
        free |= dict.fromkeys(last, ends + _SOON_S[0])
        out.append(Strike(
            nemesis=one.name, place=place, begins_s=round(at, 1), ends_s=round(ends, 1), chance=chance.randrange(_MOST)
        ))  # fmt: skip
    return tuple(out)
