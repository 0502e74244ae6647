"""Why a partition stops, beyond what a single batch can be (``records.admit.HaltReason``).

A halt has a stable reason (for metrics and alerts), a detail with the values at hand, and a remedy for the operator.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from mirror.net.errors import Damaged, Unreadable
from mirror.records.admit import Halt as BatchHalt
from mirror.records.admit import HaltReason, Terms
from mirror.wire.errors import HALTING, ErrorCode, error_name

_ANEW = "delete the destination topic and run 'mirror partition resume TOPIC': it is created and copied anew"


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
        "keep the destination topic: raise the source's retention, then go on behind the gap with 'mirror partition "
        "resume TOPIC PARTITION --accept-gap', which records it",
    )
    NOT_A_COPY = (
        "not_a_copy",
        "what the destination holds is not a prefix of the source; compare both sides ('mirror audit') and save what "
        f"only the destination has; only then {_ANEW}",
    )
    FOREIGN_WRITER = (
        "foreign_writer",
        "somebody else writes to the destination topic: stop that writer (a mirror of the same topic the other way is "
        "one). Its records are at the destination only, so save those that are needed; the flow's own behind them are "
        f"repeats of the source's at wrong offsets. Then {_ANEW}; or exclude the topic",
    )
    RECREATED = (
        "recreated",
        "the topic was deleted and created again under the same name; the other side may have the only copy of what it "
        f"held before, so save what is needed of that. Then {_ANEW}",
    )
    UNPROVEN = (
        "unproven",
        "the destination's log holds nothing to compare, and nothing that was written down shows that it is a copy of "
        "this source; compare what consumers of both sides have (counts, times), then 'mirror partition resume "
        "--accept-unproven' goes on at the destination's end, or exclude the topic. If a cluster was renamed in the "
        "configuration, set flow.id to what status showed before",
    )
    OTHER_FLOW = (
        "other_flow",
        "a mirror under another flow id wrote this topic, and nothing is wrong with the copy; if it is this flow under "
        "new names, set flow.id: {id} and restart the mirror; else exclude the topic from one of the two flows",
    )
    OVERFILLED = (
        "overfilled",
        "the destination has a marker where the source has a record, so that what follows cannot keep its offset; what "
        "stands before it is a good copy: save what the source no longer has of it (compare where both logs begin). "
        f"Then {_ANEW}",
    )
    CORRUPT = (HaltReason.CORRUPT.slug, HaltReason.CORRUPT.remedy)
    CORRUPT_DESTINATION = (
        "corrupt_destination",
        "the destination's log holds bytes that nobody has written; check the disk of the partition's leader there "
        "(kafka-dump-log --deep-iteration), let it have the partition from a healthy replica (or make another one the "
        "leader), then resume; with no healthy replica, and while the source still has all records, delete the "
        "destination topic and mirror it anew",
    )
    CORRUPT_ON_ITS_WAY = (
        "refused",
        "the batch is whole here and damaged where it arrives, again and again; check the network between the mirror "
        "and the destination's broker, and both machines' memory, then resume",
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
        "where they were copied; restore that topic, or give the flow a new destination topic; if nothing of the flow "
        "was ever copied into this one, resume with accept-gap",
    )
    CHECKPOINT_BEHIND = (
        "checkpoint_behind",
        "the destination has deleted offsets in which copies may have stood that the last checkpoint does not have, "
        "and its leader has forgotten how many; compare the last records of both sides, then resume with accept-gap to "
        "go on from the checkpoint (records may then be there twice), or give the flow a new destination topic",
    )
    AMBIGUOUS = (
        "ambiguous_position",
        "the source has deleted records that were copied behind the last checkpoint, and what is left of them fits in "
        "several places; resume with accept-gap to go on from the first of them (records may then be there twice)",
    )
    NEVER_ARRIVED = (
        "never_arrived",
        "the destination refused a batch and took the one behind it, which stands in its place; resume with accept-gap "
        "to go on without the records in between (the range is recorded as skipped), or give the flow a new "
        "destination topic",
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
    Trouble.NO_COMMON_VERSION.reason: Heals.ANEW,
    Trouble.FILL_NOT_PERMITTED.reason: Heals.ANEW,
    HALTING[ErrorCode.TOPIC_AUTHORIZATION_FAILED][0]: Heals.ANEW,
    HALTING[ErrorCode.UNSUPPORTED_COMPRESSION_TYPE][0]: Heals.ANEW,
    HALTING[ErrorCode.UNSUPPORTED_VERSION][0]: Heals.ANEW,
    HALTING[ErrorCode.POLICY_VIOLATION][0]: Heals.ANEW,
}
"""Reason -> what heals it. All others say something of the data: they are written down, and stay for whoever takes the
partition over, until an operator resumes it."""
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


class Suspicion(NamedTuple):
    """A verdict that is to be confirmed (``relay.verdicts``)."""

    halted: Halted
    terms: Terms
    """That it was judged by."""
    size: int
    """Bytes of the batch that a broker refused; 0: none was sent."""


class PartitionHalted(Exception):
    """Raised while a position is sought: the partition cannot go on. ``halted`` says why.

    ``writer``: the producer id of the batch that is not ours, if that is why; else -1."""

    def __init__(self, halted: Halted) -> None:
        super().__init__(f"{halted.reason}: {halted.detail}")
        self.halted = halted
        self.writer = -1


def halt(trouble: Trouble, detail: str) -> PartitionHalted:
    """The exception for a trouble, with the values that led to it."""
    return PartitionHalted(Halted(trouble.reason, detail, trouble.remedy))


def halted_by_batch(verdict: BatchHalt) -> Halted:
    """The verdict on a batch as the partition's halt."""
    return Halted(verdict.reason.slug, verdict.detail, verdict.reason.remedy)


def halted_by_damage(error: Damaged | Unreadable, source: str) -> Halted:
    """What was read off the data path is damaged: the source's, if ``source`` is the name of its cluster."""
    trouble = Trouble.CORRUPT if error.cluster == source else Trouble.CORRUPT_DESTINATION
    return Halted(trouble.reason, str(error), trouble.remedy)


def halted_by_error(code: int, where: str, message: str | None) -> Halted:
    """An error code that no second look can cure."""
    reason, remedy = HALTING[code]
    return Halted(reason, f"{where}: {error_name(code)}" + (f", {message}" if message else ""), remedy)
