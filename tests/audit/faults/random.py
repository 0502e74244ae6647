"""Random faults, drawn from a seed: several in each copy, apart from each other, and what is due to be said of them."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Side, Span
from mirror.records.header import HEADER_SIZE, BatchHeader
from tests.audit.clusters import edited
from tests.audit.faults.copies import OWNER, Copy, markers, rewritten, stamped
from tests.audit.faults.grid import Grid
from tests.audit.faults.kinds import Shape
from tests.audit.faults.segments import Unit
from tests.records.builders import Record, kafka_batch

APART = 4
"""Record batches between two faults: closer ones could be told as one, or as each other's consequence."""
MOST = 6
"""Faults of a copy."""
LENGTH = 4
"""How many times over the clients write what they write to the grid's topics."""
SHAPES = (Shape.PLAIN, Shape.PLAIN, Shape.TRANSACTIONAL, Shape.TRANSACTIONAL, Shape.MAPPED)
FAR = 0x80
"""This bit turns no character of a text into another: the records of two topics may differ in one digit only."""
COVERED = [*range(16, HEADER_SIZE)]
"""Header bytes whose flips a checksum shows, or after which a log cannot be read."""
UNREADABLE_FROM = frozenset({16, 23, 24, 25, 26})
"""Magic and last offset delta: what is behind cannot be read either."""


@dataclass(frozen=True)
class Due:
    """A finding. ``within``: it is of one offset, anywhere in these; else the spans are exact. Of what is there twice,
    it cannot be told which one was added."""

    kind: Kind
    source: Callable[[], Span | None]
    destination: Callable[[], Span | None]
    within: Callable[[], Span] | None = None

    def is_told_by(self, found: Finding) -> bool:
        """Whether it is this one."""
        if found.kind is not self.kind:
            return False
        if self.within is not None:
            span, among = found.source or found.destination, self.within()
            return span is not None and span.offsets == 1 and among.start <= span.start < among.end
        if found.source != self.source():
            return False
        return found.kind is Kind.DUPLICATE or found.destination == self.destination()


Spoil = Callable[[Copy, int, random.Random], list[Due]]


def spoil(copy: Copy, shape: Shape, chance: random.Random) -> list[Due]:
    """One to ``MOST`` faults."""
    due: list[Due] = []
    # In record batches: what is missing before and behind a hole is told as one.
    rank = [0, *accumulate(not _is_hole(copy, at) for at in range(len(copy.source)))]
    places = list(range(1, len(copy.source) - 1))
    for _ in range(chance.randint(1, MOST)):
        if not places:
            break
        at = chance.choice(places)
        places = [other for other in places if abs(rank[other] - rank[at]) >= APART]
        kinds = KINDS_OF_HOLES if _is_hole(copy, at) else MAPPED_KINDS if shape is Shape.MAPPED else KINDS
        if _is_hole(copy, at) and not _is_whole_hole(copy, at):
            continue
        due += chance.choice(kinds)(copy, at, chance)
    return due or _another_byte(copy, 0, chance)


def grown(grid: Grid, seeds: Mapping[str, int]) -> dict[str, list[Due]]:
    """A topic for each seed, its copy spoiled as that says; what is due, by topic."""
    grid.write({topic: random.Random(seed).choice(SHAPES) for topic, seed in seeds.items()})
    due = {}
    for topic, seed in seeds.items():
        chance = random.Random(seed)
        due[topic] = spoil(grid.copies[topic], chance.choice(SHAPES), chance)
    return due


def unlike(found: Sequence[Finding], due: Sequence[Due]) -> str:
    """What is not as it is due; empty if all is."""
    left = list(found)
    for one in due:
        told = next((each for each in left if one.is_told_by(each)), None)
        if told is None:
            return f"not found: {one.kind.value}, source {one.source()}, destination {one.destination()}"
        left.remove(told)
    return (
        "" if not left else f"not due: {left[0].kind.value}, source {left[0].source}, destination {left[0].destination}"
    )


def _is_hole(copy: Copy, at: int) -> bool:
    unit = copy.destination[copy.index(at)]
    return BatchHeader.read(unit.data).is_control


def _is_whole_hole(copy: Copy, at: int) -> bool:
    """Data on both sides of it: where holes touch, they are one."""
    return not _is_hole(copy, at - 1) and not _is_hole(copy, at + 1)


def _none() -> None:
    return None


def _in_place(copy: Copy, kind: Kind, at: int) -> list[Due]:
    return [Due(kind, lambda: copy.spans[at], lambda: copy.there(at))]


# -- in a record batch's place ---------------------------------------------------------------------------------------


def _another_byte(copy: Copy, at: int, chance: random.Random) -> list[Due]:
    data = copy.data(at)
    copy.replace(at, edited(data, at=chance.randrange(HEADER_SIZE, len(data)), by=FAR))
    return _in_place(copy, Kind.VALUE_CHANGED, at)


def _another_record(copy: Copy, at: int, chance: random.Random) -> list[Due]:
    def change(found: list[Record]) -> list[Record]:
        which = chance.randrange(len(found))
        one = found[which]
        text = b"another %d" % chance.getrandbits(64)
        found[which] = one._replace(key=text) if chance.random() < 0.5 else one._replace(value=text)
        return found

    copy.replace(at, rewritten(copy.data(at), change))
    return _in_place(copy, Kind.VALUE_CHANGED, at)


def _another_time(copy: Copy, at: int, chance: random.Random) -> list[Due]:
    data, name = copy.data(at), chance.choice(["base_timestamp", "max_timestamp"])
    value: int = getattr(BatchHeader.read(data), name)
    copy.replace(at, edited(data, **{name: value + chance.choice([-1, 1, 1000])}))
    return _in_place(copy, Kind.HEADER_CHANGED, at)


def _flipped(copy: Copy, at: int, chance: random.Random) -> list[Due]:
    """On the disk of either side."""
    side, data = chance.choice(list(Side)), copy.data(at)
    byte = chance.choice([*(one for one in COVERED if one not in UNREADABLE_FROM), *range(HEADER_SIZE, len(data))])
    copy.flips.append((side, at, byte, 1 << chance.randrange(8)))
    return _in_place(copy, Kind.CORRUPT, at)


# -- lost, added, doubled --------------------------------------------------------------------------------------------


def _lost(copy: Copy, at: int, _chance: random.Random) -> list[Due]:
    copy.take_out(at)
    return [Due(Kind.MISSING, lambda: copy.spans[at], _none)]


def _doubled(copy: Copy, at: int, _chance: random.Random) -> list[Due]:
    index = copy.index(at)
    copy.destination.insert(index + 1, copy.destination[index]._replace(of=-1))
    return [Due(Kind.DUPLICATE, lambda: copy.spans[at], _none)]


def _strangers(copy: Copy, at: int, chance: random.Random) -> list[Due]:
    """A batch that nobody has sent through the mirror, right in front of another."""
    mark = -2 - at
    text = b"%d" % chance.getrandbits(64)
    batch = kafka_batch([Record(0, 1_700_000_000_000, b"stranger", text)])
    copy.destination.insert(copy.index(at), Unit(batch, of=mark))
    return [Due(Kind.EXTRA, _none, lambda: copy.there(mark))]


def _overfilled(copy: Copy, at: int, _chance: random.Random) -> list[Due]:
    index = copy.index(at)
    copy.destination[index : index + 1] = markers(copy.spans[at].offsets, of=at)
    return [
        Due(Kind.MISSING, lambda: copy.spans[at], _none),
        Due(Kind.OVERFILLED, _none, lambda: copy.there(at)),
    ]  # fmt: skip


KINDS: list[Spoil] = [
    _another_byte, _another_record, _another_time, _flipped, _flipped, _lost, _doubled, _strangers, _overfilled,
]  # fmt: skip
MAPPED_KINDS: list[Spoil] = [_another_byte, _another_record, _another_time, _flipped, _lost]


# -- holes -----------------------------------------------------------------------------------------------------------


def _marker_lost(copy: Copy, at: int, _chance: random.Random) -> list[Due]:
    del copy.destination[copy.index(at)]
    return [Due(Kind.UNFILLED, _none, _none, lambda: copy.spans[at])]


def _marker_added(copy: Copy, at: int, _chance: random.Random) -> list[Due]:
    index = copy.index(at)
    copy.destination[index:index] = markers(1, of=at)
    return [Due(Kind.OVERFILLED, _none, _none, lambda: copy.there(at))]


def _strangers_marker(copy: Copy, at: int, chance: random.Random) -> list[Due]:
    index, mark = copy.index(at), -2 - at
    told = chance.choice([{"producer": 4_000_000 + at}, {"epoch": 2}])
    copy.destination[index : index + 1] = markers(1, of=mark, **told)
    return [Due(Kind.FOREIGN, _none, lambda: copy.there(mark))]


def _copied(copy: Copy, at: int, chance: random.Random) -> list[Due]:
    """What is not due there. A control batch is nothing that anybody could copy."""
    data = copy.source[at].data
    if BatchHeader.read(data).is_control:
        return _strangers_marker(copy, at, chance)
    index, mark = copy.index(at), -2 - at
    copy.destination[index : index + copy.spans[at].offsets] = [Unit(stamped(data), of=mark)]
    return [Due(Kind.EXTRA, _none, lambda: copy.there(mark))]


KINDS_OF_HOLES: list[Spoil] = [_marker_lost, _marker_added, _strangers_marker, _copied]
assert OWNER > 4_000_000 + 1_000_000, "those are strangers"
