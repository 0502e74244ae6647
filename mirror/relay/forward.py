"""The loop that every batch goes through: a fetched record set in, batches ready to be sent out.

For the batch that needs nothing but a new identity, which is nearly every batch, scan, admit and restamp are done here
in one pass of plain integer work; a Python call costs as much as all of it (see docs/DESIGN.md, "The hot path").
Whatever is not plainly that batch goes to ``records.scan`` and ``records.admit``, which have the last word: the
conditions here are a subset of theirs, and ``tests/relay/test_forward.py`` holds the two ways against each other.

A compiled version would replace this one function.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from crc32c import crc32c

from mirror.net.buffers import Frame
from mirror.records.admit import Cause, Fill, Halt, HaltReason, Skip, Verdict, admit
from mirror.records.header import (
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    NO_LEADER_EPOCH,
    PREFIX_SIZE,
    SEQUENCES,
    BatchHeader,
    Codec,
    CorruptBatch,
)
from mirror.records.identity import Identity
from mirror.records.restamp import BARE, BLOCK, FULL, NEAR, OWNER, OWNER_END, Map, advance, blocks, raw_crc, restamp
from mirror.records.scan import measure
from mirror.records.transactions import Aborted, marker_kind
from mirror.relay.partition import Batch, Hole, Mark, Partition
from mirror.wire.produce import head_for, pack_head

PLAIN_ATTRIBUTES = len(Codec)
"""Attributes below this are a codec and no other bit: no transaction, marker, append time or delete horizon."""
SHAPES_MAX = 4096
"""Batch lengths remembered; a few hundred bytes each."""
LEAST_LENGTH = HEADER_SIZE - PREFIX_SIZE
NO_LIMIT = 1 << 31

_FIELDS = struct.Struct(">qiibIhi16sqhii")
"""The header with both timestamps as one piece: they are only passed on."""
assert _FIELDS.size == HEADER_SIZE
_PLACE = struct.Struct(">qii")
"""Base offset, length, leader epoch: how a batch begins."""
_WRAP = SEQUENCES - 1

Shape = tuple[Callable[..., bytes], bytes, "memoryview | None", Map | None]


class Shapes(dict[int, Shape]):
    """What depends on nothing but a batch's ``length``: how its head is packed, and the zeros for its checksum.

    One per Produce version. The zeros follow the 14 changed bytes in ``change``: see ``records.restamp``. Where there
    are many, ``change`` has only those that make no whole block, and a map stands for the others.
    """

    def __init__(self, produce_version: int) -> None:
        super().__init__()
        self.produce_version = produce_version
        self.change = bytearray(OWNER.size + BARE)

    def __missing__(self, length: int) -> Shape:
        if len(self) >= SHAPES_MAX:
            self.clear()
        behind = PREFIX_SIZE + length - OWNER_END
        zeros: memoryview | None = None
        rest: Map | None = None
        if behind <= BARE:
            zeros = memoryview(self.change)[: OWNER.size + behind]
        elif behind <= NEAR:
            zeros = memoryview(self.change)[: OWNER.size + behind % BLOCK]
            rest = blocks(behind // BLOCK)
        pack, prefix = head_for(self.produce_version, length)
        shape = self[length] = (pack, prefix, zeros, rest)
        return shape


def forward(  # noqa: C901 - one function on purpose: a call per batch would cost as much as all it does
    frame: Frame,
    start: int,
    end: int,
    partition: Partition,
    shapes: Shapes,
    aborted: Iterable[tuple[int, int]] = (),
) -> Halt | None:
    """Cuts ``frame.body[start:end]`` into batches and puts them, restamped, into the partition's outbox; where there is
    no record to copy, a hole.

    Moves the partition's ``due`` and ``identity`` past the last of them. The frame is held once if any batch was put.

    Args:
        frame: the answer to a fetch.
        start: where the partition's record set begins in it.
        end: where it ends.
        partition: whose.
        shapes: of the Produce version.
        aborted: (producer id, first offset) of the transactions that the answer says were aborted.

    Returns:
        The reason why the batch at ``due`` cannot go on, if there is one; those before it are in the outbox.
    """
    buf = frame.body
    outbox = partition.outbox
    append: Callable[[Any], None] = outbox.append
    index = partition.index
    due = partition.due
    identity = partition.identity
    producer_id, epoch, sequence = identity.producer_id, identity.epoch, identity.sequence
    most_length = (partition.terms.max_batch_size or NO_LIMIT) - PREFIX_SIZE
    unpack = _FIELDS.unpack_from
    change = shapes.change
    write_change = OWNER.pack_into
    last_fit = end - HEADER_SIZE
    halt: Halt | None = None
    at = start
    before = len(outbox)
    leader_epoch = partition.last_epoch
    times = b""
    dropped = Aborted(aborted)
    plain = 0 if partition.terms.strict else PLAIN_ATTRIBUTES
    left_out = holes = 0
    while at <= last_fit:
        (
            base,
            length,
            epoch_here,
            magic,
            crc,
            attributes,
            last_delta,
            stamps,
            old_id,
            old_epoch,
            old_seq,
            records,
        ) = unpack(buf, at)
        stop = at + 12 + length
        if (
            base == due
            and magic == 2
            and 0 <= attributes < plain
            and records == last_delta + 1
            and records > 0
            and LEAST_LENGTH <= length <= most_length
            and stop <= end
        ):
            pack, prefix, zeros, rest = shapes[length]
            if zeros is not None:
                write_change(change, 0, old_id ^ producer_id, old_epoch ^ epoch, old_seq ^ sequence)
                state = crc32c(zeros, FULL) ^ FULL
                if rest is not None:
                    low, second, third, high = rest
                    state = low[state & 255] ^ second[state >> 8 & 255] ^ third[state >> 16 & 255] ^ high[state >> 24]
                crc ^= state
            else:
                moved = OWNER.pack(old_id ^ producer_id, old_epoch ^ epoch, old_seq ^ sequence)
                crc ^= advance(raw_crc(moved), stop - at - OWNER_END)
            head = pack(index, prefix, crc, attributes, last_delta, stamps, producer_id, epoch, sequence, records)
            append((head, buf[at + 61 : stop], records, None))
        elif base == due and magic == 2 and length >= LEAST_LENGTH and stop > end:
            # What most record sets end with: the beginning of a batch, which ``measure`` would call partial.
            break
        else:
            mine = Identity(producer_id, epoch, sequence)
            judged = _judge(buf, at, end, partition, mine, due, shapes, dropped)
            if judged is None:
                break
            if isinstance(judged, Halt):
                halt = judged
                break
            stop, item, epoch_here = judged
            if item is None:
                left_out += stop - at
                at = stop
                continue
            records = item[2]
            if isinstance(item, Hole):
                due += records
                left_out += stop - at
                if _put_hole(partition, item, due - records, first=len(outbox) == before):
                    holes += 1
                    behind = mine.behind_markers()
                    producer_id, epoch, sequence = behind.producer_id, behind.epoch, behind.sequence
                leader_epoch = epoch_here
                at = stop
                continue
            append(item)
        due += records
        sequence = (sequence + records) & _WRAP
        at = stop
        leader_epoch = epoch_here
        times = stamps
    else:
        halt = _check_tail(buf, at, end)
    forwarded = len(outbox) - before
    if forwarded:
        last = outbox.pop()
        if isinstance(last, Hole):
            append(last._replace(frame=frame))
        else:
            head, payload, records, _ = last
            append((head, payload, records, frame))
            _mark(partition, buf, at - HEADER_SIZE - len(payload), due - records, due)
        frame.hold()
        partition.frames += 1
        partition.identity = Identity(producer_id, epoch, sequence)
        if times:
            partition.max_timestamp = int.from_bytes(times[8:], signed=True)
        partition.batch_size = (at - start) // forwarded
        partition.tally.put_batches += forwarded - holes
        partition.tally.put_bytes += at - start - left_out
    partition.due = due
    partition.last_epoch = leader_epoch
    return halt


def _mark(partition: Partition, buf: memoryview, at: int, base_offset: int, next_offset: int) -> None:
    """Remembers the record set's last batch, if it begins at byte ``at``: not when something was left out behind it."""
    if at < 0:
        return
    base, _, epoch = _PLACE.unpack_from(buf, at)
    if base == base_offset:
        partition.marks.append(Mark(next_offset, epoch, bytes(buf[at : at + HEADER_SIZE])))


def _put_hole(partition: Partition, hole: Hole, start: int, *, first: bool) -> bool:
    """What becomes of a hole; whether it is one more in the outbox. With ``offsets: mapped`` it is only noted."""
    if partition.copied is not None:
        partition.copied.skip(start, hole.records, hole.cause)
        return False
    if not first and _join(partition.outbox, hole):
        return False
    partition.outbox.append(hole)
    return True


def _join(outbox: "deque[Batch | Hole]", hole: Hole) -> bool:
    """Two holes in a row are filled as one, under the identity of where the first began. A gap that an operator has
    accepted stays apart: it is recorded."""
    last = outbox[-1]
    if not isinstance(last, Hole) or Cause.ACCEPTED in (last.cause, hole.cause):
        return False
    outbox[-1] = last._replace(records=last.records + hole.records)
    return True


class _Judged(NamedTuple):
    """Of a batch that is not plain."""

    stop: int
    """Where to go on: behind the batch, or at it again when only the gap before it was judged."""
    item: Batch | Hole | None
    """What goes to the destination; None: nothing, it was copied before."""
    leader_epoch: int
    """Of what was judged; -1 for a gap, of which it is not known."""


def _judge(
    buf: memoryview,
    at: int,
    end: int,
    partition: Partition,
    identity: Identity,
    due: int,
    shapes: Shapes,
    dropped: Aborted,
) -> _Judged | Halt | None:
    """A batch that is not plain: what becomes of it, a halt, or None at the tail."""
    try:
        size = measure(buf, at, end)
    except CorruptBatch as error:
        return Halt(reason=HaltReason.CORRUPT, detail=str(error))
    if not isinstance(size, int):
        return None
    header = BatchHeader.read(buf, at)
    verdict = _verdict(header, buf[at : at + size], due, partition, dropped)
    if isinstance(verdict, Halt):
        return verdict
    stop = at + size
    if isinstance(verdict, Skip):
        return _Judged(stop, None, header.leader_epoch)
    if isinstance(verdict, Fill):
        hole = Hole(b"", identity, verdict.until - due, None, verdict.cause)
        if verdict.until == header.base_offset:
            return _Judged(at, hole, NO_LEADER_EPOCH)
        return _Judged(stop, hole, header.leader_epoch)
    new = header if partition.terms.strict else restamp(header, identity, verdict.attributes)
    head = pack_head(head_for(shapes.produce_version, header.length), partition.index, new)
    batch = Batch(head, buf[at + HEADER_SIZE : stop], header.last_offset_delta + 1, None)
    return _Judged(stop, batch, header.leader_epoch)


def _verdict(header: BatchHeader, batch: memoryview, due: int, partition: Partition, dropped: Aborted) -> Verdict:
    """``admit``, told what the transactions around the batch say."""
    aborted = False
    if header.magic == MAGIC and header.is_transactional:
        # Judged twice when a gap lies before it: neither changes by that.
        partition.transactional = True
        if header.is_control:
            dropped.ends(header, marker_kind(batch))
        else:
            aborted = dropped.drops(header)
    return admit(header, due, partition.terms, aborted=aborted, transactional=partition.transactional)


def _check_tail(buf: memoryview, at: int, end: int) -> Halt | None:
    """Fewer bytes than a header are left: the beginning of a batch or KIP-283 filler, unless they cannot be."""
    try:
        size = measure(buf, at, end)
    except CorruptBatch as error:
        return Halt(reason=HaltReason.CORRUPT, detail=str(error))
    if isinstance(size, int):
        # Whole and shorter than a header: only messages of the old formats are.
        return Halt(reason=HaltReason.OLD_FORMAT, detail=f"magic {buf[at + MAGIC_AT]} in a message of {size} bytes")
    return None
