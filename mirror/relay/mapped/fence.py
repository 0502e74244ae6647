"""Fences predecessors at a takeover (``offsets: mapped``), so that whatever they may still send is refused.

The fence is a marker with the predecessor's producer id and a higher epoch than that of its data. From then on, the
partition's leader refuses the predecessor's batches. The coordinator writes the marker for the producer id that it has
for the transactional id. That may not be the predecessor's: the coordinator forgets an id that nobody used for
``transactional.id.expiration.ms``. Then the predecessor's id gets a marker of its own.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from mirror.net.coordinator import Coordinator, Ownership
from mirror.net.errors import Refused, Unreachable
from mirror.net.logs.log import Marker, PartitionLog, Producer
from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import Remembered
from mirror.offsetmap.internal.memory import Memory
from mirror.relay.events import EventLog
from mirror.relay.holes.markers import NOT_PERMITTED
from mirror.relay.locate.resync import POLL_S, barrier
from mirror.relay.locate.tails import SCAN_BYTES

MARKER_WAIT_S = 30.0
"""Longest wait for the fence's marker, which the coordinator writes soon after its response: longer than it takes to
replace a leader."""


class Before(NamedTuple):
    """What is known of producers, as of an end of the destination's log before the fence. The fence changes what the
    leader remembers."""

    end: int
    """Batches that are appended behind this offset were not looked at."""
    known: Sequence[Producer] | None
    """The producers that the leader remembers; None: it cannot tell."""
    complete: bool = False
    """True if nothing of a predecessor can stand behind ``end``: the fence stands before ``end``, and everything before
    the fence was seen."""
    final: tuple[int, int] | None = None
    """The producer id and epoch of a producer all of whose batches up to its fence were seen, so that later deletions
    do not matter; None: there is none."""
    read_to: int = -1
    """A marker that is written from now on stands at or behind this offset. It is behind ``end`` if something in
    between was gone when it was looked at."""

    def last_sequence(self, producer_id: int, epoch: int) -> int | None:
        """Returns the last sequence of the producer; None: not known. -1: it has written nothing in this epoch."""
        found = (one for one in self.known or () if (one.producer_id, one.epoch) == (producer_id, epoch))
        return max((state.last_sequence for state in found), default=None)

    def after(self, earlier: "Before | None") -> "Before":
        """Returns this together with what an earlier look saw, before a fence that got no further."""
        if earlier is None:
            return self
        known = [*(self.known or ()), *(earlier.known or ())]
        if earlier.complete:
            return Before(self.end, known)
        return Before(earlier.end, known, read_to=earlier.read_to)

    def of(self, own: Collection[int]) -> "Before":
        """Returns what is known of these producer ids, with one entry for each id and epoch."""
        return self._replace(known=_joined(one for one in self.known or () if one.producer_id in own))


def _joined(known: Iterable[Producer]) -> list[Producer]:
    """Returns one entry for each id and epoch, with the highest last sequence and coordinator epoch."""
    found: dict[tuple[int, int], Producer] = {}
    for one in known:
        same = found.get((one.producer_id, one.epoch), one)
        found[one.producer_id, one.epoch] = one._replace(
            last_sequence=max(one.last_sequence, same.last_sequence),
            coordinator_epoch=max(one.coordinator_epoch, same.coordinator_epoch),
        )
    return list(found.values())


async def look_before(there: PartitionLog, log: EventLog) -> Before:
    """Asks for the end, the producers and the barrier, in this order. So the leader remembers everything that was
    written before the end, and everything that it remembers is replicated. (A deposed leader remembers batches that
    exist nowhere else.)"""
    end = await there.true_end()
    known = await there.producers()
    await barrier(there, log)
    return Before(end, known)


class DestinationEnd(Protocol):
    """The part of the destination's log that ``noted`` needs."""

    async def true_end(self) -> int:
        """Returns the current log end, replicated or not."""


async def noted(state: Memory, subject: Subject, before: Before, there: DestinationEnd, *, end: int) -> Before:
    """Writes down what the leader remembers, before the fence makes it forget. If another worker has fenced and got no
    further, the result includes what that worker wrote down. It did so before its fence, so a read of the internal
    topic after the look finds it.

    Args:
        state: the internal topic.
        subject: the partition.
        before: what is known of the producers.
        there: the destination's log.
        end: the log's end at the look.

    Raises:
        NetworkError: it is not certain that it was written.
    """
    await state.load()
    checkpoint, known = state.ledger.checkpoint(subject), state.ledger.remembered(subject)
    # A note with a later end is from a worker that has looked since, or is about a log that has lost its end.
    lost = known is not None and known.end > end and known.end > await there.true_end()
    if (
        checkpoint is None
        or known is None
        or lost
        or (known.producer_id, known.epoch) != (checkpoint.identity.producer_id, checkpoint.identity.epoch)
        or _supersedes(before, known)
    ):
        await note(state, subject, before, lost=lost)
        return before
    producer = Producer(known.producer_id, known.epoch, known.last_sequence)
    # Behind its fence, the producer has written nothing more. Without a fence, everything behind that look is yet to be
    # looked at.
    final = (known.producer_id, known.epoch) if known.fenced else None
    return Before(end if final else known.end, [*(before.known or ()), producer], final=final)


async def note(state: Memory, subject: Subject, before: Before, *, lost: bool = False) -> None:
    """Writes down how much the last checkpoint's producer has written, if that is known; unless the checkpoint is
    closed, or there is a note that knows more.

    Args:
        state: the internal topic.
        subject: the partition.
        before: what is known of the producers.
        lost: True if the existing note is about a log that has lost its end since.

    Raises:
        NetworkError: it is not certain that it was written.
    """
    checkpoint = state.ledger.checkpoint(subject)
    if checkpoint is None or checkpoint.closed:
        return
    producer_id, epoch = checkpoint.identity.producer_id, checkpoint.identity.epoch
    last, known = before.last_sequence(producer_id, epoch), state.ledger.remembered(subject)
    same = known is not None and (known.producer_id, known.epoch) == (producer_id, epoch)
    if known is not None and same and not lost and not before.complete and not _supersedes(before, known):
        return
    if last is not None:
        remembered = Remembered(
            subject=subject,
            producer_id=producer_id,
            epoch=epoch,
            last_sequence=last,
            end=before.end,
            fenced=before.complete,
        )
        await state.put(remembered)


def _supersedes(before: Before, known: Remembered) -> bool:
    """Returns True if the look knows at least as much of the note's producer as the note."""
    last = before.last_sequence(known.producer_id, known.epoch)
    return last is not None and not known.fenced and known.end <= before.end


class Looking(NamedTuple):
    """How the log is looked at up to a marker."""

    own: Collection[int]
    """The flow's own producer ids. What others have written is not kept."""
    keep: Callable[[Before], object]
    """Called after each read with what was seen so far, so that a try that gets no further leaves it to the next."""


async def fence(
    coordinator: Coordinator, name: str, owner: Ownership, there: PartitionLog, before: Before, looking: Looking
) -> Before | None:
    """Has the coordinator write a marker under the owner's epoch, and waits until the marker is there.

    Args:
        coordinator: the transaction coordinator.
        name: the transactional id.
        owner: what the coordinator granted for it.
        there: the destination's log.
        before: what is known of the producers.
        looking: how to look at the log up to the marker.

    Returns:
        ``before`` with what was appended up to the marker; None if the topic or the transactional id may not be used
        for transactions.

    Raises:
        NetworkError: it is not certain that the marker is there.
    """
    try:
        await coordinator.abort_empty(name, owner, there.topic.name, there.index)
    except Refused as error:
        if error.code in NOT_PERMITTED:
            return None
        raise
    return await _until_marked(there, owner, before, looking)


def others(checkpoints: Collection[Checkpoint], ours: int) -> dict[int, int]:
    """Returns producer id -> epoch of the predecessors that a marker with ``ours``, our producer id, does not fence."""
    found: dict[int, int] = {}
    for one in checkpoints:
        producer_id, epoch = one.identity.producer_id, one.identity.epoch
        if producer_id != ours:
            found[producer_id] = max(epoch, found.get(producer_id, -1))
    return found


async def fence_others(
    there: PartitionLog, before: Before, old: Mapping[int, int], looking: Looking, log: EventLog
) -> Before | None:
    """Fences each of these producer ids with a marker of its own.

    Args:
        there: the destination's log.
        before: what is known of the producers.
        old: producer id -> epoch.
        looking: how to look at the log up to the markers.
        log: gets an event if the mirror may not write markers.

    Returns:
        ``before`` with what was appended up to the markers; None if the mirror may not write markers.

    Raises:
        NetworkError: it is not certain that the markers are there.
    """
    for producer_id, epoch in old.items():
        states = [state for state in before.known or () if state.producer_id == producer_id]
        if any(state.epoch > epoch for state in states):
            continue  # a worker that got no further has fenced it before
        marked = Ownership(producer_id, epoch + 1)
        coordinator_epoch = max([0, *(state.coordinator_epoch for state in states)])
        try:
            await there.write_markers(Marker(*marked, coordinator_epoch), 1)
        except Refused as error:
            if error.code not in NOT_PERMITTED:
                raise
            log.warning(
                "predecessor_not_fenced",
                detail=f"{error}; producer id {producer_id} is fenced by nothing but the time that has passed",
                remedy="grant the mirror's principal Alter on the destination cluster (ClusterAction before Kafka 3.9)",
            )
            return None
        before = await _until_marked(there, marked, before, looking)
    return before


async def _until_marked(there: PartitionLog, owner: Ownership, before: Before, looking: Looking) -> Before:
    """Waits until the owner's marker stands in the log, replicated, and looks at everything before it.

    Raises:
        NetworkError: the marker did not come within ``MARKER_WAIT_S``, or the log cannot be read.
    """
    offset = max(before.end, before.read_to)
    complete = offset == before.end
    give_up_at = time.monotonic() + MARKER_WAIT_S
    while time.monotonic() < give_up_at:
        start = await there.start()
        if start > offset:
            offset, complete = start, False
        segment = await there.read(offset, max_bytes=SCAN_BYTES)
        seen, marked = list(before.known or ()), False
        for header, _ in segment.batches:
            # If offsets were deleted or cleaned away, nobody knows what stood there.
            complete = complete and header.base_offset <= offset
            offset = header.next_offset
            if complete:
                before = before._replace(end=offset)
            marked = header.is_control and (header.producer_id, header.producer_epoch) == owner
            if marked:
                break
            if not header.is_control and header.producer_id in looking.own:
                seen.append(Producer(header.producer_id, header.producer_epoch, header.last_sequence))
        before = before._replace(known=_joined(seen), read_to=offset)
        if marked:
            return before._replace(complete=complete)
        looking.keep(before)
        if not segment.batches:
            await asyncio.sleep(POLL_S)
    raise Unreachable(f"{there.name}: the marker of producer id {owner.producer_id}, epoch {owner.epoch} did not come")
