"""Writes notes of what was due: the offset from which records were still to be copied when a partition halted.

As long as the destination has the partition's copy, a source that deletes due records meanwhile halts the partition
again. If nothing was copied yet, or the destination topic is recreated, the copy begins where the source begins by
then. In that case only the note in the internal topic shows what was due before that.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial

from mirror.net.backoff import Backoff
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, NotSent
from mirror.net.logs.log import PartitionLog
from mirror.net.metadata import Topic, no_leader
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.passed import PassedOverOffsets
from mirror.offsetmap.entries.pins import HALTED, KeptHalt, LastCopied, Note
from mirror.offsetmap.fields import TopicIds, id_text, ids_differ, same_ids
from mirror.offsetmap.internal.memory import May, Memory
from mirror.records.header import NO_LEADER_EPOCH
from mirror.relay.durable.skips import DELETED, Skips
from mirror.relay.halts import Halted
from mirror.relay.partition.clock import since_boot
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.settings import RelaySettings

UNSENT_TRIES = 3
"""After this many consecutive attempts that ended before anything was sent, the answer of ``may_tell`` counts from its
arrival, not from the question. With a slow coordinator, the halt would otherwise never be written."""

ANSWER_S = 5.0
"""Seconds within which the coordinator has to name the owner of a partition, where other work waits for that."""

MayTell = Callable[[Partition], Awaitable[bool]]
"""Returns True if what this worker knows of a halted partition may be written down; see ``Owners.may_tell``."""


class Due:
    """Keeps the notes of what was due for all partitions of a process. A note is about the source topic; it counts
    whichever destination topic the records would have gone to."""

    def __init__(
        self, state: Memory, skips: Skips, *, source: Cluster, destination: Cluster, settings: RelaySettings
    ) -> None:
        self._state = state
        self._skips = skips
        self._source = source
        self._destination = destination
        self._settings = settings
        self._noting: dict[Partition, Halted] = {}

    def at_halt(self, partition: Partition) -> int:
        """Returns the offset from which records were due; -1 if there is no note about the current source topic."""
        note = self.note(partition)
        return -1 if note is None else note.copied.offset

    def note(self, partition: Partition) -> Note | None:
        """Returns the note about the current source topic; None if there is none."""
        source = self._source.topics.get(partition.topic)
        if source is None:
            return None
        note = self._state.ledger.due(partition.subject)
        return note if note is not None and not ids_differ(note.source_id, id_text(source.topic_id)) else None

    async def now(self, partition: Partition) -> list[Note]:
        """Returns the note of a partition that halts now. An empty list: the source topic is not known, or there is
        nothing new to note.

        Raises:
            NetworkError: the source cannot be asked now.
        """
        source = self._source.topics.get(partition.topic)
        if source is None:
            return []
        source_id, destination_id = self.ids(partition)
        if partition.position >= 0 and self._is_located(partition):
            due = LastCopied(partition.position, partition.cursor.leader_epoch)
        elif self.note(partition) is not None:
            return []  # from an earlier halt
        else:
            # The logs were not looked at, so the leader epoch under which it was copied is not known.
            copied = self._copied_to(partition)
            due = LastCopied(copied if copied >= 0 else await self._start(partition, source), NO_LEADER_EPOCH)
        return [_note(partition, source_id, destination_id, due)]

    async def _start(self, partition: Partition, source: Topic) -> int:
        """Returns the first offset that the source has.

        Raises:
            NetworkError: the partition has no leader, or the leader cannot be asked.
        """
        leader = self._source.leader(partition.topic, partition.index)
        if leader is None:
            raise no_leader(self._source.name, partition.topic, partition.index, source)
        return await PartitionLog(self._source, source, partition.index, leader).start()

    def _begins(self, partition: Partition) -> int:
        """Returns the offset at which the copy begins (``start.from``); 0 if that was not decided for the current
        source topic. A partition may halt before it is decided: then its note may name a lower offset."""
        source = self._source.topics.get(partition.topic)
        source_id = id_text(source.topic_id) if source is not None else None
        starting = self._state.ledger.starting(partition.subject, source_id)
        return starting.offset if starting is not None else 0

    async def write_down(self, partition: Partition, halted: Halted, may_tell: MayTell) -> None:
        """Notes what is due now. Tries until it succeeds, as long as the partition is halted for this reason and no
        other worker has it. ``may_tell``: see ``persistently``."""
        if self._noting.get(partition) is halted:
            return
        self._noting[partition] = halted
        notes: list[Note] | None = None

        async def attempt(may: May) -> None:
            nonlocal notes
            if notes is None:
                await self._state.load()
                notes = await self.now(partition)
            if notes:
                # The first answer counts: records that the source deletes while this fails were due.
                await self._state.save(notes, may=may)

        async def again() -> None:
            await self._source.refresh([partition.topic])

        try:
            await persistently(attempt, self._settings, partition, halted, may_tell=may_tell, between=again)
        finally:
            if self._noting.get(partition) is halted:
                del self._noting[partition]

    async def settle(self, partitions: Iterable[Partition], owns: MayTell) -> None:
        """Removes the notes of earlier halts once something behind them was copied.

        Args:
            partitions: the partitions to check.
            owns: see ``Owners.owns``. The notes of a partition that another worker owns are kept: that worker may copy
                into another destination topic, and may have halted at a lower offset.

        Raises:
            NetworkError, TimeoutError: it is not certain that they were removed. The next call tries again.
        """
        passed = {
            each: note
            for each in partitions
            if (note := self.note(each)) is not None and each.queue.acknowledged > note.copied.offset
        }
        async with asyncio.timeout(ANSWER_S):
            ours = await asyncio.gather(*map(owns, passed))
        await take_away(
            self._state,
            [note for note, is_ours in zip(passed.values(), ours, strict=True) if is_ours],
            fresh_s=self._settings.fresh_s,
        )

    async def overtaken(self, partition: Partition, upto: int) -> None:
        """Writes down as skipped what was due before offset ``upto``. Must be called before the copy begins there.

        Raises:
            NetworkError: it is not certain that it was written.
        """
        note = self.note(partition)
        if note is None or not (due := max(note.copied.offset, self._begins(partition))) < upto:
            return
        moved = _note(partition, note.source_id, note.destination_id, note.copied._replace(offset=upto))
        await self._skips.write(partition.subject, [(due, upto, DELETED)], moved)
        partition.claim.overtaken.append((due, upto))

    def ids(self, partition: Partition) -> TopicIds:
        """Returns the current ids of the source and destination topic; None for an id that is not known."""
        here = self._source.topics.get(partition.topic)
        there = self._destination.topics.get(partition.destination)
        return (
            id_text(here.topic_id) if here is not None else None,
            id_text(there.topic_id) if there is not None else None,
        )

    def _is_located(self, partition: Partition) -> bool:
        """Returns True if this process has found a position in the current topics."""
        ids, claim = self.ids(partition), partition.claim
        known = id_text(claim.source_id), id_text(claim.destination_id)
        # An unknown id does not stand for another topic. But without ids, the position may come from a commit of the
        # group only, so the partition must have been located here as well.
        return ids == known or (claim.destination_leader >= 0 and same_ids(ids, known))

    def _copied_to(self, partition: Partition) -> int:
        """Returns the offset up to which the current source topic was copied into the current destination topic,
        according to the internal topic and the group; -1 if neither says so."""
        ids, committed, ledger = self.ids(partition), partition.claim.committed, self._state.ledger
        if self._settings.mapped:
            checkpoint = ledger.checkpoint(partition.subject)
            of_these = checkpoint is not None and same_ids((checkpoint.source_id, checkpoint.destination_id), ids)
            return checkpoint.source_offset if checkpoint is not None and of_these else -1
        pin = ledger.pin(partition.subject)
        of_these = pin is not None and same_ids((pin.source_id, pin.destination_id), ids)
        copied = [
            each.copied
            for each in ledger.notes(partition.subject)
            if same_ids((each.source_id, each.destination_id), ids)
        ]
        if pin is not None and of_these and pin.copied is not None:
            copied.append(pin.copied)
        if committed is not None and committed.is_of(ids[0]) and (pin is None or of_these):
            copied.append(LastCopied(committed.offset, committed.epoch, committed.digest, committed.digest_at))
        return max((one.offset for one in copied if one.digest), default=-1)


Written = KeptHalt | Note | PassedOverOffsets


async def take_away(state: Memory, seen: Collection[Written], *others: Entry, fresh_s: float) -> None:
    """Removes entries whose keys other owners write as well, if they are still as they were seen. A later owner may
    have replaced them since.

    Args:
        state: the internal topic. It is read first.
        seen: the entries to remove.
        others: entries to write with that.
        fresh_s: for how many seconds after that read the write may be sent. A write that fails is not repeated.

    Raises:
        NotSent: the write had to wait for others longer than that.
        NetworkError: it is not certain that it was written.
    """
    if not seen and not others:
        return
    read_at = since_boot()
    await state.load()
    known = {each.key(): each for each in state.ledger.about({each.subject for each in seen})}
    forget = [each.key() for each in seen if known.get(each.key()) == each]
    if forget or others:
        await state.save(others, forget=forget, may=lambda: since_boot() - read_at <= fresh_s)


async def persistently(
    attempt: Callable[[May], Awaitable[None]],
    settings: RelaySettings,
    partition: Partition,
    halted: Halted,
    *,
    may_tell: MayTell,
    between: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """Calls ``attempt`` until it succeeds, with growing pauses, as long as the partition is halted for this reason.

    Args:
        attempt: writes down something about this halt, as long as it may (``InternalTopic.save``).
        settings: the flow's settings.
        partition: the halted partition.
        halted: the reason.
        may_tell: returns False if another worker has the partition by now, where an operator may have resumed it. It is
            asked before each attempt. Its answer counts for ``RelaySettings.fresh_s`` from the question (but see
            ``UNSENT_TRIES``), and not after the partition is let go. If the coordinator does not answer within
            ``ANSWER_S``, the first attempt is made without an answer, unless the partition was already let go: a halt
            that is not written before this process dies may be lost.
        between: called before each attempt that follows a failed one.
    """
    backoff, unsent = (Backoff(least_ms=settings.backoff_ms, most_ms=settings.backoff_max_ms) for _ in range(2))
    first = True
    while partition.halted is halted:
        try:
            if backoff.tries and between is not None:
                await between()
            let_go, asked_at = partition.phase is Phase.STOPPED, since_boot()
            try:
                async with asyncio.timeout(ANSWER_S if first and not let_go else None):
                    if not await may_tell(partition):
                        return
            except (NetworkError, TimeoutError):
                if let_go or not first:
                    raise
                asked_at = since_boot()
            first = False
            if unsent.tries >= UNSENT_TRIES:
                asked_at = since_boot()
            await attempt(partial(_holds, settings, partition, halted, let_go=let_go, asked_at=asked_at))
            return
        except NotSent:
            # This is no failure: other writes came first, as when thousands of partitions halt, or the coordinator was
            # slow.
            await asyncio.sleep(unsent.next_s())
        except NetworkError:
            unsent.reset()
            await asyncio.sleep(backoff.next_s())


def _holds(settings: RelaySettings, partition: Partition, halted: Halted, *, let_go: bool, asked_at: float) -> bool:
    """Returns True if what was known at ``asked_at`` (``since_boot``) still holds: the partition is halted for this
    reason, and no other worker has it. ``let_go``: the partition had already been let go at that time."""
    kept = let_go or partition.phase is not Phase.STOPPED
    return kept and partition.halted is halted and since_boot() - asked_at <= settings.fresh_s


def _note(partition: Partition, source_id: str | None, destination_id: str | None, due: LastCopied) -> Note:
    return Note(
        subject=partition.subject,
        writer=HALTED,
        source_id=source_id,
        destination_id=destination_id,
        copied=due,
        at_ms=_now_ms(),
    )


def _now_ms() -> int:
    return round(time.time() * 1000)
