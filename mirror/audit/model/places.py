"""Places in an audit: a side, a partition, offsets of its log and their bounds."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Side(Enum):
    """One of the two clusters."""

    SOURCE = "source"
    DESTINATION = "destination"


class TopicPartition(NamedTuple):
    """A partition's full name."""

    topic: str
    partition: int


class Span(NamedTuple):
    """Offsets from ``start`` up to but not including ``end``."""

    start: int
    end: int

    @property
    def offsets(self) -> int:
        """The number of offsets; 0 if the end is not after the start."""
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of one partition's two logs, frozen before anything was read."""

    topic: str
    partition: int
    source: Span
    destination: Span

    @property
    def key(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def audited(self) -> Span:
        """The offsets within both sides' bounds: these are read and compared."""
        start = max(self.source.start, self.destination.start)
        return Span(start, max(start, min(self.source.end, self.destination.end)))


class OldRange(NamedTuple):
    """Source offsets at which the source has messages of old formats. ``starts_at`` and ``ends_at``: the destination
    offsets at which the copies of these messages begin and end; None if nothing else is known than ``there`` assumes.
    """

    start: int
    end: int
    starts_at: int | None = None
    ends_at: int | None = None

    def there(self, ahead: int, less: int = 0) -> Span:
        """Returns the destination offsets of the copies.

        Args:
            ahead: how much higher the destination's offsets are than the source's, where they are not known.
            less: is subtracted from the known offsets.
        """
        starts = self.start + ahead if self.starts_at is None else self.starts_at - less
        ends = self.end + ahead if self.ends_at is None else self.ends_at - less
        return Span(starts, max(starts, ends))


class Adopted(NamedTuple):
    """The part of a destination's log that was there before the flow (``Pin.adopted``).

    Such a flow leads back: its source was once copied from this destination. So this part has the same records at the
    same offsets as the source, but its batches and markers were written by other producers.

    ``end``: the first offset behind this part. ``leader_epoch``: the destination leader's epoch when the flow recorded
    ``end``; a batch of a later epoch was written since, and is not of this part. -1: not known. ``committed``: the
    source does not have the data that was aborted here (``isolation.level: read_committed``).
    """

    end: int
    leader_epoch: int = -1
    committed: bool = True
