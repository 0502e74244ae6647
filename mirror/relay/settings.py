"""The relay's settings for a flow. The service makes them from the configuration."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mirror.records.header import Codec

SOURCE_CODEC = "source"
HALT, DROP, DEADLETTER = "halt", "drop", "deadletter"
COMPRESSION_TYPE, UNCOMPRESSED = "compression.type", "uncompressed"
TIMESTAMP_TYPE, APPEND_TIME = "message.timestamp.type", "LogAppendTime"
"""Names of topic configs, each with one of its values."""
EARLIEST, LATEST, COMMITTED = "earliest", "latest", "committed"
"""Values of ``start.from``; any other value is a time."""
OVERSIZE_RECORD = (HALT, DROP, DEADLETTER)
"""The values of ``oversize.record``."""


def codec_named(name: str) -> Codec | None:
    """Returns the codec for a value of ``compression.type``; None for ``SOURCE_CODEC``."""
    return None if name == SOURCE_CODEC else Codec[name.upper()]


FRESH_FOR_SETTLES = 2
"""``RelaySettings.fresh_s`` as a multiple of ``settle.ms``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """Settings of a flow. Sizes are in bytes, times in the units of their names. Names are Kafka's own where Kafka has
    one."""

    flow: str
    selects: Callable[[str], bool]
    """Returns True if the flow mirrors the topic of this name."""
    wanted: Mapping[str, Callable[[str], object]] = field(default_factory=dict)
    """The flow's entries under ``topics``, as written -> a function that matches topic names. It finds entries that
    match no topic."""
    fetch_max_bytes: int = 8 << 20
    max_partition_fetch_bytes: int = 1 << 20
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    linger_ms: int = 0
    """Milliseconds by which the next request for fresh data is delayed after a small response with data."""
    buffer_memory: int = 18 << 20
    most_fetch_bytes: int = 0
    """The size up to which ``fetch_max_bytes`` may grow over a long link; 0: it does not grow."""
    most_partition_fetch_bytes: int = 0
    """Likewise for ``max_partition_fetch_bytes``."""
    most_buffer_memory: int = 0
    """Likewise for ``buffer_memory``."""
    client_rack: str = ""
    """The rack of this process, which the source is told: leaders may then name a nearer follower to fetch from
    (KIP-392). Empty: none is told."""
    max_bytes_per_second: int = 0
    """Limit for the whole flow, over all workers (``max.bytes.per.second``); 0: no limit."""
    topic_max_bytes_per_second: Mapping[str, int] = field(default_factory=dict)
    """Entry, as under ``topics`` -> the limit for each topic that it matches, over all workers."""
    topic_rate: Callable[[str], int] | None = None
    """Returns a topic's limit in bytes per second; 0: no limit. None: no topic has a limit."""
    max_in_flight: int = 5
    connections_per_broker: int = 1
    max_request_size: int = 4 << 20
    request_timeout_ms: int = 30_000
    settle_ms: int = 1_000
    committed: bool = True
    """True: copy only the records that a read_committed consumer reads (``isolation.level``)."""
    strict: bool = False
    """True: send the source's producer fields bit for bit, one batch at a time (``identity: strict``)."""
    accept_gaps: bool = False
    """True: go on behind records that are gone without a cause, or that retention deleted before they were copied
    (``on.gap: continue``). The offsets are filled, and the range is recorded."""
    rewrites: bool = False
    """True: open batches that the destination would refuse, and send their records in other batches
    (``deep.path.enable``)."""
    compression: str = SOURCE_CODEC
    """Name of the codec of batches at the destination (``compression.type``); ``SOURCE_CODEC``: batches keep their
    codec."""
    rebatches: int = 0
    """Batches below this size in bytes are joined with their neighbours (``mode``); 0: none are."""
    append_times: bool = False
    """True: copy also into topics whose broker puts its own times into batches (``destination.timestamps: append``)."""
    oversize_record: str = HALT
    """What to do with a record that fits into no batch that the destination takes: one of ``OVERSIZE_RECORD``."""
    dead_letter_topic: str = ""
    """The destination topic for such records (``oversize.record.topic``)."""
    fill_by_transaction: bool = False
    """True: fill holes with empty aborted transactions instead of bare markers (``fill: transaction``)."""
    max_fill_per_second: int = 10_000
    """Most markers per second, over all partitions of a worker."""
    max_leading_filler: int = 1_000_000_000
    """Most offsets before the source's first record that are filled when a partition is new."""
    start_from: str = EARLIEST
    """Where to begin with a partition of which nothing was ever copied (``start.from``), as written in the
    configuration."""
    start_at_ms: int = -1
    """The time in ``start_from``, in ms since 1970; -1: ``start_from`` is no time."""
    start_group: str = ""
    """The consumer group at the source at whose committed offsets a copy begins, if ``start_from`` is ``COMMITTED``
    (``start.group``)."""
    mapped: bool = False
    """True: append at the end of the destination's log, and keep a map of offsets (``offsets: mapped``)."""
    destination_of: Callable[[str], str] = str
    """Returns the topic that a source topic is copied into: the same name, unless ``mapped``."""
    state_replication_factor: int = -1
    checkpoint_interval_ms: int = 5_000
    """How often positions and offset maps are written to the internal topic (``offsets: mapped``)."""
    backoff_ms: int = 50
    backoff_max_ms: int = 10_000
    drain_timeout_ms: int = 15_000
    refresh_topics_interval_ms: int = 60_000
    create_topics: bool = True
    replication_factor: int = -1
    synced_configs: tuple[str, ...] = ()
    sync_configs: bool = False
    """True: keep these configs in step also after a topic was created (``sync.topic.configs.enabled``)."""
    fixed_configs: dict[str, str] = field(default_factory=dict)
    """Configs that each destination topic must have, because its broker would rewrite batches otherwise: name ->
    value."""

    @property
    def fresh_s(self) -> float:
        """Seconds for which a look at the destination's log end counts before an old batch is sent."""
        return FRESH_FOR_SETTLES * self.settle_ms / 1000

    @property
    def offsets(self) -> str:
        """The configured ``offsets``: "exact" or "mapped"."""
        return "mapped" if self.mapped else "exact"

    @property
    def codec(self) -> Codec | None:
        """The codec for ``compression``; None: batches keep the source's."""
        return codec_named(self.compression)

    def takes(self, config: str, value: str | None) -> bool:
        """Returns True if a destination topic may have this value of a config.

        Args:
            config: a name in ``fixed_configs``.
            value: the topic's value; None: it is not known.
        """
        if value is None or value == self.fixed_configs[config]:
            return True
        if config == COMPRESSION_TYPE:
            # The batches already have the topic's codec, so the broker does not recompress them (docs/BROKERS.md).
            return self.codec is not None and value == (self.codec.name.lower() if self.codec else UNCOMPRESSED)
        return config == TIMESTAMP_TYPE and self.append_times

    @property
    def isolation_level(self) -> str:
        """The configured ``isolation.level``."""
        return "read_committed" if self.committed else "read_uncommitted"

    @property
    def identity(self) -> str:
        """The configured ``identity``."""
        return "strict" if self.strict else "stamped"
