"""What the relay needs to know of a flow; the service makes it from the config."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """Sizes in bytes, times as named. The names are Kafka's own where Kafka has one."""

    flow: str
    selects: Callable[[str], bool]
    """Whether the flow mirrors the topic of this name."""
    wanted: Mapping[str, Callable[[str], object]] = field(default_factory=dict)
    """The flow's entries as written, each with what matches names to it: to tell which of them found no topic."""
    fetch_max_bytes: int = 8 << 20
    max_partition_fetch_bytes: int = 1 << 20
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    buffer_memory: int = 18 << 20
    max_in_flight: int = 5
    connections_per_broker: int = 1
    max_request_size: int = 4 << 20
    request_timeout_ms: int = 30_000
    settle_ms: int = 1_000
    committed: bool = True
    """Copy what a read_committed consumer reads (``isolation.level``)."""
    strict: bool = False
    """Send the source's producer fields bit for bit, one batch at a time (``identity: strict``)."""
    accept_gaps: bool = False
    """Go on behind records that are gone without a cause, or that retention took before they were copied
    (``on.gap: continue``); the offsets are filled, and the range is recorded."""
    fill_by_transaction: bool = False
    """Fill holes by empty aborted transactions instead of bare markers (``fill: transaction``)."""
    max_fill_per_second: int = 10_000
    """Markers, over all partitions of a worker."""
    max_leading_filler: int = 1_000_000_000
    """Offsets before the source's first record that are filled when a partition is new."""
    mapped: bool = False
    """Append where the destination's log ends, and remember where that was (``offsets: mapped``)."""
    destination_of: Callable[[str], str] = str
    """The topic that a source topic is copied into; only with ``mapped`` another than itself."""
    state_replication_factor: int = -1
    checkpoint_interval_ms: int = 5_000
    """Positions and maps are written down this often (``offsets: mapped``)."""
    backoff_ms: int = 50
    backoff_max_ms: int = 10_000
    drain_timeout_ms: int = 15_000
    refresh_topics_interval_ms: int = 600_000
    create_topics: bool = True
    replication_factor: int = -1
    synced_configs: tuple[str, ...] = ()
    fixed_configs: dict[str, str] = field(default_factory=dict)
    """Configs that each destination topic must have, or its broker rewrites what it gets: name -> value."""

    @property
    def offsets(self) -> str:
        """As it is configured: whose copies these are."""
        return "mapped" if self.mapped else "exact"

    @property
    def isolation_level(self) -> str:
        """As it is configured."""
        return "read_committed" if self.committed else "read_uncommitted"

    @property
    def identity(self) -> str:
        """As it is configured."""
        return "strict" if self.strict else "stamped"
