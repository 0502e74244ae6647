"""Notes of what was copied last: writes them, and has the source checked against them."""

import time
import uuid
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol, TypeVar

from mirror.net.errors import NotSent
from mirror.net.metadata import Leader
from mirror.offsetmap.entries.pins import LastCopied, Note, Pin
from mirror.offsetmap.fields import id_text, same_ids
from mirror.offsetmap.internal.memory import Memory
from mirror.records.header import NO_LEADER_EPOCH
from mirror.relay.assignment import committable, copied_to
from mirror.relay.durable.due import take_away
from mirror.relay.halts import PartitionHalted
from mirror.relay.locate.evidence import EvidenceSource, Known, StaleLeader, Unseen, check_kept, vouch
from mirror.relay.partition.partition import Partition

Verdict = TypeVar("Verdict")
MOST_STALE = 60
"""Consecutive looks at a source leader with an earlier epoch than the note's, after which it is believed; some ten
minutes. A cluster that was restored from its disks begins again at an earlier epoch."""


class LedSource(EvidenceSource, Protocol):
    """The source's log, and the leader that is asked for it."""

    leader: Leader


class Notes:
    """Writes the notes of all partitions of a process. Each process has keys of its own
    (``offsetmap.entries.pins.Note``)."""

    def __init__(self, state: Memory, *, fresh_s: float) -> None:
        """``fresh_s``: see ``take_away``."""
        self._state = state
        self._fresh_s = fresh_s
        self._writer = uuid.uuid4().hex[:16]

    async def write(self, partitions: Iterable[Partition]) -> None:
        """Writes down what was copied last of these partitions, if that has changed.

        Raises:
            NetworkError: it is not certain that it was written. The next call writes all of it.
        """
        await self._save([(each, note) for each in partitions if (note := self.note_of(each)) is not None])

    async def write_anew(self, partition: Partition, copied: LastCopied) -> None:
        """Writes down that the copy ends here now, and removes all earlier notes: they name more than the destination
        still has. What is copied from here on may differ from what they describe.

        Args:
            partition: the partition. Without a pin, nothing is written.
            copied: what the destination still has.

        Raises:
            NetworkError: it is not certain that it was written.
        """
        pin = partition.claim.pin
        if pin is None:
            return
        note = self._note(partition, pin, copied)
        former = [
            each
            for each in self._state.ledger.notes(note.subject)
            if each.writer != note.writer and same_topics(each, note)
        ]
        await take_away(self._state, former, note, replace(pin, copied=None), fresh_s=self._fresh_s)
        partition.claim.keep_pin(replace(pin, copied=copied))
        partition.claim.inherit(None, partition.claim.inherited)

    async def _save(self, changed: list[tuple[Partition, Note]]) -> None:
        if not changed:
            return
        await self._state.save([note for _, note in changed])
        for partition, note in changed:
            if partition.claim.pin is not None and same_topics(note, partition.claim.pin):
                partition.claim.keep_pin(replace(partition.claim.pin, copied=note.copied))
        # If there was no time to remove them, the partition's next note does.
        with suppress(NotSent):
            replaced = [each for _, note in changed for each in self._replaced_by(note)]
            await take_away(self._state, replaced, fresh_s=self._fresh_s)

    def _replaced_by(self, note: Note) -> list[Note]:
        """Returns the notes of other writers that this note makes superfluous."""
        return [
            each
            for each in self._state.ledger.notes(note.subject)
            if each.writer != note.writer and same_topics(each, note) and each.copied.rank <= note.copied.rank
        ]

    def note_of(self, partition: Partition) -> Note | None:
        """Returns the note of what was copied last of the partition. None: it is already written, there is no pin, or
        the position is not known."""
        found, pin = committable(partition), partition.claim.pin
        if (
            found is None
            and partition.halted is not None
            and (at_halt := copied_to(partition, partition.position)).digest
        ):
            found = at_halt
        if pin is None or found is None:
            return None
        copied = LastCopied(found.offset, found.leader_epoch, found.digest, found.digest_at)
        return None if copied == pin.copied else self._note(partition, pin, copied)

    def _note(self, partition: Partition, pin: Pin, copied: LastCopied) -> Note:
        return Note(
            subject=partition.subject,
            writer=self._writer,
            source_id=pin.source_id,
            destination_id=pin.destination_id,
            copied=copied,
            at_ms=round(time.time() * 1000),
        )


async def ask(
    partition: Partition,
    here: LedSource,
    unseen: Unseen,
    copied: Iterable[LastCopied],
    *,
    pinned: bool,
    accepted: int = 0,
    replaced: bool = False,
) -> int:
    """Calls ``relay.locate.evidence.vouch`` with these notes.

    Args:
        partition: the partition.
        here: the source's log.
        unseen: the part of the destination that cannot be compared.
        copied: the notes.
        pinned: True if the topics are those that the notes are about.
        accepted: an operator has accepted what the destination holds before this offset.
        replaced: True if an operator has resumed over another source topic than the one that was copied.

    Returns:
        The result of ``vouch``; -1 if an operator vouches instead (``Claim.accept_unproven``).

    Raises:
        PartitionHalted, NetworkError: as ``vouch``.
    """
    known = _known(partition, here, copied, pinned=pinned, accepted=accepted, replaced=replaced)
    return await _judged(partition, known, unseen, vouch(here, known, unseen), NO_LEADER_EPOCH)


async def ask_kept(
    partition: Partition,
    here: LedSource,
    unseen: Unseen,
    copied: Iterable[LastCopied],
    *,
    accepted: int = 0,
    replaced: bool = False,
) -> LastCopied | None:
    """Calls ``relay.locate.evidence.check_kept`` with these notes. For the arguments, see ``ask``."""
    known = _known(partition, here, copied, pinned=True, accepted=accepted, replaced=replaced)
    return await _judged(partition, known, unseen, check_kept(here, known, unseen), None)


async def _judged(
    partition: Partition, known: Known, unseen: Unseen, verdict: Awaitable[Verdict], trusted: Verdict
) -> Verdict:
    """Returns the verdict, or ``trusted`` if the verdict is a halt and an operator vouches instead."""
    partition.claim.trust(None)
    try:
        return await verdict
    except StaleLeader:
        partition.claim.ask_stale()
        raise
    except PartitionHalted:
        if not _trusts(partition, known, unseen):
            raise
        return trusted


def _known(
    partition: Partition,
    here: LedSource,
    copied: Iterable[LastCopied],
    *,
    pinned: bool,
    accepted: int,
    replaced: bool,
) -> Known:
    epoch = here.leader.epoch if partition.claim.stale_asked < MOST_STALE else NO_LEADER_EPOCH
    return Known(
        name=partition.name,
        pinned=pinned,
        has_ids=bool(partition.claim.source_id),
        copied=tuple(copied),
        accepted=accepted,
        replaced=replaced,
        compacted=partition.terms.compacted,
        leader_epoch=epoch,
    )


def _trusts(partition: Partition, known: Known, unseen: Unseen) -> bool:
    """Returns True if an operator vouches for what nothing proves, and notes the range of offsets that this covers."""
    if not partition.claim.accept_unproven or unseen.differs:
        return False
    # If the source topic replaced another one, the range includes what this source never had.
    begins = min(unseen.log_start, unseen.source_start) if known.replaced else unseen.source_start
    partition.claim.trust((max(begins, known.accepted), unseen.end))
    partition.claim.inherit(None, partition.claim.inherited)  # the group's commit may name more
    return True


def acknowledged_note(partition: Partition, end: int) -> list[LastCopied]:
    """Returns a note of the position as this process last knew it, or of the destination's ``end`` if that is lower.
    Empty: nothing was acknowledged, or the leader epoch is not known. The note also covers what leaves no mark:
    markers, and batches in the middle of a record set."""
    reached, epoch = partition.queue.reached, partition.cursor.leader_epoch
    return [LastCopied(min(reached, end), epoch)] if epoch >= 0 and reached > 0 else []


def is_first(partition: Partition) -> bool:
    """Returns True if some of the partition was copied, and no note has a batch's digest. A part of a record set is
    enough: a record set with old records takes long, since only one batch may be in flight at a time."""
    pin = partition.claim.pin
    none_yet = pin is not None and (pin.copied is None or not pin.copied.digest)
    return none_yet and partition.queue.acknowledged >= 0 and partition.counts.records > 0


def committed_note(partition: Partition) -> list[LastCopied]:
    """Returns the note of what was copied last of this source topic, according to the group's commit; empty if there is
    none."""
    committed = partition.claim.committed
    if committed is None or not committed.digest or not committed.is_of(id_text(partition.claim.source_id)):
        return []
    if committed.leader_epoch < 0:
        return [LastCopied(committed.digest_at, committed.epoch, committed.digest, committed.digest_at)]
    return [LastCopied(committed.offset, committed.leader_epoch, committed.digest, committed.digest_at)]


def was_copied(partition: Partition) -> bool:
    """Returns True if a record of these topics was copied, according to the pin or the group's commit."""
    pin, committed = partition.claim.pin, partition.claim.committed
    if pin is not None and pin.copied is not None and pin.copied.digest:
        return True
    return committed is not None and bool(committed.digest) and committed.is_of(id_text(partition.claim.source_id))


def same_topics(note: Note, other: Note | Pin) -> bool:
    """Returns True if both are about the same topics, as far as the ids are known."""
    return same_ids((note.source_id, note.destination_id), (other.source_id, other.destination_id))
