"""Measures how fast the source can be read: a few megabytes, one broker beside the other."""

import asyncio
import time
from collections.abc import Iterable
from typing import NamedTuple

from mirror.net.errors import NetworkError
from mirror.net.logs.log import SourceLog
from mirror.service.plan.ask.samples import MOST_AT_ONCE

LEAST_BYTES = 1 << 18
"""Less than that measures round trips only."""


class Stretch(NamedTuple):
    """A stretch of a source's log that can be read."""

    log: SourceLog
    start: int
    end: int


async def measured(stretches: Iterable[Stretch], size: int) -> float:
    """Reads one stretch of each broker, the longest, all at the same time.

    Args:
        stretches: one for each partition with records.
        size: bytes to read at most, of all together.

    Returns:
        Bytes per second; 0 if too little was read to tell.
    """
    longest: dict[int, Stretch] = {}
    for each in stretches:
        node_id = each.log.leader.node_id
        if node_id not in longest or each.end - each.start > longest[node_id].end - longest[node_id].start:
            longest[node_id] = each
    if not longest:
        return 0.0
    share = size // len(longest)
    began = time.monotonic()
    read = sum(await asyncio.gather(*(_read(each, share) for each in longest.values())))
    took = time.monotonic() - began
    return read / took if read >= LEAST_BYTES and took > 0 else 0.0


async def _read(stretch: Stretch, size: int) -> int:
    """Reads from the beginning of a stretch. Returns the bytes."""
    at, read = stretch.start, 0
    try:
        while at < stretch.end and read < size:
            segment = await stretch.log.read(at, max_bytes=min(MOST_AT_ONCE, size))
            if not segment.batches:
                break
            read += sum(header.size for header, _ in segment.batches)
            at = segment.batches[-1][0].next_offset
    except NetworkError:
        pass  # what was read until then counts; that the log cannot be read is found by the samples
    return read
