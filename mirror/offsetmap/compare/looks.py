"""Compares batches of two logs: tells whether one may be the copy of the other, wherever both stand."""

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
"""Attribute bits that a copy does not have, or not always: the transaction is decided, the horizon is the cleaner's."""
_LOOK_SIZE = 16


class Gap(NamedTuple):
    """Offsets of a log that no batch takes, or only an empty one."""

    start: int
    offsets: int
    is_batch: bool = False
    """True for an empty batch: nothing can be read from its middle on."""

    def behind(self, used: int) -> int:
        """Returns where to read on when so many of its offsets are gone over."""
        return self.start if self.is_batch and used < self.offsets else self.start + used


class ComparedBatch(NamedTuple):
    """A batch of either log, as far as it is compared."""

    header: BatchHeader
    look: bytes
    """Digest of everything but where it stands, who wrote it, and its max timestamp."""
    room: int = 0
    """For an original: how many offsets between it and the one before no batch takes."""
    gaps: tuple[Gap, ...] = ()
    """These offsets, in order. Batches that are not copied may stand between them."""
    records: memoryview | None = None
    """The bytes after the header; None: not kept."""
    stamped: bool = False
    """True for a copy into which the destination's broker has put the time of its append. The header is without that
    mark: the records count with the times with which they were sent."""

    @classmethod
    def of(
        cls, header: BatchHeader, batch: memoryview, gaps: tuple[Gap, ...] = (), *, append_times: bool = False
    ) -> "ComparedBatch":
        """Makes one of a header and the whole batch. The checksum covers who wrote it, so the records are digested.
        ``append_times``: it is a copy, into which the destination's broker may have put the time of its append."""
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
        """False if it does not have the times any more with which its records were sent (``survivors.loses_times``)."""
        return not (self.stamped and cleaned(self.header))

    @property
    def length(self) -> int:
        """Offsets that it takes."""
        return self.header.last_offset_delta + 1


class Fit(Enum):
    """How well one batch fits as the copy of another."""

    WHOLE = "whole"
    """The same bytes; or, where log cleaners have been, all that the original still has is in the copy. Even if that
    was made of another original, it says the same about every key of this one."""
    OPEN = "open"
    """Nothing speaks against it: it takes as many offsets, and what log cleaners have left cannot tell."""
    NONE = "none"


async def fit(original: ComparedBatch, copy: ComparedBatch, opening: asyncio.Lock) -> Fit:
    """Returns how the copy fits. ``opening``: held while the batches are open, so that memory is bounded."""
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
    """Yields the records at offsets from 0 on, wherever the batch stands."""
    return opened(header._replace(base_offset=0), bytes(records))
