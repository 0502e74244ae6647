"""Checks whether all records that the source has, and in whose place the destination was filled, are superseded.

Each replica of a compacted topic is cleaned by itself. A hole that was filled under one leader may hold records again
under the next leader, which has not been cleaned that far. A log cleaner removes a record only if a later record of its
key follows, or if it is a tombstone whose delete horizon has passed. If the source shows that, nothing is lost: any
consumer may have missed the record.
"""

import asyncio
import time
from collections.abc import Container, Iterator
from hashlib import blake2b
from typing import NamedTuple, Protocol

from mirror.net.errors import Refused, Unreachable
from mirror.net.logs.log import Segment
from mirror.offsetmap.compare.survivors import STEPS
from mirror.records.content.opening import NotOpened, Record, opened
from mirror.records.header import DELETE_HORIZON, HEADER_SIZE, BatchHeader
from mirror.records.transactions import Aborted
from mirror.relay.locate.tails import READ_BYTES
from mirror.wire.errors import ErrorCode

MOST_OPENED = 32 << 20
"""Bytes of the source's batches that are opened in each of three places: where the destination was filled, right behind
that, and at the source's end."""
MOST_KEYS = 200_000
"""Keys that are looked up at a time. Only a digest of each is kept: about 30 MB."""
_DIGEST_SIZE = 16


class RecordsSource(Protocol):
    """The part of the source's log that this module needs."""

    @property
    def name(self) -> str:
        """topic-partition at cluster."""

    async def true_end(self) -> int:
        """Returns the leader's log end."""

    async def read(self, offset: int, *, max_bytes: int = 1, committed: bool = False) -> Segment:
        """Returns whole batches, starting with the one that holds ``offset``."""


class LostRecord(NamedTuple):
    """A record that is not shown to be superseded. ``why``: the cause, for messages; may be empty."""

    offset: int
    why: str


class Superseded:
    """Checks one partition, for one look at it. Call ``take`` with each batch in whose place the destination was
    filled, in offset order, then ``lost``."""

    def __init__(self, here: RecordsSource, opening: asyncio.Lock) -> None:
        """``opening``: held while a batch is open, so that memory is bounded."""
        self._here = here
        self._opening = opening
        self._waiting: dict[bytes, int] = {}
        """Digest of a key -> offset of the last record with this key in whose place the destination was filled."""
        self._lost: LostRecord | None = None
        self._room = MOST_OPENED

    async def take(
        self, header: BatchHeader, batch: memoryview, start: int, end: int, passed: Container[int] = ()
    ) -> None:
        """Takes a batch for whose records from ``start`` up to ``end`` (exclusive) the destination has markers.
        ``passed``: offsets of records that were passed over: nothing has to supersede these."""
        base = header.base_offset
        self._room -= header.size
        if self._lost is None and self._room < 0:
            self._lost = LostRecord(base, f"more than {MOST_OPENED} bytes were filled")
        if self._lost is not None:
            return
        horizon_ms = header.base_timestamp if header.attributes & DELETE_HORIZON else None
        expired = horizon_ms is not None and horizon_ms < time.time() * 1000
        async with self._opening:
            try:
                for number, record in enumerate(opened(header, batch[HEADER_SIZE:].tobytes()), 1):
                    if start <= record.offset < end and record.offset not in passed:
                        self._wait_for(record, expired=expired)
                    if number % STEPS == 0:
                        await asyncio.sleep(0)
            except NotOpened as error:
                self._lost = LostRecord(base, str(error))

    def _wait_for(self, record: Record, *, expired: bool) -> None:
        if record.key is None:
            self._lost = self._lost or LostRecord(record.offset, "it has no key")
            return
        key = _digest(record.key)
        if record.value is None and expired:
            self._waiting.pop(key, None)
        else:
            self._waiting[key] = record.offset
        if len(self._waiting) > MOST_KEYS:
            self._lost = self._lost or LostRecord(record.offset, f"more than {MOST_KEYS} keys were filled")

    async def lost(self, behind: int) -> LostRecord | None:
        """Returns the first record for whose key no later one is found; None if all are superseded.

        Only records that are still to be copied count as later ones. They are looked for right behind what was filled
        and, if that is not enough, at the source's end.

        Args:
            behind: the offset at which the source continues behind what was taken.

        Raises:
            NetworkError: cannot be determined now.
        """
        reached = await self._look_from(behind, behind)
        end = await self._here.true_end()
        if reached < end:
            reached = await self._look_from(max(reached, end - (reached - behind)), behind)
        if self._lost is None and self._waiting:
            offset = min(self._waiting.values())
            self._lost = LostRecord(
                offset, f"no later record of its key was found from offset {behind} up to {reached}"
            )
        return self._lost

    async def _look_from(self, at: int, behind: int) -> int:
        """Looks for later records of the keys from offset ``at`` on. Returns the offset up to which it has read."""
        room = MOST_OPENED
        while self._waiting and self._lost is None and room > 0:
            segment = await self._read(at)
            if segment is None or not segment.batches:
                visible = at if segment is None else segment.high_watermark
                if visible < await self._here.true_end():
                    # The high watermark of a new leader lags behind its log for a moment.
                    raise Unreachable(f"{self._here.name}: offset {at} is there, and not to be read yet")
                break
            for header, batch in records_of(segment):
                room -= header.size
                if header.last_offset >= behind:
                    await self._found(header, batch, behind)
            at = segment.batches[-1][0].next_offset
        return at

    async def _read(self, at: int) -> Segment | None:
        """Returns a part of the source; None if ``at`` is behind its end. It is read as committed, because only
        committed records supersede others."""
        try:
            return await self._here.read(at, max_bytes=READ_BYTES, committed=True)
        except Refused as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return None

    async def _found(self, header: BatchHeader, batch: memoryview, behind: int) -> None:
        """Takes a batch that is still to be copied from ``behind`` on: its records supersede earlier ones of their
        keys."""
        async with self._opening:
            try:
                for number, record in enumerate(opened(header, batch[HEADER_SIZE:].tobytes()), 1):
                    if record.key is not None and record.offset >= behind:
                        self._waiting.pop(_digest(record.key), None)
                    if number % STEPS == 0:
                        await asyncio.sleep(0)
            except NotOpened:
                pass  # a batch that cannot be opened supersedes nothing


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_SIZE).digest()


def records_of(segment: Segment) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yields the batches of a source segment that hold records for the destination."""
    aborted = Aborted(segment.aborted)
    for header, batch in segment.batches:
        if not aborted.follow(header, batch) and not header.is_control and header.record_count:
            yield header, batch
