"""What was found at the clusters, and what follows from it. Plain data."""

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
"""A number that could not be asked for."""


class Level(IntEnum):
    """How grave a finding is. The gravest of a partition's findings is its state."""

    TOLD = 0
    """Good to know, and nothing to do."""
    WARNS = 1
    """It is copied all the same; somebody should look."""
    UNKNOWN = 2
    """It could not be found out."""
    REFUSED = 3
    """The partition would halt, or not begin."""


class PlanFinding(NamedTuple):
    """What one check found. ``reason``: that of the halt which would follow; empty if none would."""

    line: Line
    level: Level
    detail: str
    remedy: str = ""
    reason: str = ""


Values = Mapping[str, str | None]
"""Topic configs in force."""
Rights = frozenset[str]
"""Operations, by their names in ``net.rights``."""


class Quota(NamedTuple):
    """A quota of the mirror's client. ``entity``: whose it is, in words; ``key``: Kafka's name, such as
    producer_byte_rate; ``value``: in the unit of the key."""

    entity: str
    key: str
    value: float


class Disk(NamedTuple):
    """The log directories of a broker, in bytes. ``usable`` and ``total``: -1 before Kafka 3.3, which does not tell."""

    total: int
    usable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """A cluster as it answered.

    Attributes:
        name: alias in the configuration.
        cluster_id: its id.
        brokers: how many the metadata have.
        apis: API key -> the highest version that all brokers that answered speak; an API that one of them lacks is
            left out.
        rights: operations on the cluster that the principal may do; None: the brokers do not tell.
        quotas: those that apply to the mirror's client; None: the brokers do not tell.
        disks: node id -> its disks; None: the brokers do not tell.
        sizes: (topic, partition) -> bytes of the log, of the largest replica; None: the brokers do not tell.
        round_trip_s: shortest time of a request and its answer.
        defaults: broker configs that are the defaults of new topics.
        down: broker -> why it could not be asked.
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
        exists: whether it is there, as far as the principal may see.
        hidden: whether the principal may not describe it.
        rights: operations on it; None: not known.
        most: its ``max.message.bytes``; None: not known.
    """

    name: str
    exists: bool = True
    hidden: bool = False
    rights: Rights | None = None
    most: int | None = None


class GroupFacts(NamedTuple):
    """A group whose offsets would be carried over. ``here``, ``there``: operations on it at the source and at the
    destination; None: not known."""

    name: str
    here: Rights | None
    there: Rights | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFacts:
    """The flow and its two clusters.

    Attributes:
        name: as the configuration has it.
        settings: the flow's.
        source, destination: the clusters.
        now_ms: this host's clock, in ms since 1970.
        unmatched: entries of ``topics`` that match nothing.
        topics_n: topics that are mirrored.
        without_ids: True if topics of the source have no ids.
        internal_topic: its name.
        internal_exists: whether it is there.
        internal_refused: why it cannot be used or created; empty if it can.
        internal_unknown: why that is not known; empty if it is.
        internal_rights: operations on it; None: not known, or there is none yet.
        dead_letters: the dead letter topic; None: the flow has none.
        group_id: the group at the source.
        group_rights: operations on it; None: not known.
        group_forbidden: True if the principal may not even describe it.
        sync: what is kept in step beside records.
        groups: those whose offsets would be carried over.
        groups_more: the number of others of them, whose rights were not asked for.
        groups_unknown: why it is not known which these are; empty if it is.
        ids_forbidden: True if the principal may not describe its transactional ids; None: not known.
        forgets_before_ms: the destination may forget the producer of a batch that is older.
        rate: bytes per second that were read from the source in the measured sample; 0: nothing was measured.
        sampled_bytes: bytes that were read to look at batches.
        sampled_n: partitions that were looked at.
        unsampled_n: partitions with records that were not, because ``--sample-bytes`` was used up.
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
    """A topic on both sides.

    Attributes:
        pair: the two, as the relay pairs them, without anything being created.
        partitions, partitions_there: how many the source has, and the destination.
        exists: whether the destination has the topic.
        created: whether the mirror would create it.
        grown: whether the mirror would add partitions.
        refusal: the halt with which creating it, or adding partitions, would end; None: it would be done.
        uncertain: why that is not known; empty if it is.
        here: the source's configs.
        there: the destination's configs; of a topic that would be created, those that it would get.
        rights_here, rights_there: operations on the topics; None: not known.
        altered: configs of the destination topic that the mirror would change, to be as at the source; None: removed.
        empty: whether no partition of the destination topic holds a record.
        replicas: those of the destination topic's partitions; -1: the cluster's default.
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
        """The topic at the source."""
        return self.pair.source.name


@dataclass(slots=True, kw_only=True)
class Sample:
    """What the batches show that were looked at, of one partition.

    Attributes:
        batches, size, offsets, records: how many batches, bytes, offsets (holes among them), records; sums of the
            places that are like the rest of the log.
        holes: the same, of offsets without a record, by cause (``records.admit.Cause``).
        runs: the same, of ranges of such offsets.
        codecs: names of the codecs.
        largest: bytes of the largest batch that would be forwarded.
        oldest_ms, newest_ms: of the batches' newest timestamps, those that are least and greatest; -1: none.
        old: the same, of batches whose producer the destination may forget at once.
        null_key: an offset of a record without a key; -1: none was seen.
        halts: what would halt, by reason.
        rewritten: batches that would be opened and rewritten, by reason; sums, as ``batches``.
        due_ms: newest timestamp of the first batch that is due; -1: none.
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
        """Offsets without a record."""
        return sum(self.holes.values())


@dataclass(slots=True, kw_only=True)
class PartitionFacts:
    """A partition on both sides.

    Attributes:
        index: its number.
        start, end: of the source's log; -1: not known. ``start`` is where the copy begins, if later (``start.from``).
        there_start, there_end: of the destination's; -1: not known, or there is none yet.
        due: the next offset to copy; -1: not known.
        leading: offsets before the copy's first record that have to be filled.
        left_out: offsets of the source's before ``start`` that are not copied, since the copy begins later.
        sample: its batches; None: nothing was read.
        halted: the relay's verdict on both logs and on what was written down.
        kept: whether that halt is one that was written down.
        unknown: why something could not be found out; empty if it could.
        in_sync, replicas: of the destination's partition; -1: not known.
        begun_anew: whether topics were recreated of which nothing was copied.
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
        """Offsets to copy; 0 while that is not known."""
        return max(0, self.end - self.due) if self.due >= 0 else 0
