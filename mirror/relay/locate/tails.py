"""Reads the destination's log backwards from its end to its last data batch."""

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from mirror.net.errors import StoredInOldFormat, Unreachable
from mirror.net.logs.log import Segment
from mirror.reasons import HaltReason
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.identity import Identity, same_owner
from mirror.relay.halts import halt

READ_BYTES = 256 * 1024
"""Bytes per read if more than one batch is needed."""
SCAN_BYTES = 4 << 20
"""Bytes per read if much is read and only headers are needed."""
STRIDE = 16
MOST_STRIDE = 1 << 20
"""The search for the last data batch goes back 1 offset, then ``STRIDE`` times as far with each step, but at most this
far."""

Data = tuple[BatchHeader, bytes]
"""A batch's header and its records."""


class Batches(Protocol):
    """The part of a log that this module needs."""

    @property
    def name(self) -> str:
        """topic-partition at cluster."""

    async def read(self, offset: int, *, max_bytes: int = 1, committed: bool = False) -> Segment:
        """Returns whole batches, starting with the one that holds ``offset``."""


class Tail(NamedTuple):
    """The end of the destination's log, from its last data batch on."""

    data: Data | None
    """The last data batch (header and records), or None if the log has none."""
    marker: BatchHeader | None
    """The newest of our markers behind the data, by identity; None: there is none. A marker that is older than the data
    arrived late and is left out: it does not show how the log continues."""
    holes_from: int
    """From this offset to the end there is no data: only markers, or nothing where a log cleaner has removed
    batches."""


async def look_back(
    there: Batches,
    log_start: int,
    end: int,
    *,
    owner: int,
    whole: bool = False,
) -> Tail:
    """Walks back from ``end`` to the last data batch.

    Args:
        there: the destination's log.
        log_start: its log start offset.
        end: the offset from which to walk back.
        owner: the flow's producer id for the partition, in any rotation.
        whole: True if ``end`` is the log's end. Then a batch must end there, since log cleaners leave the newest
            segment alone.

    Raises:
        PartitionHalted: foreign_writer for batches of the old formats; corrupt_destination if the log's last batch
            cannot be found.
        NetworkError: cannot be determined now.
    """
    marker: BatchHeader | None = None
    reach, upto = 1, end
    while upto > log_start:
        at = max(log_start, upto - reach)
        data, newest, found_to = await _last_between(there, at, upto, owner)
        if whole and upto == end != found_to:
            raise halt(
                HaltReason.CORRUPT_DESTINATION,
                f"{there.name}: the log ends at {end}, and offset {end - 1} is answered with nothing",
            )
        marker = _newer(newest, marker)
        if data is not None:
            late = marker is not None and same_owner(data[0].producer_id, owner) and is_before(marker, data[0])
            return Tail(data, None if late else marker, data[0].next_offset)
        upto, reach = at, min(reach * STRIDE, MOST_STRIDE)
    return Tail(None, marker, log_start)


async def _last_between(
    there: Batches, start: int, end: int, owner: int
) -> tuple[Data | None, BatchHeader | None, int]:
    """Returns the last data batch with an offset in ``[start, end)``, our newest marker behind it, and the end offset
    of the last batch of any kind."""
    data: Data | None = None
    marker: BatchHeader | None = None
    found_to = start
    try:
        async for header, batch in batches(there, start, end):
            found_to = header.next_offset
            if not header.is_control:
                data, marker = (header, bytes(batch[HEADER_SIZE:])), None
            elif same_owner(header.producer_id, owner):
                marker = _newer(marker, header)
    except StoredInOldFormat as error:
        raise halt(HaltReason.FOREIGN_WRITER, str(error)) from error
    return data, marker, found_to


def is_before(header: BatchHeader, other: BatchHeader) -> bool:
    """Returns True if ``other``, a batch of the same owner in this partition, has a later identity."""
    one, two = (Identity(each.producer_id, each.producer_epoch, 0) for each in (header, other))
    return one.is_before(two)


def _newer(marker: BatchHeader | None, behind: BatchHeader | None) -> BatchHeader | None:
    """Returns the newer of two markers of ours; None if both are None. ``behind`` stands behind ``marker`` in the
    log."""
    if marker is None or behind is None:
        return marker or behind
    return marker if is_before(behind, marker) else behind


async def batches(log: Batches, start: int, end: int) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
    """Yields every batch that has an offset in ``[start, end)``, in order.

    Raises:
        Unreachable: less can be read than when ``end`` was read. A leader's high watermark may go back; records above
            it are neither lost nor damaged.
        NetworkError: cannot be determined now.
    """
    at = start
    while at < end:
        segment = await log.read(at, max_bytes=READ_BYTES if end - at > 1 else 1)
        if not segment.batches:
            if segment.high_watermark < end:
                raise Unreachable(f"{log.name} ends at {end}, and is to be read to {segment.high_watermark} only")
            return
        for header, batch in segment.batches:
            if header.base_offset >= end:
                return
            if header.last_offset >= at:
                yield header, batch
        at = segment.batches[-1][0].next_offset


class Markers:
    """Finds the markers of a log between two offsets. Must be asked in offset order."""

    def __init__(self, there: Batches, start: int, end: int) -> None:
        self._walk = batches(there, start, end)
        self._next: BatchHeader | None = None
        self._ended = False

    async def within(self, first: int, last: int) -> bool:
        """Returns True if a marker stands at one of the offsets from ``first`` to ``last``."""
        while not self._ended and (self._next is None or self._next.last_offset < first or not self._next.is_control):
            found = await anext(self._walk, None)
            self._next, self._ended = (found[0], False) if found is not None else (None, True)
        return self._next is not None and self._next.base_offset <= last
