"""A partition's halt: its reason (``mirror.reasons``), the detail with the values at hand, and the remedy."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from mirror.net.errors import Damaged, Unreadable
from mirror.reasons import RECOPY, RECOPY_MAPPED, HaltReason
from mirror.records.admit import Halt as BatchHalt
from mirror.records.admit import Terms
from mirror.wire.errors import HALTING, error_name

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

    @classmethod
    def of(cls, reason: HaltReason, detail: str, *, size: int = 0) -> Self:
        """With the reason's own meaning and remedy."""
        return cls(reason.slug, detail, reason.told, size=size)


class Suspicion(NamedTuple):
    """A verdict that is to be confirmed (``relay.topics.verdicts``)."""

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
    if halted.reason == HaltReason.RECREATED.slug and remedy == HaltReason.RECREATED.told:
        remedy = HaltReason.RECREATED_MAPPED.told
    elif RECOPY in remedy:
        remedy = remedy.replace(RECOPY, RECOPY_MAPPED)
    if RECOPY_MAPPED in remedy and sharing:
        remedy += f"; so would what this flow has copied of {', '.join(sorted(sharing))}"
    return replace(halted, remedy=remedy)


def halt(reason: HaltReason, detail: str) -> PartitionHalted:
    """The exception for a reason, with the values that led to it."""
    return PartitionHalted(Halted.of(reason, detail))


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
    return halt(
        HaltReason.RETENTION_OVERTOOK, f"{name}: offset {due} is due, and {start}: {gone} cannot be copied{more}"
    )


def halted_by_batch(verdict: BatchHalt) -> Halted:
    """The verdict on a batch as the partition's halt."""
    return Halted.of(verdict.reason, verdict.detail, size=verdict.size)


def halted_by_damage(error: Damaged | Unreadable, source: str) -> Halted:
    """What was read off the data path is damaged: the source's, if ``source`` is the name of its cluster."""
    reason = HaltReason.CORRUPT if error.cluster == source else HaltReason.CORRUPT_DESTINATION
    return Halted.of(reason, str(error))


def halted_by_error(code: int, where: str, message: str | None) -> Halted:
    """An error code that no second look can cure."""
    return Halted.of(HALTING[code], f"{where}: {error_name(code)}" + (f", {message}" if message else ""))
