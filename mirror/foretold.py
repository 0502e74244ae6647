"""The lines of ``mirror plan``, and the reasons for a halt that each can foresee before the first byte is copied.

Each line is one check. Its id is stable: halts, ``docs/HALTS.md`` and scripts name it. ``UNFORESEEN`` has the reasons
for a halt that no line can foresee, and why.
"""

from collections.abc import Mapping
from enum import Enum

from mirror.reasons import HaltReason


class Line(Enum):
    """A line of ``mirror plan``.

    Attributes:
        id: a stable id, such as ``P07``.
        slug: the line's name.
        asks: the question that the check answers.
    """

    SAME_CLUSTER = ("P01", "same-cluster", "Are source and destination two clusters?")
    TOPICS = ("P02", "topics-matched", "Does each entry of `topics` match a topic of the source?")
    VERSIONS = ("P03", "versions", "Do all brokers speak what the mirror needs, and what falls away if not?")
    RIGHTS = ("P04", "rights", "Does the mirror's principal have the rights that this flow needs?")
    INTERNAL_TOPIC = ("P05", "internal-topic", "Can the internal topic be used, or created?")
    CLOCKS = ("P06", "clocks", "Do the clocks agree, as far as timestamps show?")
    LOG_APPEND_TIME = ("P07", "log-append-time", "Has the source's broker put its own times into batches?")
    OLD_FORMAT = ("P08", "old-format", "Are there batches in a format from before Kafka 0.11?")
    SPARSE_BATCHES = ("P09", "sparse-batches", "Has compaction taken records out of the middle of batches?")
    BATCH_SIZE = ("P10", "batch-size", "Does the destination take batches as large as the source's?")
    TIMESTAMPS = ("P11", "timestamps", "Does the destination take the records' timestamps?")
    CODEC = ("P12", "codec", "Do the destination and the mirror know the batches' codecs and attributes?")
    REWRITES = ("P13", "destination-rewrites", "Would the destination's broker change batches?")
    CREATION = ("P14", "creation", "Does the destination topic exist, or can it be created?")
    PARTITIONS = ("P15", "partitions", "Does the destination topic have the source's partitions?")
    PREFIX = ("P16", "prefix", "Is what the destination holds a copy of the source, up to where it ends?")
    LOOP = ("P17", "loop", "Does a flow copy the topic the other way?")
    OTHER_FLOW = ("P18", "other-flow", "Does another flow copy into the same partition?")
    HALTED = ("P19", "halted", "Has the partition halted before, so that it stays halted?")
    SETTINGS = ("P20", "settings", "Was the copy made under the present settings?")
    RECREATED = ("P21", "recreated", "Are the topics those that were copied before?")
    LEADING = ("P22", "leading-filler", "How many offsets before the source's first record have to be filled?")
    HOLES = ("P23", "holes", "What share of the offsets has no record, and may the mirror fill them?")
    SOURCE_RETENTION = ("P24", "source-retention", "Does the source keep its records until they are copied?")
    DESTINATION_RETENTION = ("P25", "destination-retention", "Would the destination delete at once what is copied?")
    REPLICAS = ("P26", "replicas", "Are there as many replicas in sync as a write needs?")
    GAPS = ("P27", "gaps", "Do offsets lack a batch without a cause?")
    UNPROVEN = ("P28", "unproven", "Is there anything that shows that the destination is a copy?")
    DAMAGE = ("P29", "damage", "Do the batches that were read match their checksums?")
    STRICT = ("P30", "strict", "Can the batches go bit for bit (identity: strict)?")
    NULL_KEYS = ("P31", "null-keys", "Would a compacted destination topic refuse records without a key?")
    CHECKPOINT = ("P32", "checkpoint", "Are position and offset map there (offsets: mapped)?")
    DISK = ("P33", "disk", "Is there room for the copy at the destination?")
    QUOTAS = ("P34", "quotas", "Do quotas limit the mirror's client?")
    REACHED = ("P35", "reached", "Could everything be asked?")
    CONFIGS = ("P36", "configs", "Which configs of destination topics would be changed (sync.topic.configs.enabled)?")
    DEAD_LETTERS = (
        "P37",
        "dead-letters",
        "Does the topic for dead letters take larger batches than others?",
    )
    STARTING = ("P38", "starting-offset", "Where does the copy begin, if not with the source (start.from)?")

    def __init__(self, line_id: str, slug: str, asks: str) -> None:
        self.id = line_id
        self.slug = slug
        self.asks = asks

    def __str__(self) -> str:
        return f"{self.id} {self.slug}"


_R = HaltReason
FORETOLD: Mapping[HaltReason, Line] = {
    _R.OLD_FORMAT: Line.OLD_FORMAT,
    _R.SPARSE_BATCH: Line.SPARSE_BATCHES,
    _R.NOT_STRICT: Line.STRICT,
    _R.LOG_APPEND_TIME: Line.LOG_APPEND_TIME,
    _R.UNKNOWN_ATTRIBUTES: Line.CODEC,
    _R.TOO_LARGE: Line.BATCH_SIZE,
    _R.TOO_LARGE_FOR_SEGMENT: Line.BATCH_SIZE,
    _R.DEAD_LETTER: Line.DEAD_LETTERS,
    _R.INVALID_TIMESTAMP: Line.TIMESTAMPS,
    _R.UNSUPPORTED_CODEC: Line.CODEC,
    _R.REFUSED: Line.NULL_KEYS,
    _R.CORRUPT: Line.DAMAGE,
    _R.CORRUPT_DESTINATION: Line.DAMAGE,
    _R.UNEXPLAINED_GAP: Line.GAPS,
    _R.RETENTION_OVERTOOK: Line.SOURCE_RETENTION,
    _R.SOURCE_TRUNCATED: Line.PREFIX,
    _R.LEADING_OFFSETS: Line.LEADING,
    _R.START_UNKNOWN: Line.STARTING,
    _R.NOT_A_COPY: Line.PREFIX,
    _R.MID_BATCH: Line.PREFIX,
    _R.FOREIGN_WRITER: Line.PREFIX,
    _R.FOREIGN_BEFORE: Line.PREFIX,
    _R.OVERFILLED: Line.PREFIX,
    _R.FILLED_RECORD: Line.PREFIX,
    _R.UNPROVEN: Line.UNPROVEN,
    _R.RECREATED: Line.RECREATED,
    _R.RECREATED_MAPPED: Line.RECREATED,
    _R.SETTINGS_CHANGED: Line.SETTINGS,
    _R.LEVEL_CHANGED: Line.SETTINGS,
    _R.OTHER_FLOW: Line.OTHER_FLOW,
    _R.OTHER_FLOW_TOO: Line.OTHER_FLOW,
    _R.FLOWS_MIXED: Line.OTHER_FLOW,
    _R.LOOP: Line.LOOP,
    _R.LOOP_RENAMED: Line.LOOP,
    _R.CHECKPOINT_LOST: Line.CHECKPOINT,
    _R.MAP_LOST: Line.CHECKPOINT,
    _R.TOPIC_MISSING: Line.CREATION,
    _R.FEWER_PARTITIONS: Line.PARTITIONS,
    _R.FEWER_PARTITIONS_STRANGE: Line.PARTITIONS,
    _R.CREATE_FAILED: Line.CREATION,
    _R.DESTINATION_REWRITES: Line.REWRITES,
    _R.INVALID_TOPIC: Line.CREATION,
    _R.FILL_NOT_PERMITTED: Line.HOLES,
    _R.AUTHORIZATION: Line.RIGHTS,
    _R.CLUSTER_AUTHORIZATION: Line.RIGHTS,
    _R.TRANSACTIONAL_ID_AUTHORIZATION: Line.RIGHTS,
    _R.POLICY_VIOLATION: Line.CREATION,
    _R.UNSUPPORTED_VERSION: Line.VERSIONS,
    _R.NO_COMMON_VERSION: Line.VERSIONS,
}
"""Reason for a halt -> the line that foresees it, if the situation exists when ``mirror plan`` runs."""

UNFORESEEN: Mapping[HaltReason, str] = {
    _R.DAMAGED_IN_TRANSIT: "the damage happens on the way to the destination, and nothing is sent before the start",
    _R.NOT_OPENED: "the plan opens hardly any batch (only to look for null keys), and a batch's checksum may be right "
    "although its records cannot be read",
    _R.STRICT_REFUSED: "only a batch that is sent shows what the destination's brokers remember of the source's "
    "producers",
    _R.PRODUCER_IDS: "only a batch that is sent shows which producer ids the destination takes",
    _R.NEVER_ARRIVED: "it happens while batches are under way",
    _R.RECREATED_BEGUN: "it follows from batches that are under way while the topic is recreated",
    _R.CHECKPOINT_BEHIND: "only a takeover, which fences the predecessor, finds out what followed the last checkpoint",
    _R.PAUSED: "it is an operator's wish",
    _R.AMBIGUOUS: "only a takeover, which fences the predecessor, compares what followed the last checkpoint",
}
"""Reason for a halt that no line can foresee -> why not."""

_BY_SLUG = {each.slug: line for each, line in reversed(list(FORETOLD.items()))}


def line_of(slug: str) -> Line | None:
    """Returns the line that foresees a halt with this reason (a slug). None: no line does, or the reason is unknown,
    because a later version of the mirror has recorded it. If several cases share the slug, the first one decides."""
    return _BY_SLUG.get(slug)


def beforehand(slug: str) -> str:
    """Returns a phrase for remedies that names the line of ``mirror plan``, or says why no line foresees the reason. It
    is empty for an unknown reason."""
    line = line_of(slug)
    if line is not None:
        return f"`mirror plan` sees this ({line})"
    why = next((why for case, why in UNFORESEEN.items() if case.slug == slug), "")
    return f"nothing foretells this: {why}" if why else ""
