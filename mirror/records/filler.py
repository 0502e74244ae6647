"""Filler: batches that take the offsets before a source's first record, so that record N stays record N.

A source whose log begins at offset N > 0 is copied into an empty log that has to begin there, too. No request moves an
empty log's end. So the offsets before N are taken by empty records (null key, null value), a million in a batch of a
few hundred kilobytes, which are deleted again (``relay.leading.filler``).

Filler has an identity of its own, and the sequence of each record is its offset. So every worker that fills sends the
same batch for the same offsets: a repeat is answered with the old offset, and no worker has to remember where another
one stopped.
"""

import struct
import zlib
from collections.abc import Iterator
from functools import lru_cache

import zstandard
from crc32c import crc32c

from mirror.records.header import (
    CRC_AT,
    CRC_FROM,
    HEADER_SIZE,
    MAGIC,
    NO_LEADER_EPOCH,
    PREFIX_SIZE,
    SEQUENCES,
    BatchHeader,
    Codec,
)
from mirror.records.identity import producer_id, same_owner

STRIDES = (1_000_000, 100_000, 10_000, 1_000)
"""Offsets in a batch: the first of these whose batches fit the destination topic is used. Batches end at multiples of
it, so that two workers that fill at the same time agree on where each batch begins."""
_ZSTD_LEVEL = 5
"""0.7 bytes per offset. Higher levels are slower and produce more bytes."""
_GZIP_LEVEL = 1
"""1.4 bytes per offset at any level."""
_TWO_BYTES, _THREE_BYTES = 1 << 6, 1 << 13
"""The first offset deltas whose varints have two and three bytes. The delta of a million still fits in three."""
_GZIP = 31
"""zlib's way to ask for gzip framing with the largest window."""


def filler_id(*, flow: str, cluster_id: str, topic: str, partition: int) -> int:
    """Returns the producer id of a partition's filler. It is computed like that of the data, but hashes one more
    part."""
    return producer_id(flow=f"{flow}\0filler", cluster_id=cluster_id, topic=topic, partition=partition)


def is_filler(header: BatchHeader, filler: int) -> bool:
    """Returns True if the batch is filler of this partition. ``filler``: the ``filler_id``; rotations are ignored."""
    return not header.is_control and same_owner(header.producer_id, filler)


def filler_batch(*, producer: int, offset: int, count: int, timestamp: int, codec: Codec = Codec.ZSTD) -> bytes:
    """Returns a batch for the offsets from ``offset`` on, as it is sent: with base offset 0, which the broker replaces.

    Args:
        producer: the partition's ``filler_id``.
        offset: the base offset that the broker is going to assign; the sequence follows from it.
        count: number of records, 1 to 1,000,000.
        timestamp: the timestamp of each record, in ms since 1970.
        codec: ZSTD, or GZIP for brokers before 2.1.
    """
    payload = _payload(count, codec)
    header = BatchHeader(
        base_offset=0,
        length=HEADER_SIZE - PREFIX_SIZE + len(payload),
        leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=offset % SEQUENCES,
        record_count=count,
    ).pack()
    crc = crc32c(payload, crc32c(header[CRC_FROM:]))
    return header[:CRC_AT] + struct.pack(">I", crc) + header[CRC_FROM:] + payload


def filler_size(count: int, codec: Codec = Codec.ZSTD) -> int:
    """Returns the size in bytes of a filler batch with ``count`` records."""
    return HEADER_SIZE + len(_payload(count, codec))


def stride(most_bytes: int | None, codec: Codec = Codec.ZSTD) -> int:
    """Returns the number of offsets in a batch, for a topic that accepts batches of up to ``most_bytes`` (None: not
    known)."""
    for count in STRIDES:
        if most_bytes is None or filler_size(count, codec) <= most_bytes:
            return count
    return STRIDES[-1]


@lru_cache(maxsize=4)
def _payload(count: int, codec: Codec) -> bytes:
    """Returns the compressed records. Cached: a flow needs those of a full batch many times, and a few others once."""
    if not 1 <= count <= STRIDES[0]:
        raise ValueError(f"{count} records of filler, not 1 to {STRIDES[0]}")
    assert codec in (Codec.ZSTD, Codec.GZIP), codec
    packer = (
        zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compressobj()
        if codec is Codec.ZSTD
        else zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP)
    )
    return b"".join([*(packer.compress(records) for records in _records(count)), packer.flush()])


def _records(count: int) -> Iterator[bytes]:
    """Yields the records in blocks of up to 8,192: 7 to 9 bytes each, depending on the width of their offset delta.

    A record (KIP-98): length varint, attributes i8, timestamp delta varint, offset delta varint, key length varint
    (-1), value length varint (-1), count of headers varint. Varints are zigzag: 1 stands for -1, 2 n for n.
    """
    first = 0
    while first < count:
        width = 1 if first < _TWO_BYTES else 2 if first < _THREE_BYTES else 3
        last = min(count, _TWO_BYTES if width == 1 else _THREE_BYTES if width == 2 else first + _THREE_BYTES)
        size = 6 + width
        record = bytes([2 * (size - 1), 0, 0, *bytes(width), 1, 1, 0])
        block = bytearray(record * (last - first))
        for digit in range(width):
            block[3 + digit :: size] = _digits(first, last - first, digit, more=digit < width - 1)
        yield bytes(block)
        first = last


def _digits(first: int, count: int, digit: int, *, more: bool) -> bytes:
    """Returns the ``digit``-th byte of the varints of ``count`` offset deltas from ``first`` on, which is a multiple of
    64. ``more``: True if another byte of the varint follows."""
    flag = 0x80 if more else 0
    if digit == 0:
        cycle = bytes(2 * delta & 0x7F | flag for delta in range(64))
        return (cycle * (count // 64 + 1))[:count]
    run = 1 << 7 * digit - 1  # this many deltas in a row have the same byte
    start, end = first // run, (first + count - 1) // run
    digits = b"".join(bytes([value & 0x7F | flag]) * run for value in range(start, end + 1))
    return digits[first - start * run :][:count]
