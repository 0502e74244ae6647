"""Compares batches of two logs: tells whether one may be a copy of the other, at whatever offsets they are."""

import asyncio
from collections.abc import Iterator
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

from mirror.offsetmap.compare.survivors import cleaned, in_common, timeless
from mirror.records.content.opening import NotOpened, Record, opened
from mirror.records.header import DELETE_HORIZON, HEADER_SIZE, TRANSACTIONAL, BatchHeader
from mirror.records.stamped import is_stamped, unstamped

REWRITTEN = TRANSACTIONAL | DELETE_HORIZON
"""Attribute bits that are not compared. A copy has no transactional bit, because the transaction is decided; and each
log cleaner sets its own delete horizon."""
_LOOK_SIZE = 16


class Gap(NamedTuple):
    """Offsets of a log that no batch takes, or only an empty one."""

    start: int
    offsets: int
    is_batch: bool = False
    """True for an empty batch: reading cannot begin in the middle of it."""

    def behind(self, used: int) -> int:
        """Returns the offset at which to read on after ``used`` offsets of the gap were passed over."""
        return self.start if self.is_batch and used < self.offsets else self.start + used


class ComparedBatch(NamedTuple):
    """The parts of a batch that are compared. The batch may be of either log."""

    header: BatchHeader
    look: bytes
    """A digest of everything except its offset, the writer's fields, and its max timestamp."""
    room: int = 0
    """For an original: the number of offsets between the previous original and this one that no batch takes."""
    gaps: tuple[Gap, ...] = ()
    """These offsets, in order. Batches that are not copied may be between them."""
    records: memoryview | None = None
    """The bytes behind the header; None: not kept."""
    stamped: bool = False
    """True for a copy into which the destination's broker has put the time of the append. ``header`` is without that
    mark, so the records have the times with which they were sent."""

    @classmethod
    def of(
        cls, header: BatchHeader, batch: memoryview, gaps: tuple[Gap, ...] = (), *, append_times: bool = False
    ) -> "ComparedBatch":
        """Returns the parts of a batch that are compared. The records are digested, because the checksum also covers
        the writer's fields and so differs between the two sides.

        Args:
            header: the batch's header.
            batch: the whole batch.
            gaps: for an original, the gaps in front of it.
            append_times: this is a copy, and the destination's broker may have put the time of the append into it.
        """
        stamped = append_times and is_stamped(header)
        if stamped:
            header = unstamped(header, header.max_timestamp)
        digest = blake2b(digest_size=_LOOK_SIZE)
        digest.update(
            b"%d %d %d %d %d;"
            % (
                header.length,
                header.attributes & ~REWRITTEN,
                header.last_offset_delta,
                header.base_timestamp,
                header.record_count,
            )
        )
        digest.update(batch[HEADER_SIZE:])
        return cls(header, digest.digest(), sum(gap.offsets for gap in gaps), gaps, batch[HEADER_SIZE:], stamped)

    @property
    def timed(self) -> bool:
        """False if the records no longer have the times with which they were sent (``survivors.loses_times``)."""
        return not (self.stamped and cleaned(self.header))

    @property
    def length(self) -> int:
        """The number of offsets that the batch takes."""
        return self.header.last_offset_delta + 1


class Fit(Enum):
    """How well one batch fits as the copy of another."""

    WHOLE = "whole"
    """The same bytes; or, if log cleaners have changed one of them, the copy has every record that the original still
    has. Even if it was made of another original, it says the same about every key of this one."""
    OPEN = "open"
    """It may be the copy: it takes as many offsets, and what log cleaners have left neither proves nor excludes it."""
    NONE = "none"
    """It is no copy of this original."""


async def fit(original: ComparedBatch, copy: ComparedBatch, opening: asyncio.Lock) -> Fit:
    """Returns how well the copy fits. ``opening``: is held while the batches are open, to limit memory."""
    same_time = copy.stamped or original.header.max_timestamp == copy.header.max_timestamp
    if original.look == copy.look and same_time:
        return Fit.WHOLE
    if original.length != copy.length or not (cleaned(original.header) or cleaned(copy.header)):
        return Fit.NONE
    if original.records is None or copy.records is None:
        return Fit.OPEN
    async with opening:
        try:
            both = _opened(copy.header, copy.records), _opened(original.header, original.records)
            found = await in_common(*(both if copy.timed else map(timeless, both)))
        except NotOpened:
            return Fit.OPEN
    if found is None:
        return Fit.NONE
    return Fit.WHOLE if found.both and not found.missing else Fit.OPEN


def _opened(header: BatchHeader, records: memoryview) -> Iterator[Record]:
    """Yields the records with offsets counted from the batch's first one."""
    return opened(header._replace(base_offset=0), bytes(records))
