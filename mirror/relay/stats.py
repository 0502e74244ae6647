"""Plain counters for watching: the data path only increments them."""

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from mirror.net.health.histogram import Histogram
from mirror.offsetmap.entries.passed import PassedOverOffsets

AGE_BOUNDS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 3_600.0, 86_400.0)
"""Upper bounds of the buckets for the ages of records, in seconds."""
SIZE_BOUNDS_BYTES = tuple(float(1 << power) for power in (8, 10, 12, 14, 16, 18, 20, 22, 24))
"""Upper bounds of the buckets for sizes of batches and requests: 256 bytes, four times as much, and so on."""
BATCHES_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0)
"""Upper bounds of the buckets for the number of batches in a request."""


class GivenUp(NamedTuple):
    """Source offsets ``first`` to ``next - 1``, which will never be copied because of a decision or a setting."""

    topic: str
    partition: int
    first: int
    next: int
    reason: str
    at_ms: int
    """When it was decided, in ms since 1970."""
    records: int = 0
    """Number of records in the range that are skipped; 0: all of the range's offsets are skipped."""

    @property
    def key(self) -> tuple[str, int, int, str, int]:
        """Identifies a row: two rows with the same key are the same range. A skipped range never changes; a row of
        single records grows at its end, so its end does not count."""
        return self.topic, self.partition, self.first, self.reason, -1 if self.records else self.next

    @property
    def offsets(self) -> int:
        """Number of offsets that are skipped."""
        return self.records or self.next - self.first


@dataclass(slots=True)
class Stats:
    """Counters since the start of the process. Bytes are those of whole batches, as stored."""

    fetched_bytes: int = 0
    """Bytes received in fetch responses, including partial batches at the end."""
    produce_requests: int = 0
    fetch_requests: int = 0
    oversize_frames: int = 0
    throttled_s: dict[str, float] = field(default_factory=dict)
    """Cluster name -> seconds for which its brokers told us to wait."""
    resyncs: dict[str, int] = field(default_factory=dict)
    """Number of doubts by cause."""
    halts: dict[str, int] = field(default_factory=dict)
    """Number of halts by reason. A partition that is resumed and halts again counts again."""
    skipped: list[GivenUp] = field(default_factory=list)
    """Ranges that were skipped by this process, and those that the internal topic listed at the start."""
    filled_here: int = 0
    """Offsets without a record at the source that this process has filled. Only the hint ``many_holes`` uses it; what
    is shown is ``Queue.filled``, which also counts markers whose response was lost."""
    unproven: int = 0
    """Number of positions at which the last batch could not be compared with the source."""
    record_age: Histogram = field(default_factory=lambda: Histogram(AGE_BOUNDS_S))
    """Seconds from a record's timestamp until it was sent to the destination; one batch is sampled at a time
    (``relay.timing``)."""
    replication_latency: Histogram = field(default_factory=lambda: Histogram(AGE_BOUNDS_S))
    """Seconds from a record's timestamp until the destination had acknowledged it, for the same batches."""
    batch_bytes: Histogram = field(default_factory=lambda: Histogram(SIZE_BOUNDS_BYTES))
    """Sizes of these batches, as stored."""
    request_bytes: Histogram = field(default_factory=lambda: Histogram(SIZE_BOUNDS_BYTES))
    """Sizes of the Produce requests with these batches: all their batches with their heads."""
    request_batches: Histogram = field(default_factory=lambda: Histogram(BATCHES_BOUNDS))
    """Number of batches in each of these requests."""

    def throttled(self, cluster: str, throttle_ms: int) -> None:
        """Counts a throttle time that a response of the cluster asked for."""
        self.throttled_s[cluster] = self.throttled_s.get(cluster, 0.0) + throttle_ms / 1000

    def resynced(self, cause: str) -> None:
        """Counts a doubt."""
        self.resyncs[cause] = self.resyncs.get(cause, 0) + 1

    def halted(self, reason: str) -> None:
        """Counts a halt."""
        self.halts[reason] = self.halts.get(reason, 0) + 1

    def skip(self, topic: str, partition: int, first: int, next_offset: int, reason: str) -> None:
        """Lists source offsets ``first`` to ``next_offset - 1`` as skipped now."""
        self.recall(topic, partition, first, next_offset, reason, round(time.time() * 1000))

    def recall(self, topic: str, partition: int, first: int, next_offset: int, reason: str, at_ms: int) -> None:
        """Lists source offsets ``first`` to ``next_offset - 1`` as skipped at ``at_ms``: by an earlier process, or by
        another worker."""
        self.skipped.append(GivenUp(topic, partition, first, next_offset, reason, at_ms))

    def pass_over(self, entry: PassedOverOffsets) -> None:
        """Lists records that were passed over because they are too large. If the entry has grown since it was last
        listed, its row is replaced."""
        one = GivenUp(
            entry.subject.topic,
            entry.subject.partition,
            entry.start,
            entry.end,
            entry.cause,
            entry.at_ms,
            len(entry.offsets),
        )
        before = next((at for at, each in enumerate(self.skipped) if each.key == one.key), None)
        if before is None:
            self.skipped.append(one)
        elif self.skipped[before].records < one.records:
            self.skipped[before] = one
