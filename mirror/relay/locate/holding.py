"""Finds the source batch that holds a position inside it. Batches may be copied in pieces (``relay.hot.deep``), so the
copy may end inside of one."""

from typing import Protocol

from mirror.net.errors import Unreachable
from mirror.offsetmap.entries.starting import StartingOffset
from mirror.records.admit import NOT_INSIDE, Terms
from mirror.records.header import BatchHeader


class BatchesSource(Protocol):
    """The part of the source's log that this module needs."""

    async def batch_at(self, offset: int, /) -> tuple[BatchHeader, bytes] | None:
        """See ``PartitionLog``."""

    async def visible_end(self) -> int:
        """See ``PartitionLog``."""


async def batch_holding(
    here: BatchesSource,
    terms: Terms,
    offset: int,
    *,
    source_start: int,
    source_end: int,
    starting: StartingOffset | None = None,
) -> int:
    """Returns the base offset of the source batch that holds ``offset`` behind its first offset. No checksum covers
    base offsets, so it is verified: the batch before must end there, or before a gap in a compacted topic.

    Args:
        here: the source's log.
        terms: the topic's terms.
        offset: everything before it is copied.
        source_start: where the source begins.
        source_end: where the source ends.
        starting: where the copy begins, if that is behind the source's start. The batch that holds that offset is
            known.

    Returns:
        The base offset. ``NOT_INSIDE`` if there is no such batch, batches are not copied in pieces, or the base offset
        cannot be verified.

    Raises:
        NetworkError: cannot be determined now.
    """
    begins = starting.offset if starting is not None else NOT_INSIDE
    if not terms.rewrites or not offset < source_end or not (source_start < offset or offset == begins):
        return NOT_INSIDE
    found = await here.batch_at(offset)
    if found is None and starting is not None and starting.batch < offset == begins:
        return starting.batch  # for a while, a new leader of the source may show less than the one that was asked then
    if found is None and await here.visible_end() < offset:
        raise Unreachable(f"a new leader of the source does not show yet what stands before offset {offset}")
    if found is None or found[0].base_offset >= offset:
        return NOT_INSIDE
    base = found[0].base_offset
    if starting is not None and base < begins:
        return base if base == starting.batch else NOT_INSIDE
    if base <= source_start:
        return base
    before = await here.batch_at(base - 1)
    if before is None:
        return NOT_INSIDE
    begins_behind_a_gap = before[0] == found[0] and terms.compacted
    return base if before[0].next_offset == base or begins_behind_a_gap else NOT_INSIDE
