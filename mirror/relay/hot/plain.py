"""The inner loop: restamps the plain batches of a record set, as long as each follows the one before.

A batch is plain if it is due, whole, of magic 2, not larger than the destination takes, with no attribute but a codec,
and with as many records as offsets. Nearly every batch is. For plain batches, scan, admit and restamp are one pass of
integer work here; a single Python call costs as much as all of it. The conditions are a subset of those of
``records.scan`` and ``records.admit``, which decide on all other batches.

There are two forms. ``_plain.c`` is compiled on installation if there is a C compiler. ``take_plain`` does the same in
Python, for installations without one. ``tests/relay/hot/test_forward.py`` compares both with each other and with the
slow way.
"""

import functools
import struct
from collections.abc import Callable
from typing import NamedTuple, Protocol

from crc32c import crc32c

from mirror.records.header import HEADER_SIZE, MOST_OFFSET, NO_LEADER_EPOCH, PREFIX_SIZE, SEQUENCES, Codec
from mirror.records.restamp import BARE, BLOCK, FULL, NEAR, OWNER, OWNER_END, Map, advance, blocks, raw_crc
from mirror.relay.hot.native import Outbox, compiled_if
from mirror.wire.produce import head_for
from mirror.wire.versions import PRODUCE_FLEXIBLE

PLAIN_ATTRIBUTES = len(Codec)
"""Attributes below this are a codec and no other bit: no transaction, marker, append time or delete horizon."""
LEAST_LENGTH = HEADER_SIZE - PREFIX_SIZE
SHAPES_MAX = 4096
"""Most batch lengths that are cached, at a few hundred bytes each."""

_FIELDS = struct.Struct(">qiibIhiqqqhii")
assert _FIELDS.size == HEADER_SIZE
_WRAP = SEQUENCES - 1
NEVER_MS = (1 << 63) - 1
"""The value of ``oldest_ms`` if no batch was put."""


class Taken(NamedTuple):
    """The result of putting batches into the outbox. If none was put, only ``put``, ``at``, ``due`` and ``cut`` are
    meaningful."""

    put: int
    at: int
    """The byte at which the next batch begins."""
    due: int
    sequence: int
    leader_epoch: int
    max_timestamp: int
    cut: bool
    """True if the batch at ``at`` is the due one and is cut off, as it is at the end of most record sets."""
    last_at: int
    """The byte at which the last batch begins that was put."""
    oldest_ms: int
    """The least max timestamp of the batches that were put."""


class Take(Protocol):
    """``take_plain`` for one Produce version."""

    def __call__(
        self, outbox: Outbox, buf: memoryview, at: int, end: int, due: int, index: int, producer_id: int, epoch: int,
        sequence: int, most_length: int, attributes_below: int, /,
    ) -> Taken: ...  # fmt: skip


Shape = tuple[Callable[..., bytes], bytes, "memoryview | None", Map | None]


class Shapes(dict[int, Shape]):
    """Caches everything that depends only on a batch's ``length``: the packing of its head, and the zeros for its
    checksum.

    There is one cache per Produce version. The zeros follow the 14 changed bytes in ``change``; see
    ``records.restamp``. If there are many, ``change`` has only those of the incomplete block, and a map stands for the
    whole blocks.
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


def take_plain(
    shapes: Shapes, outbox: Outbox, buf: memoryview, at: int, end: int, due: int, index: int, producer_id: int,
    epoch: int, sequence: int, most_length: int, attributes_below: int, /,
) -> Taken:  # fmt: skip
    """Puts the plain batches from byte ``at`` on into the outbox, up to the first one that is not plain or not whole.

    Args:
        shapes: the cache for the Produce version that the batches are sent with.
        outbox: gets the batches, as tuples of a ``Batch``'s shape.
        buf: the Fetch response.
        at: the byte to begin at.
        end: where the record set ends.
        due: the base offset that the first batch must have.
        index: the partition's index.
        producer_id: with ``epoch`` and ``sequence``, the identity of the first batch. The sequence advances by the
            records.
        epoch: see ``producer_id``.
        sequence: see ``producer_id``.
        most_length: the largest ``length`` that the destination takes.
        attributes_below: a batch whose attributes are not below this is not plain. Usually ``PLAIN_ATTRIBUTES``; 0: no
            batch is plain.
    """
    before = len(outbox)
    append = outbox.append
    unpack = _FIELDS.unpack_from
    change = shapes.change
    write_change = OWNER.pack_into
    last_fit = end - HEADER_SIZE
    cut = False
    last_at = -1
    leader_epoch = NO_LEADER_EPOCH
    max_timestamp = -1
    oldest_ms = NEVER_MS
    while at <= last_fit:
        (
            base,
            length,
            epoch_here,
            magic,
            crc,
            attributes,
            last_delta,
            first_ms,
            newest_ms,
            old_id,
            old_epoch,
            old_seq,
            records,
        ) = unpack(buf, at)
        stop = at + 12 + length
        if base != due or magic != 2 or length < LEAST_LENGTH:
            break
        if stop > end:
            cut = True
            break
        if not (0 <= attributes < attributes_below and 0 < records == last_delta + 1 and length <= most_length):
            break
        if due > MOST_OFFSET - records:
            break
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
        head = pack(
            index, prefix, crc, attributes, last_delta, first_ms, newest_ms, producer_id, epoch, sequence, records
        )
        append((head, buf[at + 61 : stop], records, None))
        due += records
        sequence = (sequence + records) & _WRAP
        last_at = at
        at = stop
        leader_epoch = epoch_here
        max_timestamp = newest_ms
        if newest_ms < oldest_ms:
            oldest_ms = newest_ms
    return Taken(len(outbox) - before, at, due, sequence, leader_epoch, max_timestamp, cut, last_at, oldest_ms)


class InnerLoop:
    """The inner loop for one Produce version.

    Args:
        produce_version: the version that batches are sent with.
        compiled: True for the compiled form. None: the compiled form, if it is there and ``MIRROR_PURE`` is not set.

    Raises:
        RuntimeError: the compiled form was requested, and is not there.
    """

    def __init__(self, produce_version: int, *, compiled: bool | None = None) -> None:
        module = compiled_if(compiled)
        self.produce_version = produce_version
        self.compiled = module is not None
        if module is None:
            self.take: Take = functools.partial(take_plain, Shapes(produce_version))
        else:
            self.take = functools.partial(module.take, produce_version >= PRODUCE_FLEXIBLE)
