"""Halts of partitions. Each has a reason (``mirror.reasons``), a detail with the values involved, and a remedy."""

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
"""Added to the detail if the two logs have the same batch at different offsets, and nothing shows which offset is
right."""


@dataclass(frozen=True, slots=True)
class Halted:
    """Why a partition has halted: the reason, the values that led to it, and the remedy."""

    reason: str
    detail: str
    remedy: str
    at_ms: int = 0
    """When the partition halted, in ms since 1970, if the halt was found in the internal topic; 0: this process has
    found it."""
    size: int = 0
    """Size in bytes of a batch that was found too large before it was sent; 0: there is none."""
    lacks: Right | None = None
    """The missing right, if that is the reason and the right is known."""
    unread: int = -1
    """The offset at which a broker fails to read its log, if that is the reason and it may pass; else -1."""

    @classmethod
    def of(
        cls, reason: HaltReason, detail: str, *, size: int = 0, lacks: Right | None = None, unread: int = -1
    ) -> Self:
        """Returns a halt with the meaning and the remedy that ``reason`` has by itself."""
        return cls(reason.slug, detail, reason.told, size=size, lacks=lacks, unread=unread)


class Suspicion(NamedTuple):
    """A verdict that has to be confirmed before the partition halts (``relay.topics.verdicts``)."""

    halted: Halted
    terms: Terms
    """The terms on which the verdict is based."""
    size: int
    """Size in bytes of the batch in question, which is too large or was refused by a broker; 0: there is none."""
    leader: Leader | None = None
    """The source partition's leader when the verdict was found."""


class PartitionHalted(Exception):
    """Raised by work on a partition, mostly while it is located: it cannot go on.

    Attributes:
        halted: the reason.
        writer: producer id of the batch that another writer has written, if that is the reason; else -1.
        misplaced: True if batches of this flow stand behind that batch.
    """

    def __init__(self, halted: Halted) -> None:
        super().__init__(f"{halted.reason}: {halted.detail}")
        self.halted = halted
        self.writer = -1
        self.misplaced = False


def of_mapped(halted: Halted, sharing: Collection[str]) -> Halted:
    """Returns the halt with the remedy for ``offsets: mapped``. Others may write to the destination topic, so the
    remedy must not simply be to delete it.

    Args:
        halted: the halt with its usual remedy.
        sharing: the flow's other topics that are copied into the same destination topic.
    """
    remedy = halted.remedy
    if halted.reason == HaltReason.RECREATED.slug and remedy == HaltReason.RECREATED.told:
        remedy = HaltReason.RECREATED_MAPPED.told
    elif RECOPY in remedy:
        remedy = remedy.replace(RECOPY, RECOPY_MAPPED)
    if RECOPY_MAPPED in remedy and sharing:
        remedy += f"; so would what this flow has copied of {', '.join(sorted(sharing))}"
    return replace(halted, remedy=remedy)


def halt(reason: HaltReason, detail: str) -> PartitionHalted:
    """Returns the exception for a reason.

    Args:
        reason: the reason.
        detail: text with the values that led to it.
    """
    return PartitionHalted(Halted.of(reason, detail))


def source_begins(begins: int, floor: int) -> str:
    """Returns a phrase for messages that says where the source begins, in the words of consumers and Kafka's own tools.

    Args:
        begins: base offset of the source's first batch.
        floor: the source's log start offset, which may be inside that batch.
    """
    inside = f" (inside the batch at {begins}, which is still there as a whole)" if floor > begins else ""
    return f"the source's log start offset is {max(begins, floor)}{inside}"


def overtaken(name: str, due: int, begins: int, floor: int, more: str = "") -> PartitionHalted:
    """Returns the exception for a source that has deleted records that are due.

    Args:
        name: the partition's name.
        due: the next offset to copy.
        begins: base offset of the source's first batch.
        floor: the source's log start offset, which may be inside that batch.
        more: text to add to the detail.
    """
    gone = f"offset{'s' if begins - due > 1 else ''} {due}" + (f" to {begins - 1}" if begins - due > 1 else "")
    start = source_begins(begins, floor)
    return halt(
        HaltReason.RETENTION_OVERTOOK, f"{name}: offset {due} is due, and {start}: {gone} cannot be copied{more}"
    )


def halted_by_batch(verdict: BatchHalt) -> Halted:
    """Returns the halt of a partition for the verdict on one of its batches."""
    return Halted.of(verdict.reason, verdict.detail, size=verdict.size)


def halted_by_damage(error: Damaged | Unreadable, source: str) -> Halted:
    """Returns the halt for damage that was found off the data path: ``corrupt`` or ``corrupt_destination``.

    Args:
        error: the damage. It names the cluster.
        source: the source cluster's name.
    """
    reason = HaltReason.CORRUPT if error.cluster == source else HaltReason.CORRUPT_DESTINATION
    return Halted.of(reason, str(error))


def halted_by_lack(detail: str, lacks: Right, reason: HaltReason = HaltReason.AUTHORIZATION) -> Halted:
    """Returns the halt for a missing right. Its remedy is to grant the right."""
    return Halted(reason.slug, detail, f"{reason.meaning} {lacks.grant[0].upper()}{lacks.grant[1:]}", lacks=lacks)


def halted_by_error(code: int, where: str, message: str | None, *, needs: Right | None = None) -> Halted:
    """Returns the halt for an error code that locating the partition again cannot cure.

    Args:
        code: one of ``HALTING``.
        where: the cluster, and what was asked of it.
        message: the broker's own words; None: there are none.
        needs: the right that the request needs.
    """
    detail = f"{where}: {error_name(code)}" + (f", {message}" if message else "")
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and needs is not None:
        return halted_by_lack(f"{detail}; the mirror's principal lacks {needs}", needs)
    return Halted.of(HALTING[code], detail)
