"""What log cleaners have left of a batch and of its copy: the records that both still have.

A cleaner removes records from inside a batch, notes in it when its tombstones may go (which changes its base
timestamp), leaves an empty batch, or none at all. A record that it leaves keeps its offset, and a batch its first and
its last.
"""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from mirror.records.header import DELETE_HORIZON, BatchHeader
from mirror.records.opening import Record

STEPS = 1_000
"""Records are compared so many at a time before other work has its turn."""


class Common(NamedTuple):
    """``both``: records that both have; ``missing``: of the original's, those that the copy has not."""

    both: int
    missing: int


def cleaned(header: BatchHeader) -> bool:
    """Whether a log cleaner has removed records of the batch, or noted its horizon in it. No producer can do either."""
    return not header.is_dense or bool(header.attributes & DELETE_HORIZON)


async def in_common(copy: Iterator[Record], original: Iterator[Record]) -> Common | None:
    """What both have; None if one of those records differs.

    Raises:
        NotOpened: one of the batches cannot be read.
    """
    both = missing = steps = 0
    mine, its = next(copy, None), next(original, None)
    while its is not None:
        if mine is not None and mine.offset < its.offset:
            mine = next(copy, None)
        elif mine is None or its.offset < mine.offset:
            missing += 1
            its = next(original, None)
        elif mine != its:
            return None
        else:
            both += 1
            mine, its = next(copy, None), next(original, None)
        steps += 1
        if steps % STEPS == 0:
            await asyncio.sleep(0)
    return Common(both, missing)
