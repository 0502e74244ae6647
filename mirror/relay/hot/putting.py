"""Puts the contents of a record set into a partition's outbox: batches, the pieces of rewritten batches, and holes."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from mirror.net.buffers import Frame
from mirror.reasons import HaltReason
from mirror.records.admit import GIVEN_UP, NOT_INSIDE, Cause, Halt, RewriteWish
from mirror.records.content.rewriting import Piece
from mirror.records.header import HEADER_SIZE, MAX_TIMESTAMP_AT, BatchHeader
from mirror.records.identity import Identity
from mirror.records.restamp import restamp
from mirror.relay.hot.deep import Rewriter
from mirror.relay.hot.freshness import counted_ms
from mirror.relay.hot.native import Outbox
from mirror.relay.hot.plain import NEVER_MS
from mirror.relay.partition.cursor import Mark
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.queue import Batch, Hole, Queue
from mirror.wire.produce import head_for, pack_head

NO_END = 1 << 63
"""Behind any offset."""
_TIME = struct.Struct(">q")


class Judged(NamedTuple):
    """The result for a batch that is not plain."""

    stop: int
    """The byte to go on at: behind the batch; or the batch itself, if only the gap before it was judged."""
    item: Batch | Hole | None
    """The item for the outbox; None: there is none, because the batch was copied before."""
    leader_epoch: int
    """Leader epoch of the batch; -1 for a gap, whose epoch is not known."""


class OpenedBatch(NamedTuple):
    """A batch that has to be opened and rewritten."""

    stop: int
    """The byte behind it."""
    header: BatchHeader
    reason: HaltReason | RewriteWish


class SoFar:
    """What was put into the outbox so far of one record set."""

    __slots__ = (
        "closed", "epoch", "frame", "holes", "inside", "joined", "last_at", "last_due", "left_out", "newest_ms",
        "next_due", "next_identity", "oldest_ms", "opened", "partition",
    )  # fmt: skip

    def __init__(self, frame: Frame, partition: Partition, closed: int) -> None:
        cursor = partition.cursor
        self.frame = frame
        self.partition = partition
        self.closed = closed
        """Index in the outbox from which on items have no frame yet."""
        self.next_due, self.next_identity = cursor.due, cursor.identity
        """Offset and identity of the next batch."""
        self.epoch, self.newest_ms = cursor.last_epoch, cursor.max_timestamp
        """Leader epoch and max timestamp of the last batch."""
        self.oldest_ms = NEVER_MS
        self.last_at = self.last_due = -1
        """The byte at which the last batch begins that was put, and the offset behind that batch."""
        self.holes = 0
        """Number of items that are holes."""
        self.inside = NOT_INSIDE
        """Base offset of a batch of which only the beginning was put."""
        self.left_out = 0
        """Bytes that were not put. Negative if more bytes were put in their place."""
        self.joined = 0
        """Number of source batches that became part of others."""
        self.opened = 0
        """Number of records in the batches that became part of others."""

    def put_plain(
        self, count: int, identity: Identity, due: int, epoch: int, newest_ms: int, at: int, oldest_ms: int
    ) -> None:
        """Notes that ``count`` plain batches were put.

        Args:
            count: may be 0.
            identity: the identity of the next batch.
            due: the offset behind the last of them.
            epoch: leader epoch of the last of them.
            newest_ms: max timestamp of the last of them.
            at: the byte at which the last of them begins.
            oldest_ms: the least max timestamp of them all.
        """
        self.next_due = due
        if count:
            self.next_identity, self.epoch, self.newest_ms = identity, epoch, newest_ms
            self.last_at, self.last_due = at, due
            self.oldest_ms = min(self.oldest_ms, oldest_ms)

    def put(self, at: int, judged: "Judged", *, first: bool) -> None:
        """Puts the result for a batch that is not plain.

        Args:
            at: the byte at which the batch begins.
            judged: the result.
            first: True if nothing was put before.
        """
        size, item = judged.stop - at, judged.item
        if item is None:
            self.left_out += size
            return
        if isinstance(item, Hole):
            self.left_out += size
            if _put_hole(self.partition, item, self.next_due, first=first):
                self.holes += 1
                self.next_identity = self.next_identity.behind_markers()
        else:
            self.partition.queue.outbox.append(item)
            self.last_at, self.last_due = at, self.next_due + item.records
            self.next_identity = self.next_identity.after(item.records)
            (self.newest_ms,) = _TIME.unpack_from(self.frame.body, at + MAX_TIMESTAMP_AT)
            self.oldest_ms = min(self.oldest_ms, self.newest_ms)
        self.next_due += item.records
        self.epoch = judged.leader_epoch

    def put_rewritten(self, at: int, opened: "OpenedBatch", rewriter: Rewriter, produce_version: int) -> Halt | None:
        """Puts the pieces of a batch, with the holes between them. The pieces have a frame of their own.

        Args:
            at: the byte at which the batch begins.
            opened: the batch.
            rewriter: makes the pieces.
            produce_version: the version that batches are sent with.

        Returns:
            Why not all of it could be rewritten; None if nothing prevents it.
        """
        partition, header = self.partition, opened.header
        queue, outbox = partition.queue, partition.queue.outbox
        if len(outbox) > self.closed:
            _give_frame(self.frame, queue)
        batch = self.frame.body[at : opened.stop]
        made = rewriter.rewrite(partition.topic, header, batch, self.next_due, partition.terms, opened.reason)
        is_all = made.halt is None and not made.rest
        written = [piece for piece in made.pieces if isinstance(piece, Piece)]
        own = self.frame.beside([piece.records for piece in written]) if written else None
        body_at = 0
        for piece in made.pieces:
            if not isinstance(piece, Piece):
                self._leave_out(piece.offset)
                self._leave_out(piece.offset + 1, Cause.OVERSIZE)
                continue
            self._leave_out(piece.header.base_offset)
            assert own is not None
            self._put_piece(piece, own, body_at, produce_version, last=piece is written[-1])
            body_at += len(piece.records)
        self._leave_out(made.upto)
        if own is not None:
            queue.keep()
            # A batch that is not put completely does not show where the copy ends.
            self.last_at, self.last_due = at, self.next_due if is_all else NO_END
        self.left_out += (header.size if is_all else 0) - made.size
        if made.rest:
            self.inside = header.base_offset
        self.epoch = header.leader_epoch
        self.closed = len(outbox)
        partition.cursor.rewrote(header.base_offset, header.next_offset, queue.acknowledged)
        return made.halt

    def put_rebatched(
        self, at: int, parts: Sequence[BatchHeader], pieces: Sequence[Piece], produce_version: int
    ) -> None:
        """Puts batches that were made of several small ones.

        What is noted of the copy, and what a look at the source finds, is the last of the small batches, as the source
        has it.

        Args:
            at: the byte at which the last of the small batches begins.
            parts: the headers of the small batches.
            pieces: the batches that were made of them.
            produce_version: the version that batches are sent with.
        """
        partition = self.partition
        queue = partition.queue
        if len(queue.outbox) > self.closed:
            _give_frame(self.frame, queue)
        own, body_at = self.frame.beside([piece.records for piece in pieces]), 0
        for piece in pieces:
            self._put_piece(piece, own, body_at, produce_version, last=piece is pieces[-1])
            body_at += len(piece.records)
        queue.keep()
        self.last_at, self.last_due, self.epoch = at, self.next_due, parts[-1].leader_epoch
        self.left_out += sum(part.size for part in parts) - sum(piece.header.size for piece in pieces)
        self.joined += len(parts) - len(pieces)
        self.opened += sum(part.record_count for part in parts)
        self.closed = len(queue.outbox)
        for part in parts:
            partition.cursor.rewrote(part.base_offset, part.next_offset, queue.acknowledged)

    def _put_piece(self, piece: Piece, own: Frame, at: int, produce_version: int, *, last: bool) -> None:
        """Puts a batch that was made here.

        Args:
            piece: the batch.
            own: the frame with its records.
            at: where the records begin in that frame.
            produce_version: the version that batches are sent with.
            last: True for the last batch in that frame, which gets the frame.
        """
        new, index = piece.header, self.partition.index
        packed = pack_head(
            head_for(produce_version, new.length), index, restamp(new, self.next_identity, new.attributes)
        )
        records = own.body[at : at + len(piece.records)]
        self.partition.queue.outbox.append(Batch(packed, records, new.record_count, own if last else None))
        self.next_identity, self.next_due = self.next_identity.after(new.record_count), new.next_offset
        self.newest_ms = new.max_timestamp
        self.oldest_ms = min(self.oldest_ms, new.max_timestamp)

    def _leave_out(self, end: int, cause: Cause = Cause.COMPACTED) -> None:
        """Puts a hole up to ``end``, unless the next batch begins there."""
        copied = self.partition.queue.copied
        if copied is not None:
            if end > self.next_due:
                copied.skip(self.next_due, end - self.next_due, cause)
            self.next_due = max(self.next_due, end)
        elif end > self.next_due:
            hole = Hole(b"", self.next_identity, end - self.next_due, None, cause)
            self.partition.queue.outbox.append(hole)
            self.next_identity, self.next_due, self.holes = self.next_identity.behind_markers(), end, self.holes + 1

    def close(self) -> None:
        """Gives the frame to the last item. The last batch becomes a mark, unless something was left out behind it."""
        cursor, queue = self.partition.cursor, self.partition.queue
        if len(queue.outbox) > self.closed:
            _give_frame(self.frame, queue)
        if self.last_at < 0:
            return
        oldest_ms, newest_ms = self.oldest_ms, self.newest_ms
        if self.partition.terms.takes_append_times:
            oldest_ms, newest_ms = (counted_ms(each, append_times=True) for each in (oldest_ms, newest_ms))
        queue.freshness.put(queue.acknowledged, min(self.last_due, self.next_due), oldest_ms, newest_ms)
        if self.last_due == self.next_due:
            header = bytes(self.frame.body[self.last_at : self.last_at + HEADER_SIZE])
            cursor.marks.append(Mark(self.next_due, self.epoch, header))


def _give_frame(frame: Frame, queue: Queue) -> None:
    """Gives the frame to the last item that was put. It is released with that item."""
    outbox = queue.outbox
    if not outbox.close(frame):
        last = outbox.pop()
        head, payload, records = last[:3]
        outbox.append(last._replace(frame=frame) if isinstance(last, Hole) else Batch(head, payload, records, frame))
    queue.hold(frame)


def _put_hole(partition: Partition, hole: Hole, start: int, *, first: bool) -> bool:
    """Puts a hole into the outbox. With ``offsets: mapped``, it is only noted in ``copied``. Returns True if the outbox
    has one more item now."""
    if partition.queue.copied is not None:
        partition.queue.copied.skip(start, hole.records, hole.cause)
        return False
    if not first and _join(partition.queue.outbox, hole):
        return False
    partition.queue.outbox.append(hole)
    return True


def _join(outbox: Outbox, hole: Hole) -> bool:
    """Joins a hole to the one before it. Two holes in a row are filled as one, under the identity of the first. Offsets
    that are given up stay separate, because they are recorded. Returns False if the two cannot be joined."""
    last = outbox[-1]
    if not isinstance(last, Hole) or last.cause in GIVEN_UP or hole.cause in GIVEN_UP:
        return False
    outbox[-1] = last._replace(records=last.records + hole.records)
    return True
