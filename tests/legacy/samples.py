"""Messages of magic 0 and 1 as brokers store them, from an encoder that is not ours (kafka-python's)."""

import struct
import zlib
from collections.abc import Sequence

from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from mirror.records.content.opening import Record
from mirror.records.header import Codec

START_MS = 1_700_000_000_000
MOST = 1 << 20
OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
WRAPPING = OLD_CODECS[1:]
APPEND_TIME = 0x08


def records_from(first: int, count: int = 4, *, magic: int = 1, step: int = 1) -> list[Record]:
    """Keys, a null key, a null value, an empty one; timestamps that do not go up."""
    return [
        Record(
            first + at * step,
            START_MS + at * 7 % 5 if magic else -1,
            None if at == 1 else f"key-{at}".encode(),
            None if at == 2 else b"value " * (0 if at == 3 else 20),
            (),
        )
        for at in range(count)
    ]


def messages_of(magic: int, records: Sequence[Record]) -> bytes:
    """Messages on their own."""
    return _built(magic, Codec.NONE, records, [record.offset for record in records])


def wrapper_of(
    magic: int, codec: Codec, records: Sequence[Record], *, append_time: int | None = None, base: int | None = None
) -> bytes:
    """A wrapper as a broker stores it. ``base``: what offsets inside count from, if not the first record's."""
    first = (records[0].offset if base is None else base) if magic else 0
    built = _built(magic, codec, records, [record.offset - first for record in records])
    timestamp = max(record.timestamp for record in records) if append_time is None else append_time
    attributes = codec | (0 if append_time is None else APPEND_TIME)
    return patched(built, records[-1].offset, attributes, timestamp if magic else None)


def patched(message: bytes, offset: int, attributes: int | None = None, timestamp: int | None = None) -> bytes:
    """The same message with another offset, attributes and timestamp, and the checksum that belongs to it."""
    changed = bytearray(message)
    struct.pack_into(">q", changed, 0, offset)
    if attributes is not None:
        changed[17] = attributes
    if timestamp is not None:
        struct.pack_into(">q", changed, 18, timestamp)
    return sealed(bytes(changed))


def sealed(message: bytes) -> bytes:
    """The same message with its size and its checksum recomputed."""
    size, crc = struct.pack(">i", len(message) - 12), struct.pack(">I", zlib.crc32(message[16:]))
    return message[:8] + size + crc + message[16:]


def _built(magic: int, codec: Codec, records: Sequence[Record], offsets: Sequence[int]) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, codec, batch_size=1 << 30)
    for offset, record in zip(offsets, records, strict=True):
        builder.append(offset, record.timestamp if magic else None, record.key, record.value)
    return bytes(builder.build())


def some_records(*, headers: bool = False) -> st.SearchStrategy[list[Record]]:
    """Records of any content, whose offsets go up, mostly without gaps."""
    content = st.none() | st.binary(max_size=60)
    header = st.tuples(st.text(max_size=5), content)
    return st.lists(
        st.tuples(
            st.sampled_from([1, 1, 1, 1, 2, 900]),
            st.just(-1) | st.integers(0, 1 << 42),
            content,
            content,
            st.lists(header, max_size=2) if headers else st.just([]),
        ),
        min_size=1,
        max_size=30,
    ).map(_numbered)


def _numbered(drawn: list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]) -> list[Record]:
    offset, made = 10, []
    for step, timestamp, key, value, headers in drawn:
        offset += step
        made.append(Record(offset, timestamp, key, value, tuple(headers)))
    return made


def without_time(records: Sequence[Record]) -> list[Record]:
    """As magic 0 holds them."""
    return [record._replace(timestamp=-1) for record in records]


def bare(records: Sequence[Record]) -> list[Record]:
    """As the formats before magic 2 hold them."""
    return [record._replace(headers=()) for record in records]
