"""Records that the source has where the destination was filled: whether each of them is superseded.

Each replica of a compacted topic is cleaned by itself. A hole that was filled under one leader may hold records again
under the next one, which has not been cleaned that far. A log cleaner takes a record only if a later one of its key
stands behind it, or if it is a tombstone whose delete horizon has passed. Where the source shows that, nothing is
lost: any consumer may have missed the record.
"""

import asyncio
import time
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple, Protocol

from mirror.net.errors import Refused, Unreachable
from mirror.net.log import Segment
from mirror.offsetmap.survivors import STEPS
from mirror.records.header import DELETE_HORIZON, HEADER_SIZE, BatchHeader
from mirror.records.opening import NotOpened, Record, opened
from mirror.records.transactions import Aborted, marker_kind
from mirror.relay.locate.tails import READ_BYTES
from mirror.wire.errors import ErrorCode

MOST_OPENED = 32 << 20
"""Bytes of the source's batches that are opened in one stretch: where it was filled, behind that, and at its end."""
MOST_KEYS = 200_000
"""Keys that are looked for at a time, each by a digest: about 30 MB."""
_DIGEST_SIZE = 16


class Source(Protocol):
    """The source's log, as far as it matters here."""

    @property
    def name(self) -> str:
        """topic-partition at cluster."""

    async def true_end(self) -> int:
        """The leader's log end."""

    async def read(self, offset: int, *, max_bytes: int = 1, committed: bool = False) -> Segment:
        """Whole batches from the one that holds ``offset``."""


class Lost(NamedTuple):
    """A record that is not shown to be superseded."""

    offset: int
    why: str


class Superseded:
    """Of one look at a partition: ``take`` each batch that was filled, in their order, then ask ``lost``."""

    def __init__(self, here: Source, opening: asyncio.Lock) -> None:
        """``opening``: held while a batch is open, so that memory is bounded."""
        self._here = here
        self._opening = opening
        self._waiting: dict[bytes, int] = {}
        """Digest of a key -> offset of its last record that was filled."""
        self._lost: Lost | None = None
        self._room = MOST_OPENED

    async def take(self, header: BatchHeader, batch: memoryview) -> None:
        """A batch whose records the destination has markers for."""
        base = header.base_offset
        self._room -= header.size
        if self._lost is None and self._room < 0:
            self._lost = Lost(base, f"more than {MOST_OPENED} bytes were filled")
        if self._lost is not None:
            return
        horizon_ms = header.base_timestamp if header.attributes & DELETE_HORIZON else None
        expired = horizon_ms is not None and horizon_ms < time.time() * 1000
        async with self._opening:
            try:
                for number, record in enumerate(opened(header, batch[HEADER_SIZE:].tobytes()), 1):
                    self._wait_for(record, expired=expired)
                    if number % STEPS == 0:
                        await asyncio.sleep(0)
            except NotOpened as error:
                self._lost = Lost(base, str(error))

    def _wait_for(self, record: Record, *, expired: bool) -> None:
        if record.key is None:
            self._lost = self._lost or Lost(record.offset, "it has no key")
            return
        key = _digest(record.key)
        if record.value is None and expired:
            self._waiting.pop(key, None)
        else:
            self._waiting[key] = record.offset
        if len(self._waiting) > MOST_KEYS:
            self._lost = self._lost or Lost(record.offset, f"more than {MOST_KEYS} keys were filled")

    async def lost(self, behind: int) -> Lost | None:
        """The first record that no later one of its key is found for; None: all are superseded.

        Only records count that are still to be copied. They are looked for right behind what was filled and, if that
        is not enough, at the source's end.

        Args:
            behind: where the source goes on behind what was taken.

        Raises:
            NetworkError: not to be known now.
        """
        reached = await self._look_from(behind, behind)
        end = await self._here.true_end()
        if reached < end:
            reached = await self._look_from(max(reached, end - (reached - behind)), behind)
        if self._lost is None and self._waiting:
            offset = min(self._waiting.values())
            self._lost = Lost(offset, f"no later record of its key was found from offset {behind} up to {reached}")
        return self._lost

    async def _look_from(self, at: int, behind: int) -> int:
        """Up to where it was looked."""
        room = MOST_OPENED
        while self._waiting and self._lost is None and room > 0:
            segment = await self._read(at)
            if segment is None or not segment.batches:
                visible = at if segment is None else segment.high_watermark
                if visible < await self._here.true_end():
                    # A new leader's high watermark lags behind its log for a moment.
                    raise Unreachable(f"{self._here.name}: offset {at} is there, and not to be read yet")
                break
            for header, batch in records_of(segment):
                room -= header.size
                if header.base_offset >= behind:
                    await self._found(header, batch)
            at = segment.batches[-1][0].next_offset
        return at

    async def _read(self, at: int) -> Segment | None:
        """A piece of the source, of which only what is committed can supersede; None behind its end."""
        try:
            return await self._here.read(at, max_bytes=READ_BYTES, committed=True)
        except Refused as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return None

    async def _found(self, header: BatchHeader, batch: memoryview) -> None:
        """A batch that is still to be copied: the keys in it are not waited for any more."""
        async with self._opening:
            try:
                for number, record in enumerate(opened(header, batch[HEADER_SIZE:].tobytes()), 1):
                    if record.key is not None:
                        self._waiting.pop(_digest(record.key), None)
                    if number % STEPS == 0:
                        await asyncio.sleep(0)
            except NotOpened:
                pass  # it shows nothing


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_SIZE).digest()


def records_of(segment: Segment) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of a source segment that hold records for the destination."""
    aborted = Aborted(segment.aborted)
    for header, batch in segment.batches:
        if header.is_control:
            aborted.ends(header, marker_kind(batch))
        elif not aborted.drops(header) and header.record_count:
            yield header, batch
