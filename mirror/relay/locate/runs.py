"""Detects from sequences whether somebody else has written between the flow's own batches at the destination.

Within an epoch of the flow's producer id, sequences count the offsets since the epoch's first batch. So one look at
where that batch must stand proves everything behind it: if anybody had taken an offset in between, the flow's batches
behind it would stand farther on than their sequences say. That also holds if those batches equal the source's at the
same offsets because the source got them from this destination (a topic that is mirrored both ways).
"""

import asyncio
from typing import Protocol

from mirror.net.errors import Unreachable
from mirror.reasons import HaltReason
from mirror.records.filler import is_filler
from mirror.records.header import SEQUENCES, BatchHeader
from mirror.relay.halts import PartitionHalted, halt

MOST_STRANGERS = 16
"""Foreign batches that are read back to find where they begin. If there are more, the message says "at least"."""


class RunsLog(Protocol):
    """The part of the destination's log that this module needs."""

    @property
    def name(self) -> str:
        """topic-partition at cluster."""

    async def batch_at(self, offset: int) -> tuple[BatchHeader, bytes] | None:
        """Returns the batch that holds ``offset``, or the next one."""


class Own(Protocol):
    """Tells which batches of the log are the flow's own."""

    @property
    def name(self) -> str:
        """topic-partition, for messages."""

    @property
    def filler(self) -> int:
        """The producer id of the flow's leading filler, in any rotation."""

    def is_own(self, header: BatchHeader) -> bool:
        """Returns True if the batch is the flow's data, or counts as that."""


async def check_run(there: RunsLog, last: BatchHeader, log_start: int, own: Own) -> None:
    """Checks that nobody else has written within the epoch of the log's last data batch.

    Args:
        there: the destination's log.
        last: the log's last data batch, which is the flow's own.
        log_start: the destination's log start offset.
        own: tells which batches are the flow's.

    Raises:
        PartitionHalted: foreign_writer if somebody has, overfilled if a marker stands there, not_a_copy if the flow's
            own batches stand elsewhere than their sequences say.
        NetworkError: cannot be determined now.
    """
    begin = max(log_start, last.base_offset - last.base_sequence)
    first, before = await asyncio.gather(_at(there, begin, last), _before(there, begin, log_start))
    if not _of_the_run(first, last):
        begin = await _straight_from(there, begin, last)
        before = await _before(there, begin, log_start)
    elif before is None or not (_is_foreign(before, own) or _is_displaced(before, last)):
        return
    raise await _halted(there, begin, before, last, log_start, own)


async def _halted(
    there: RunsLog, begin: int, before: BatchHeader | None, last: BatchHeader, log_start: int, own: Own
) -> PartitionHalted:
    """Returns the halt for the batch ``before``, which stands where it should not: before the run that begins at
    ``begin``."""
    misplaced = f"the flow's own records at offsets {begin} to {last.last_offset} stand behind"
    if before is not None and _is_foreign(before, own):
        written = await strangers(there, before, log_start, own)
        stop = foreign(before, own.name, f"{written} were written by others, and {misplaced}, where they do not belong")
        stop.misplaced = True
        return stop
    if before is not None and before.is_control:
        marker = f"a marker of producer id {before.producer_id} at offset {before.base_offset}"
        return halt(HaltReason.OVERFILLED, f"{own.name}: {marker} stands where the source has a record; {misplaced}")
    span = f"offsets {begin} to {last.last_offset}"
    return halt(
        HaltReason.NOT_A_COPY, f"{own.name}: the flow's own batches at {span} do not stand where their sequences say"
    )


def foreign(header: BatchHeader, name: str, more: str = "") -> PartitionHalted:
    """Returns the halt for a batch of another writer."""
    told = f"{name}: the batch at offset {header.base_offset} is of producer id {header.producer_id}"
    if header.producer_id < 0:
        told += " (a producer without idempotence)"
    stop = halt(HaltReason.FOREIGN_WRITER, f"{told}; {more}" if more else told)
    stop.writer = header.producer_id
    return stop


async def strangers(there: RunsLog, last: BatchHeader, log_start: int, own: Own) -> str:
    """Returns the offsets that others have written, up to and including the batch ``last``, for messages."""
    first, least = last, ""
    for _ in range(MOST_STRANGERS):
        before = await _before(there, first.base_offset, log_start)
        if before is None or not _is_foreign(before, own):
            break
        first = before
    else:
        least = "at least "
    return f"{least}offsets {first.base_offset} to {last.last_offset}"


async def _straight_from(there: RunsLog, low: int, last: BatchHeader) -> int:
    """Returns, by bisection, the first offset of the batches whose sequences lead up to the last one. If a batch does,
    all batches behind it do, too."""
    high = last.base_offset
    while low < high:
        middle = (low + high) // 2
        found = await _at(there, middle, last)
        if _of_the_run(found, last):
            high = min(found.base_offset, middle)
        else:
            low = max(found.next_offset, middle + 1)
    return high


async def _at(there: RunsLog, offset: int, last: BatchHeader) -> BatchHeader:
    """Returns the header of the batch that holds ``offset``, or of the next one, but none behind ``last``.

    Raises:
        Unreachable: that batch cannot be read now, or ``last`` was cleaned away meanwhile.
    """
    if offset >= last.base_offset:
        return last
    found = await there.batch_at(offset)
    if found is None:
        raise Unreachable(f"{there.name}: nothing is to be read at offset {offset} now")
    if found[0].base_offset > last.base_offset:
        raise Unreachable(f"{there.name}: the batch at offset {last.base_offset} was there, and is cleaned away now")
    return found[0]


async def _before(there: RunsLog, offset: int, log_start: int) -> BatchHeader | None:
    """Returns the header of the batch that holds the offset before ``offset``; None if the log does not have that
    offset, or no longer."""
    if offset <= log_start:
        return None
    found = await there.batch_at(offset - 1)
    return found[0] if found is not None and found[0].base_offset < offset else None


def _of_the_run(header: BatchHeader, last: BatchHeader) -> bool:
    """Returns True if the batch has the last one's producer id and epoch, and stands as many offsets before it as its
    sequences say."""
    return (
        not header.is_control
        and (header.producer_id, header.producer_epoch) == (last.producer_id, last.producer_epoch)
        and (last.base_sequence - header.base_sequence) % SEQUENCES == last.base_offset - header.base_offset
    )


def _is_displaced(before: BatchHeader, last: BatchHeader) -> bool:
    """Returns True if the batch before a run has the run's producer id and epoch, but its sequences do not lead up to
    the run. Then the run is a repeat that the broker did not recognise."""
    same = (before.producer_id, before.producer_epoch) == (last.producer_id, last.producer_epoch)
    return same and not before.is_control and not _of_the_run(before, last)


def _is_foreign(header: BatchHeader, own: Own) -> bool:
    """Returns True if the batch is another writer's data."""
    return not (header.is_control or own.is_own(header) or is_filler(header, own.filler))
