"""Plain counters: an increment is all that the data path pays for being watched."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Stats:
    """Since the start. Bytes are those of whole batches, as stored."""

    fetched_bytes: int = 0
    """Received in fetch responses, partial tails and all."""
    forwarded_bytes: int = 0
    """Acknowledged by the destination."""
    forwarded_batches: int = 0
    opened_batches: int = 0
    """Batches that had to be decompressed. Zero, as long as there is no deep path."""
    produce_requests: int = 0
    fetch_requests: int = 0
    oversize_frames: int = 0
    throttled_s: dict[str, float] = field(default_factory=dict)
    """Seconds that each cluster told us to wait."""
    resyncs: dict[str, int] = field(default_factory=dict)
    """Doubts by cause."""
    unproven: int = 0
    """Positions found where the last batch could not be compared with the source."""

    def throttled(self, cluster: str, throttle_ms: int) -> None:
        """The cluster asked for a pause."""
        self.throttled_s[cluster] = self.throttled_s.get(cluster, 0.0) + throttle_ms / 1000

    def resynced(self, cause: str) -> None:
        """A partition was in doubt for this cause."""
        self.resyncs[cause] = self.resyncs.get(cause, 0) + 1
