"""The facts that were found at the clusters, and the findings of the checks. Plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from mirror.foretold import Line
from mirror.relay.halts import Halted
from mirror.relay.settings import RelaySettings
from mirror.relay.topics.pairing import Pair
from mirror.service.sync.settings import SyncSettings

NOT_KNOWN = -1
"""Stands for a number that is not known."""


class Level(IntEnum):
    """Severity of a finding. The most severe finding of a partition decides its state."""

    TOLD = 0
    """For information: nothing has to be done."""
    WARNS = 1
    """The partition is copied, but somebody should have a look."""
    UNKNOWN = 2
    """A check could not be made."""
    REFUSED = 3
    """The partition would halt, or its copy would not begin."""


class PlanFinding(NamedTuple):
    """The finding of one check. ``reason``: the reason of the halt that would follow; empty: no halt would follow."""

    line: Line
    level: Level
    detail: str
    remedy: str = ""
    reason: str = ""


Values = Mapping[str, str | None]
"""Topic configs in effect: name -> value."""
Rights = frozenset[str]
"""Operations that the principal may do, by their names in ``net.rights``."""


class Quota(NamedTuple):
    """A quota that applies to the mirror's client. ``entity``: the client id or user that has the quota, in words;
    ``key``: Kafka's name of the quota, such as producer_byte_rate; ``value``: its value, in the unit of the key."""

    entity: str
    key: str
    value: float


class Disk(NamedTuple):
    """Total and usable bytes of all log directories of a broker; -1: the broker does not tell (before Kafka 3.3)."""

    total: int
    usable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The facts about a cluster.

    Attributes:
        name: alias in the configuration.
        cluster_id: its cluster id.
        brokers: number of brokers in the metadata.
        apis: API key -> highest version that all brokers which have answered support. An API that one of them does not
            support is left out.
        rights: operations on the cluster that the principal may do; None: the brokers do not tell.
        quotas: quotas that may apply to the mirror's client; None: the brokers do not tell.
        disks: node id -> its disks; None: the brokers do not tell.
        sizes: (topic, partition) -> bytes of the largest replica's log; None: the brokers do not tell.
        round_trip_s: shortest measured time of a request and its answer.
        defaults: broker configs that are the defaults of new topics.
        down: node id -> why the broker could not be asked.
    """

    name: str
    cluster_id: str = ""
    brokers: int = 1
    apis: Mapping[int, int] = field(default_factory=dict)
    rights: Rights | None = None
    quotas: tuple[Quota, ...] | None = None
    disks: Mapping[int, Disk] | None = None
    sizes: Mapping[tuple[str, int], int] | None = None
    round_trip_s: float = 0.0
    defaults: Mapping[str, str] = field(default_factory=dict)
    down: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFacts:
    """The topic for records that are too large for the destination's topics (``oversize.record: deadletter``).

    Attributes:
        name: its name at the destination.
        exists: True if the principal can see the topic.
        hidden: True if the principal may not describe the topic, which may exist or not.
        rights: operations on it; None: not known.
        most: its ``max.message.bytes``; None: not known.
    """

    name: str
    exists: bool = True
    hidden: bool = False
    rights: Rights | None = None
    most: int | None = None


class GroupFacts(NamedTuple):
    """A group whose offsets would be carried over. ``here``: operations on it at the source; ``there``: operations on
    it at the destination; None: not known."""

    name: str
    here: Rights | None
    there: Rights | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFacts:
    """The facts about a flow and its two clusters.

    Attributes:
        name: name of the flow in the configuration.
        settings: settings of the flow.
        source, destination: the clusters.
        now_ms: time of this host's clock when the clusters were asked, in ms since 1970.
        unmatched: entries of ``topics`` that match no topic.
        topics_n: number of topics that are mirrored.
        without_ids: True if topics of the source have no ids.
        internal_topic: name of the flow's internal topic.
        internal_exists: True if the internal topic exists.
        internal_refused: why the internal topic cannot be used or created; empty: it can, or that is not known.
        internal_unknown: why it is not known whether the internal topic can be used; empty: it is known.
        internal_rights: operations on the internal topic; None: not known, or it does not exist yet.
        dead_letters: the dead letter topic; None: the flow has none.
        group_id: the flow's group at the source.
        group_rights: operations on that group; None: not known.
        group_forbidden: True if the principal may not even describe that group.
        sync: settings for what is kept in step beside records.
        groups: groups whose offsets would be carried over.
        groups_more: number of further such groups whose rights were not asked for.
        groups_unknown: why it is not known which groups these are; empty: it is known.
        ids_forbidden: True if the principal may not describe its transactional ids; None: not known.
        forgets_before_ms: time in ms since 1970. The destination may forget the producer of a batch that is older.
        rate: measured bytes per second of reading the source; 0: nothing was measured.
        sampled_bytes: bytes that were read to look at batches.
        sampled_n: number of partitions whose batches were looked at.
        unsampled_n: number of partitions with records that were not, because ``--sample-bytes`` was used up.
    """

    name: str
    settings: RelaySettings
    source: ClusterFacts
    destination: ClusterFacts
    now_ms: int = 0
    unmatched: tuple[str, ...] = ()
    topics_n: int = 0
    without_ids: bool = False
    internal_topic: str = ""
    internal_exists: bool = True
    internal_refused: str = ""
    internal_unknown: str = ""
    internal_rights: Rights | None = None
    dead_letters: DeadLetterFacts | None = None
    group_id: str = ""
    group_rights: Rights | None = None
    group_forbidden: bool = False
    sync: SyncSettings = field(default_factory=SyncSettings)
    groups: tuple[GroupFacts, ...] = ()
    groups_more: int = 0
    groups_unknown: str = ""
    ids_forbidden: bool | None = None
    forgets_before_ms: float = 0.0
    rate: float = 0.0
    sampled_bytes: int = 0
    sampled_n: int = 0
    unsampled_n: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """The facts about a topic on both sides.

    Attributes:
        pair: both topics, as the relay pairs them, without creating any.
        partitions, partitions_there: number of partitions at the source, and at the destination.
        exists: True if the destination has the topic.
        created: True if the mirror would create the destination topic.
        grown: True if the mirror would add partitions to the destination topic.
        refusal: the halt that would follow because the topic cannot be created; None: it would be created, or exists.
        uncertain: why it is not known whether the topic can be created; empty: it is known.
        here: the source topic's configs.
        there: the destination topic's configs. If the topic would be created, these are the configs that it would get.
        rights_here, rights_there: operations on the topics; None: not known.
        altered: configs of the destination topic that the mirror would change to those of the source; None: the config
            would be removed.
        empty: True if no partition of the destination topic holds a record.
        replicas: replication factor of the destination topic; -1: the cluster's default, which is not known.
    """

    pair: Pair
    partitions: int = 1
    partitions_there: int = 0
    exists: bool = True
    created: bool = False
    grown: bool = False
    refusal: Halted | None = None
    uncertain: str = ""
    here: Values = field(default_factory=dict)
    there: Values = field(default_factory=dict)
    rights_here: Rights | None = None
    rights_there: Rights | None = None
    altered: Mapping[str, str | None] = field(default_factory=dict)
    empty: bool = False
    replicas: int = NOT_KNOWN

    @property
    def name(self) -> str:
        """Name of the topic at the source."""
        return self.pair.source.name


@dataclass(slots=True, kw_only=True)
class Sample:
    """What the batches show that were read of one partition.

    Sums are taken only over places of the log that are typical of the rest of it, so that shares can be computed.

    Attributes:
        batches, size, offsets, records: sums of batches, bytes, offsets (including holes) and records.
        holes: sums of offsets without a record, by cause (``records.admit.Cause``).
        runs: sum of ranges of such offsets.
        codecs: names of the batches' codecs.
        largest: bytes of the largest batch that would be forwarded.
        oldest_ms, newest_ms: the lowest and the highest ``max_timestamp`` of the batches; -1: none was seen.
        old: sum of batches whose producer the destination may forget at once.
        null_key: offset of a record without a key, which a compacted destination topic refuses; -1: none was seen.
        halts: reason -> the first halt that would follow with this reason.
        rewritten: reason -> sum of batches that would be opened and rewritten; at least 1 if any was seen.
        due_ms: ``max_timestamp`` of the first batch that is due; -1: there is none.
    """

    batches: int = 0
    size: int = 0
    offsets: int = 0
    records: int = 0
    holes: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    codecs: set[str] = field(default_factory=set)
    largest: int = 0
    oldest_ms: int = NOT_KNOWN
    newest_ms: int = NOT_KNOWN
    old: int = 0
    null_key: int = NOT_KNOWN
    halts: dict[str, Halted] = field(default_factory=dict)
    rewritten: dict[str, int] = field(default_factory=dict)
    due_ms: int = NOT_KNOWN

    @property
    def hole_offsets(self) -> int:
        """Number of offsets without a record."""
        return sum(self.holes.values())


@dataclass(slots=True, kw_only=True)
class PartitionFacts:
    """The facts about a partition on both sides.

    Attributes:
        index: number of the partition.
        start, end: start and end of the source's log; -1: not known. If the copy begins later (``start.from``),
            ``start`` is where it begins.
        there_start, there_end: start and end of the destination's log; -1: not known, or there is none yet.
        due: the next source offset to copy; -1: not known.
        leading: number of offsets before the copy's first record that have to be filled.
        left_out: number of the source's offsets that are not copied because the copy begins at a later offset.
        sample: the batches that were read; None: nothing was read.
        halted: the halt that would follow, by the relay's verdict on both logs and on the internal topic.
        kept: True if that halt is already written down in the internal topic.
        unknown: why something could not be found out; empty: everything was.
        in_sync, replicas: number of in-sync replicas, and of all replicas, of the destination partition; -1: not known.
        begun_anew: True if a topic was recreated before anything was copied, so that the copy begins again.
    """

    index: int
    start: int = NOT_KNOWN
    end: int = NOT_KNOWN
    there_start: int = NOT_KNOWN
    there_end: int = NOT_KNOWN
    due: int = NOT_KNOWN
    leading: int = 0
    left_out: int = 0
    sample: Sample | None = None
    halted: Halted | None = None
    kept: bool = False
    unknown: str = ""
    in_sync: int = NOT_KNOWN
    replicas: int = NOT_KNOWN
    begun_anew: bool = False

    @property
    def backlog(self) -> int:
        """Number of source offsets to copy; 0 if that is not known."""
        return max(0, self.end - self.due) if self.due >= 0 else 0
