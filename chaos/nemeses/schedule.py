"""What a nemesis is, the register of all of them, and the schedule that a seed gives. Pure.

A nemesis is a generator: what it does before its ``yield`` is the beginning of the fault, what it does behind it is the
end. In between others begin and end:

    @nemesis("broker-kill", places=SIDES, struck=BROKER_KILLED)
    def broker_kill(stage: Stage, strike: Strike) -> Iterator[None]:
        side.kill(broker)
        yield
        side.start(broker, wait=False)

``struck`` is the evidence that there has to be of each, as of a scenario; ``places`` are what it may strike. Two never
have one place at the same time: a broker that is down is not killed, and the evidence of one is not taken for that of
another.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from chaos.errors import ChaosError
from chaos.evidence import Evidence

if TYPE_CHECKING:
    from chaos.stage import Stage

__all__ = ["NEMESES", "Act", "Nemesis", "Strike", "draw", "nemesis"]

Act = Callable[["Stage", "Strike"], Iterator[None]]
T = TypeVar("T")

_SOON_S = (0.5, 3.0)
"""Between the beginnings of two."""
_LASTS_S = (3.5, 8.0)
"""Longer than that between two beginnings: the first two overlap whatever is drawn, and most others do."""
_MOST = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Nemesis:
    """One kind of fault.

    Attributes:
        name: in schedules and in the report.
        places: what it may strike, each a word of its own.
        struck: what has to be seen of it.
        act: does it.
        also: further places that it needs, where no other may strike meanwhile.
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
        """The places that nobody else may strike meanwhile."""
        return frozenset((place, *self.also))


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One nemesis of a schedule.

    Attributes:
        nemesis: its name.
        place: what it strikes.
        begins_s, ends_s: since the schedule began, in seconds; what takes longer than that delays what comes after it.
        chance: a number that whatever else there is to choose is chosen by.
    """

    nemesis: str
    place: str
    begins_s: float
    ends_s: float
    chance: int

    def pick(self, options: Sequence[T]) -> T:
        """One of them, by ``chance``."""
        return options[self.chance % len(options)]

    def __str__(self) -> str:
        return f"{self.nemesis} at {self.place} from {self.begins_s:.1f} to {self.ends_s:.1f} s"


NEMESES: dict[str, Nemesis] = {}
"""All that were registered."""


def nemesis(
    name: str, *, places: tuple[str, ...], struck: Evidence, also: tuple[str, ...] = ()
) -> Callable[[Act], Act]:  # fmt: skip
    """Register the function below."""

    def register(act: Act) -> Act:
        assert name not in NEMESES, name
        NEMESES[name] = Nemesis(name=name, places=places, struck=struck, act=act, also=also)
        return act

    return register


def draw(seed: int, menu: Sequence[Nemesis], count: int) -> tuple[Strike, ...]:
    """The schedule of a seed: in the order in which they begin.

    The same seed, the same schedule, on any machine. No kind comes again before all have come, and none begins at a
    place before the one that is there has ended.

    Args:
        seed: draws everything.
        menu: what to draw from.
        count: how many.
    """
    chance = random.Random(f"nemeses/{seed}")
    free: dict[str, float] = {}
    out: list[Strike] = []
    left: list[Nemesis] = []
    at, last = 0.0, frozenset[str]()
    while len(out) < count:
        if not left:
            left = chance.sample(menu, len(menu))
        # One that need not wait for the one before it, if there is any: they are to overlap.
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
