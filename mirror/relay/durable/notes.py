"""Notes of what was copied last: when they are written down, and how the source is checked against them."""

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
"""Looks at a leader whose epoch is behind the note's before it is believed: some ten minutes. A whole cluster that was
restored from its disks begins again at an earlier epoch."""


class LedSource(EvidenceSource, Protocol):
    """The source's log, with the leader that is asked."""

    leader: Leader


class Notes:
    """Writes the notes of all partitions of a process, under a key of its own (``offsetmap.entries.pins.Note``)."""

    def __init__(self, state: Memory, *, fresh_s: float) -> None:
        """``fresh_s``: see ``take_away``."""
        self._state = state
        self._fresh_s = fresh_s
        self._writer = uuid.uuid4().hex[:16]

    async def write(self, partitions: Iterable[Partition]) -> None:
        """Writes down what was copied last of these partitions, if that has changed.

        Raises:
            NetworkError: it is not certain that it was written; the next call writes it all.
        """
        await self._save([(each, note) for each in partitions if (note := self.note_of(each)) is not None])

    async def write_anew(self, partition: Partition, copied: LastCopied) -> None:
        """Writes down that the copy ends here now, and forgets all former notes: the destination has lost more than
        that. What is copied from here on may be something else than they tell of.

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
        # Those that are left for want of time, the partition's next note takes away.
        with suppress(NotSent):
            replaced = [each for _, note in changed for each in self._replaced_by(note)]
            await take_away(self._state, replaced, fresh_s=self._fresh_s)

    def _replaced_by(self, note: Note) -> list[Note]:
        """Returns the notes that this one makes useless."""
        return [
            each
            for each in self._state.ledger.notes(note.subject)
            if each.writer != note.writer and same_topics(each, note) and each.copied.rank <= note.copied.rank
        ]

    def note_of(self, partition: Partition) -> Note | None:
        """Returns the note of what was copied last of the partition; None if that is known, or nothing is."""
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
        partition: the one that is looked at.
        here: the source's log.
        unseen: the part that cannot be compared.
        copied: the notes.
        pinned: the topics are the ones that the notes are of.
        accepted: an operator has accepted what the destination holds before this offset.
        replaced: an operator has resumed over another source topic than the one that was copied.
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
    """Calls ``relay.locate.evidence.check_kept`` with these notes; see ``ask``."""
    known = _known(partition, here, copied, pinned=True, accepted=accepted, replaced=replaced)
    return await _judged(partition, known, unseen, check_kept(here, known, unseen), None)


async def _judged(
    partition: Partition, known: Known, unseen: Unseen, verdict: Awaitable[Verdict], trusted: Verdict
) -> Verdict:
    """Returns the verdict; ``trusted`` if an operator has given their word instead."""
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
    """Returns True if an operator has given their word for what nothing vouches for, and notes what that covers."""
    if not partition.claim.accept_unproven or unseen.differs:
        return False
    # If the topic took another one's place, this includes what the source never had.
    begins = min(unseen.log_start, unseen.source_start) if known.replaced else unseen.source_start
    partition.claim.trust((max(begins, known.accepted), unseen.end))
    partition.claim.inherit(None, partition.claim.inherited)  # it may tell of more
    return True


def acknowledged_note(partition: Partition, end: int) -> list[LastCopied]:
    """Returns a note of the position as last known, or of the destination's ``end``, if that is before it. It covers
    what leaves no mark as well: markers, and batches from the middle of a record set."""
    reached, epoch = partition.queue.reached, partition.cursor.leader_epoch
    return [LastCopied(min(reached, end), epoch)] if epoch >= 0 and reached > 0 else []


def is_first(partition: Partition) -> bool:
    """Returns True if something was copied of the partition, and no note tells of a batch. Part of a record set is
    enough: one with old records takes long, with one batch under way at a time."""
    pin = partition.claim.pin
    none_yet = pin is not None and (pin.copied is None or not pin.copied.digest)
    return none_yet and partition.queue.acknowledged >= 0 and partition.counts.records > 0


def committed_note(partition: Partition) -> list[LastCopied]:
    """Returns the group's note of what was copied last of this source topic; empty: there is none."""
    committed = partition.claim.committed
    if committed is None or not committed.digest or not committed.is_of(id_text(partition.claim.source_id)):
        return []
    if committed.leader_epoch < 0:
        return [LastCopied(committed.digest_at, committed.epoch, committed.digest, committed.digest_at)]
    return [LastCopied(committed.offset, committed.leader_epoch, committed.digest, committed.digest_at)]


def was_copied(partition: Partition) -> bool:
    """Returns True if a record of these topics is known to have been copied, from the pin or the group."""
    pin, committed = partition.claim.pin, partition.claim.committed
    if pin is not None and pin.copied is not None and pin.copied.digest:
        return True
    return committed is not None and bool(committed.digest) and committed.is_of(id_text(partition.claim.source_id))


def same_topics(note: Note, other: Note | Pin) -> bool:
    """Returns True if both are of the same topics, as far as their ids are known."""
    return same_ids((note.source_id, note.destination_id), (other.source_id, other.destination_id))
