"""Reads some batches of a source partition, and judges them by the relay's own rules (``admit``)."""

from collections.abc import Iterator
from dataclasses import dataclass

from mirror.net.errors import Damaged, Refused, StoredInOldFormat, Unreadable
from mirror.net.logs.log import Segment, SourceLog
from mirror.reasons import HaltReason
from mirror.records.admit import Fill, Forward, Halt, Rewrite, Skip, Terms, Verdict, admit
from mirror.records.content.opening import NotOpened, opened
from mirror.records.header import HEADER_SIZE, BatchHeader, Codec
from mirror.records.transactions import Aborted
from mirror.relay.halts import Halted, halted_by_batch, halted_by_damage, halted_by_error
from mirror.service.plan.model import Sample
from mirror.wire.errors import HALTING, ErrorCode

MOST_AT_ONCE = 1 << 20
"""Maximum number of bytes of one read, unless its first batch alone is larger."""


@dataclass(slots=True)
class Budget:
    """How much is read of all partitions together.

    Attributes:
        left: bytes that may still be read. It may go below 0, since whole batches are read.
        between: number of places that are looked at between the first and the last batch that are due.
        piece: bytes that are read at one place.
        read: bytes that were read.
    """

    left: int
    between: int = 3
    piece: int = 1 << 16
    read: int = 0

    @classmethod
    def of(cls, size: int, partitions: int) -> "Budget":
        """Returns a budget of ``size`` bytes, shared among a number of partitions. The more partitions there are, the
        fewer places are looked at in each."""
        between = 3 if partitions <= 200 else 1 if partitions <= 2_000 else 0
        piece = size // max(1, partitions * (between + 2))
        return cls(left=size, between=between, piece=max(1, min(MOST_AT_ONCE, piece)))

    def spend(self, size: int) -> None:
        """Counts bytes that were read."""
        self.read += size
        self.left -= size


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """The rules by which batches are judged.

    Attributes:
        terms: the terms of the topic.
        committed: True for ``isolation.level: read_committed``.
        forgets_before_ms: see ``FlowFacts``.
    """

    terms: Terms
    committed: bool
    forgets_before_ms: float


async def sampled(here: SourceLog, due: int, end: int, budget: Budget, by: Judging) -> Sample:
    """Reads the first batches that are due, the last ones, and some in between. Without a backlog, reads only the last
    batches of the log.

    Args:
        here: the source's log.
        due: the next offset to copy.
        end: the source's high watermark.
        budget: counts what is read.
        by: the rules by which batches are judged.

    Raises:
        NetworkError: the broker did not answer.
    """
    sample = Sample()
    first = max(due, here.floor)
    try:
        if first >= end:
            await _look(here, end - 1, None, sample, budget, by, weighs=False)
            return sample
        head = await _look(here, first, first, sample, budget, by)
        sample.due_ms = head.batches[0][0].max_timestamp if head.batches else sample.due_ms
        reached = head.batches[-1][0].next_offset if head.batches else end
        last = (head.last_stable_offset if by.committed else head.high_watermark) - 1
        for offset in _places(reached, last, budget.between):
            if budget.left <= 0:
                break
            if offset < reached:
                continue
            found = await _look(here, offset, None, sample, budget, by)
            reached = found.batches[-1][0].next_offset if found.batches else reached
        if last >= reached:
            # It does not count in sums: in a transactional topic, the last batch is always a marker.
            await _look(here, last, None, sample, budget, by, weighs=False)
    except (Damaged, Unreadable) as error:
        _keep(sample, halted_by_damage(error, here.cluster.name))
    except StoredInOldFormat as error:
        _keep(sample, Halted.of(HaltReason.OLD_FORMAT, str(error)))
    except Refused as error:
        if error.code in HALTING:
            _keep(sample, halted_by_error(error.code, f"{here.cluster.name}: Fetch of {here.name}", None))
        elif error.code != ErrorCode.OFFSET_OUT_OF_RANGE:  # this one: the source has deleted these records meanwhile
            raise
    return sample


def _places(start: int, end: int, count: int) -> Iterator[int]:
    """Yields ``count`` evenly spaced offsets between ``start`` and ``end``; none if there is no room for them."""
    if end - start > count:
        yield from (start + (end - start) * number // (count + 1) for number in range(1, count + 1))


async def _look(
    here: SourceLog,
    offset: int,
    due: int | None,
    sample: Sample,
    budget: Budget,
    by: Judging,
    *,
    weighs: bool = True,
) -> Segment:
    """Reads and judges the batches at an offset. Adds them to ``sample``, and returns what was read.

    Args:
        here: the source's log.
        offset: the offset.
        due: the same offset if it is the next one to copy, so that a first batch which begins later or earlier is
            judged by that; None: the first batch that is found is judged from its own base offset.
        sample: gets what the batches show.
        budget: counts what is read.
        by: the rules by which batches are judged.
        weighs: see ``judge``.
    """
    segment = await here.read(offset, max_bytes=budget.piece, committed=by.committed)
    budget.spend(sum(header.size for header, _ in segment.batches))
    judge(segment, due, sample, by, weighs=weighs)
    return segment


def judge(segment: Segment, due: int | None, sample: Sample, by: Judging, *, weighs: bool = True) -> None:
    """Adds the batches of a piece of the log to the sample, with the relay's verdict on each.

    Args:
        segment: the piece.
        due: see ``_look``.
        sample: gets what the batches show.
        by: the rules by which batches are judged.
        weighs: True if the batches count in sums; False for places that are not typical of the log.
    """
    sums = sample if weighs else Sample()
    aborted = Aborted(segment.aborted)
    reached = due if due is not None else -1
    in_hole = False
    for header, batch in segment.batches:
        dropped = aborted.follow(header, batch)
        at = header.base_offset if not 0 <= reached <= header.base_offset else reached
        begins = at
        verdict = _verdict(header, at, by, aborted=dropped)
        if header.base_offset > at and not isinstance(verdict, Skip):
            # The first verdict is about the offsets before the batch, so the batch itself needs another one.
            in_hole = _count(sample, sums, header, verdict, in_hole, header.base_offset - at)
            at = header.base_offset
            verdict = _verdict(header, at, by, aborted=dropped)
        in_hole = _count(sample, sums, header, verdict, in_hole, header.next_offset - at)
        sums.batches += 1
        sums.size += header.size
        sums.offsets += header.next_offset - begins
        reached = header.next_offset
        if isinstance(verdict, Forward) or header.is_stand_in:
            sums.old += header.max_timestamp < by.forgets_before_ms
            _forwarded(sample, header, batch, by)


def _verdict(header: BatchHeader, at: int, by: Judging, *, aborted: bool) -> Verdict:
    """Returns the relay's verdict. A batch that stands for messages in an old format is never forwarded: it would be
    rewritten."""
    verdict = admit(header, at, by.terms, aborted=aborted)
    return Rewrite(reason=HaltReason.OLD_FORMAT) if header.is_stand_in and isinstance(verdict, Forward) else verdict


def _count(sample: Sample, sums: Sample, header: BatchHeader, verdict: object, in_hole: bool, offsets: int) -> bool:
    """Adds a verdict on a number of offsets. Returns True if these are a hole, which the next offsets may continue.

    Args:
        sample: gets halts and rewrites.
        sums: gets the sums: the sample, or a dummy if the batches do not count in sums.
        header: header of the batch.
        verdict: the verdict.
        in_hole: True if the offsets before these are a hole.
        offsets: number of offsets that the verdict is about.
    """
    if isinstance(verdict, Halt):
        _keep(sample, halted_by_batch(verdict))
        return False
    if isinstance(verdict, Fill):
        cause = verdict.cause.value
        sums.holes[cause] = sums.holes.get(cause, 0) + offsets
        sums.runs += not in_hole
        return True
    if isinstance(verdict, Rewrite):
        slug = verdict.reason.slug
        sums.rewritten[slug] = sums.rewritten.get(slug, 0) + 1
        sample.rewritten.setdefault(slug, 1)
    sums.records += header.record_count
    return False


def _forwarded(sample: Sample, header: BatchHeader, batch: memoryview, by: Judging) -> None:
    sample.codecs.add(Codec(header.codec_bits).name.lower())
    sample.largest = max(sample.largest, header.size)
    newest = header.max_timestamp
    if newest >= 0:
        sample.oldest_ms = newest if sample.oldest_ms < 0 else min(sample.oldest_ms, newest)
        sample.newest_ms = max(sample.newest_ms, newest)
    if by.terms.compacted_there and not by.terms.compacted and sample.null_key < 0:
        sample.null_key = _null_key(header, batch)


def _null_key(header: BatchHeader, batch: memoryview) -> int:
    """Returns the offset of the batch's first record without a key; -1 if there is none, or if the batch cannot be
    opened."""
    try:
        for record in opened(header, bytes(batch[HEADER_SIZE:])):
            if record.key is None:
                return record.offset
    except NotOpened:
        pass
    return -1


def _keep(sample: Sample, halted: Halted) -> None:
    """Keeps the first halt of each reason."""
    sample.halts.setdefault(halted.reason, halted)
