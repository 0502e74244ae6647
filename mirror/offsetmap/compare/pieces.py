"""Finds where in an original a copy fits that is only a piece of it.

A batch that no broker takes as it is goes to the destination in pieces (``records.content.rewriting``): dense batches,
each with records that stood one behind the other, at offsets without a gap. Where it was cut depends on the limit of
that day, so what is in it decides, record by record. Log cleaners may have been on both sides since.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from mirror.offsetmap.compare.looks import ComparedBatch
from mirror.records.content.opening import NotOpened
from mirror.records.content.raw import placed_records
from mirror.records.header import BatchHeader

STEPS = 1_000
"""Records that are digested before other work has its turn."""
_DIGEST_SIZE = 12


class Rows(NamedTuple):
    """What is in a batch: offsets, counted from its first one, in order, and a digest of each record. Not of where it
    stands: a copy has other offsets."""

    deltas: list[int]
    digests: list[bytes]

    def left(self, inside: int) -> int:
        """Returns how many records stand at ``inside`` or behind it."""
        return len(self.deltas) - bisect_left(self.deltas, inside)

    def next(self, inside: int) -> int | None:
        """Returns the first offset from ``inside`` on that has a record; None: there is none."""
        at = bisect_left(self.deltas, inside)
        return self.deltas[at] if at < len(self.deltas) else None

    def places(self, inside: int, length: int, count: int) -> list[int]:
        """Returns the offsets up to which a batch of this length may have been copied, if ``count`` offsets of it were,
        from ``inside`` on. Those with a record now were among them; each of the others may have had one then. One
        offset stands for all before the same record."""
        start, least = bisect_left(self.deltas, inside), inside + count
        if not 0 < count <= length - inside:
            return []
        return [least, *(delta + 1 for delta in self.deltas[bisect_left(self.deltas, least) : start + count])]


class PiecePlace(NamedTuple):
    """A place for the copy: offsets in the original. ``whole``: it has every record that the original has there, and
    there is one."""

    start: int
    end: int
    whole: bool


async def rows_of(batch: ComparedBatch, *, timed: bool = True) -> Rows | None:
    """Returns what is in a batch; None if its records are not kept, or cannot be read. ``timed``: False if times are
    not compared (``ComparedBatch.timed``)."""
    return await rows_in(batch.header, batch.records, timed=timed)


async def rows_in(header: BatchHeader, records: memoryview | None, *, timed: bool = True) -> Rows | None:
    """Returns what is in the batch with this header and these bytes behind it; None, and ``timed``, as ``rows_of``."""
    if records is None:
        return None
    rows = Rows([], [])
    try:
        for record in placed_records(header._replace(base_offset=0), bytes(records)):
            front = b"%d %d;" % (record.timestamp if timed else 0, record.attributes)
            digest = blake2b(front, digest_size=_DIGEST_SIZE)
            digest.update(record.content)
            rows.deltas.append(record.offset)
            rows.digests.append(digest.digest())
            if len(rows.deltas) % STEPS == 0:
                await asyncio.sleep(0)
    except NotOpened:
        return None
    return rows


def spots(original: Rows, original_length: int, inside: int, copy: Rows, copy_length: int) -> Iterator[PiecePlace]:
    """Yields the places in an original at which a copy fits as the piece that comes next.

    Args:
        original: what is in the original.
        original_length: the offsets that it takes.
        inside: all of it before this offset was copied.
        copy: what is in the copy.
        copy_length: the offsets that it takes.
    """
    first = original.next(inside)
    if first is None:
        return
    digest = original.digests[bisect_left(original.deltas, first)]
    # Before the next record there may have been others, which the source's cleaner has taken since.
    starts = {first - delta for delta, mine in zip(copy.deltas, copy.digests, strict=True) if mine == digest}
    for start in sorted(starts | {first}):
        if inside <= start and start + copy_length <= original_length:
            spot = fits_at(original, start, copy, copy_length)
            if spot is not None:
                yield spot


def fits_at(original: Rows, start: int, copy: Rows, copy_length: int) -> PiecePlace | None:
    """Returns the place at offset ``start`` of the original if no record there speaks against it, else None."""
    end = start + copy_length
    low, high = bisect_left(original.deltas, start), bisect_left(original.deltas, end)
    here = dict(zip(original.deltas[low:high], original.digests[low:high], strict=True))
    both = 0
    for delta, digest in zip(copy.deltas, copy.digests, strict=True):
        there = here.get(start + delta)
        if there is not None and there != digest:
            return None
        both += there is not None
    # What only the copy has, the source's cleaner has taken since; what only the original has, the destination's. Where
    # both have nothing in common, nothing speaks against it, and nothing for it: another log may have a hole there.
    return PiecePlace(start, end, whole=0 < both == len(here))
