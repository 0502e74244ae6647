"""Finds the batch of the source that holds a position which is no batch's first offset. Batches may be copied in pieces
(``relay.hot.deep``), so that the copy ends inside of one."""

from typing import Protocol

from mirror.net.errors import Unreachable
from mirror.offsetmap.entries.starting import StartingOffset
from mirror.records.admit import NOT_INSIDE, Terms
from mirror.records.header import BatchHeader


class BatchesSource(Protocol):
    """The source's log, as far as it is asked here."""

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
    """Returns the base offset of the source batch that holds ``offset`` behind its first one. ``NOT_INSIDE``: there is
    none, batches are not copied in pieces, or it does not stand where it says. No checksum covers base offsets, so the
    batch before it has to end there, or before a gap in a compacted topic.

    Args:
        here: the source.
        terms: of the topic.
        offset: all before is copied.
        source_start: where the source begins.
        source_end: where it ends.
        starting: where the copy begins, if it begins later than the source; then the batch that holds that is known.

    Raises:
        NetworkError: cannot be determined now.
    """
    begins = starting.offset if starting is not None else NOT_INSIDE
    if not terms.rewrites or not offset < source_end or not (source_start < offset or offset == begins):
        return NOT_INSIDE
    found = await here.batch_at(offset)
    if found is None and starting is not None and starting.batch < offset == begins:
        return starting.batch  # a new leader of the source may show less for a while than the one that was asked then
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
