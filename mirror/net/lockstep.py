"""Both logs read side by side, from a point at which they agreed: which source batch is which destination batch.

For ``offsets: mapped``, where the destination's log holds other writers' batches between the flow's own, and the
source's log holds what is not copied. What the flow has written is known by its producer ids, and each of its batches
is the next one of the source that is copied at all, byte for byte but for who wrote it. All of it is compared.
"""

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from mirror.net.errors import Refused
from mirror.net.log import PartitionLog
from mirror.records.header import DELETE_HORIZON, HEADER_SIZE, SEQUENCES, TRANSACTIONAL, BatchHeader
from mirror.records.identity import Identity
from mirror.records.mapping import OffsetMap
from mirror.records.transactions import Aborted, marker_kind
from mirror.wire.errors import ErrorCode

READ_BYTES = 1 << 20
REWRITTEN = TRANSACTIONAL | DELETE_HORIZON
"""Attribute bits that a copy does not have, or not always: the transaction is decided, the horizon is the cleaner's."""
_HALF = SEQUENCES // 2


class Differs(Exception):
    """The destination holds something under the flow's identity that the source does not hold there."""


class Found(NamedTuple):
    """A batch as it stands in a log."""

    header: BatchHeader
    batch: memoryview

    def same_as(self, other: "Found") -> bool:
        """Equal but for where it stands and who wrote it. The checksum covers who wrote it: the payload decides."""
        mine, its = self.header, other.header
        return (
            mine.length == its.length
            and mine.attributes & ~REWRITTEN == its.attributes & ~REWRITTEN
            and mine.last_offset_delta == its.last_offset_delta
            and mine.base_timestamp == its.base_timestamp
            and mine.max_timestamp == its.max_timestamp
            and mine.record_count == its.record_count
            and self.batch[HEADER_SIZE:] == other.batch[HEADER_SIZE:]
        )

    @property
    def was_cleaned(self) -> bool:
        """The log cleaner was here, and records may be gone: the bytes are not those that were written."""
        return not self.header.is_dense or bool(self.header.attributes & DELETE_HORIZON)


class Originals:
    """What is copied of the source's log from ``offset`` on, one by one: all batches but markers, empty ones and, where
    only what is committed is mirrored, those of aborted transactions. ``offset``: all before it was read."""

    def __init__(self, log: PartitionLog, offset: int, *, committed: bool) -> None:
        self._log = log
        self.offset = offset
        self._committed = committed
        self._read: deque[Found] = deque()

    async def next(self) -> Found | None:
        """None at the visible end of the moment; asked again, there may be more."""
        while not self._read:
            segment = await self._log.read(self.offset, max_bytes=READ_BYTES, committed=self._committed)
            if not segment.batches:
                return None
            aborted = Aborted(segment.aborted)
            for header, batch in segment.batches:
                if header.is_control:
                    aborted.ends(header, marker_kind(batch))
                elif not (header.is_transactional and aborted.drops(header)) and header.record_count:
                    self._read.append(Found(header, batch))
                self.offset = header.next_offset
        return self._read.popleft()


class LockStep:
    """Goes through both logs; ``advance`` as often as the destination has grown.

    Attributes:
        map: what was matched so far.
        source_offset: behind the last batch that was matched.
        destination_offset: all before was looked at.
        source_epoch: leader epoch of the source's last matched batch; -1 if there is none.
        identity: of the batch that comes next; None as long as it is not known.
        matched: batches so far.
        overtaken: the source no longer has what is at ``source_offset``, and nothing was matched since; ``passed``
            counts the copies whose originals are gone.
    """

    def __init__(
        self,
        source: PartitionLog,
        destination: PartitionLog,
        *,
        source_offset: int,
        destination_offset: int,
        source_epoch: int = -1,
        identity: Identity | None,
        own: Collection[int],
        committed: bool,
        source_start: int = 0,
    ) -> None:
        """
        Args:
            identity: what the first of the flow's batches must have, if that is known.
            own: producer ids of the flow.
            committed: whether only what is committed is mirrored.
            source_start: where the source begins. If that is behind ``source_offset``, copies are passed over until
                one equals its first batch.
        """
        self.source = source
        self.destination = destination
        self.source_offset = source_offset
        self.destination_offset = destination_offset
        self.source_epoch = source_epoch
        self.identity = identity
        self.map = OffsetMap()
        self.matched = 0
        self.overtaken = source_offset < source_start
        self.passed = 0
        self._own = own
        self._originals = Originals(source, max(source_offset, source_start), committed=committed)
        self._ahead: Found | None = None

    async def advance(self, end: int) -> int:
        """Matches everything of the flow's at the destination up to ``end``, which has to be visible.

        Returns:
            How many batches.

        Raises:
            Differs: the logs are no copies; the message says where.
            NetworkError: one of them cannot be read.
        """
        before = self.matched
        while self.destination_offset < end:
            segment = await self.destination.read(self.destination_offset, max_bytes=READ_BYTES)
            if not segment.batches:
                break
            for header, batch in segment.batches:
                if header.producer_id in self._own and not header.is_control:
                    await self._match(Found(header, batch))
                self.destination_offset = header.next_offset
        return self.matched - before

    async def next_of_source(self) -> Found | None:
        """The batch that would be copied next; None if the source has none now."""
        if self._ahead is None:
            self._ahead = await self._originals.next()
        return self._ahead

    @property
    def source_seen(self) -> int:
        """The source was read up to here."""
        return self._originals.offset

    async def _match(self, copy: Found) -> None:
        """One batch of ours at the destination: the next of the source."""
        if self.overtaken:
            original = await self.next_of_source()
            if original is None or not original.same_as(copy):
                self.passed += 1
                self._go_on_behind(copy.header)
                return
            self.overtaken = False
        else:
            await self._pass_cleaned(copy.header)
            original = await self.next_of_source()
        where = f"offset {copy.header.base_offset} of {self.destination.name}"
        if original is None:
            raise Differs(f"{where} has a batch of this flow, {self.source.name} has none from {self.source_offset} on")
        if not _agree(original, copy):
            raise Differs(f"{where} differs from offset {original.header.base_offset} of {self.source.name}")
        self._take(original)
        self.map.append(original.header.base_offset, copy.header.base_offset, copy.header.last_offset_delta + 1)
        self._go_on_behind(copy.header)
        self.matched += 1

    def _take(self, original: Found) -> None:
        self.source_offset = original.header.next_offset
        self.source_epoch = original.header.leader_epoch
        self._ahead = None

    def _go_on_behind(self, header: BatchHeader) -> None:
        self.identity = Identity(header.producer_id, header.producer_epoch, header.last_sequence).after(1)

    async def _pass_cleaned(self, header: BatchHeader) -> None:
        """Batches of ours before this one may have been cleaned away at the destination: its sequence says how many
        offsets they took. They were copied and are nowhere, so the map has a hole there."""
        expected = self.identity
        if expected is None:
            return
        same = (expected.producer_id, expected.epoch) == (header.producer_id, header.producer_epoch)
        missing = (header.base_sequence - (expected.sequence if same else 0)) % SEQUENCES
        where = f"offset {header.base_offset} of {self.destination.name}"
        if missing >= _HALF:
            raise Differs(f"{where} repeats a batch of this flow that stands before it")
        while missing > 0:
            original = await self.next_of_source()
            if original is None or original.header.last_offset_delta >= missing:
                raise Differs(
                    f"{where}: {missing} offsets of this flow are gone before it, unlike the source's batches"
                )
            missing -= original.header.last_offset_delta + 1
            self._take(original)


def _agree(original: Found, copy: Found) -> bool:
    """The same bytes; where the log cleaner has been at one of them, as many offsets."""
    if original.same_as(copy):
        return True
    cleaned = original.was_cleaned or copy.was_cleaned
    return cleaned and original.header.last_offset_delta == copy.header.last_offset_delta


async def lost_from(log: PartitionLog, destination_end: int, own: Collection[int], end: int) -> bool:
    """Whether the destination lost what was acknowledged: its log ends before, or has another's batch in that place."""
    if destination_end > end:
        return True
    if destination_end <= 0:
        return False
    try:
        found = await log.batch_at(destination_end - 1)
    except Refused as error:
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return False
        raise
    return (
        found is not None
        and found[0].base_offset <= destination_end - 1
        and (found[0].producer_id not in own or found[0].is_control)
    )
