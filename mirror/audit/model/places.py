"""Where an audit looks: a side, a partition, offsets of its log, and what bounds them."""

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
    """Source offsets in which it has messages of old formats. ``starts_at`` and ``ends_at``: where the copies of these
    begin and end at the destination, if that is known to be elsewhere."""

    start: int
    end: int
    starts_at: int | None = None
    ends_at: int | None = None

    def there(self, ahead: int, less: int = 0) -> Span:
        """Returns the destination's offsets, ``less`` subtracted from those that are known; others are ``ahead`` of the
        source's."""
        starts = self.start + ahead if self.starts_at is None else self.starts_at - less
        ends = self.end + ahead if self.ends_at is None else self.ends_at - less
        return Span(starts, max(starts, ends))


class Adopted(NamedTuple):
    """The part of a destination's log that was there before the flow, which leads back to where its source was copied
    from (``Pin.adopted``): others' batches and markers, in their places all the same.

    ``end``: the first offset that is not of it. ``leader_epoch``: of the destination's leader when that was certified:
    a batch of a later one was written since; -1: not known. ``committed``: of its aborted data nothing is due at the
    source (``isolation.level: read_committed``).
    """

    end: int
    leader_epoch: int = -1
    committed: bool = True
