"""Whether a batch at the destination is the source's: byte for byte, or, where a log cleaner has been at either, by the
records that both still have.

A cleaner removes records from inside a batch, notes in it when its tombstones may go (which changes its base
timestamp), leaves an empty batch, or none at all. A record that it leaves keeps its offset, and a batch its first and
its last.
"""

import asyncio
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from mirror.records.header import DELETE_HORIZON, HEADER_SIZE, TRANSACTIONAL, BatchHeader
from mirror.records.opening import NotOpened, Record, opened
from mirror.relay.tails import Data

NEUTRAL = ~(DELETE_HORIZON | TRANSACTIONAL)
"""Attribute bits that a copy has as its source: the others say how the source came by the batch."""
STEPS = 1_000
"""Records are compared so many at a time before other work has its turn."""


class Likeness(Enum):
    """How a copy compares to its original."""

    SAME = "same"
    """As they were written, or in every record that both still have."""
    DIFFERENT = "different"
    NOTHING = "nothing"
    """There is nothing that both still have."""


class Compared(NamedTuple):
    """``why``: what could not be compared."""

    likeness: Likeness
    why: str = ""


SAME, DIFFERENT = Compared(Likeness.SAME), Compared(Likeness.DIFFERENT)


def cleaned(header: BatchHeader) -> bool:
    """Whether a log cleaner has removed records of the batch, or noted its horizon in it. No producer can do either."""
    return not header.is_dense or bool(header.attributes & DELETE_HORIZON)


def same_batch(copy: Data, original: tuple[BatchHeader, bytes], *, strict: bool = False) -> bool:
    """Payload identity: equal but for who wrote it, in which transaction and epoch, and the checksum over that."""
    (mine, payload), (other, whole) = copy, original
    return (
        mine.base_offset == other.base_offset
        and mine.length == other.length
        and mine.attributes & NEUTRAL == other.attributes & NEUTRAL
        and mine[6:9] == other[6:9]
        and mine.record_count == other.record_count
        and (not strict or mine[9:12] == other[9:12])
        and payload == whole[HEADER_SIZE:]
    )


async def compare(
    copy: Data, original: tuple[BatchHeader, bytes], *, opening: asyncio.Lock, strict: bool = False, gaps: bool = False
) -> Compared:
    """A batch of ours at the destination, and what the source has at its base offset, or next behind that.

    Args:
        copy: header and records.
        original: header and whole batch.
        opening: held while batches are open, so that memory is bounded.
        strict: whether the copy carries the source's producer fields.
        gaps: whether the source is compacted, so that its batch may be gone altogether.
    """
    (mine, payload), (other, whole) = copy, original
    if same_batch(copy, original, strict=strict):
        return SAME
    base = mine.base_offset
    if other.base_offset > mine.last_offset:
        return Compared(Likeness.NOTHING, f"the source has compacted the batch at {base} away") if gaps else DIFFERENT
    if (other.base_offset, other.last_offset) != (base, mine.last_offset) or not (cleaned(mine) or cleaned(other)):
        return DIFFERENT
    async with opening:
        try:
            in_common = await _in_common(opened(mine, payload), opened(other, whole[HEADER_SIZE:]))
        except NotOpened as error:
            return Compared(Likeness.NOTHING, str(error))
    if in_common == 0:
        return Compared(Likeness.NOTHING, f"the log cleaners have left no record of the batch at {base} on both sides")
    return DIFFERENT if in_common is None else SAME


async def _in_common(mine: Iterator[Record], its: Iterator[Record]) -> int | None:
    """How many records both have; None if one of them differs."""
    count = steps = 0
    one, other = next(mine, None), next(its, None)
    while one is not None and other is not None:
        if one.offset < other.offset:
            one = next(mine, None)
        elif other.offset < one.offset:
            other = next(its, None)
        elif one != other:
            return None
        else:
            count += 1
            one, other = next(mine, None), next(its, None)
        steps += 1
        if steps % STEPS == 0:
            await asyncio.sleep(0)
    return count
