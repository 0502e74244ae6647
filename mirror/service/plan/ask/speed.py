"""Measures how fast the source can be read: reads a few megabytes from all brokers in parallel."""

import asyncio
import time
from collections.abc import Iterable
from typing import NamedTuple

from mirror.net.errors import NetworkError
from mirror.net.logs.log import SourceLog
from mirror.service.plan.ask.samples import MOST_AT_ONCE

LEAST_BYTES = 1 << 18
"""Minimum number of bytes for a measurement. Less would measure only round trips."""


class Stretch(NamedTuple):
    """A part of a source partition's log to read: the offsets in ``[start, end)``."""

    log: SourceLog
    start: int
    end: int


async def measured(stretches: Iterable[Stretch], size: int) -> float:
    """Reads the longest stretch of each broker, all in parallel.

    Args:
        stretches: stretches of partitions.
        size: number of bytes to read in total, approximately.

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
    """Reads about ``size`` bytes from the beginning of a stretch. Returns the number of bytes read."""
    at, read = stretch.start, 0
    try:
        while at < stretch.end and read < size:
            segment = await stretch.log.read(at, max_bytes=min(MOST_AT_ONCE, size))
            if not segment.batches:
                break
            read += sum(header.size for header, _ in segment.batches)
            at = segment.batches[-1][0].next_offset
    except NetworkError:
        pass  # what was read until then counts; the samples tell that the log cannot be read
    return read
