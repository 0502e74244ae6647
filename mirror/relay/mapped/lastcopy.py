"""Checks that the source still has what was copied (``offsets: mapped``). Otherwise, a source that was truncated and
has grown since would look healthy, because what was matched before is not read again.

The batch that was copied last is compared with the source's batch in its place. If the destination has deleted it, if a
log cleaner has removed it, or if offsets were passed over behind it, the source is checked against the note of the copy
(``relay.locate.evidence``).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple

from mirror.net.errors import Unreachable
from mirror.net.logs.log import PartitionLog, SourceLog
from mirror.offsetmap.compare.alignment import Alignment, Differs
from mirror.offsetmap.compare.looks import ComparedBatch, Fit, fit
from mirror.offsetmap.compare.pieces import PiecePlace, fits_at, rows_of
from mirror.offsetmap.entries.pins import LastCopied, header_digest
from mirror.offsetmap.runs import Run
from mirror.reasons import HaltReason
from mirror.records.header import NO_LEADER_EPOCH, BatchHeader
from mirror.relay.halts import WAS_COMPACTED, PartitionHalted, halt
from mirror.relay.locate.evidence import Unseen

Vouch = Callable[[Unseen, LastCopied | None], Awaitable[int]]
"""See ``relay.locate.evidence.vouch``. The second argument is the note of the copy; None: there is none."""


class Sides(NamedTuple):
    """Both logs of a partition, and where they begin."""

    name: str
    here: SourceLog
    there: PartitionLog
    source_start: int
    log_start: int
    compacted: bool
    """True if the source's cleaner may have removed the original."""
    opening: asyncio.Lock
    """Held while batches are opened to be compared."""
    append_times: bool = False
    """True if the destination's broker may have put the time of the append into the copy."""


async def check_end(sides: Sides, copied_to: int, settle_s: float) -> None:
    """Checks that the source does not end before what was copied.

    Args:
        sides: both logs.
        copied_to: all source offsets below it were copied, or passed over.
        settle_s: pause between the two looks that it takes. A single look may hit a leader that is still catching up.

    Raises:
        PartitionHalted: it ends before that.
        NetworkError: cannot be determined now.
    """
    if await sides.here.true_end() >= copied_to:
        return
    await asyncio.sleep(settle_s)
    source_end = await sides.here.true_end()
    if source_end < copied_to:
        raise _truncated(sides, f"copied up to offset {copied_to}, and the source ends at {source_end}")


async def check_seen(here: SourceLog, alignment: Alignment) -> None:
    """Checks that no conclusion about copies depends on a part of the source that could not be read.

    Raises:
        NetworkError: one does. The next look decides.
    """
    if alignment.ended:
        await check_read(here, alignment)


async def check_read(here: SourceLog, alignment: Alignment) -> None:
    """Checks that everything that the source has was read.

    Raises:
        NetworkError: it was not, because a new leader's high watermark lags behind what the previous leader has shown,
            or more has arrived by now. Or it cannot be asked now. The next look decides.
    """
    # The order matters: ``goes_on`` sees everything that was visible first, and the true end, asked last, can only be
    # higher.
    visible = await here.visible_end()
    if await alignment.goes_on() or visible < await here.true_end():
        raise Unreachable(f"{here.name}: what is there from offset {visible} on was not to be read yet")


async def differs(sides: Sides, alignment: Alignment, error: Differs, noted: LastCopied | None) -> PartitionHalted:
    """Returns the halt for copies that are not the source's next batches.

    Within a leader epoch, an offset has only one batch. So a source has lost what was copied if it has another leader
    since the copy was noted, and fewer records of the epochs until then than were copied.

    Args:
        sides: both logs.
        alignment: what was found of copies and originals.
        error: the difference.
        noted: the note of the copy; None: there is none.

    Raises:
        NetworkError: cannot be determined now.
    """
    epoch = noted.leader_epoch if noted is not None else NO_LEADER_EPOCH
    if NO_LEADER_EPOCH < epoch < sides.here.leader.epoch:
        left = await alignment.left_of(epoch, error.missing)
        if left < error.missing:
            return _truncated(
                sides, f"{error}; behind offset {alignment.certain} the source has no more of leader epoch {epoch}"
            )
    return halt(HaltReason.NOT_A_COPY, f"{sides.name}: {error}")


class Checked(NamedTuple):
    """The result if the source has what was copied."""

    source_epoch: int
    """Leader epoch of the source's batch before the position; -1: not known."""
    copied: LastCopied
    """The note of the copy to write from now on."""


async def check_copied(
    sides: Sides,
    last: Run | None,
    upto: int,
    own: Collection[int],
    noted: LastCopied | None,
    vouch: Vouch,
    *,
    unshown: bool = False,
) -> Checked:
    """Checks that the source still has what was copied.

    Args:
        sides: both logs.
        last: the last run of the map; None: nothing is known to be copied.
        upto: the position: all source offsets below it are copied, or passed over.
        own: the flow's own producer ids.
        noted: the note of the copy; None: there is none, as in checkpoints of versions that did not write it.
        vouch: checks the source against the note.
        unshown: see ``Unseen``.

    Raises:
        PartitionHalted: ``source_truncated``, if the source has lost some of it; ``unproven``, if nothing shows that it
            has all of it.
        NetworkError: cannot be determined now.
    """
    epoch, digest, digest_at, compared_to = NO_LEADER_EPOCH, "", -1, -1
    original = await check_last(sides, last, own)
    if original is not None and last is not None:
        compared_to = last.source_end
        if compared_to == upto:
            epoch = original.header.leader_epoch
    if original is not None and last is not None and original.header.next_offset == last.source_end:
        digest, digest_at = header_digest(original.batch), last.source_end
    elif noted is not None and noted.digest_at <= upto:
        # A piece from the middle of a batch does not show where a batch ends. So the earlier digest is kept.
        digest, digest_at = noted.digest, noted.digest_at
    passed_over = compared_to < upto and noted is not None
    if upto > sides.source_start and (original is None or passed_over or unshown):
        why = "the last batch copied is not to be compared"
        # If the last batch was compared and the note covers the position, only offsets that were passed over are
        # unseen. A source that cannot tell more is believed then.
        seen = original is not None and noted is not None and upto <= noted.offset
        bounds = upto, sides.source_start, sides.log_start
        unseen = Unseen(why, *bounds, data=True, cleaned=seen and not unshown, unshown=unshown)
        epoch = await vouch(unseen, noted)
    return Checked(epoch, LastCopied(upto, sides.here.leader.epoch, digest, digest_at))


class Original(NamedTuple):
    """The source batch that the last copy is of, or is a piece of."""

    header: BatchHeader
    batch: bytes


async def check_last(sides: Sides, last: Run | None, own: Collection[int]) -> Original | None:
    """Checks that the source has, in its place, the batch that was copied last, or that the last copy is a piece of.

    Returns:
        That batch of the source; None if nothing can be concluded, because one side no longer has the batch.

    Raises:
        PartitionHalted: the source has another batch there.
        NetworkError: cannot be determined now.
    """
    if last is None or last.destination_end <= sides.log_start or last.source_end <= sides.source_start:
        return None
    at = last.source_end - 1
    copy, original = await asyncio.gather(sides.there.batch_at(last.destination_end - 1), sides.here.batch_at(at))
    if copy is None or copy[0].is_control or copy[0].producer_id not in own or not _ends(copy[0], last.destination_end):
        return None
    if original is None and not sides.compacted:
        if await sides.here.visible_end() <= at:
            # A new leader's high watermark lags behind what the previous leader has shown.
            raise Unreachable(f"{sides.here.name}: offset {at} is there, and not to be read yet")
        # It may have become visible only now.
        original = await sides.here.batch_at(at)
    if original is not None and _ends(original[0], last.source_end):
        found = await fit(_look(original), _look(copy, append_times=sides.append_times), sides.opening)
        if found is not Fit.NONE:
            return Original(*original) if found is Fit.WHOLE else None
    if original is not None and original[0].base_offset <= at:
        spot = await _piece(sides, original, copy, last.source_end)
        if spot is not None:
            return Original(*original) if spot.whole else None
    if sides.compacted and (original is None or not _ends(original[0], last.source_end)):
        return None
    raise _truncated(
        sides,
        f"the source's batch at offset {at} is not the one that was copied to offset {last.destination_end - 1}"
        f"{'' if sides.compacted else WAS_COMPACTED}",
    )


async def _piece(
    sides: Sides, original: tuple[BatchHeader, bytes], copy: tuple[BatchHeader, bytes], source_end: int
) -> PiecePlace | None:
    """Returns where in the original the copy fits as a piece that ends at ``source_end``; None if it does not fit."""
    length = copy[0].last_offset_delta + 1
    start = source_end - length - original[0].base_offset
    if start < 0:
        return None
    async with sides.opening:
        mine = _look(copy, append_times=sides.append_times)
        here, there = [await rows_of(each, timed=mine.timed) for each in (_look(original), mine)]
    return fits_at(here, start, there, length) if here is not None and there is not None else None


def _ends(header: BatchHeader, offset: int) -> bool:
    return header.next_offset == offset


def _look(found: tuple[BatchHeader, bytes], *, append_times: bool = False) -> ComparedBatch:
    header, batch = found
    return ComparedBatch.of(header, memoryview(batch), append_times=append_times)


def _truncated(sides: Sides, detail: str) -> PartitionHalted:
    return halt(HaltReason.SOURCE_TRUNCATED, f"{sides.name}: {detail}")
