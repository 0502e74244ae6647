"""The interface through which the rounds read both clusters."""

from collections.abc import Collection, Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from mirror.audit.model.differences import Pairs, RecordDifference
from mirror.audit.model.findings import Finding
from mirror.audit.model.places import Side, Span, TopicPartition
from mirror.audit.model.rows import BatchRow
from mirror.audit.prepare.plan import Range

Located = list[tuple[TopicPartition, BatchRow]]
Within = Mapping[TopicPartition, Sequence[Span]]
"""Where to search: offsets of a log, of each partition that is meant."""


class ChunkComparison(NamedTuple):
    """A range compared by chunks: those that differ, and the number of the source's batches in all other chunks.

    ``whole``: both logs could be read to the range's end.
    """

    differing: Pairs
    batches: int
    whole: bool


class Tails(NamedTuple):
    """What one side has behind the end of the other side's log.

    ``read``: the partitions of which it was read to the end. Of all others, ``pairs`` may be short, and says nothing.
    ``broken``: findings for those whose log is damaged there.
    """

    pairs: Mapping[TopicPartition, Pairs]
    read: Set[TopicPartition]
    broken: Sequence[Finding] = ()


class Looks(Protocol):
    """Reads both clusters. Ranges of one partition never overlap. ``by_record``: compare records instead of batches."""

    def rows(self, ranges: Sequence[Range], *, by_record: bool) -> dict[TopicPartition, Pairs]:
        """Returns what differs in these ranges, row by row."""

    def chunks(self, ranges: Sequence[Range], *, by_record: bool) -> list[ChunkComparison]:
        """Compares each of these ranges by chunks."""

    def tails(self, side: Side, ranges: Sequence[Range], *, by_record: bool) -> Tails:
        """Returns everything that one side has in these ranges at its log's end, where the other side has nothing."""

    def borders(self, key: TopicPartition) -> Sequence[int]:
        """Returns the source offsets at which a run of old-format messages begins or ends, in order. Records are
        compared within these runs, and batches outside of them."""

    def pin(self, key: TopicPartition, border: int, there: int | None) -> None:
        """Sets the offset of the destination's log at which it has this border; None: at the source's offset, moved by
        the shift at which the two sides are compared."""

    def size(self, where: Range) -> int:
        """Returns the estimated bytes of a range."""

    def in_source(self, digests: Sequence[bytes], within: Within | None = None) -> Located:
        """Returns where the source has these: ``within`` some offsets only, or in all audited partitions."""

    def in_destination(self, digests: Sequence[bytes], within: Within | None = None) -> Located:
        """Returns where the destination has these: ``within`` some offsets only, or in the topics that differ."""

    def records(
        self, differing: Mapping[TopicPartition, Pairs], shifts: Mapping[TopicPartition, int], *, digests: bool
    ) -> dict[TopicPartition, list[RecordDifference]]:
        """Returns the records that differ within these batches, at these shifts; with their ``digests`` if wanted."""

    def renew(self, keys: Collection[TopicPartition]) -> bool:
        """Returns True if these logs go on since it was read what may excuse a record of theirs. Then ``records`` reads
        that anew: a cleaner may have taken one for another that was written since."""

    def cleaned(self, key: TopicPartition) -> Set[Side]:
        """Returns the sides on which a log cleaner works on this partition."""
