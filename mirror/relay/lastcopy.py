"""The batch that was copied last, held against the source again (``offsets: mapped``): a source that was truncated and
has grown since looks healthy otherwise, for what was matched before is not read again."""

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from mirror.net.alignment import Batch
from mirror.net.log import PartitionLog
from mirror.records.header import NO_LEADER_EPOCH, BatchHeader
from mirror.records.mapping import Run
from mirror.relay.halts import PartitionHalted, Trouble, halt


class Sides(NamedTuple):
    """Both logs of a partition, and where they begin."""

    name: str
    here: PartitionLog
    there: PartitionLog
    source_start: int
    log_start: int
    compacted: bool
    """Whether the source's cleaner may have taken the original."""


async def check_end(sides: Sides, copied_to: int, settle_s: float) -> None:
    """The source still has what was copied, by its end.

    Raises:
        PartitionHalted: it ends before, seen twice: a leader that is still catching up does so once.
        NetworkError: not to be known now.
    """
    if await sides.here.true_end() >= copied_to:
        return
    await asyncio.sleep(settle_s)
    source_end = await sides.here.true_end()
    if source_end < copied_to:
        raise _truncated(sides, f"copied up to offset {copied_to}, and the source ends at {source_end}")


async def check_last(sides: Sides, last: Run | None, own: Collection[int]) -> int:
    """The source has, in its place, the batch that was copied last. Nothing can be said where a side has it no more.

    Returns:
        The leader epoch of that batch at the source; -1: not known.

    Raises:
        PartitionHalted: it has another one.
        NetworkError: not to be known now.
    """
    if last is None or last.destination_end <= sides.log_start or last.source_end <= sides.source_start:
        return NO_LEADER_EPOCH
    at = last.source_end - 1
    copy, original = await asyncio.gather(
        sides.there.batch_at(last.destination_end - 1), sides.here.batch_at(last.source_end - 1)
    )
    if copy is None or copy[0].is_control or copy[0].producer_id not in own or not _ends(copy[0], last.destination_end):
        return NO_LEADER_EPOCH
    if original is not None and _ends(original[0], last.source_end) and _look(original).agrees(_look(copy)):
        return original[0].leader_epoch
    if sides.compacted and (original is None or not _ends(original[0], last.source_end)):
        return NO_LEADER_EPOCH
    raise _truncated(
        sides, f"the source's batch at offset {at} is not the one that was copied to offset {last.destination_end - 1}"
    )


def _ends(header: BatchHeader, offset: int) -> bool:
    return header.next_offset == offset


def _look(found: tuple[BatchHeader, bytes]) -> Batch:
    header, batch = found
    return Batch.of(header, memoryview(batch))


def _truncated(sides: Sides, detail: str) -> PartitionHalted:
    return halt(Trouble.TRUNCATED, f"{sides.name}: {detail}")
