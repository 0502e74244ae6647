"""What ``differences`` asks of whoever reads both clusters."""

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from mirror.audit.model import BatchRow, Pairs, RecordDifference, Side, TopicPartition
from mirror.audit.prepare.plan import Range

Located = list[tuple[TopicPartition, BatchRow]]


class Passed(NamedTuple):
    """A range compared by chunks: those that differ, and the source's batches that are in none of these.

    ``whole``: both logs could be read to its end.
    """

    differing: Pairs
    batches: int
    whole: bool


class Looks(Protocol):
    """What reads both clusters. Ranges of one partition never overlap; ``by_record``: records instead of batches."""

    def rows(self, ranges: Sequence[Range], *, by_record: bool) -> dict[TopicPartition, Pairs]:
        """What differs, row by row."""

    def chunks(self, ranges: Sequence[Range], *, by_record: bool) -> list[Passed]:
        """The same by chunks, for each of the ranges."""

    def tails(self, side: Side, ranges: Sequence[Range], *, by_record: bool) -> dict[TopicPartition, Pairs]:
        """All that one side alone has, at its log's end."""

    def size(self, where: Range) -> int:
        """About how many bytes a range is."""

    def in_source(self, digests: Sequence[bytes]) -> Located:
        """Where the source has these, in all that is audited."""

    def in_destination(self, digests: Sequence[bytes]) -> Located:
        """Where the destination has these, in the topics that differ."""

    def records(
        self, differing: Mapping[TopicPartition, Pairs], shifts: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, list[RecordDifference]]:
        """Of partitions on which a log cleaner works: the records that differ within these batches, at these shifts."""

    def cleaned(self, key: TopicPartition) -> Set[Side]:
        """The sides on which a log cleaner works on it."""
