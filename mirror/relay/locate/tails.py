"""The end of the destination's log, looked at backwards to its last data batch."""

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, Protocol

from mirror.net.errors import Refused, Unreachable
from mirror.net.log import Segment
from mirror.reasons import HaltReason
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.identity import Identity, same_owner
from mirror.relay.halts import halt
from mirror.wire.errors import ErrorCode

READ_BYTES = 256 * 1024
"""Read at once where more than one batch is wanted."""
STRIDE = 16
MOST_STRIDE = 1 << 20
"""Looking back for the last data batch goes so much farther each time, and so far at most."""

Data = tuple[BatchHeader, bytes]
"""A batch's header, and its records."""


class Batches(Protocol):
    """A log, as far as it matters here."""

    @property
    def name(self) -> str:
        """topic-partition at cluster."""

    async def read(self, offset: int, *, max_bytes: int = 1, committed: bool = False) -> Segment:
        """Whole batches from the one that holds ``offset``."""


class Tail(NamedTuple):
    """The end of the destination's log, looked at backwards to the last data batch."""

    data: Data | None
    """The last data batch, header and records; None: the log has none."""
    marker: BatchHeader | None
    """The newest marker of ours behind it, by its identity. One that is older than the data has come late: it says
    nothing of what goes on here."""
    holes_from: int
    """From here to the end there is no data: markers, or nothing where a log cleaner has removed batches."""


async def look_back(
    there: Batches,
    log_start: int,
    end: int,
    *,
    owner: int,
    own: Callable[[BatchHeader], None],
    whole: bool = False,
) -> Tail:
    """Walks back from ``end`` to the last data batch.

    Args:
        there: the destination's log.
        log_start: where it begins.
        end: from where to look.
        owner: the flow's producer id for the partition, in any rotation.
        own: raises if the data batch that was found is somebody else's.
        whole: ``end`` is the log's: a batch has to end there, since a log cleaner leaves the newest segment alone.

    Raises:
        PartitionHalted: foreign_writer, also for batches of the old formats; corrupt_destination where what the log
            ends with is not to be found.
        NetworkError: not to be known now.
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
            own(data[0])
            late = marker is not None and same_owner(data[0].producer_id, owner) and is_before(marker, data[0])
            return Tail(data, None if late else marker, data[0].next_offset)
        upto, reach = at, min(reach * STRIDE, MOST_STRIDE)
    return Tail(None, marker, log_start)


async def _last_between(
    there: Batches, start: int, end: int, owner: int
) -> tuple[Data | None, BatchHeader | None, int]:
    """The last data batch with an offset in ``[start, end)``, the newest marker of ours behind it, and where the last
    batch of any kind ends."""
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
    except Refused as error:
        if error.code != ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
            raise
        raise halt(HaltReason.FOREIGN_WRITER, str(error)) from error
    return data, marker, found_to


def is_before(header: BatchHeader, other: BatchHeader) -> bool:
    """Whether ``other``, of the same partition's owner, is of a later identity."""
    one, two = (Identity(each.producer_id, each.producer_epoch, 0) for each in (header, other))
    return one.is_before(two)


def _newer(marker: BatchHeader | None, behind: BatchHeader | None) -> BatchHeader | None:
    """Of two markers of ours, of which the second stands farther on."""
    if marker is None or behind is None:
        return marker or behind
    return marker if is_before(behind, marker) else behind


async def batches(log: Batches, start: int, end: int) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
    """Every batch that has an offset in ``[start, end)``, in order.

    Raises:
        Unreachable: less can be read than before. A log's end that was read once says nothing of what is there now: a
            leader's high watermark may go back, and what is behind it is neither lost nor damaged.
        NetworkError: not to be known now.
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
