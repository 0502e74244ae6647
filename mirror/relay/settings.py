"""The settings of a flow that the relay needs. The service makes them from the config."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mirror.records.header import Codec

SOURCE_CODEC = "source"
HALT, DROP, DEADLETTER = "halt", "drop", "deadletter"
COMPRESSION_TYPE, UNCOMPRESSED = "compression.type", "uncompressed"
TIMESTAMP_TYPE, APPEND_TIME = "message.timestamp.type", "LogAppendTime"
"""Configs of topics, and values of theirs."""
EARLIEST, LATEST, COMMITTED = "earliest", "latest", "committed"
"""Values of ``start.from``; any other is a time."""
OVERSIZE_RECORD = (HALT, DROP, DEADLETTER)
"""The values of ``oversize.record``."""


def codec_named(name: str) -> Codec | None:
    """Returns the codec of a value of ``compression.type``; None for ``SOURCE_CODEC``."""
    return None if name == SOURCE_CODEC else Codec[name.upper()]


FRESH_FOR_SETTLES = 2
"""See ``RelaySettings.fresh_s``; in multiples of ``settle.ms``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """Sizes in bytes, times in the units of their names. The names are Kafka's own if Kafka has one."""

    flow: str
    selects: Callable[[str], bool]
    """Returns True if the flow mirrors the topic of this name."""
    wanted: Mapping[str, Callable[[str], object]] = field(default_factory=dict)
    """The flow's entries as written -> a function that matches topic names, to find entries that match no topic."""
    fetch_max_bytes: int = 8 << 20
    max_partition_fetch_bytes: int = 1 << 20
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    linger_ms: int = 0
    """Milliseconds that the next request for fresh data waits after an answer with a few records."""
    buffer_memory: int = 18 << 20
    most_fetch_bytes: int = 0
    """Over a long link, ``fetch_max_bytes`` may grow up to this; 0: it stays."""
    most_partition_fetch_bytes: int = 0
    """The same of ``max_partition_fetch_bytes``."""
    most_buffer_memory: int = 0
    """The same of ``buffer_memory``."""
    client_rack: str = ""
    """Where this process is, for the source: its leaders may name a nearer follower to fetch from (KIP-392)."""
    max_bytes_per_second: int = 0
    """Of the flow, over all workers (``max.bytes.per.second``); 0: no limit."""
    topic_max_bytes_per_second: Mapping[str, int] = field(default_factory=dict)
    """Entry, as in ``topics`` -> the same of each topic that it matches."""
    topic_rate: Callable[[str], int] | None = None
    """Returns the bytes per second of a topic, 0: no limit; None: no topic has one."""
    max_in_flight: int = 5
    connections_per_broker: int = 1
    max_request_size: int = 4 << 20
    request_timeout_ms: int = 30_000
    settle_ms: int = 1_000
    committed: bool = True
    """Copy the records that a read_committed consumer reads (``isolation.level``)."""
    strict: bool = False
    """Send the source's producer fields bit for bit, one batch at a time (``identity: strict``)."""
    accept_gaps: bool = False
    """Go on behind records that are gone without a cause, or that retention deleted before they were copied
    (``on.gap: continue``). The offsets are filled, and the range is recorded."""
    rewrites: bool = False
    """Open batches that the destination would refuse, and send their records in others (``deep.path.enable``)."""
    compression: str = SOURCE_CODEC
    """The codec of batches at the destination, by its name (``compression.type``); ``SOURCE_CODEC``: as they are."""
    rebatches: int = 0
    """Batches below this many bytes are joined with their neighbours (``mode``); 0: never."""
    append_times: bool = False
    """Copy into topics whose broker puts its own times into the batches (``destination.timestamps: append``)."""
    oversize_record: str = HALT
    """What becomes of a record that fits into no batch that the destination takes: one of ``OVERSIZE_RECORD``."""
    dead_letter_topic: str = ""
    """The topic at the destination for such records (``oversize.record.topic``)."""
    fill_by_transaction: bool = False
    """Fill holes by empty aborted transactions instead of bare markers (``fill: transaction``)."""
    max_fill_per_second: int = 10_000
    """Markers per second, over all partitions of a worker."""
    max_leading_filler: int = 1_000_000_000
    """Most offsets before the source's first record that are filled when a partition is new."""
    start_from: str = EARLIEST
    """Where the copy of a partition begins of which nothing was ever copied (``start.from``), as it is written."""
    start_at_ms: int = -1
    """The time that ``start_from`` says, in ms since 1970; -1: it says none."""
    start_group: str = ""
    """The consumer group at the source whose committed offsets count, with ``COMMITTED`` (``start.group``)."""
    mapped: bool = False
    """Append at the end of the destination's log, and write down the offsets (``offsets: mapped``)."""
    destination_of: Callable[[str], str] = str
    """Returns the topic into which a source topic is copied; the same name unless ``mapped``."""
    state_replication_factor: int = -1
    checkpoint_interval_ms: int = 5_000
    """Positions and maps are written down this often (``offsets: mapped``)."""
    backoff_ms: int = 50
    backoff_max_ms: int = 10_000
    drain_timeout_ms: int = 15_000
    refresh_topics_interval_ms: int = 60_000
    create_topics: bool = True
    replication_factor: int = -1
    synced_configs: tuple[str, ...] = ()
    sync_configs: bool = False
    """Keep these configs in step also after a topic was created (``sync.topic.configs.enabled``)."""
    fixed_configs: dict[str, str] = field(default_factory=dict)
    """Configs that each destination topic must have, or its broker rewrites the batches: name -> value."""

    @property
    def fresh_s(self) -> float:
        """Seconds for which a look at the log's end still counts before an old batch is sent."""
        return FRESH_FOR_SETTLES * self.settle_ms / 1000

    @property
    def offsets(self) -> str:
        """The configured ``offsets``, which decides on the kind of copy."""
        return "mapped" if self.mapped else "exact"

    @property
    def codec(self) -> Codec | None:
        """The codec of ``compression``; None: the source's."""
        return codec_named(self.compression)

    def takes(self, config: str, value: str | None) -> bool:
        """Returns True if a destination topic may have this value of a config that ``fixed_configs`` has."""
        if value is None or value == self.fixed_configs[config]:
            return True
        if config == COMPRESSION_TYPE:
            # The broker has nothing to recompress then (docs/BROKERS.md).
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
