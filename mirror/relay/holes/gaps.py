"""Verifies a gap in the source's log from all sides before it is believed, because its offsets may be damaged.

A checksum does not cover the base offset, and brokers trust it, too: they find a batch by it. One flipped bit makes a
batch look as if compaction had removed hundreds of offsets before it. Three things reveal that:

* The bytes behind the batch in the file. Offsets rise, so the batch behind a gap must end before the next batch begins.
  Most responses let ``forward`` see that. If a response does not, ``forward`` reports the gap, and it is examined here.
* The bytes before it in the file. A broker skips a batch whose base offset has become too low, or whose length has
  become too large. The beginning of such a batch can be seen behind the batch before it. A length that has become too
  large hides the rest of the file, but the file's index may still find it.
* The end of the log (``net.logs.reading``).

If a damaged base offset lies between two true gaps, the order may still be right. Nothing distinguishes that from a
true gap.
"""

import asyncio

from mirror.net.backoff import Backoff
from mirror.net.errors import Damaged, Refused, StorageUnavailable, Unreachable
from mirror.net.logs.log import SourceLog
from mirror.offsetmap.compare.lockstep import Originals
from mirror.reasons import HaltReason
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.scan import NOT_SEEN
from mirror.relay.events import EventLog
from mirror.relay.halts import Halted, PartitionHalted, halt, halted_by_damage
from mirror.relay.locate.rules import Readable
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.outcome import Doubt, attempted
from mirror.relay.partition.cursor import Ahead
from mirror.relay.partition.partition import Partition
from mirror.relay.settings import RelaySettings
from mirror.wire.errors import ErrorCode

WRAPPER_BYTES = 1 << 20
"""Bytes to read behind an old message to see where a wrapper begins: brokers' default ``message.max.bytes``, and a
little more."""


class Contradiction(Exception):
    """Raised if a log contradicts itself: a batch does not stand where its header says."""


class Unanswered(Contradiction):
    """Raised if a Fetch for an offset below the end of the readable offsets is answered with nothing."""

    def __init__(self, due: int, readable: int, high_watermark: int) -> None:
        super().__init__(f"the log can be read to {readable}, and offset {due} is answered with nothing")
        self.high_watermark = high_watermark


class Gaps:
    """Examines the gaps of all partitions of a process."""

    def __init__(self, relay: Orchestrator) -> None:
        self._relay = relay
        self._waits: dict[str, Backoff] = {}
        """Partition name -> the backoff, for partitions whose tiered storage gave nothing at the last look."""

    def look(self, partition: Partition) -> None:
        """Begins to examine the source's log at ``due``. Nothing of the partition is fetched meanwhile. Afterwards it
        is fetched again, with the gap proven, or it halts. Does nothing if the partition is being examined already."""
        if partition.cursor.begin_look():
            self._relay.work(partition, self._look(partition, partition.positions, partition.cursor.generation))

    async def _look(self, partition: Partition, position: int, generation: int) -> None:
        relay = self._relay
        found = await attempted(self._seen(partition))
        if partition.positions != position:
            return
        partition.cursor.end_look()
        if partition.cursor.generation != generation:
            # The partition has been rewound to before the offset that was examined.
            relay.drained()
            return
        partition.cursor.expect(found if isinstance(found, Ahead) else None)
        if isinstance(found, Halted):
            relay.halt_when_drained(partition, found)
        elif isinstance(found, Doubt):
            relay.act(partition, found)
        else:
            relay.drained()

    def diverged(self, partition: Partition, truncated: Halted) -> None:
        """Begins to verify the statement of the source's leader that its log never reached ``due`` in the epoch of the
        batch before ``due``.

        The partition halts with ``truncated``, unless that very batch is still there. Then its leader epoch, which no
        checksum covers, is damaged.
        """
        if partition.cursor.begin_look():
            cursor = partition.cursor
            self._relay.work(partition, self._diverged(partition, partition.positions, cursor.generation, truncated))

    async def _diverged(self, partition: Partition, position: int, generation: int, truncated: Halted) -> None:
        relay, epoch = self._relay, partition.cursor.last_epoch
        found = await attempted(self._ends_epoch(partition, partition.cursor.due, epoch))
        if partition.positions != position:
            return
        partition.cursor.end_look()
        if partition.cursor.generation != generation:
            # The partition has been rewound to before the offset that was examined.
            relay.drained()
            return
        if isinstance(found, Halted | Doubt):
            relay.act(partition, found)
        elif found:
            partition.cursor.distrust_epoch()
            epoch_damaged(relay.log, partition, f"{epoch}, and {truncated.detail}")
            relay.drained()
        else:
            relay.halt(partition, truncated)

    async def _ends_epoch(self, partition: Partition, due: int, epoch: int) -> bool:
        """Returns True if the batch before ``due`` is still there, with this leader epoch."""
        here, _ = self._relay.locator.logs(partition)
        here.floor = partition.cursor.floor
        try:
            segment = await here.read(due - 1)
        except Refused as error:
            if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return False
            raise
        return any((header.last_offset, header.leader_epoch) == (due - 1, epoch) for header, _ in segment.batches)

    async def _seen(self, partition: Partition) -> Ahead | None:
        """Returns the gap at ``due``, proven. None: there is no gap, or tiered storage does not give what is there.

        Raises:
            PartitionHalted: the log contradicts itself, or is damaged.
            NetworkError: cannot be determined now.
        """
        here, _ = self._relay.locator.logs(partition)
        here.floor = partition.cursor.floor
        try:
            found = await _look_at(here, partition.cursor.due, self._relay.settings)
            self._waits.pop(partition.name, None)
            return found
        except StorageUnavailable as error:
            # Nothing is wrong with the position. Locating it again would only put more load on the storage.
            settings = self._relay.settings
            backoff = self._waits.setdefault(
                partition.name, Backoff(least_ms=settings.backoff_ms, most_ms=settings.backoff_max_ms)
            )
            if not backoff.tries:
                self._relay.log.info(
                    "storage_unavailable", topic=partition.topic, partition=partition.index, detail=str(error)
                )
            await asyncio.sleep(backoff.next_s())
            return None
        except Contradiction as error:
            raise halt(HaltReason.CORRUPT, f"{partition.name}: {error}") from error
        except Damaged as error:
            raise PartitionHalted(halted_by_damage(error, self._relay.source.name)) from error


async def _look_at(here: SourceLog, due: int, settings: RelaySettings) -> Ahead | None:
    look = Look(here, here.floor, committed=settings.committed)
    try:
        return await look.at(due)
    except Contradiction:
        # The log cleaner may have replaced a segment between two reads.
        await asyncio.sleep(settings.settle_ms / 1000)
    try:
        return await look.at(due)
    except Unanswered as error:
        if error.high_watermark < await here.true_end():
            # No cleaner touches the newest segment, but a new leader may not serve all of it yet.
            raise Unreachable(f"{error}, while not all of it can be read") from error
        raise


async def gap_behind(here: SourceLog, due: int, name: str, settings: RelaySettings) -> tuple[int, int] | None:
    """Finds the first gap from ``due`` on before the next batch that is copied, and verifies it from all sides. For
    gaps that an operator has accepted.

    Args:
        here: the source's log.
        due: the next offset to copy.
        name: the partition's name.
        settings: the flow's settings.

    Returns:
        First and next offset of the gap; None: there is none.

    Raises:
        PartitionHalted: it is no gap, because the log contradicts itself.
        NetworkError: cannot be determined now.
    """
    walk = Originals(here, due, committed=settings.committed)
    found = await walk.next()
    gaps = found.gaps if found is not None else walk.gaps
    start = next((gap.start for gap in gaps if not gap.is_batch and gap.start < walk.offset), None)
    if start is None:
        return None
    try:
        ahead = await _look_at(here, start, settings)
    except Contradiction as error:
        raise halt(HaltReason.CORRUPT, f"{name}: {error}") from error
    return (start, ahead.base_offset) if ahead is not None else None


def epoch_damaged(log: EventLog, partition: Partition, says: str) -> None:
    """Logs that a batch's leader epoch is damaged and is not used: with it, the broker would conclude that the log was
    truncated.

    Args:
        log: gets the event.
        partition: the partition; the batch is the one before ``due``.
        says: the epoch, and what it contradicts.
    """
    detail = f"the batch before offset {partition.cursor.due} has leader epoch {says}"
    log.warning("leader_epoch_damaged", topic=partition.topic, partition=partition.index, detail=detail)


class Look:
    """Examines one place of the source's log. ``floor``: the broker answers no Fetch below it."""

    def __init__(self, log: Readable, floor: int, *, committed: bool) -> None:
        self._log = log
        self._floor = floor
        self._committed = committed

    async def at(self, due: int) -> Ahead | None:
        """Returns the gap at ``due``, proven as far as possible, or None if there is none.

        Raises:
            Contradiction: the log contradicts itself.
            NetworkError: the log cannot be read, or (``Damaged``) holds bytes that nobody has written.
        """
        segment = await self._log.read(due, committed=self._committed)
        if not segment.batches:
            readable = segment.last_stable_offset if self._committed else segment.high_watermark
            if readable > due and not await self._is_before_undecided(due, readable):
                await self._check_nothing(due, readable, segment.high_watermark)
            return None
        header = segment.batches[0][0]
        if header.base_offset <= due:
            return None
        try:
            if header.base_offset - 1 > due:
                # A length that has become too large hides the rest of its file, but the file's index may still find it.
                await self._check_same(header, header.base_offset - 1, due)
            await self._check_behind(due, header)
            await self._check_before(due, header)
        except Contradiction:
            again = await self._log.read(due, committed=self._committed)
            if again.batches and again.batches[0][0] == header:
                raise
            # This is no contradiction: a log cleaner changed the log between the two requests.
            raise Unreachable(f"the batch of {_span(header)} was there, and is gone") from None
        return Ahead(due, header.base_offset, proven=True)

    async def _check_behind(self, due: int, header: BatchHeader) -> None:
        """Checks that the batch behind the gap ends before the next batch begins."""
        _, behind = await self._next(due, header)
        if behind != NOT_SEEN:
            return  # both were read in one piece, in which offsets are known to rise
        # It is the last batch of its segment, or of the log. Brokers find segments by their file names, which damage
        # inside a file does not change. So the batch is found by its last offset only if no later segment begins at or
        # before that offset.
        await self._check_same(header, header.last_offset, due)

    async def _check_same(self, header: BatchHeader, offset: int, due: int) -> None:
        """Checks that a Fetch for another offset of the gap, or of the batch behind it, returns the same batch."""
        found = await self._log.read(offset, committed=self._committed)
        if not found.batches or found.batches[0][0] != header:
            raise Contradiction(f"offset {due} is answered with a batch of {_span(header)}, offset {offset} is not")

    async def _check_before(self, due: int, header: BatchHeader) -> None:
        """Checks that the batch behind the gap is the next one in the file behind the batch before the gap."""
        if due <= self._floor:
            return
        found = await self._log.read(due - 1, committed=self._committed)
        if not found.batches:
            raise Contradiction(f"nothing at offset {due - 1}, but a batch of {_span(header)}")
        before = found.batches[0][0]
        if before == header:
            return  # the gap begins earlier
        if before.last_offset >= due:
            raise Contradiction(f"a batch of {_span(before)}, but offset {due} is answered with {_span(header)}")
        await self._check_next(due, before, header.base_offset)

    async def _is_before_undecided(self, due: int, stable: int) -> bool:
        """Returns True if compaction has removed everything from ``due`` up to the last stable offset, where an open
        transaction stands. Until that transaction ends, a read_committed consumer gets nothing there, and nothing is
        wrong.

        Raises:
            Contradiction: the next batch does not stand where its header says.
        """
        if not self._committed:
            return False
        ahead = await Look(self._log, self._floor, committed=False).at(due)
        return ahead is not None and ahead.base_offset >= stable

    async def _check_nothing(self, due: int, readable: int, high_watermark: int) -> None:
        """Always raises, for an empty response at ``due``, below the end of the readable offsets: there must be a batch
        behind ``due``.

        Raises:
            Contradiction: the batch before ``due`` shows another batch behind it, which the broker does not find.
            Unanswered: nothing shows why the response is empty.
        """
        if due > self._floor:
            found = await self._log.read(due - 1, committed=self._committed)
            if found.batches:
                await self._check_next(due, found.batches[0][0], NOT_SEEN)
        # Compaction leaves the newest segment alone, so there is a batch that ends where the log does.
        raise Unanswered(due, readable, high_watermark)

    async def _check_next(self, due: int, before: BatchHeader, expected: int) -> None:
        """Checks that behind the batch ``before``, the file goes on with a batch at ``expected``, or ends."""
        _, behind = await self._next(due - 1, before)
        if behind not in (NOT_SEEN, expected):
            raise Contradiction(
                f"behind offset {before.last_offset} stands a batch with base offset {behind}, which the broker does "
                f"not find at offset {due}"
            )

    async def _next(self, offset: int, header: BatchHeader) -> tuple[BatchHeader, int]:
        """Returns ``header``, after checking that its batch is still the one at ``offset``, and the base offset of the
        next batch in its file (``NOT_SEEN``: it cannot be seen)."""
        most = header.stored_size + HEADER_SIZE
        both = await self._log.read(offset, max_bytes=most, committed=self._committed)
        if header.is_stand_in and len(both.batches) == 1 and both.next_base == NOT_SEEN:
            # Where a wrapper behind it begins can be seen only once all of the wrapper was read.
            both = await self._log.read(offset, max_bytes=most + WRAPPER_BYTES, committed=self._committed)
        if not both.batches or both.batches[0][0] != header:
            raise Contradiction(f"offset {offset} was answered with {_span(header)}, and then not")
        return header, both.batches[1][0].base_offset if len(both.batches) > 1 else both.next_base


def _span(header: BatchHeader) -> str:
    return f"offsets {header.base_offset} to {header.last_offset}"
