"""What was due when a partition halted and nothing of its topics was copied yet.

Such a halt protects nothing at the destination, so the copy later begins where the source begins by then. What the
source deleted in between was due, and is told: a note in the internal topic says from which offset on.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from mirror.net.backoff import Backoff
from mirror.net.cluster import Cluster, no_leader
from mirror.net.errors import NetworkError
from mirror.net.log import PartitionLog
from mirror.net.state import Memory
from mirror.records.fields import id_text
from mirror.records.header import NO_LEADER_EPOCH
from mirror.records.pins import HALTED, LastCopied, Note
from mirror.records.state import Skipped
from mirror.relay.halts import Trouble
from mirror.relay.partition import Partition
from mirror.relay.settings import RelaySettings

DELETED = Trouble.RETENTION_OVERTOOK.reason
"""Why a range counts as skipped that the source deleted while a halt kept it from being copied."""


class Due:
    """Of all partitions of a process. What was due is of the source's topic: which one of the destination's it would
    have been copied into does not matter."""

    def __init__(self, state: Memory, *, source: Cluster, destination: Cluster, settings: RelaySettings) -> None:
        self._state = state
        self._source = source
        self._destination = destination
        self._settings = settings

    def at_halt(self, partition: Partition) -> int:
        """The offset from which on records were due; -1: nothing is noted of the source topic of now."""
        note = self.note(partition)
        return -1 if note is None else note.copied.offset

    def note(self, partition: Partition) -> Note | None:
        """The one that is written down of the source topic of now."""
        source = self._source.topics.get(partition.topic)
        if source is None:
            return None
        note = self._state.ledger.due(partition.side)
        return note if note is not None and note.source_id == id_text(source.topic_id) else None

    async def now(self, partition: Partition) -> list[Note]:
        """The note of a partition that halts now; none if something was copied, or nothing new is to be noted.

        Raises:
            NetworkError: the source cannot be asked now.
        """
        source = self._source.topics.get(partition.topic)
        if source is None or self._was_copied(partition):
            return []
        source_id, destination_id = self.ids(partition)
        if partition.position >= 0 and self._is_located(partition):
            due = LastCopied(partition.position, partition.source_leader_epoch)
        elif self.note(partition) is not None:
            return []  # from an earlier halt
        else:
            leader = self._source.leader(partition.topic, partition.index)
            if leader is None:
                raise no_leader(self._source.name, partition.topic, partition.index, source)
            log = PartitionLog(self._source, source, partition.index, leader)
            # Nothing is at the destination, so this says nothing of a leader epoch under which it was copied.
            due = LastCopied(await log.start(), NO_LEADER_EPOCH)
        return [_note(partition, source_id, destination_id, due)]

    async def write_down(self, partition: Partition, still: Callable[[], bool]) -> None:
        """Notes what is due now, however long it takes, as long as ``still`` says that the partition has halted."""

        async def attempt() -> None:
            notes = await self.now(partition)
            if notes and still():
                await self._state.save(notes)

        async def again() -> None:
            await self._source.refresh([partition.topic])

        await persistently(attempt, self._settings, still, between=again)

    async def overtaken(self, partition: Partition, upto: int) -> None:
        """The copy begins at offset ``upto``. What was due before is written down as skipped; before the copy begins.

        Raises:
            NetworkError: not certain that it is there.
        """
        note = self.note(partition)
        if note is None or not note.copied.offset < upto:
            return
        due = note.copied.offset
        skipped = Skipped(side=partition.side, start=due, end=upto, cause=DELETED, at_ms=_now_ms())
        moved = _note(partition, note.source_id, note.destination_id, note.copied._replace(offset=upto))
        await self._state.save([skipped, moved])
        partition.overtaken.append((due, upto))

    def ids(self, partition: Partition) -> tuple[str | None, str | None]:
        """Of source and destination topic, as of now."""
        here = self._source.topics.get(partition.topic)
        there = self._destination.topics.get(partition.destination)
        return (
            id_text(here.topic_id) if here is not None else None,
            id_text(there.topic_id) if there is not None else None,
        )

    def _is_located(self, partition: Partition) -> bool:
        """Whether the process has found a position in the topics of now."""
        return self.ids(partition) == (id_text(partition.source_id), id_text(partition.destination_id))

    def _was_copied(self, partition: Partition) -> bool:
        """Whether something of the source topic of now was copied into the destination topic of now: then what the
        source deletes halts the partition again."""
        ids, pin, committed = self.ids(partition), partition.pin, partition.committed
        if self._is_located(partition) and (partition.marks or partition.counts.batches):
            return True
        if self._settings.mapped:
            checkpoint = self._state.ledger.checkpoint(partition.side)
            return checkpoint is not None and (checkpoint.source_id, checkpoint.destination_id) == ids
        of_these = pin is not None and (pin.source_id, pin.destination_id) == ids
        if of_these and pin is not None and pin.copied is not None and pin.copied.digest:
            return True
        return (pin is None or of_these) and (
            committed is not None and bool(committed.digest) and committed.topic_id == (ids[0] or "")
        )


async def persistently(
    attempt: Callable[[], Awaitable[None]],
    settings: RelaySettings,
    still: Callable[[], bool],
    *,
    between: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """Tries until it succeeds, with pauses that grow, as long as ``still`` says so. ``between``: done before each try
    but the first."""
    backoff = Backoff(least_ms=settings.backoff_ms, most_ms=settings.backoff_max_ms)
    while still():
        try:
            if backoff.tries and between is not None:
                await between()
            await attempt()
            return
        except NetworkError:
            await asyncio.sleep(backoff.next_s())


def _note(partition: Partition, source_id: str | None, destination_id: str | None, due: LastCopied) -> Note:
    return Note(
        side=partition.side,
        writer=HALTED,
        source_id=source_id,
        destination_id=destination_id,
        copied=due,
        at_ms=_now_ms(),
    )


def _now_ms() -> int:
    return round(time.time() * 1000)
