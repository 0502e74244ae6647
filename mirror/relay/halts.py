"""Why a partition stops, beyond what a single batch can be (``records.admit.HaltReason``).

A halt has a stable reason (for metrics and alerts), a detail with the values at hand, and a remedy for the operator.
Commands in a remedy are written with TOPIC and PARTITION; whoever shows it renders them (``service.commands``).
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from mirror.net.errors import Damaged, Unreadable
from mirror.records.admit import Halt as BatchHalt
from mirror.records.admit import HaltReason, Terms
from mirror.wire.errors import HALTING, ErrorCode, error_name

_ANEW = (
    "delete the destination topic and run `mirror partition resume TOPIC`: it is created and copied anew (those of its "
    "partitions that had not halted do so then, recreated: run it once more)"
)
_ANEW_MAPPED = (
    "give the flow another destination topic (topic.rename) and restart the mirror; or, if nobody else writes to this "
    "one, delete it and run `mirror partition resume TOPIC`: it is created and copied anew. With offsets: mapped, "
    "others may have written to it, and their records would be gone with it"
)
_GO_ON = "`mirror partition resume TOPIC PARTITION`"
_UNPROVEN = "`mirror partition resume TOPIC PARTITION --accept-unproven`"
_WITHOUT_GAP = "`mirror partition resume TOPIC PARTITION --accept-gap`"

WAS_COMPACTED = (
    "; or a log cleaner took it while cleanup.policy had compact, which it has not now: then set it back, resume, and "
    "leave it so until all of that is copied"
)
"""Behind what a source lacks that is not compacted."""
MAY_STAND_ELSEWHERE = (
    "; or it is the copy that stands at a wrong offset, behind markers of a worker that was stopped for longer than "
    "settle.ms: kafka-dump-log on each of the source's replicas says which (if all have the batch at that offset, the "
    "copy has to be made anew)"
)
"""Behind the offsets of one batch that two logs have at different places, where nothing tells which is right."""


class Trouble(Enum):
    """(reason, remedy)"""

    LEADING_OFFSETS = (
        "leading_offsets",
        "the source's first offset is far above 0, and the offsets before it cannot be filled; raise "
        "max.leading.filler, or set offsets: mapped, or exclude the topic",
    )
    RETENTION_OVERTOOK = (
        "retention_overtook",
        "the source has deleted records that were not copied yet; what was copied before may be the only copy left, so "
        f"keep the destination topic: raise the source's retention, then go on behind the gap with {_WITHOUT_GAP}, "
        "which records it",
    )
    NOT_A_COPY = (
        "not_a_copy",
        "what the destination holds is not a prefix of the source; compare both sides (`mirror audit`) and save what "
        f"only the destination has; only then {_ANEW}",
    )
    FOREIGN_WRITER = (
        "foreign_writer",
        "somebody else writes to the destination topic: stop that writer (a mirror of the same topic the other way is "
        "one). Its records are at the destination only, and so are those copied before that the source has deleted "
        "since (compare where both logs begin): save what is needed. The flow's own behind the foreign ones are "
        f"at wrong offsets. Only then {_ANEW}; or exclude the topic",
    )
    RECREATED = (
        "recreated",
        "the topic was deleted and created again under the same name. If that was the destination topic, deleted by "
        "you to have it copied anew, `mirror partition resume TOPIC` is all that is left to do; but where the new one "
        "holds offsets already (what was under way is appended to it), delete it once more before. Else the other side "
        f"may have the only copy of what it held before, so save what is needed of that; then {_ANEW}",
    )
    RECREATED_MAPPED = (
        "recreated",
        "the topic was deleted and created again under the same name. Save what is needed of what it held before and "
        "only the other side has; then `mirror partition resume TOPIC` goes on with the topics of now: all that the "
        "source has is copied, behind what the destination topic holds. Where a new destination topic holds batches "
        "of this flow already, it says so, and does not go on",
    )
    RECREATED_BEGUN = (
        "recreated",
        "the destination topic was deleted and created again, and what this flow sent until that was noticed stands in "
        f"the new one; what was copied before is not there. {_WITHOUT_GAP} copies all that the source has, so that "
        f"these records are there twice. To have each once, {_ANEW_MAPPED}",
    )
    UNPROVEN = (
        "unproven",
        "the destination's log holds nothing to compare, and nothing that was written down shows that it is a copy of "
        "this source; compare what consumers of both sides have (counts, times), then `mirror partition resume TOPIC "
        "PARTITION --accept-unproven` goes on at the destination's end and records what was taken on trust; or exclude "
        "the topic. If a cluster was renamed in the configuration, set flow.id to what status showed before",
    )
    OTHER_FLOW = (
        "other_flow",
        "a mirror under another flow id wrote this topic; if it is this flow under new names, set flow.id: {id} and "
        "restart the mirror, which goes on with the copy. Else exclude the topic from this flow; or exclude it from "
        f"the other one and, once nobody needs what only the destination has, {_ANEW}",
    )
    OTHER_FLOW_TOO = (
        "other_flow",
        "a mirror under another flow id copies this partition into the same one, and this flow has copied nothing of "
        "it; if it is this flow under new names, set flow.id: {id} and restart the mirror. Else exclude the topic from "
        "one of the two flows. If this one is to go on: where the other one has halted and has copied nothing, with "
        f"{_GO_ON}; else with `mirror partition resume TOPIC PARTITION --accept-unproven` (with offsets: mapped, what "
        "the other one has copied is then there twice)",
    )
    FLOWS_MIXED = (
        "other_flow",
        "mirrors under two flow ids wrote this topic at the same time, so that records stand at wrong offsets from the "
        "first one named on: exclude the topic from one of the two flows (if they are one under two names, stop one, "
        "and have the other one keep its flow.id, or set {id}). Save what the source no longer has (compare where both "
        f"logs begin); then {_ANEW}",
    )
    LOOP = (
        "loop",
        "the topic is mirrored the other way as well, by the flow that is named, and each copies what the other has "
        "written, without end: exclude the topic in one of the two (with offsets: mapped, topic.rename can give the "
        f"copy another name instead), restart that mirror, then run {_UNPROVEN} for the one that is to go on "
        "(nothing shows that the other one has ended: with one that still copies, records go round without end)",
    )
    OVERFILLED = (
        "overfilled",
        "the destination has a marker where the source has a record, so that what follows cannot keep its offset; what "
        "stands before it is a good copy: save what the source no longer has of it (compare where both logs begin). "
        f"Then {_ANEW}",
    )
    SETTINGS_CHANGED = (
        "settings_changed",
        "nothing is wrong with the copy, and it was made under another setting: set it back to what it was and restart "
        "the mirror. A copy under the new setting has to be made from the beginning: when the old one and all that "
        f"only it has are no longer needed, {_ANEW}",
    )
    LEVEL_CHANGED = (
        "settings_changed",
        "nothing is wrong with the copy, and it was made under another isolation.level: set it back to what it was and "
        "restart the mirror. `mirror partition resume TOPIC PARTITION --accept-settings` goes on with this copy under "
        "the new one, from here on only: data of aborted transactions that was left out before stays left out, what "
        "was copied of it stays in, and `mirror audit` names both as differences. A copy under the new one from the "
        f"beginning has to be made anew: when the old one and all that only it has are no longer needed, {_ANEW}",
    )
    FILLED_RECORD = (
        "overfilled",
        "the destination has a marker where the source has a record; everything else there is a good copy: keep it. "
        "Compare both sides at the offset that is named. On a compacted topic, a leader of the source that was cleaned "
        "less than the one before may still have an old record there, and nothing is lost if its key has a newer one; "
        f"{_WITHOUT_GAP} goes on without the records in question, and records the range as skipped. If they must "
        f"not be missing, save what only the destination has; only then {_ANEW}",
    )
    CORRUPT = (HaltReason.CORRUPT.slug, HaltReason.CORRUPT.remedy)
    CORRUPT_DESTINATION = (
        "corrupt_destination",
        "the destination's log holds bytes that nobody has written; check the disk of the partition's leader there "
        "(kafka-dump-log --deep-iteration), let it have the partition from a healthy replica (or make another one the "
        f"leader), then run {_GO_ON}; with no healthy replica, and while the source still has all records, {_ANEW}",
    )
    CORRUPT_ON_ITS_WAY = (
        "refused",
        "the batch is whole here and damaged where it arrives, again and again; check the network between the mirror "
        f"and the destination's broker, and both machines' memory, then run {_GO_ON}",
    )
    NOT_STRICT = (HaltReason.NOT_STRICT.slug, HaltReason.NOT_STRICT.remedy)
    STRICT_REFUSED = (
        "strict_refused",
        "the destination knows the source's producer with other sequences and refuses the batch; a topic with "
        "identity: strict must not be written by anybody else, and be new: set identity: stamped",
    )
    FILL_NOT_PERMITTED = (
        "fill_not_permitted",
        "the source has offsets without a record, and the mirror may not write the markers that take them at the "
        "destination; grant its principal Alter on the destination cluster (ClusterAction before Kafka 3.9), or set "
        "fill: transaction, or offsets: mapped",
    )
    CHECKPOINT_LOST = (
        "checkpoint_lost",
        "the destination holds batches of this flow, and the internal topic (mirror-internal.*) does not say up to "
        f"where they were copied; restore that topic and run {_GO_ON}, or give the flow a new destination topic; if "
        f"nothing of the flow was ever copied into this one, run {_WITHOUT_GAP}",
    )
    MAP_LOST = (
        "checkpoint_lost",
        "the internal topic (mirror-internal.*) was deleted, made anew or cut, and lacks a part of the partition's "
        "offset map, so that its offsets cannot be translated; the copy itself is not in doubt. Restore that topic and "
        f"run {_GO_ON}; or run {_WITHOUT_GAP}, which makes the map anew out of what both logs still have (it reads all "
        "of them, and they must begin at the same record). Where that fails, give the flow a new destination topic",
    )
    CHECKPOINT_BEHIND = (
        "checkpoint_behind",
        "the destination has deleted offsets in which copies may have stood that the last checkpoint does not have, "
        "and its leader has forgotten how many; compare the last records of both sides, then go on from the checkpoint "
        f"with {_WITHOUT_GAP} (records may then be there twice), or give the flow a new destination topic",
    )
    AMBIGUOUS = (
        "ambiguous_position",
        "the source has deleted or cleaned away offsets behind the last checkpoint, and what was copied behind it fits "
        f"in several places; {_WITHOUT_GAP} goes on from the first of them (records may then be there twice)",
    )
    NEVER_ARRIVED = (
        "never_arrived",
        "the destination refused a batch and took the one behind it, which stands in its place; "
        f"{_WITHOUT_GAP} goes on without the records in between (the range is recorded as skipped), or give the flow a "
        "new destination topic",
    )
    TRUNCATED = (
        "source_truncated",
        "the source lost records that were already copied (an unclean leader election, a disk restored), and the "
        "destination has the only copy of them: save them (consume the offsets that are named, or write them to the "
        f"source again) before anything is deleted; only then {_ANEW}",
    )
    TOPIC_MISSING = (
        "topic_missing",
        "the topic does not exist there (any more); create it, or exclude it",
    )
    FEWER_PARTITIONS = (
        "fewer_partitions",
        "the destination topic has fewer partitions than the source's; add them (kafka-topics --alter --partitions)",
    )
    CREATE_FAILED = (
        "create_failed",
        "the destination topic could not be created; create it by hand or grant Create on it",
    )
    DESTINATION_REWRITES = (
        "destination_rewrites",
        "the destination topic's settings make its broker change batches; set compression.type=producer and "
        "message.timestamp.type=CreateTime there",
    )
    NO_COMMON_VERSION = (
        "no_common_version",
        "the brokers speak no version of a request that the mirror needs; it takes Kafka 0.11 or later on both sides",
    )

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason = reason
        self.remedy = remedy


REASONS = sorted(
    {each.slug for each in HaltReason} | {each.reason for each in Trouble} | {reason for reason, _ in HALTING.values()}
)
"""Every reason that a partition can halt for."""


class Heals(Enum):
    """What heals a halt by itself, without an operator's word."""

    TOPICS = "the topics are as they have to be: looked at whenever topics are refreshed"
    TERMS = "the destination topic's settings have changed: the same"
    ANEW = "settings, rights, or what program and brokers know: tried again at each start and takeover"


HEALING: dict[str, Heals] = {
    Trouble.TOPIC_MISSING.reason: Heals.TOPICS,
    Trouble.FEWER_PARTITIONS.reason: Heals.TOPICS,
    Trouble.CREATE_FAILED.reason: Heals.TOPICS,
    Trouble.DESTINATION_REWRITES.reason: Heals.TOPICS,
    HaltReason.TOO_LARGE.slug: Heals.TERMS,
    HALTING[ErrorCode.INVALID_TIMESTAMP][0]: Heals.TERMS,
    HaltReason.NOT_STRICT.slug: Heals.ANEW,
    HaltReason.UNKNOWN_ATTRIBUTES.slug: Heals.ANEW,
    Trouble.STRICT_REFUSED.reason: Heals.ANEW,
    Trouble.LEADING_OFFSETS.reason: Heals.ANEW,
    Trouble.SETTINGS_CHANGED.reason: Heals.ANEW,
    Trouble.NO_COMMON_VERSION.reason: Heals.ANEW,
    Trouble.FILL_NOT_PERMITTED.reason: Heals.ANEW,
    HALTING[ErrorCode.TOPIC_AUTHORIZATION_FAILED][0]: Heals.ANEW,
    HALTING[ErrorCode.UNSUPPORTED_COMPRESSION_TYPE][0]: Heals.ANEW,
    HALTING[ErrorCode.UNSUPPORTED_VERSION][0]: Heals.ANEW,
    HALTING[ErrorCode.POLICY_VIOLATION][0]: Heals.ANEW,
}
"""Reason -> what heals it. All others say something of the data: they are written down, and stay for whoever takes the
partition over, until an operator resumes it."""
UNPLACED = frozenset({Trouble.RECREATED.reason, Trouble.TOPIC_MISSING.reason, Trouble.CREATE_FAILED.reason})
"""With these, a position says nothing of the topics of now: it was copied to there from, or into, others."""
GAPS = frozenset({HaltReason.UNEXPLAINED_GAP.slug, Trouble.RETENTION_OVERTOOK.reason})
"""What ``on.gap: continue`` goes over, also when it was set after the halt."""


def is_durable(reason: str) -> bool:
    """Whether a halt with this reason stays until an operator resumes the partition."""
    return reason not in HEALING


@dataclass(frozen=True, slots=True)
class Halted:
    """A partition's last word."""

    reason: str
    detail: str
    remedy: str
    at_ms: int = 0
    """When somebody else found it, in ms since 1970; 0: just now, here."""
    size: int = 0
    """Bytes of a batch that was found too large before it was sent."""


class Suspicion(NamedTuple):
    """A verdict that is to be confirmed (``relay.verdicts``)."""

    halted: Halted
    terms: Terms
    """That it was judged by."""
    size: int
    """Bytes of the batch that a broker refused; 0: none was sent."""


class PartitionHalted(Exception):
    """Raised while a position is sought: the partition cannot go on. ``halted`` says why.

    ``writer``: the producer id of the batch that is not ours, if that is why; else -1. ``misplaced``: whether batches
    of ours stand behind it."""

    def __init__(self, halted: Halted) -> None:
        super().__init__(f"{halted.reason}: {halted.detail}")
        self.halted = halted
        self.writer = -1
        self.misplaced = False


def of_mapped(halted: Halted, sharing: Collection[str]) -> Halted:
    """The halt of a partition with ``offsets: mapped``: others may write to its destination topic, so that this is not
    simply to be deleted. ``sharing``: the flow's other topics that go into it."""
    remedy = halted.remedy
    if halted.reason == Trouble.RECREATED.reason and remedy == Trouble.RECREATED.remedy:
        remedy = Trouble.RECREATED_MAPPED.remedy
    elif _ANEW in remedy:
        remedy = remedy.replace(_ANEW, _ANEW_MAPPED)
    if _ANEW_MAPPED in remedy and sharing:
        remedy += f"; so would what this flow has copied of {', '.join(sorted(sharing))}"
    return replace(halted, remedy=remedy)


def halt(trouble: Trouble, detail: str) -> PartitionHalted:
    """The exception for a trouble, with the values that led to it."""
    return PartitionHalted(Halted(trouble.reason, detail, trouble.remedy))


def source_begins(begins: int, floor: int) -> str:
    """Where the source begins, for people: as consumers and Kafka's own tools have it.

    Args:
        begins: base offset of its first batch.
        floor: its log start offset, which may be inside of that batch.
    """
    inside = f" (inside the batch at {begins}, which is still there as a whole)" if floor > begins else ""
    return f"the source's log start offset is {max(begins, floor)}{inside}"


def overtaken(name: str, due: int, begins: int, floor: int, more: str = "") -> PartitionHalted:
    """The source has deleted what is due.

    Args:
        name: of the partition.
        due: the next offset to copy.
        begins: base offset of the batch that the source begins with.
        floor: its log start offset, which may be inside of that batch.
        more: what else is to be said.
    """
    gone = f"offset{'s' if begins - due > 1 else ''} {due}" + (f" to {begins - 1}" if begins - due > 1 else "")
    start = source_begins(begins, floor)
    return halt(Trouble.RETENTION_OVERTOOK, f"{name}: offset {due} is due, and {start}: {gone} cannot be copied{more}")


def halted_by_batch(verdict: BatchHalt) -> Halted:
    """The verdict on a batch as the partition's halt."""
    return Halted(verdict.reason.slug, verdict.detail, verdict.reason.remedy, size=verdict.size)


def halted_by_damage(error: Damaged | Unreadable, source: str) -> Halted:
    """What was read off the data path is damaged: the source's, if ``source`` is the name of its cluster."""
    trouble = Trouble.CORRUPT if error.cluster == source else Trouble.CORRUPT_DESTINATION
    return Halted(trouble.reason, str(error), trouble.remedy)


def halted_by_error(code: int, where: str, message: str | None) -> Halted:
    """An error code that no second look can cure."""
    reason, remedy = HALTING[code]
    return Halted(reason, f"{where}: {error_name(code)}" + (f", {message}" if message else ""), remedy)
