"""Settings of one flow: what goes from one cluster to another, and within which bounds."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PrivateAttr, ValidationInfo, field_validator

from mirror.service.config.checks.entries import (
    check_group_entry,
    check_included,
    check_topic_entry,
    leaves_nothing,
)
from mirror.service.config.checks.flows import (
    ACCEPTABLE,
    check_acceptable,
    check_dead_letters,
    check_flow_id,
    check_group,
    check_groups,
    check_not_empty,
    check_rates,
    check_renames,
    check_separator,
)
from mirror.service.config.checks.refusal import refused
from mirror.service.config.checks.start import check_start, check_start_group
from mirror.service.config.checks.topic_configs import SYNCED_TOPIC_CONFIGS, check_synced
from mirror.service.config.kinds import (
    GIB,
    KIB,
    MIB,
    Choice,
    Count,
    MetricsFile,
    Milliseconds,
    Size,
    Switch,
    format_size,
)
from mirror.service.config.settings import Settings
from mirror.service.selection import Selection

DAY_MS = 86_400_000
GROUPS_EXCLUDED = ("console-consumer-.*", "connect-.*", "__.*")
"""The groups that MirrorMaker 2 leaves out by default."""


def _without_default(schema: dict[str, Any]) -> None:
    """Removes the default from the JSON Schema, which cannot express that the default is another key's value."""
    del schema["default"]


_OPENS: Mapping[str, object] = {"identity": "stamped", "deep.path.enable": True}
"""The settings with which batches are opened."""


def _check_needs(value: str, needs: Mapping[str, object], data: Mapping[str, Any], *, why: str, instead: str) -> None:
    """Raises PydanticCustomError if another setting does not have the value that ``value`` requires.

    Args:
        value: the value that is being checked.
        needs: attribute of another setting -> its required value.
        data: attribute -> value of the settings validated so far.
        why: why they are required; a part of the problem.
        instead: what to set instead; a part of the remedy.
    """
    for key, needed in needs.items():
        if data.get(key.replace(".", "_"), needed) != needed:
            shown = str(needed).lower()
            raise refused(f"{value} needs {key}: {shown}: {why}", f"set {key}: {shown}, or {instead}", at=key)


class FlowSettings(Settings):
    """What goes from one cluster to another, and within which bounds."""

    topics: Annotated[
        tuple[Annotated[str, AfterValidator(check_included)], ...],
        AfterValidator(check_not_empty),
        Field(json_schema_extra={"minItems": 1}),
    ]
    """Topics to mirror: names, or regular expressions matched against the whole name. Internal topics never match."""
    exclude: tuple[Annotated[str, AfterValidator(check_topic_entry)], ...] = ()
    """Topics to leave out, written alike; wins over `topics`."""
    enabled: Annotated[bool, Switch()] = True
    """Whether the flow runs."""
    flow_id: Annotated[str, AfterValidator(check_flow_id)] = ""
    """Who the flow is at the destination: producer ids, transactional ids, the internal topic and the default group
    follow from it, so it has to stay what it was when the first record was copied. Set it when aliases of clusters are
    renamed. Empty: the flow's name."""
    workers: Annotated[int, Count(minimum=0, maximum=256)] = 0
    """Processes of the flow's own. 0: it shares those that `workers` at the top says with the other flows."""
    group_id: Annotated[str, AfterValidator(check_group)] = ""
    """Consumer group at the source, as `group.id` at the top. Empty: what that says, or "mirror-" and the flow's id."""
    offsets: Annotated[Literal["exact", "mapped"], Choice(("exact", "mapped"))] = "exact"
    """exact: record N at the source is record N at the destination. mapped: appended where the destination's log ends,
    among what others write there; `mirror offsets translate` says which offset is which."""
    isolation_level: Annotated[
        Literal["read_committed", "read_uncommitted"], Choice(("read_committed", "read_uncommitted"))
    ] = "read_committed"
    """read_committed: what a consumer with this isolation.level reads is copied, and the offsets of aborted
    transactions are filled. read_uncommitted: all data is copied, as soon as it is written. A copy keeps to one of
    them: with another value its partitions halt (settings_changed) until it is set back, or resumed with
    `--accept-settings`: from there on, the copy is one under the new value."""
    fill: Annotated[Literal["markers", "transaction"], Choice(("markers", "transaction"))] = "markers"
    """How offsets without a record at the source are taken at the destination. markers: WriteTxnMarkers, which needs
    Alter on the cluster. transaction: empty aborted transactions, which need no such right; a marker too many is then
    possible when a leader dies, and halts the partition."""
    max_fill_per_second: Annotated[int, Count(minimum=1, maximum=1_000_000)] = 10_000
    """Markers that a worker writes per second at most."""
    max_leading_filler: Annotated[int, Count(minimum=0, maximum=1 << 53)] = 1_000_000_000
    """Offsets before the source's first record that are filled, and deleted again, when a partition is new."""
    start_from: Annotated[str, AfterValidator(check_start)] = "earliest"
    """Where the copy of a partition begins of which nothing was copied yet. earliest: at the source's first record.
    latest: at the first record that was written after the flow was first started. A time, such as
    "2026-11-30T00:00:00Z": at the first record with this timestamp or a later one. committed: where the consumer group
    `start.group` stands at the source; partitions for which it has committed nothing, from their first record on. It is
    decided once for each partition, and written down."""
    start_group: Annotated[str, AfterValidator(check_start_group), Field(validate_default=True)] = ""
    """The consumer group at the source by whose committed offsets `start.from: committed` goes."""
    on_gap: Annotated[Literal["halt", "continue"], Choice(("halt", "continue"))] = "halt"
    """When the source no longer has records that were not copied. continue: goes on behind them; the offsets are
    filled, and the range is reported as skipped."""
    deep_path_enable: Annotated[bool, Switch()] = True
    """Opens the batches that the destination would refuse as they are (holes inside a batch, append times, larger than
    its max.message.bytes, formats from before Kafka 0.11) and sends their records in others; each is counted by reason.
    false: such a batch halts its partition. With `identity: strict`, it halts in any case."""
    topic_rename: Annotated[Mapping[str, str], AfterValidator(check_renames), Field(validate_default=True)] = {}
    """Source topic, or regular expression for whole names -> the topic that it is copied into; the first that matches
    counts. Only with `offsets: mapped`; several topics may go into one."""
    replication_policy: Annotated[
        Literal["identity", "prefix"], Choice(("identity", "prefix")), Field(validate_default=True)
    ] = "identity"
    """The destination topic of topics without an entry in `topic.rename`. identity: the same name. prefix: the source
    cluster's alias, a separator and the name, as MirrorMaker 2's DefaultReplicationPolicy has it; topics that came from
    the destination by such a prefix are not mirrored back. Only with `offsets: mapped`."""
    replication_policy_separator: Annotated[str, AfterValidator(check_separator)] = "."
    """Between the alias and the name, with `replication.policy: prefix`."""
    checkpoint_interval_ms: Annotated[int, Milliseconds(minimum=100, maximum=DAY_MS)] = 5_000
    """With `offsets: mapped`, how often positions and maps are written to the internal topic at the destination."""
    state_replication_factor: Annotated[int, Count(minimum=1, maximum=32_767, also=-1)] = -1
    """Replicas of the internal topic (mirror-internal...) where it is created; -1: three, or as many as brokers."""
    identity: Annotated[Literal["stamped", "strict"], Choice(("stamped", "strict")), Field(validate_default=True)] = (
        "stamped"
    )
    """stamped: batches carry a producer id computed by the mirror, so that a repeat is recognised. strict: they carry
    the source's, bit for bit, one batch of a partition at a time; for sources read uncommitted that are neither
    compacted nor transactional, and never for a topic that will be written at the destination one day. Batches that
    have no producer id may then be copied twice when an answer is lost."""
    oversize_record: Annotated[
        Literal["halt", "drop", "deadletter"], Choice(("halt", "drop", "deadletter")), Field(validate_default=True)
    ] = "halt"
    """When a single record is larger than the destination topic's max.message.bytes, however it is cut. halt: its
    partition stops. drop: the record is left out; its offset is filled, logged, counted and written down. deadletter:
    likewise, but first it is written to `oversize.record.topic`; after a kill, it may be there twice. Only with
    `offsets: exact`, `identity: stamped` and `deep.path.enable: true`."""
    oversize_record_topic: Annotated[str, AfterValidator(check_dead_letters), Field(validate_default=True)] = ""
    """The topic at the destination for `oversize.record: deadletter`. It has to exist, and to take larger batches."""
    compression_type: Annotated[
        Literal["source", "none", "gzip", "snappy", "lz4", "zstd"],
        Choice(("source", "none", "gzip", "snappy", "lz4", "zstd")),
        Field(validate_default=True),
    ] = "source"
    """The codec of batches at the destination. source: as they are. Any other: each batch with another codec is opened
    and compressed anew, at the same offsets; the destination topic's own compression.type may be the same then. Only
    with `identity: stamped` and `deep.path.enable: true`."""
    mode: Annotated[
        Literal["shallow", "auto", "deep"], Choice(("shallow", "auto", "deep")), Field(validate_default=True)
    ] = "shallow"
    """Whether small batches in a row become larger ones at the destination, at the same offsets. shallow: no batch is
    opened for that. auto: batches of less than 1 KiB, of which shallow copying costs more. deep: batches of less than
    64 KiB. Others are copied as they are in any mode. Only with `offsets: exact`, `identity: stamped` and
    `deep.path.enable: true`."""
    destination_timestamps: Annotated[
        Literal["keep", "append"], Choice(("keep", "append")), Field(validate_default=True)
    ] = "keep"
    """When the destination topic has message.timestamp.type=LogAppendTime, so that its broker puts its own times in.
    keep: its partitions stop (destination_rewrites). append: they are copied, and consumers of the destination see the
    times of the append. Only with `identity: stamped`."""
    use_raw_bytes: Annotated[bool, Switch()] = True
    """Copies record batches without opening them (KIP-712); turns the next two on or off together."""
    fetch_raw_bytes: Annotated[bool, Switch()] = Field(
        default=None, validate_default=True, json_schema_extra=_without_default
    )
    """Fetches batches unopened. By default what use.raw.bytes says."""
    send_raw_bytes: Annotated[bool, Switch()] = Field(
        default=None, validate_default=True, json_schema_extra=_without_default
    )
    """Sends batches as they were fetched. By default what use.raw.bytes says."""
    fetch_max_bytes: Annotated[int, Size(minimum=KIB, maximum=GIB)] = 8 * MIB
    """Most bytes that one fetch response holds, unless its first batch alone is larger. Brokers that have less to give
    are asked for less. Over a long link it grows up to 32 MiB, unless it or buffer.memory is set."""
    max_partition_fetch_bytes: Annotated[int, Size(minimum=KIB, maximum=GIB)] = MIB
    """Most bytes of one partition in a fetch response, unless its first batch alone is larger. Grows over a long link,
    unless one of the three sizes is set."""
    fetch_min_bytes: Annotated[int, Size(minimum=1, maximum=GIB), Field(validate_default=True)] = 1
    """A source broker waits until it has this much to answer with, up to fetch.max.wait.ms."""
    fetch_max_wait_ms: Annotated[int, Milliseconds(minimum=1)] = 500
    """How long a source broker holds a fetch request that it has nothing for."""
    linger_ms: Annotated[int, Milliseconds(minimum=0, maximum=1_000)] = 20
    """After a fetch response with a few fresh records (less than 16 KiB), the next request waits for so long, so that
    records which come one by one are copied together."""
    buffer_memory: Annotated[int, Size(minimum=2 * KIB, maximum=64 * GIB), Field(validate_default=True)] = 18 * MIB
    """Bytes fetched and not yet acknowledged; at least 2 x fetch.max.bytes. Bounds the memory of a worker. Over a long
    link it grows up to 96 MiB, unless it is set."""
    max_bytes_per_second: Annotated[int, Size(minimum=KIB, maximum=64 * GIB, also=0)] = 0
    """Most bytes per second that are fetched, over all workers; 0: no limit. A backlog gives way to fresh data."""
    topic_max_bytes_per_second: Annotated[
        Mapping[str, Annotated[int, Size(minimum=KIB, maximum=64 * GIB)]], AfterValidator(check_rates)
    ] = {}
    """Topic, or regular expression for whole names -> most bytes per second of each topic that it matches; the least
    that matches counts."""
    max_in_flight_requests_per_connection: Annotated[int, Count(minimum=1, maximum=5)] = 5
    """Unacknowledged batches of a partition; brokers recognise repeats among the last 5."""
    connections_per_broker: Annotated[int, Count(minimum=1, maximum=64)] = 1
    """Connections to each destination broker; a partition always uses the same one."""
    max_request_size: Annotated[int, Size(minimum=KIB, maximum=100 * MIB)] = 4 * MIB
    """Most bytes of a produce request, unless its first batch alone is larger."""
    topic_create: Annotated[bool, Switch()] = True
    """Creates topics that the destination lacks, with the source's partition count."""
    replication_factor: Annotated[int, Count(minimum=1, maximum=32_767, also=-1)] = -1
    """Replicas of the topics created; -1 leaves it to the destination's default."""
    sync_topic_configs: tuple[Annotated[str, AfterValidator(check_synced)], ...] = SYNCED_TOPIC_CONFIGS
    """Topic configs copied from the source when a topic is created."""
    sync_topic_configs_enabled: Annotated[bool, Switch()] = False
    """Keeps those configs in step afterwards, at each look for topics: also of topics that the mirror has not created.
    A config that the source topic has no value of its own for gets the destination's default."""
    refresh_topics_interval_ms: Annotated[int, Milliseconds(minimum=100)] = 60_000
    """New topics and partitions are looked for this often."""
    settle_ms: Annotated[int, Milliseconds(minimum=1_000, maximum=DAY_MS)] = 1_000
    """After doubt the destination's log end has to stand still this long before copying goes on."""
    sync_group_offsets_enabled: Annotated[bool, Switch()] = False
    """Whether consumer groups' committed offsets are carried over to the destination."""
    sync_group_offsets_interval_ms: Annotated[int, Milliseconds(minimum=100, maximum=DAY_MS)] = 60_000
    """How often committed offsets are carried over."""
    groups: Annotated[
        tuple[Annotated[str, AfterValidator(check_group_entry)], ...],
        AfterValidator(check_groups),
        Field(json_schema_extra={"minItems": 1}),
    ] = (".*",)
    """Groups whose offsets are carried over: names, or regular expressions matched against the whole name."""
    groups_exclude: tuple[Annotated[str, AfterValidator(check_group_entry)], ...] = GROUPS_EXCLUDED
    """Groups to leave out, written alike; wins over `groups`. The flow's own group never is carried over."""
    sync_topic_acls_enabled: Annotated[bool, Switch()] = False
    """Whether ACLs of mirrored topics are created at the destination: for reading, never for writing."""
    sync_topic_acls_interval_ms: Annotated[int, Milliseconds(minimum=100, maximum=DAY_MS)] = 600_000
    """How often the mirror looks for new ACLs."""
    audit_accept: Annotated[
        tuple[Annotated[str, AfterValidator(check_acceptable)], ...],
        Field(json_schema_extra={"items": {"enum": list(ACCEPTABLE)}}),
    ] = ()
    """What `mirror audit` passes (exit code 0) though not all is proved to be the same. unverifiable: records that only
    the destination still has, because the source's log cleaner has removed them since. oversize: records that were
    passed over (`oversize.record`)."""
    audit_metrics_file: Annotated[str, MetricsFile()] = ""
    """Where `mirror audit` writes when it was and what it said, as metrics, and where `mirror run` looks for that and
    shows it. Empty: nowhere."""

    _ends: tuple[str, str, tuple[str, ...]] = PrivateAttr(default=("", "", ()))
    """The aliases of source and destination, and the aliases of all clusters; see ``introduce``."""

    def introduce(self, source: str, destination: str, aliases: tuple[str, ...]) -> None:
        """Sets the aliases of the flow's source and destination, and those of all clusters, for
        `replication.policy`."""
        self._ends = source, destination, aliases

    @property
    def selection(self) -> Selection:
        """The rules that select and rename the topics that the flow mirrors."""
        renames = tuple(self.topic_rename.items())
        source, destination, aliases = self._ends
        if self.replication_policy == "identity" or not source:
            return Selection(self.topics, self.exclude, renames)
        between = self.replication_policy_separator
        return Selection(
            self.topics,
            self.exclude,
            renames,
            prefix=f"{source}{between}",
            back=f"{destination}{between}",
            others=tuple(f"{alias}{between}" for alias in aliases if alias != destination),
        )

    def selects(self, topic: str) -> bool:
        """Returns True if the flow mirrors this topic."""
        return self.selection.selects(topic)

    @field_validator("exclude")
    @classmethod
    def _check_exclude(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if info.data.get("topics") and leaves_nothing(info.data["topics"], value):
            raise refused(
                "it leaves out all that topics has, so that nothing is mirrored",
                "take out what is to be mirrored, or remove the flow",
            )
        return value

    @field_validator("groups_exclude")
    @classmethod
    def _check_groups_exclude(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        carried = info.data.get("sync_group_offsets_enabled") and info.data.get("groups")
        if carried and leaves_nothing(carried, value):
            raise refused(
                "it leaves out all that groups has, so that no group's offsets are carried over",
                "take out the groups that are meant, or set sync.group.offsets.enabled: false",
            )
        return value

    @field_validator("replication_policy")
    @classmethod
    def _check_policy(cls, value: str, info: ValidationInfo) -> str:
        if value != "identity" and info.data.get("offsets") == "exact":
            raise refused(
                "gives topics another name, and with offsets: exact they keep theirs",
                "set offsets: mapped, or remove it",
                at="offsets",
            )
        return value

    @field_validator("identity")
    @classmethod
    def _check_identity(cls, value: str, info: ValidationInfo) -> str:
        if value == "strict" and info.data.get("offsets") == "mapped":
            raise refused(
                "strict needs offsets: exact: among others' batches the mirror knows its own by their producer id",
                "set offsets: exact, or identity: stamped",
                at="offsets",
            )
        if value == "strict" and info.data.get("isolation_level") == "read_committed":
            raise refused(
                "strict needs a source that is read uncommitted: what a transaction wrote cannot go bit for bit",
                "set isolation.level: read_uncommitted, or identity: stamped",
                at="isolation.level",
            )
        return value

    @field_validator("oversize_record")
    @classmethod
    def _check_oversize(cls, value: str, info: ValidationInfo) -> str:
        if value != "halt":
            why, instead = "only such a flow leaves out single records so far", "oversize.record: halt"
            _check_needs(value, {"offsets": "exact", **_OPENS}, info.data, why=why, instead=instead)
        return value

    @field_validator("compression_type")
    @classmethod
    def _check_codec(cls, value: str, info: ValidationInfo) -> str:
        if value != "source":
            why, instead = "batches have to be opened for it", "compression.type: source"
            _check_needs(value, _OPENS, info.data, why=why, instead=instead)
        return value

    @field_validator("mode")
    @classmethod
    def _check_mode(cls, value: str, info: ValidationInfo) -> str:
        if value != "shallow":
            why, instead = "batches have to be opened for it, and to have a known place", "mode: shallow"
            _check_needs(value, {"offsets": "exact", **_OPENS}, info.data, why=why, instead=instead)
        return value

    @field_validator("destination_timestamps")
    @classmethod
    def _check_timestamps(cls, value: str, info: ValidationInfo) -> str:
        if value != "keep" and info.data.get("identity", "stamped") != "stamped":
            raise refused(
                "append needs identity: stamped: with strict, batches are at the destination bit for bit",
                "set identity: stamped, or destination.timestamps: keep",
                at="identity",
            )
        return value

    @field_validator("fetch_raw_bytes", "send_raw_bytes", mode="before")
    @classmethod
    def _follow_use_raw_bytes(cls, value: Any, info: ValidationInfo) -> Any:
        return info.data.get("use_raw_bytes", True) if value is None else value

    @field_validator("send_raw_bytes")
    @classmethod
    def _check_raw_bytes(cls, value: bool, info: ValidationInfo) -> bool:
        fetch = info.data.get("fetch_raw_bytes", value)
        if fetch != value:
            raise refused(
                "fetch.raw.bytes and send.raw.bytes go together, and one is on and the other off",
                "set both to true, or leave both out",
                at="fetch.raw.bytes",
            )
        if not value:
            raise refused(
                "this program mirrors raw batches only",
                "set use.raw.bytes to true, or use MirrorMaker 2 to copy record by record",
                at="use.raw.bytes",
            )
        return value

    @field_validator("fetch_min_bytes")
    @classmethod
    def _check_fetch_min(cls, value: int, info: ValidationInfo) -> int:
        most = info.data.get("fetch_max_bytes", value)
        if value > most:
            raise refused(
                f"must be at most fetch.max.bytes ({format_size(most)}), and is {format_size(value)}",
                "lower it, or raise fetch.max.bytes",
                at="fetch.max.bytes",
            )
        return value

    @field_validator("buffer_memory")
    @classmethod
    def _check_buffer(cls, value: int, info: ValidationInfo) -> int:
        least = 2 * info.data.get("fetch_max_bytes", 0)
        if value < least:
            raise refused(
                f"must be at least 2 x fetch.max.bytes ({format_size(least)}), and is {format_size(value)}",
                "raise it, or lower fetch.max.bytes",
                at="fetch.max.bytes",
            )
        return value
