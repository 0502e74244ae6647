"""Makes batches ready to be sent from each fetched record set, in order, with the holes between them.

``relay.hot.plain`` takes the batches that need nothing but a new identity, which is nearly all. Everything that is not
plainly such a batch goes through ``records.scan`` and ``records.admit``, which have the last word.
``tests/relay/hot/test_forward.py`` compares the two ways.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from mirror.net.buffers import Frame
from mirror.reasons import HaltReason
from mirror.records.admit import Cause, Fill, Forward, Halt, Skip, Verdict, admit, backwards, damaged
from mirror.records.header import (
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
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
from mirror.relay.hot.native import Outbox
from mirror.relay.hot.plain import NEVER_MS, PLAIN_ATTRIBUTES, InnerLoop
from mirror.relay.partition.cursor import Ahead, Mark
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.queue import Batch, Hole
from mirror.wire.produce import head_for, pack_head

NO_LIMIT = 1 << 31
NO_END = 1 << 63
NONE_ABORTED = Aborted(())
"""Without aborted transactions it has no state, so all record sets can share it."""

_TIME = struct.Struct(">q")


class Unproven(NamedTuple):
    """The next batch begins behind ``due``, and the rest of this answer does not prove its base offset."""

    due: int
    base_offset: int


def forward(
    frame: Frame,
    start: int,
    end: int,
    partition: Partition,
    inner_loop: InnerLoop,
    aborted: Sequence[tuple[int, int]] = (),
    readable: int = NO_END,
) -> Halt | Unproven | None:
    """Cuts ``frame.body[start:end]`` into batches and puts them, restamped, into the partition's outbox. For offsets
    without a record to copy, it puts a hole.

    Moves the partition's ``due`` and ``identity`` past the last of them. The frame is held once if any batch was put.

    Args:
        frame: the answer to a fetch.
        start: where the partition's record set begins in it.
        end: where it ends.
        partition: the partition of the record set.
        inner_loop: the one for the Produce version.
        aborted: (producer id, first offset) of the aborted transactions that the answer lists.
        readable: the source's end for the flow's isolation level, by the answer.

    Returns:
        The reason why the batch at ``due`` cannot go on, or a gap there that this answer alone does not prove.
        Everything before it is in the outbox.
    """
    buf = frame.body
    cursor, queue = partition.cursor, partition.queue
    due, identity = cursor.due, cursor.identity
    last_epoch, max_timestamp = cursor.last_epoch, cursor.max_timestamp
    most_length = (partition.terms.max_batch_size or NO_LIMIT) - PREFIX_SIZE
    plain = 0 if partition.terms.strict else PLAIN_ATTRIBUTES
    outbox = queue.outbox
    last_fit = end - HEADER_SIZE
    halt: Halt | Unproven | None = None
    first_due = due
    cut = False
    at = start
    before = len(outbox)
    dropped = Aborted(aborted) if aborted else NONE_ABORTED
    left_out = holes = 0
    last_at = last_due = -1  # byte at which the last batch that was put begins, and the offset behind that batch
    oldest_ms = NEVER_MS
    while at <= last_fit:
        producer_id, epoch, sequence = identity.producer_id, identity.epoch, identity.sequence
        count, at, due, sequence, leader_epoch, newest_ms, cut, taken_at, taken_ms = inner_loop.take(
            outbox, buf, at, end, due, partition.index, producer_id, epoch, sequence, most_length, plain
        )
        if count:
            identity = Identity(producer_id, epoch, sequence)
            last_epoch, max_timestamp = leader_epoch, newest_ms
            last_at, last_due = taken_at, due
            oldest_ms = taken_ms if taken_ms < oldest_ms else oldest_ms
        if cut or at > last_fit:
            break
        view = _View(buf, at, end, readable, head=due == first_due)
        judged = _judge(view, partition, identity, due, inner_loop.produce_version, dropped)
        if judged is None:
            break
        if isinstance(judged, Halt | Unproven):
            halt = judged
            break
        size, item = judged.stop - at, judged.item
        if item is None:
            left_out += size
        elif isinstance(item, Hole):
            left_out += size
            if _put_hole(partition, item, due, first=len(outbox) == before):
                holes += 1
                identity = identity.behind_markers()
        else:
            outbox.append(item)
            last_at, last_due = at, due + item.records
            identity = identity.after(item.records)
            (max_timestamp,) = _TIME.unpack_from(buf, at + MAX_TIMESTAMP_AT)
            oldest_ms = min(oldest_ms, max_timestamp)
        if item is not None:
            due += item.records
            last_epoch = judged.leader_epoch
        at = judged.stop
    if halt is None and at < end and not cut:  # what the inner loop calls cut is the batch that is due
        halt = _check_tail(buf, at, end, partition, due, moved=due != first_due)
    cursor.advance(due, identity, last_epoch, max_timestamp)
    put = len(outbox) - before
    if put:
        _close(frame, partition, last_at, last_due, oldest_ms)
        cursor.measured((at - start) // put, holes=holes > 0)
        queue.tally.put(put - holes, at - start - left_out)
    return halt


def _close(frame: Frame, partition: Partition, last_at: int, last_due: int, oldest_ms: int) -> None:
    """Gives the frame to the last item that was put. ``last_at``: the byte at which the last batch begins; -1: there is
    none. That batch becomes a mark, unless something was left out behind it. ``last_due``: the offset behind it."""
    queue = partition.queue
    cursor = partition.cursor
    outbox = queue.outbox
    if not outbox.close(frame):
        last = outbox.pop()
        head, payload, records = last[:3]
        outbox.append(last._replace(frame=frame) if isinstance(last, Hole) else Batch(head, payload, records, frame))
    queue.hold(frame)
    if last_at >= 0:
        queue.freshness.put(queue.acknowledged, last_due, oldest_ms, cursor.max_timestamp)
    if last_at >= 0 and last_due == cursor.due:
        header = bytes(frame.body[last_at : last_at + HEADER_SIZE])
        cursor.marks.append(Mark(cursor.due, cursor.last_epoch, header))


def _put_hole(partition: Partition, hole: Hole, start: int, *, first: bool) -> bool:
    """Puts a hole into the outbox. Returns True if that has one more item now. With ``offsets: mapped``, the hole is
    only noted in ``copied``."""
    if partition.queue.copied is not None:
        partition.queue.copied.skip(start, hole.records, hole.cause)
        return False
    if not first and _join(partition.queue.outbox, hole):
        return False
    partition.queue.outbox.append(hole)
    return True


def _join(outbox: Outbox, hole: Hole) -> bool:
    """Joins a hole to one before it. Two holes in a row are filled as one, under the identity of the first. A gap that
    an operator has accepted stays separate, because it is recorded."""
    last = outbox[-1]
    if not isinstance(last, Hole) or Cause.ACCEPTED in (last.cause, hole.cause):
        return False
    outbox[-1] = last._replace(records=last.records + hole.records)
    return True


class _Judged(NamedTuple):
    """The result for a batch that is not plain."""

    stop: int
    """The byte to go on at: behind the batch, or the batch again if only the gap before it was judged."""
    item: Batch | Hole | None
    """The item for the outbox; None: nothing, the batch was copied before."""
    leader_epoch: int
    """Leader epoch of the batch; -1 for a gap, of which it is not known."""


class _View(NamedTuple):
    """The place of a batch in its record set."""

    buf: memoryview
    at: int
    end: int
    readable: int
    head: bool
    """True if nothing before it in the record set moved ``due``. A broker may begin its answer with batches from before
    the offset asked for."""


def _judge(
    view: _View, partition: Partition, identity: Identity, due: int, produce_version: int, dropped: Aborted
) -> _Judged | Halt | Unproven | None:
    """Judges a batch that is not plain. Returns the result, a halt, an unproven gap, or None at the tail."""
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
        # A batch that is forwarded carries its checksum to the destination. Nothing else verifies this one.
        if not is_intact(buf[at:stop]):
            return damaged(header)
        wrong = _misplaced(header, view, partition, due)
        if wrong is not None:
            return wrong
    if isinstance(verdict, Halt):
        return verdict
    if isinstance(verdict, Skip):
        return _Judged(stop, None, header.leader_epoch)
    if isinstance(verdict, Fill):
        hole = Hole(b"", identity, verdict.until - due, None, verdict.cause)
        if verdict.until == header.base_offset:
            return _Judged(at, hole, NO_LEADER_EPOCH)
        return _Judged(stop, hole, header.leader_epoch)
    new = header if partition.terms.strict else restamp(header, identity, verdict.attributes)
    head = pack_head(head_for(produce_version, header.length), partition.index, new)
    batch = Batch(head, buf[at + HEADER_SIZE : stop], header.last_offset_delta + 1, None)
    return _Judged(stop, batch, header.leader_epoch)


def _misplaced(header: BatchHeader, view: _View, partition: Partition, due: int) -> Halt | Unproven | None:
    """Checks that the batch stands where its base offset says, which the checksum does not cover. Returns None if it
    does, as far as can be told."""
    if header.base_offset == due or header.magic != MAGIC:
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
    # A batch behind a gap comes here twice. The second time changes nothing.
    aborted = header.magic == MAGIC and dropped.follow(header, batch)
    return admit(header, due, partition.terms, aborted=aborted)


def _check_tail(buf: memoryview, at: int, end: int, partition: Partition, due: int, *, moved: bool) -> Halt | None:
    """Checks the tail: it may be the beginning of a batch or KIP-283 filler, else this returns a halt. The batch's base
    offset is stored: a broker whose next answer begins with another batch has skipped this one."""
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
    base_offset = base_offset_at(buf, at, end)
    if moved and NOT_SEEN < base_offset < due:
        return Halt(
            reason=HaltReason.CORRUPT, detail=f"a batch with base offset {base_offset} stands behind offset {due - 1}"
        )
    partition.cursor.expect(Ahead(due, base_offset, proven=False) if base_offset > due else None)
    return None
