"""What a comparison of both sides leaves over: rows and records that only one side has, or that are not equal."""

from dataclasses import dataclass, field
from typing import NamedTuple

from mirror.audit.model.places import Side
from mirror.audit.model.rows import BatchRow, Hole


class RecordDifference(NamedTuple):
    """An offset, in batches that were opened, at which the two sides do not have the same record.

    ``at``: the side that has a record there; None if both have different records, or if a batch could not be opened.
    ``excused``: the other side's log cleaner may have removed the record (``by_record`` has the rules). ``size``: bytes
    of its key, value and headers. ``digests``: those of the source's and the destination's record; empty where that
    side has none, or where they were not asked for. ``mistimed``: no difference of the record, which may be the same:
    at the destination, it is the last record of a batch whose max timestamp is not that of its records.
    """

    offset: int
    at: Side | None
    excused: bool
    size: int
    digests: tuple[bytes, bytes] = (b"", b"")
    mistimed: bool = False


@dataclass(slots=True)
class Pairs:
    """The differences in one partition: each side's rows that are not equal to the other side's, by base offset.

    ``holes`` (the source's) and ``markers`` (the destination's) are those that differ. ``odd``: everything else at the
    destination that is not a batch of records. ``equal``: holes that both sides have. They are known only where rows
    were compared one by one, and at another shift they may belong to other offsets. With ``offsets: mapped``, all holes
    of the source are in ``equal``: a copy has no offsets there. All lists are in offset order.
    """

    source: dict[int, BatchRow] = field(default_factory=dict)
    destination: dict[int, BatchRow] = field(default_factory=dict)
    holes: list[Hole] = field(default_factory=list)
    markers: list[Hole] = field(default_factory=list)
    odd: list[Hole] = field(default_factory=list)
    equal: list[Hole] = field(default_factory=list)

    def add(self, other: "Pairs") -> None:
        """Appends the differences of later offsets of the same partition."""
        self.source.update(other.source)
        self.destination.update(other.destination)
        self.holes += other.holes
        self.markers += other.markers
        self.odd += other.odd
        self.equal += other.equal

    @property
    def rows(self) -> list[BatchRow]:
        """The rows of both sides."""
        return [*self.source.values(), *self.destination.values()]

    @property
    def starts(self) -> list[int]:
        """The offsets at which a difference begins, in order."""
        others = (hole.start for hole in (*self.holes, *self.markers, *self.odd))
        return sorted({*self.source, *self.destination, *others})
