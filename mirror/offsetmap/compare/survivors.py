"""Compares what log cleaners have left of a batch and of its copy, by the records that both still have.

A cleaner removes records from inside of a batch, stores a delete horizon in it (which changes its base timestamp),
leaves an empty batch, or removes the batch. A record that it leaves keeps its offset, and a batch that it leaves keeps
its first and last offset.
"""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple, Protocol, Self

from mirror.records.header import DELETE_HORIZON, BatchHeader
from mirror.records.stamped import is_stamped

STEPS = 1_000
"""After so many records, other tasks of the event loop get a turn."""


class Common(NamedTuple):
    """The records that a copy and its original have in common. ``both``: how many both have. ``missing``: how many of
    the original's the copy does not have."""

    both: int
    missing: int


def cleaned(header: BatchHeader) -> bool:
    """Returns True if a log cleaner has removed records from the batch, or has stored a delete horizon in it. A
    producer can do neither."""
    return not header.is_dense or bool(header.attributes & DELETE_HORIZON)


def loses_times(header: BatchHeader) -> bool:
    """Returns True if the batch no longer has the times with which its records were sent: the broker has put in the
    time of the append, and then a log cleaner has written that time into each record that it left."""
    return is_stamped(header) and cleaned(header)


class PlacedRecord(Protocol):
    """A record that is compared, with all of its fields."""

    @property
    def offset(self) -> int:
        """Its offset."""

    @property
    def timestamp(self) -> int:
        """Its time, in ms since 1970."""

    def _replace(self, *, timestamp: int) -> Self: ...


def timeless(records: Iterator[PlacedRecord]) -> Iterator[PlacedRecord]:
    """Yields the records without their times."""
    return (record._replace(timestamp=0) for record in records)


async def in_common(copy: Iterator[PlacedRecord], original: Iterator[PlacedRecord]) -> Common | None:
    """Returns what both have in common; None if they have different records at the same offset.

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
