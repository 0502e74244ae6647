"""Gives a batch the mirror's identity, with its checksum carried over instead of recomputed.

CRC-32C is linear: the checksum of a batch changes by an amount that depends only on the bytes that change and on how
many bytes follow them. So the new checksum is

    new = old ^ raw(change + zeros)

where ``change`` is old XOR new of the changed header bytes, ``zeros`` stands for all bytes behind them, and ``raw`` is
the CRC without its initial and final inversion. The payload is never read. Two things follow: it is cheap, and a
payload that was damaged anywhere between the source's disk and here keeps a checksum that does not match, so the
destination broker refuses it (CORRUPT_MESSAGE). Recomputing would have made the damage official.
"""

import functools
import struct
from array import array
from collections.abc import Sequence

from crc32c import crc32c

from mirror.records.header import CRC_FROM, HEADER, NO_LEADER_EPOCH, PREFIX_SIZE, PRODUCER_ID_AT, BatchHeader
from mirror.records.identity import Identity

FULL = 0xFFFFFFFF
OWNER = struct.Struct(">qhi")
"""producer_id, producer_epoch, base_sequence: bytes 43 to 56, the only ones that change in most batches."""
CHECKED = struct.Struct(">hiqqqhi")
"""From the attributes to the base sequence: bytes 21 to 56, for changes of attribute bits as well."""
OWNER_END = PRODUCER_ID_AT + OWNER.size
assert CRC_FROM + CHECKED.size == OWNER_END

NEAR = 48 * 1024
"""Up to this many bytes behind the change, running the CRC over zeros is cheaper than ``advance``."""
BLOCK = 1024
"""Size of a block in bytes: ``blocks`` appends whole multiples of it."""
BARE = 4 * BLOCK
"""Up to this many bytes behind the change, it is cheaper to run the CRC over all of the zeros than to run it over the
incomplete block and use ``blocks`` for the rest."""
_POWERS = 31
"""Binary digits of the largest number of bytes behind a change: a batch is shorter than 2^31."""


def raw_crc(data: bytes | bytearray | memoryview) -> int:
    """Returns the CRC-32C of ``data`` from state 0 and without the final inversion: linear in its argument."""
    return crc32c(data, FULL) ^ FULL


def raw_crc_after_zero(state: int) -> int:
    """Appends one zero byte to a raw CRC, by the library's own step."""
    return crc32c(b"\0", state ^ FULL) ^ FULL


def _tables(images: Sequence[int]) -> "array[int]":
    """Returns the linear map that takes bit ``i`` of a raw CRC to ``images[i]``: four tables of 256, one per byte."""
    tables = array("I", bytes(4 * 1024))
    for byte in range(4):
        for value in range(1, 256):
            low = value & -value
            image = images[8 * byte + low.bit_length() - 1]
            tables[256 * byte + value] = image ^ tables[256 * byte + (value ^ low)]
    return tables


def _map(tables: "array[int]", state: int) -> int:
    return (
        tables[state & 255]
        ^ tables[256 + (state >> 8 & 255)]
        ^ tables[512 + (state >> 16 & 255)]
        ^ tables[768 + (state >> 24)]
    )


def _zeros_tables() -> list["array[int]"]:
    """Returns tables of which the ``k``-th appends 2^k zero bytes to a raw CRC. Each map is the one before it, applied
    twice. 124 KB in all."""
    images = [raw_crc_after_zero(1 << bit) for bit in range(32)]
    powers = [_tables(images)]
    while len(powers) < _POWERS:
        images = [_map(powers[-1], image) for image in images]
        powers.append(_tables(images))
    return powers


_APPEND_ZEROS = _zeros_tables()


def advance(state: int, zeros: int) -> int:
    """Appends ``zeros`` zero bytes to the raw CRC ``state``, one step per binary digit (3 µs at 1 MB)."""
    if zeros >> _POWERS:
        raise ValueError("a batch is shorter than 2^31 bytes")
    for tables in _APPEND_ZEROS:
        if not zeros:
            break
        if zeros & 1:
            state = _map(tables, state)
        zeros >>= 1
    return state


Map = tuple["array[int]", "array[int]", "array[int]", "array[int]"]


@functools.cache
def blocks(count: int) -> Map:
    """Returns the map that appends ``count`` blocks of zeros to a raw CRC: a table for each of its bytes, lowest first,
    4 KB, made once (1 ms). Only a few different counts are used, up to ``NEAR`` bytes: see ``relay.hot.plain``."""
    tables = _tables([advance(1 << bit, count * BLOCK) for bit in range(32)])
    return tables[:256], tables[256:512], tables[512:768], tables[768:]


_ZEROS = memoryview(bytes(NEAR))


def carry(crc: int, change: bytes, behind: int) -> int:
    """Returns the batch's new checksum. ``crc``: the old one; ``change``: old XOR new of the changed bytes; ``behind``:
    number of bytes that follow them."""
    state = raw_crc(change)
    if behind <= NEAR:
        return crc ^ crc32c(_ZEROS[:behind], state ^ FULL) ^ FULL
    return crc ^ advance(state, behind)


def restamp(header: BatchHeader, identity: Identity, attributes: int) -> BatchHeader:
    """Returns the header that the batch carries to the destination.

    Base offset 0 (the broker assigns it, and refuses any other), no leader epoch, the mirror's identity, the given
    attributes, and the checksum carried over. Length, count, deltas and timestamps stay as they are.
    """
    change = CHECKED.pack(
        header.attributes ^ attributes,
        0,
        0,
        0,
        header.producer_id ^ identity.producer_id,
        header.producer_epoch ^ identity.epoch,
        header.base_sequence ^ identity.sequence,
    )
    return header._replace(
        base_offset=0,
        leader_epoch=NO_LEADER_EPOCH,
        crc=carry(header.crc, change, header.size - OWNER_END),
        attributes=attributes,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=identity.sequence,
    )


def checksum(batch: bytes | bytearray | memoryview) -> int:
    """Returns the CRC-32C of the whole batch, recomputed: for verification, the audit and tests, never for a batch on
    the way to the destination."""
    return crc32c(memoryview(batch)[CRC_FROM:])


assert HEADER.size - PREFIX_SIZE == 49
