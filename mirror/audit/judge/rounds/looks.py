"""The interface through which the rounds read both clusters."""

from collections.abc import Collection, Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from mirror.audit.model.differences import Pairs, RecordDifference
from mirror.audit.model.findings import Finding
from mirror.audit.model.places import Side, Span, TopicPartition
from mirror.audit.model.rows import BatchRow
from mirror.audit.prepare.plan import Range

Located = list[tuple[TopicPartition, BatchRow]]
"""Batches with the partitions in which they were found."""
Within = Mapping[TopicPartition, Sequence[Span]]
"""The partitions to search, and the log offsets to search in each."""


class ChunkComparison(NamedTuple):
    """A range compared by chunks. ``differing``: the chunks that differ. ``batches``: the number of the source's
    batches in all other chunks. ``whole``: both logs could be read to the range's end."""

    differing: Pairs
    batches: int
    whole: bool


class Tails(NamedTuple):
    """What one side has behind the end of the other side's log.

    ``read``: the partitions that were read to the end. For others, ``pairs`` may be incomplete and must not be used.
    ``broken``: findings for partitions whose log is damaged there.
    """

    pairs: Mapping[TopicPartition, Pairs]
    read: Set[TopicPartition]
    broken: Sequence[Finding] = ()


class Looks(Protocol):
    """Reads both clusters. The ranges of one partition in a call never overlap. ``by_record``: compare records instead
    of batches. Methods that read may raise ``AuditError`` if a cluster cannot be read, and ``LogsMoved`` if the
    beginning of a log was deleted."""

    def rows(self, ranges: Sequence[Range], *, by_record: bool) -> dict[TopicPartition, Pairs]:
        """Returns the rows that differ in these ranges, by partition."""

    def chunks(self, ranges: Sequence[Range], *, by_record: bool) -> list[ChunkComparison]:
        """Compares each of these ranges by chunks."""

    def tails(self, side: Side, ranges: Sequence[Range], *, by_record: bool) -> Tails:
        """Returns everything that one side has in these ranges at its log's end, where the other side has nothing."""

    def borders(self, key: TopicPartition) -> Sequence[int]:
        """Returns the source offsets at which a run of old-format messages begins or ends, in order. Records are
        compared within these runs, and batches outside of them."""

    def pin(self, key: TopicPartition, border: int, there: int | None) -> None:
        """Sets the offset of the destination's log at which it has this border. ``there`` None: at the source's offset,
        moved by the shift at which the two sides are compared."""

    def size(self, where: Range) -> int:
        """Returns the estimated bytes of a range."""

    def in_source(self, digests: Sequence[bytes], within: Within | None = None) -> Located:
        """Returns the batches of the source with these digests: only ``within`` these offsets, or in all audited
        partitions."""

    def in_destination(self, digests: Sequence[bytes], within: Within | None = None) -> Located:
        """Returns the batches of the destination with these digests: only ``within`` these offsets, or in all topics
        that differ."""

    def records(
        self, differing: Mapping[TopicPartition, Pairs], shifts: Mapping[TopicPartition, int], *, digests: bool
    ) -> dict[TopicPartition, list[RecordDifference]]:
        """Returns the records that differ within these batches, compared at these shifts. ``digests``: fill in the
        digests of the records."""

    def renew(self, keys: Collection[TopicPartition]) -> bool:
        """Returns True if one of these logs has grown since the records that may excuse others were read. Then
        ``records`` reads those again, because a cleaner may have removed a record for one that was written since."""

    def cleaned(self, key: TopicPartition) -> Set[Side]:
        """Returns the sides on which a log cleaner works on this partition."""
