"""Every reason for which a partition halts: its meaning, its remedy, and what can end it.

A halt has a stable reason, which appears in metrics, alerts and logs, a detail with the values at hand, and a remedy.
Some reasons have several members here, because the remedy depends on the case. The members of one reason have the same
``slug``. Commands in a remedy contain TOPIC, PARTITION and DESTINATION; ``service.commands`` replaces these where the
remedy is shown. ``docs/HALTS.md`` is generated from this module (``python -m tests.project.halts_document``).
"""

from enum import Enum

DELETE = "kafka-topics.sh --bootstrap-server DESTINATION --delete --topic TOPIC"
"""The command of Kafka's own tool that deletes the destination topic."""
RECOPY = (
    "stop the destination topic's consumers and note their offsets, which go with it (with offsets: exact they fit the "
    f"new copy, too); delete the topic (`{DELETE}`) and run `mirror resume TOPIC`: it is created and copied again. Its "
    "other partitions, which had not halted, then halt recreated: that is expected, run the same command again"
)
RECOPY_MAPPED = (
    "give the flow another destination topic (topic.rename) and restart the mirror; or, if nobody else writes to this "
    f"one, delete it (`{DELETE}`; its consumers' offsets go with it) and run `mirror resume TOPIC`: it is created and "
    "copied again. With offsets: mapped, others may have written to it, and their records would be lost with it"
)
_RESUME = "`mirror resume TOPIC PARTITION`"
_UNPROVEN = "`mirror resume TOPIC PARTITION --accept-unproven`"
_WITHOUT_GAP = "`mirror resume TOPIC PARTITION --accept-gap`"

_PREPARED_AGAIN = (
    "run the command again that prepared the way back (mirror cutover --reverse, with the certificate of that time), "
    f"then {_RESUME}"
)
_STOP_WRITER = (
    "stop that writer (a mirror of the same topic the other way is one). Its records are at the destination only, and "
    "so are those copied before that the source has deleted since (compare where both logs begin): save what is "
    f"needed. Records of the flow behind the foreign ones are at wrong offsets. Only then {RECOPY}; or exclude the "
    "topic"
)
_DEEP = (
    "set deep.path.enable: true for this flow (with identity: stamped) and restart the mirror: it "
    "copies the records in other batches"
)


class Heals(Enum):
    """The change that ends a halt without an operator's command."""

    TOPICS = "the topics are as they have to be: checked whenever topics are refreshed"
    TERMS = "the destination topic's settings allow it: checked whenever topics are refreshed"
    RIGHTS = "the right is there: asked for whenever topics are refreshed, and tried at each start and takeover"
    RESTART = "settings or versions have changed: tried at each start and takeover"


class HaltReason(Enum):
    """A case of a halt.

    Attributes:
        slug: the stable name of the reason.
        meaning: what was found, for people who do not know the mirror.
        remedy: what to do, without a full stop, since more text may follow.
        heals: the change that ends the halt without an operator's command. None: the halt is recorded in the internal
            topic, and holds for every worker that takes the partition over, until an operator resumes it.
    """

    # -- a batch of the source that cannot be copied as it is ----------------------------------------------------------

    OLD_FORMAT = (
        "old_format",
        "The source stores messages in the format of Kafka before 0.11 (magic 0 or 1), which no broker of today takes, "
        "and this flow does not make batches of them: with deep.path.enable: false, with identity: strict, and of "
        "compacted topics with offsets: mapped.",
        f"{_DEEP}; of a compacted topic with offsets: exact only. Otherwise exclude the topic",
        Heals.RESTART,
    )
    SPARSE_BATCH = (
        "sparse_batch",
        "Compaction removed records from inside a batch of the source, and no broker takes such a batch in a Produce "
        "request.",
        f"{_DEEP}; otherwise exclude the topic",
        Heals.RESTART,
    )
    NOT_STRICT = (
        "not_strict",
        "With identity: strict, batches are sent bit for bit. A broker takes neither a batch of a transaction nor one "
        "with holes around it that way.",
        "set identity: stamped for this flow, or exclude the topic",
        Heals.RESTART,
    )
    LOG_APPEND_TIME = (
        "log_append_time",
        "The source's broker has put its own times into the batches (message.timestamp.type=LogAppendTime), and the "
        "destination would lose them.",
        f"{_DEEP}. Otherwise exclude the topic. To copy only later records, set message.timestamp.type=CreateTime at "
        "the source, delete what is stored there (kafka-delete-records), and restart the mirror: what was deleted is "
        "not copied",
        Heals.RESTART,
    )
    UNKNOWN_ATTRIBUTES = (
        "unknown_attributes",
        "A batch has attribute bits or a codec that this version of the mirror does not know.",
        "upgrade the mirror, or exclude the topic",
        Heals.RESTART,
    )
    TOO_LARGE = (
        "too_large",
        "A batch is larger than the destination topic's max.message.bytes, and cannot be cut (a single record, "
        "identity: strict, or deep.path.enable: false).",
        "raise max.message.bytes of the destination topic to at least the source's value; or have single records that "
        "are too large dropped, or written to a dead letter topic (oversize.record)",
        Heals.TERMS,
    )
    TOO_LARGE_FOR_SEGMENT = (
        "too_large",
        "A batch is larger than a segment of the destination topic can be.",
        "raise segment.bytes of the destination topic to at least the source's value",
        Heals.TERMS,
    )
    DEAD_LETTER = (
        "dead_letter_refused",
        "A record is too large for the destination topic, and the dead letter topic (oversize.record.topic) is not "
        "there, or does not take it either.",
        "create that topic at the destination, or raise its max.message.bytes above the size that is named (a dead "
        f"letter has more headers than the record), then run {_RESUME}; or set oversize.record to another value",
        Heals.RESTART,
    )
    NOT_OPENED = (
        "not_opened",
        "A batch that the destination would refuse as it is has to be opened, and its records cannot be read.",
        "read it with kafka-dump-log --deep-iteration at the source's broker: if that fails, too, it came damaged from "
        "its producer; exclude the topic, or delete the records up to behind that batch there (kafka-delete-records) "
        f"and run {_WITHOUT_GAP}, which records the range as skipped",
        Heals.RESTART,
    )
    INVALID_TIMESTAMP = (
        "invalid_timestamp",
        "The destination refuses the batch's timestamps.",
        "raise message.timestamp.after.max.ms and message.timestamp.before.max.ms of the destination topic to the "
        "source's values, and set its message.timestamp.type to CreateTime",
        Heals.TERMS,
    )
    UNSUPPORTED_CODEC = (
        "unsupported_codec",
        "The destination does not know the batch's codec.",
        "upgrade the destination (zstd needs Kafka 2.1), or exclude the topic",
        Heals.RESTART,
    )
    REFUSED = (
        "refused",
        "The destination refuses a batch; its broker's log says why.",
        "look there (a null key in a compacted topic is the usual cause)",
        None,
    )
    DAMAGED_IN_TRANSIT = (
        "refused",
        "A batch is whole at the mirror and damaged when it arrives at the destination, again and again.",
        "check the network between the mirror and the destination's broker, and the memory of both machines, then run "
        f"{_RESUME}",
        None,
    )
    STRICT_REFUSED = (
        "strict_refused",
        "The destination knows the source's producer with other sequence numbers, and refuses its batch. A topic with "
        "identity: strict must be new and written by nobody else.",
        "set identity: stamped",
        Heals.RESTART,
    )

    PRODUCER_IDS = (
        "producer_ids_refused",
        "The destination takes only producer ids that it has given out itself, and refuses the ids that the mirror "
        "computes, by which a copy with exact offsets recognises repeats. Apache Kafka's brokers do not do that; Tansu "
        "does.",
        "set offsets: mapped, for which the destination gives out the ids (it has to have transactions), or mirror to "
        "another cluster",
        Heals.RESTART,
    )

    # -- a log that is damaged, or lacks something ---------------------------------------------------------------------

    CORRUPT = (
        "corrupt",
        "The source answers with bytes that no producer wrote, or cannot read its own log.",
        "check the disk of the partition's leader at the source (kafka-dump-log --deep-iteration) and its log, let it "
        f"have the partition from a healthy replica (or make another one the leader), then run {_RESUME}",
        None,
    )
    CORRUPT_DESTINATION = (
        "corrupt_destination",
        "The destination's log holds bytes that no producer wrote.",
        "check the disk of the partition's leader there (kafka-dump-log --deep-iteration), let it have the partition "
        f"from a healthy replica (or make another one the leader), then run {_RESUME}; with no healthy replica, and "
        f"while the source still has all records, {RECOPY}",
        None,
    )
    UNEXPLAINED_GAP = (
        "unexplained_gap",
        "The source has no batch for some offsets, although nothing should be missing in a topic that is not "
        "compacted.",
        "if the topic was compacted before, that is why. Otherwise look for lost segments in the source broker's log "
        f"directory and log. {_WITHOUT_GAP} continues behind this gap, on.gap: continue behind every gap; both "
        "record it",
        None,
    )
    RETENTION_OVERTOOK = (
        "retention_overtook",
        "The source has deleted records before they were copied.",
        "keep the destination topic, which may hold the only copy of earlier records; raise the source's retention, "
        f"then continue behind the gap with {_WITHOUT_GAP}, which records it",
        None,
    )
    SOURCE_TRUNCATED = (
        "source_truncated",
        "The source lost records that were already copied (an unclean leader election, or a disk that was restored).",
        "save these records, of which the destination has the only copy (consume the offsets that are named, or write "
        f"them to the source again), before anything is deleted; only then {RECOPY}",
        None,
    )
    LEADING_OFFSETS = (
        "leading_offsets",
        "The source's first offset is far above 0, and the offsets before it cannot be filled.",
        "raise max.leading.filler, or set offsets: mapped, or exclude the topic",
        Heals.RESTART,
    )

    START_UNKNOWN = (
        "start_unknown",
        "The copy is to begin where a consumer group of the source stands (start.from: committed), and that group has "
        "committed nothing.",
        "check the name of start.group (kafka-consumer-groups --list at the source), or set start.from to where the "
        "copy is to begin",
        Heals.RESTART,
    )

    # -- a destination that is not the copy that was left there --------------------------------------------------------

    NOT_A_COPY = (
        "not_a_copy",
        "What the destination holds is not a prefix of the source.",
        "compare both sides (`mirror audit`) and save what only the destination has; only then " + RECOPY,
        None,
    )
    MID_BATCH = (
        "mid_batch",
        "The destination ends inside a batch of the source, so this mirror did not write it.",
        "compare both sides and save what only the destination has, before its topic is deleted and copied again",
        None,
    )
    FOREIGN_WRITER = (
        "foreign_writer",
        "Somebody else writes to the destination topic.",
        _STOP_WRITER,
        None,
    )
    FOREIGN_BEFORE = (
        "foreign_writer",
        "The destination topic holds what others wrote, and nothing is written down of the partition.",
        "if the flow leads back from a cutover, nobody has to write there: what the former source had is in its place, "
        "and the internal topic that said so was lost. Then "
        f"{_PREPARED_AGAIN}. Otherwise {_STOP_WRITER}",
        None,
    )
    OVERFILLED = (
        "overfilled",
        "The destination has a marker where the source has a record, so that what follows cannot keep its offset.",
        "what stands before it is a good copy: save what the source no longer has of it (compare where both logs "
        f"begin). Then {RECOPY}",
        None,
    )
    FILLED_RECORD = (
        "overfilled",
        "The destination has a marker where the source has a record, and everything behind it is a good copy.",
        "keep the copy, and compare both sides at the offset that is named. On a compacted topic, a leader of the "
        "source that was cleaned less than the one before may still have an old record there; nothing is lost if its "
        f"key has a newer one. {_WITHOUT_GAP} continues without the records in question, and records the range as "
        f"skipped. If they must not be missing, save what only the destination has; only then {RECOPY}",
        None,
    )
    NEVER_ARRIVED = (
        "never_arrived",
        "The destination refused a batch and took the one behind it, which stands in its place.",
        f"{_WITHOUT_GAP} continues without the records in between (the range is recorded as skipped); or give the "
        "flow a new destination topic",
        None,
    )
    UNPROVEN = (
        "unproven",
        "The destination's log holds nothing to compare, and nothing that was written down shows that it is a copy of "
        "this source.",
        f"compare what consumers of both sides have (counts, times), then {_UNPROVEN} continues at the destination's "
        "end and records what was taken on trust; or exclude the topic. If a cluster was renamed in the configuration, "
        "set flow.id to what status showed before",
        None,
    )
    RECREATED = (
        "recreated",
        "The topic was deleted and created again under the same name.",
        "if that was the destination topic, deleted by you to have it copied again, run `mirror resume "
        "TOPIC`; if the new topic holds offsets already (what was under way is appended to it), delete it once more "
        "before. Otherwise the other side may have the only copy of what the topic held before, so save what is "
        f"needed of that; then {RECOPY}",
        None,
    )
    RECREATED_MAPPED = (
        "recreated",
        "The topic was deleted and created again under the same name (offsets: mapped).",
        "save what is needed of what it held before and only the other side has; then `mirror resume TOPIC` "
        "continues with the topics as they are now: everything that the source has is copied, behind what the "
        "destination topic holds. If a new destination topic holds batches of this flow already, the mirror says so, "
        "and does not continue",
        None,
    )
    RECREATED_BEGUN = (
        "recreated",
        "The destination topic was deleted and created again, and what this flow sent until that was noticed stands in "
        "the new one; what was copied before is not there.",
        f"{_WITHOUT_GAP} copies everything that the source has, so that these records are there twice. To have each "
        f"once, {RECOPY_MAPPED}",
        None,
    )
    SETTINGS_CHANGED = (
        "settings_changed",
        "Nothing is wrong with the copy, but it was made under another setting.",
        "set it back to what it was and restart the mirror. A copy under the new setting has to be made from the "
        f"beginning: when the old one and all that only it has are no longer needed, {RECOPY}",
        Heals.RESTART,
    )
    LEVEL_CHANGED = (
        "settings_changed",
        "Nothing is wrong with the copy, but it was made under another isolation.level.",
        "set it back to what it was and restart the mirror. `mirror resume TOPIC PARTITION "
        "--accept-settings` continues this copy under the new one, from here on only: data of aborted transactions "
        "that was left out before stays left out, what was copied of it stays in, and `mirror audit` names both as "
        "differences. A copy under the new one from the beginning has to be made again: when the old one and all that "
        f"only it has are no longer needed, {RECOPY}",
        Heals.RESTART,
    )

    # -- other mirrors -------------------------------------------------------------------------------------------------

    OTHER_FLOW = (
        "other_flow",
        "A mirror under another flow id wrote the destination topic.",
        "if it is this flow under new names, set flow.id: {id} and restart the mirror, which goes on with the copy. "
        "Otherwise exclude the topic from this flow; or exclude it from the other one and, once nobody needs what only "
        f"the destination has, {RECOPY}",
        None,
    )
    OTHER_FLOW_TOO = (
        "other_flow",
        "A mirror under another flow id copies this partition into the same one, and this flow has copied nothing of "
        "it.",
        "if it is this flow under new names, set flow.id: {id} and restart the mirror. Otherwise exclude the topic "
        "from one of the two flows. If this one is to continue: where the other one has halted and has copied "
        f"nothing, run {_RESUME}; otherwise {_UNPROVEN} (with offsets: mapped, what the other one has copied is then "
        "there twice)",
        None,
    )
    FLOWS_MIXED = (
        "other_flow",
        "Mirrors under two flow ids wrote the destination topic at the same time, so that records stand at wrong "
        "offsets from the first one named on.",
        "exclude the topic from one of the two flows (if they are one under two names, stop one, and have the other "
        "one keep its flow.id, or set {id}). Save what the source no longer has (compare where both logs begin); then "
        f"{RECOPY}",
        None,
    )
    LOOP = (
        "loop",
        "The flows that are named copy the destination topic, by one or more hops, back into the source topic, so that "
        "records go round without end.",
        "exclude the topic in one of these flows (with offsets: mapped, topic.rename can give the copy another name "
        f"instead), restart that mirror, then run {_UNPROVEN} for those that are to continue (nothing shows that the "
        "other one has ended: if it still copies, records go round without end). If a flow that is named exists no "
        "more, the same command accepts that. If the flow leads back from a cutover, and the internal topic that said "
        f"so was lost, {_PREPARED_AGAIN} instead",
        None,
    )
    LOOP_RENAMED = (
        "loop",
        "The records have passed this flow before, under other names of the topic, and come back to it by the flows "
        "that are named: each time round, there would be one more copy under one more name.",
        f"exclude the topic in this flow, or run {_UNPROVEN} to copy it again under another name (what comes back "
        "of that halts again)",
        None,
    )

    # -- the checkpoints and map of a mapped copy ----------------------------------------------------------------------

    CHECKPOINT_LOST = (
        "checkpoint_lost",
        "The destination holds batches of this flow, and the internal topic (mirror-internal.*) does not say up to "
        "where they were copied.",
        f"restore that topic and run {_RESUME}, or give the flow a new destination topic; if nothing of the flow was "
        f"ever copied into this one, run {_WITHOUT_GAP}",
        None,
    )
    MAP_LOST = (
        "checkpoint_lost",
        "The internal topic (mirror-internal.*) was deleted, created again or cut, and lacks a part of the partition's "
        "offset map, so that its offsets cannot be translated. The copy itself is not in doubt.",
        f"restore that topic and run {_RESUME}; or run {_WITHOUT_GAP}, which makes the map again from what both logs "
        "still have (it reads all of them, and they must begin at the same record). Where that fails, give the flow a "
        "new destination topic",
        None,
    )
    CHECKPOINT_BEHIND = (
        "checkpoint_behind",
        "The destination has deleted offsets in which copies may have stood that the last checkpoint does not have, "
        "and its leader has forgotten how many.",
        f"compare the last records of both sides, then continue from the checkpoint with {_WITHOUT_GAP} (records may "
        "then be there twice), or give the flow a new destination topic",
        None,
    )
    AMBIGUOUS = (
        "ambiguous_position",
        "The source has deleted or cleaned away offsets behind the last checkpoint, and what was copied behind it fits "
        "in several places.",
        f"{_WITHOUT_GAP} continues from the first of them (records may then be there twice)",
        None,
    )

    # -- topics, rights, versions --------------------------------------------------------------------------------------

    TOPIC_MISSING = (
        "topic_missing",
        "The topic does not exist on the cluster that is named, or no longer.",
        "create it, or exclude it",
        Heals.TOPICS,
    )
    FEWER_PARTITIONS = (
        "fewer_partitions",
        "The destination topic has fewer partitions than the source's.",
        "add them (kafka-topics --alter --partitions), or let the mirror: topic.create: true, and Alter on the topic",
        Heals.TOPICS,
    )
    FEWER_PARTITIONS_STRANGE = (
        "fewer_partitions",
        "The destination topic has fewer partitions than the source's, and holds records of which nothing shows that "
        "this flow has copied them. The mirror adds partitions to its own copies only.",
        "look at what its other partitions say. Once they are known to be the copy, partitions are added at the next "
        "look for topics. If the topic is somebody else's, exclude the source's topic; if you know better, add the "
        "partitions yourself (kafka-topics --alter --partitions)",
        Heals.TOPICS,
    )
    CREATE_FAILED = (
        "create_failed",
        "The destination topic could not be created.",
        "create it by hand, or grant the mirror's principal Create on it",
        Heals.TOPICS,
    )
    DESTINATION_REWRITES = (
        "destination_rewrites",
        "The destination topic's settings make its broker change batches.",
        "set compression.type=producer and message.timestamp.type=CreateTime there. If the broker's own times are "
        "wanted (message.timestamp.type=LogAppendTime), set destination.timestamps: append for the flow; if a codec is "
        "(compression.type), set it as compression.type of the flow; then restart the mirror",
        Heals.TOPICS,
    )
    INVALID_TOPIC = (
        "invalid_topic",
        "The destination does not take a topic of this name.",
        "exclude the topic",
        None,
    )
    FILL_NOT_PERMITTED = (
        "fill_not_permitted",
        "The source has offsets without a record, and the mirror may not write the markers that take these offsets at "
        "the destination.",
        "grant its principal Alter on the destination cluster (ClusterAction before Kafka 3.9), or set fill: "
        "transaction, or offsets: mapped",
        Heals.RIGHTS,
    )
    AUTHORIZATION = (
        "authorization",
        "The mirror's principal lacks a right to the source topic, or to the destination's.",
        "grant it Read on the source topic, and Write on the destination's",
        Heals.RIGHTS,
    )
    CLUSTER_AUTHORIZATION = (
        "authorization",
        "The mirror's principal may not produce idempotently.",
        "grant it IdempotentWrite on the destination cluster (needed before Kafka 2.8)",
        Heals.RIGHTS,
    )
    TRANSACTIONAL_ID_AUTHORIZATION = (
        "authorization",
        "The mirror's principal may not use its transactional ids.",
        "grant it Write on the transactional ids that begin with 'mirror.'",
        Heals.RIGHTS,
    )
    POLICY_VIOLATION = (
        "policy_violation",
        "A policy of the destination refuses the request.",
        "ask the operators of the destination",
        Heals.RESTART,
    )
    UNSUPPORTED_VERSION = (
        "unsupported_version",
        "A broker does not know the version of a request, or the format of a batch.",
        "upgrade the older of the brokers, or exclude the topic",
        Heals.RESTART,
    )
    NO_COMMON_VERSION = (
        "no_common_version",
        "The brokers speak no version of a request that the mirror needs; it takes Kafka 0.10.1 or later as the "
        "source, and 0.11 or later as the destination.",
        "upgrade them",
        Heals.RESTART,
    )

    # -- an operator's wish --------------------------------------------------------------------------------------------

    PAUSED = (
        "paused",
        "An operator has paused it (`mirror pause`).",
        "nothing is wrong: `mirror resume TOPIC PARTITION` has it go on from where it stopped, as long as the source "
        "keeps its records",
        None,
    )

    def __init__(self, slug: str, meaning: str, remedy: str, heals: Heals | None) -> None:
        self.slug = slug
        self.meaning = meaning
        self.remedy = remedy
        self.heals = heals

    @property
    def told(self) -> str:
        """The text for operators beside the detail: the meaning, then the remedy."""
        return f"{self.meaning} {self.remedy[0].upper()}{self.remedy[1:]}"


PAUSED = HaltReason.PAUSED.slug
REASONS = sorted({each.slug for each in HaltReason} - {PAUSED})
"""The slugs of all reasons for which a partition halts by itself, in order."""
_HEALING = {each.slug: each.heals for each in HaltReason}

UNPLACED = frozenset({HaltReason.RECREATED.slug, HaltReason.TOPIC_MISSING.slug, HaltReason.CREATE_FAILED.slug})
"""Reasons with which the position belongs to former topics of the same names, and tells nothing about the current
ones."""
ELSEWHERE = UNPLACED | {
    each.slug
    for each in (
        HaltReason.FOREIGN_WRITER,
        HaltReason.LOOP,
        HaltReason.MID_BATCH,
        HaltReason.NEVER_ARRIVED,
        HaltReason.NOT_A_COPY,
        HaltReason.OTHER_FLOW,
        HaltReason.OVERFILLED,
        HaltReason.SOURCE_TRUNCATED,
        HaltReason.UNPROVEN,
    )
}
"""Reasons with which an offset of the source need not be the same record at the destination, so that consumers' offsets
are not carried over."""
GAPS = frozenset({HaltReason.UNEXPLAINED_GAP.slug, HaltReason.RETENTION_OVERTOOK.slug})
"""Reasons that ``on.gap: continue`` passes over, even if it was set after the halt."""


def heals(slug: str) -> Heals | None:
    """Returns the change that ends a halt with this reason (a slug) without an operator's command. None: nothing does,
    or the reason is unknown, because a later version of the mirror has recorded it."""
    return _HEALING.get(slug)


def is_durable(slug: str) -> bool:
    """Returns True if a halt with this reason (a slug) stays until an operator resumes the partition."""
    return heals(slug) is None
