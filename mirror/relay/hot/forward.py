"""Makes batches ready to be sent from each fetched record set, in order, with the holes between them.

``relay.hot.plain`` takes the batches that need nothing but a new identity, which are nearly all. Everything else goes
through ``records.scan`` and ``records.admit``, which decide. Batches that the destination would refuse as they are get
rewritten (``relay.hot.deep``). ``tests/relay/hot/test_forward.py`` compares the two ways.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from mirror.legacy import AT_A_TIME, GATHERED_RECORDS, stand_ins
from mirror.legacy.entries import first_offset_at
from mirror.net.buffers import Frame
from mirror.reasons import HaltReason
from mirror.records.admit import (
    NOT_INSIDE,
    Fill,
    Forward,
    Halt,
    Rewrite,
    RewriteWish,
    Skip,
    Terms,
    Verdict,
    admit,
    backwards,
    damaged,
)
from mirror.records.header import (
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    NO_LEADER_EPOCH,
    PREFIX_SIZE,
    BatchHeader,
    CorruptBatch,
)
from mirror.records.identity import Identity
from mirror.records.intact import is_intact
from mirror.records.restamp import restamp
from mirror.records.scan import NOT_SEEN, base_offset_at, measure
from mirror.records.transactions import Aborted
from mirror.relay.hot.deep import Rewriter
from mirror.relay.hot.plain import PLAIN_ATTRIBUTES, InnerLoop
from mirror.relay.hot.putting import NO_END, Judged, OpenedBatch, SoFar
from mirror.relay.hot.rebatching import put_small
from mirror.relay.partition.cursor import Ahead
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.queue import Batch, Hole
from mirror.wire.produce import head_for, pack_head

NO_LIMIT = 1 << 31
NONE_ABORTED = Aborted(())
"""Without aborted transactions, it has no state, so all record sets can share it."""


class Unproven(NamedTuple):
    """A possible gap: the next batch begins behind ``due``, and the rest of this response does not prove its base
    offset."""

    due: int
    base_offset: int


class _Ended(NamedTuple):
    """Where work on a part of a record set ended."""

    at: int
    found: Halt | Unproven | None = None
    """Why the batch there cannot be copied, or a gap that is not proven."""
    cut: bool = False
    """True if the rest is to be fetched again."""

    def goes_on(self, end: int) -> bool:
        """Returns True if there is more before the byte ``end``, and nothing prevents taking it now."""
        return self.at < end and self.found is None and not self.cut


def forward(
    frame: Frame,
    start: int,
    end: int,
    partition: Partition,
    inner_loop: InnerLoop,
    aborted: Sequence[tuple[int, int]] = (),
    readable: int = NO_END,
    rewriter: Rewriter | None = None,
) -> Halt | Unproven | None:
    """Cuts ``frame.body[start:end]`` into batches and puts them, restamped, into the partition's outbox. For offsets
    without a record to copy, it puts holes.

    Moves the partition's ``due`` and ``identity`` behind the last of them. The frame is held as long as an item needs
    it.

    Args:
        frame: the Fetch response.
        start: where the partition's record set begins in it.
        end: where the record set ends.
        partition: the partition of the record set.
        inner_loop: the one for the Produce version in use.
        aborted: (producer id, first offset) of the aborted transactions that the response lists.
        readable: the source's end for the flow's isolation level, according to the response.
        rewriter: rewrites what the destination would refuse; None: one is made for this call.

    Returns:
        The reason why the batch at ``due`` cannot be copied, or a gap there that this response alone does not prove.
        Everything before it is in the outbox. None: neither.
    """
    dropped = Aborted(aborted) if aborted else NONE_ABORTED
    way = _Way(partition, inner_loop, dropped, readable, rewriter, partition.cursor.due)
    ended = _forward(frame, start, end, way)
    while ended.goes_on(end) and partition.terms.converts and _is_old(frame.body, ended.at, end):
        ended = _forward_old(frame, ended.at, end, way)
        if ended.goes_on(end):
            ended = _forward(frame, ended.at, end, way, old=True)
    return ended.found


class _Way(NamedTuple):
    """The arguments that are the same for all parts of a record set; see ``forward``."""

    partition: Partition
    inner_loop: InnerLoop
    dropped: Aborted
    readable: int
    rewriter: Rewriter | None
    first_due: int


def _is_old(buf: memoryview, at: int, end: int) -> bool:
    """Returns True if a whole message of magic 0 or 1 begins at ``at``. A damaged batch may look like one."""
    try:
        return isinstance(measure(buf, at, end), int) and buf[at + MAGIC_AT] != MAGIC
    except CorruptBatch:
        return False


def _forward_old(frame: Frame, start: int, end: int, way: _Way) -> _Ended:
    """Puts messages of magic 0 and 1, up to the next batch of magic 2. Batches are made that stand for them, and are
    treated like batches that were read."""
    partition = way.partition
    cursor, queue = partition.cursor, partition.queue
    # A broker may begin its response with batches from before the requested offset.
    due = cursor.due if cursor.due == way.first_due else 0
    mapped = queue.copied is not None  # lock-step compares them one by one
    each = 1 if mapped else GATHERED_RECORDS
    made = stand_ins(frame.body, start, end, due=due, gathered_records=each, at_a_time=AT_A_TIME)
    if made.batches:
        if way.rewriter is not None:
            way.rewriter.count(HaltReason.OLD_FORMAT, len(made.batches))
        own = frame.beside(made.batches)
        for batch in made.batches:
            header = BatchHeader.read(batch)
            cursor.rewrote(header.base_offset, header.next_offset, queue.acknowledged)
        try:
            ended = _forward(own, 0, len(own.body), way)
        finally:
            own.release()
        if ended.found is not None or ended.cut:
            return ended
    if isinstance(made.wrong, CorruptBatch):
        return _Ended(made.stop, Halt(reason=HaltReason.CORRUPT, detail=str(made.wrong)))
    if made.wrong is not None:
        return _Ended(made.stop, Halt(reason=HaltReason.NOT_OPENED, detail=str(made.wrong)))
    return _Ended(made.stop, cut=made.more)  # if there is more, other partitions have their turn first


def _forward(frame: Frame, start: int, end: int, way: _Way, *, old: bool = False) -> _Ended:
    """Puts batches of magic 2, up to the first old message if these are converted. ``old``: True if an old message
    stands before them."""
    buf = frame.body
    partition, inner_loop, dropped, readable, rewriter, first_due = way
    cursor, queue = partition.cursor, partition.queue
    terms = partition.terms
    most_length = (terms.max_batch_size or NO_LIMIT) - PREFIX_SIZE
    plain = _plain_below(terms)
    outbox = queue.outbox
    last_fit = end - HEADER_SIZE
    halt: Halt | Unproven | None = None
    cut = False
    at = start
    before = len(outbox)
    so_far = SoFar(frame, partition, before)
    rebatches = cursor.batch_size < terms.rebatches
    stop = end
    while at <= last_fit:
        if rebatches:
            at, stop, cut = put_small(so_far, buf, at, end, rewriter, inner_loop.produce_version, partial(_may_go, way))
            if cut or at > last_fit:
                break
        identity = so_far.next_identity
        producer_id, epoch, sequence = identity.producer_id, identity.epoch, identity.sequence
        count, at, due, sequence, leader_epoch, newest_ms, cut, taken_at, taken_ms = inner_loop.take(
            outbox, buf, at, stop, so_far.next_due, partition.index, producer_id, epoch, sequence, most_length, plain
        )
        behind = Identity(producer_id, epoch, sequence)
        so_far.put_plain(count, behind, due, leader_epoch, newest_ms, taken_at, taken_ms)
        if cut or at > last_fit:
            break
        if count and at == stop:
            continue
        if buf[at + MAGIC_AT] != MAGIC and terms.converts and _is_old(buf, at, end):
            break
        view = _View(buf, at, end, readable, head=due == first_due)
        judged = _judge(view, partition, so_far.next_identity, due, inner_loop.produce_version, dropped)
        if isinstance(judged, OpenedBatch):
            halt = so_far.put_rewritten(at, judged, rewriter or Rewriter(), inner_loop.produce_version)
            cut = so_far.inside != NOT_INSIDE
        elif isinstance(judged, Judged):
            so_far.put(at, judged, first=len(outbox) == before)
        else:
            halt = judged
        if not isinstance(judged, Judged | OpenedBatch) or halt is not None or cut:
            break
        at = judged.stop
    due = so_far.next_due
    # If cut, the rest is the batch that is due, or what is left of it.
    if halt is None and at < end and not cut and not (terms.converts and _is_old(buf, at, end)):
        halt = _check_tail(buf, at, end, partition, due, moved=due != first_due, old=old and at == start)
    cursor.advance(due, so_far.next_identity, so_far.epoch, so_far.newest_ms, so_far.inside)
    put = len(outbox) - before
    if put:
        so_far.close()
        cursor.measured((at - start) // (put + so_far.joined), holes=so_far.holes > 0)
        queue.tally.put(put - so_far.holes, at - start - so_far.left_out)
    return _Ended(at, halt, cut)


def _plain_below(terms: Terms) -> int:
    """Returns the attributes below which a batch is plain; see ``take_plain``."""
    if terms.codec is None:
        return 0 if terms.strict else PLAIN_ATTRIBUTES
    return 0 if terms.codec else 1  # an upper limit on attributes can only select batches without a codec


def _may_go(way: _Way, header: BatchHeader, batch: memoryview, due: int) -> bool:
    """Returns True if the batch is intact, and could be sent as it is, or at least with another codec."""
    verdict = _verdict(header, batch, due, way.partition, way.dropped)
    wanted = isinstance(verdict, Forward) or (
        isinstance(verdict, Rewrite) and verdict.reason is RewriteWish.OTHER_CODEC
    )
    return wanted and is_intact(batch)


class _View(NamedTuple):
    """The place of a batch in its record set."""

    buf: memoryview
    at: int
    end: int
    readable: int
    head: bool
    """True if nothing before it in the record set moved ``due``. A broker may begin its response with batches from
    before the requested offset."""


def _judge(
    view: _View, partition: Partition, identity: Identity, due: int, produce_version: int, dropped: Aborted
) -> Judged | OpenedBatch | Halt | Unproven | None:
    """Judges a batch that is not plain. Returns the result, a halt, an unproven gap, or None at the end of the whole
    batches."""
    buf, at, end = view[:3]
    try:
        size = measure(buf, at, end)
    except CorruptBatch as error:
        return Halt(reason=HaltReason.CORRUPT, detail=str(error))
    if not isinstance(size, int):
        return None
    header = BatchHeader.read(buf, at)
    stop = at + size
    verdict = _verdict(header, buf[at:stop], due, partition, dropped)
    if not isinstance(verdict, Forward):
        # A forwarded batch carries its checksum to the destination, which verifies it. Nobody else verifies this one.
        if not is_intact(buf[at:stop]):
            return damaged(header)
        wrong = _misplaced(header, view, partition, due)
        if wrong is not None:
            return wrong
    if isinstance(verdict, Halt):
        return verdict
    if isinstance(verdict, Rewrite):
        return OpenedBatch(stop, header, verdict.reason)
    if isinstance(verdict, Skip):
        return Judged(stop, None, header.leader_epoch)
    if isinstance(verdict, Fill):
        hole = Hole(b"", identity, verdict.until - due, None, verdict.cause)
        if verdict.until == header.base_offset:
            return Judged(at, hole, NO_LEADER_EPOCH)
        return Judged(stop, hole, header.leader_epoch)
    new = header if partition.terms.strict else restamp(header, identity, verdict.attributes)
    head = pack_head(head_for(produce_version, header.length), partition.index, new)
    batch = Batch(head, buf[at + HEADER_SIZE : stop], header.last_offset_delta + 1, None)
    return Judged(stop, batch, header.leader_epoch)


def _misplaced(header: BatchHeader, view: _View, partition: Partition, due: int) -> Halt | Unproven | None:
    """Checks that the batch stands where its base offset says, which the checksum does not cover. Returns None if it
    does, as far as is known; otherwise a halt or an unproven gap."""
    if header.base_offset == due or header.magic != MAGIC:
        return None
    if header.base_offset == partition.cursor.inside and view.head:
        return None
    if header.base_offset < due:
        reaches = partition.cursor.aligned and header.last_offset >= due
        return None if view.head and not reaches else backwards(header, due)
    ahead = partition.cursor.ahead
    known = ahead is not None and (ahead.due, ahead.base_offset) == (due, header.base_offset)
    if known and ahead is not None and ahead.proven:
        return None
    behind = base_offset_at(view.buf, view.at + header.size, view.end)
    if NOT_SEEN < behind < header.next_offset:
        return Halt(
            reason=HaltReason.CORRUPT,
            detail=f"a batch of offsets {header.base_offset} to {header.last_offset}, and behind it one at {behind}",
        )
    if behind == NOT_SEEN or header.next_offset > view.readable or (view.head and not known):
        return Unproven(due, header.base_offset)
    return None


def _verdict(header: BatchHeader, batch: memoryview, due: int, partition: Partition, dropped: Aborted) -> Verdict:
    """Calls ``admit`` with the state of the batch's transaction."""
    # A batch behind a gap is judged twice. The second time changes nothing.
    aborted = header.magic == MAGIC and dropped.follow(header, batch)
    return admit(header, due, partition.terms, aborted=aborted, inside=partition.cursor.inside)


def _check_tail(
    buf: memoryview, at: int, end: int, partition: Partition, due: int, *, moved: bool, old: bool
) -> Halt | None:
    """Checks the bytes behind the last whole batch: unless they are the beginning of a batch or KIP-283 filler, it
    returns a halt. The base offset of that batch is noted: if the broker's next response begins with another batch, the
    broker has skipped this one."""
    try:
        size = measure(buf, at, end)
    except CorruptBatch as error:
        return Halt(reason=HaltReason.CORRUPT, detail=str(error))
    if isinstance(size, int):
        # Only messages of the old formats are whole and shorter than a header.
        detail = f"magic {buf[at + MAGIC_AT]} in a message of {size} bytes"
        if not is_intact(buf[at : at + size]):
            return Halt(reason=HaltReason.CORRUPT, detail=f"{detail}: wrong checksum")
        return Halt(reason=HaltReason.OLD_FORMAT, detail=detail)
    says = base_offset_at(buf, at, end)  # a wrapper says its last offset, which must not be less than due either
    if moved and NOT_SEEN < says < due:
        return Halt(reason=HaltReason.CORRUPT, detail=f"a batch with base offset {says} stands behind offset {due - 1}")
    base_offset = first_offset_at(buf, at, end, old=old)
    partition.cursor.expect(Ahead(due, base_offset, proven=False) if base_offset > due else None)
    return None
