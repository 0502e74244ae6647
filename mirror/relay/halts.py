"""A partition's halt: its reason (``mirror.reasons``), the detail with the values at hand, and the remedy."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from mirror.net.errors import Damaged, Unreadable
from mirror.net.metadata import Leader
from mirror.net.rights import Right
from mirror.reasons import RECOPY, RECOPY_MAPPED, HaltReason
from mirror.records.admit import Halt as BatchHalt
from mirror.records.admit import Terms
from mirror.wire.errors import HALTING, ErrorCode, error_name

WAS_COMPACTED = (
    "; or a log cleaner took it while cleanup.policy had compact, which it has not now: then set it back, resume, and "
    "leave it so until all of that is copied"
)
"""Added to the detail if a source lacks records although its topic is not compacted."""
MAY_STAND_ELSEWHERE = (
    "; or it is the copy that stands at a wrong offset, behind markers of a worker that was stopped for longer than "
    "settle.ms: kafka-dump-log on each of the source's replicas says which (if all have the batch at that offset, the "
    "topic has to be copied again)"
)
"""Added to the detail if the two logs have one batch at different offsets, and nothing tells which one is right."""


@dataclass(frozen=True, slots=True)
class Halted:
    """The halt of a partition: its reason, the values that led to it, and the remedy."""

    reason: str
    detail: str
    remedy: str
    at_ms: int = 0
    """When another worker halted the partition, in ms since 1970; 0: just now, here."""
    size: int = 0
    """Bytes of a batch that was found too large before it was sent."""
    lacks: Right | None = None
    """The right that is missing, if that is the reason and known."""
    unread: int = -1
    """The offset at which a broker fails to read its log, if that is the reason."""

    @classmethod
    def of(
        cls, reason: HaltReason, detail: str, *, size: int = 0, lacks: Right | None = None, unread: int = -1
    ) -> Self:
        """Returns a halt with the reason's own meaning and remedy."""
        return cls(reason.slug, detail, reason.told, size=size, lacks=lacks, unread=unread)


class Suspicion(NamedTuple):
    """A verdict that has to be confirmed (``relay.topics.verdicts``)."""

    halted: Halted
    terms: Terms
    """The terms on which the verdict is based."""
    size: int
    """Bytes of the batch that a broker refused; 0: none was sent."""
    leader: Leader | None = None
    """The source's leader at the time."""


class PartitionHalted(Exception):
    """Raised by work on a partition, mostly while it is located: it cannot go on. ``halted`` says why.

    ``writer``: the producer id of the batch that is not ours, if that is the reason; else -1. ``misplaced``: True if
    batches of ours stand behind it."""

    def __init__(self, halted: Halted) -> None:
        super().__init__(f"{halted.reason}: {halted.detail}")
        self.halted = halted
        self.writer = -1
        self.misplaced = False


def of_mapped(halted: Halted, sharing: Collection[str]) -> Halted:
    """Returns the halt with the remedy for ``offsets: mapped``: others may write to the destination topic, so the
    remedy must not be simply to delete it. ``sharing``: the flow's other topics that are copied into it."""
    remedy = halted.remedy
    if halted.reason == HaltReason.RECREATED.slug and remedy == HaltReason.RECREATED.told:
        remedy = HaltReason.RECREATED_MAPPED.told
    elif RECOPY in remedy:
        remedy = remedy.replace(RECOPY, RECOPY_MAPPED)
    if RECOPY_MAPPED in remedy and sharing:
        remedy += f"; so would what this flow has copied of {', '.join(sorted(sharing))}"
    return replace(halted, remedy=remedy)


def halt(reason: HaltReason, detail: str) -> PartitionHalted:
    """Returns the exception for a reason, with the values that led to it."""
    return PartitionHalted(Halted.of(reason, detail))


def source_begins(begins: int, floor: int) -> str:
    """Returns a phrase for messages: where the source begins, in the terms of consumers and Kafka's own tools.

    Args:
        begins: base offset of its first batch.
        floor: its log start offset, which may be inside of that batch.
    """
    inside = f" (inside the batch at {begins}, which is still there as a whole)" if floor > begins else ""
    return f"the source's log start offset is {max(begins, floor)}{inside}"


def overtaken(name: str, due: int, begins: int, floor: int, more: str = "") -> PartitionHalted:
    """Returns the exception for a source that has deleted records that are due.

    Args:
        name: that of the partition.
        due: the next offset to copy.
        begins: base offset of the source's first batch.
        floor: its log start offset, which may be inside of that batch.
        more: text to add to the detail.
    """
    gone = f"offset{'s' if begins - due > 1 else ''} {due}" + (f" to {begins - 1}" if begins - due > 1 else "")
    start = source_begins(begins, floor)
    return halt(
        HaltReason.RETENTION_OVERTOOK, f"{name}: offset {due} is due, and {start}: {gone} cannot be copied{more}"
    )


def halted_by_batch(verdict: BatchHalt) -> Halted:
    """Returns the verdict on a batch as the partition's halt."""
    return Halted.of(verdict.reason, verdict.detail, size=verdict.size)


def halted_by_damage(error: Damaged | Unreadable, source: str) -> Halted:
    """Returns the halt for damage that was found off the data path. ``source``: the source cluster's name, which tells
    if the damage is there or at the destination."""
    reason = HaltReason.CORRUPT if error.cluster == source else HaltReason.CORRUPT_DESTINATION
    return Halted.of(reason, str(error))


def halted_by_lack(detail: str, lacks: Right, reason: HaltReason = HaltReason.AUTHORIZATION) -> Halted:
    """Returns the halt for a right that is missing. Its remedy is to grant it."""
    return Halted(reason.slug, detail, f"{reason.meaning} {lacks.grant[0].upper()}{lacks.grant[1:]}", lacks=lacks)


def halted_by_error(code: int, where: str, message: str | None, *, needs: Right | None = None) -> Halted:
    """Returns the halt for an error code that looking again cannot cure. ``needs``: the right that the request
    needs."""
    detail = f"{where}: {error_name(code)}" + (f", {message}" if message else "")
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and needs is not None:
        return halted_by_lack(f"{detail}; the mirror's principal lacks {needs}", needs)
    return Halted.of(HALTING[code], detail)
