"""Inputs to begin with: what brokers really send, and the edges that are known."""

import struct
from collections.abc import Iterator
from itertools import product

from mirror.records.content.building import compressed
from mirror.records.content.opening import Record
from mirror.records.header import CONTROL, HEADER_SIZE, TRANSACTIONAL, BatchHeader, Codec
from tests.legacy.samples import OLD_CODECS, messages_of, records_from, wrapper_of
from tests.net.stage.sockets import response
from tests.records.builders import RECORDS, kafka_batch, raw_batch
from tests.wire.frames import FETCH_RANGE, PRODUCE_RANGE, Values, fetch_frame, produce_frame
from tests.wire.produce_frames import plain, rich

_I64_MOST = (1 << 63) - 1
_SEVERAL = b"".join(kafka_batch(codec=codec, base_offset=3 * codec) for codec in Codec)
_MARKER = raw_batch(b"\x20\0\0\0\x08\0\0\0\1\x0c\0\0\0\0\0\0\0", attributes=TRANSACTIONAL | CONTROL, record_count=1)


def seeds(target: str) -> list[bytes]:
    """Returns the inputs of a target. The same each time."""
    return list(_SEEDS[target]())


def _scan() -> Iterator[bytes]:
    at_the_end = kafka_batch(base_offset=_I64_MOST - 3) + kafka_batch(base_offset=_I64_MOST)
    filler = struct.pack(">qi", -1, 400)
    for record_set in (_SEVERAL, at_the_end, messages_of(1, records_from(0)) + _SEVERAL, _SEVERAL + filler, _MARKER):
        yield bytes([2]) + bytes(8) + record_set
        yield bytes([15]) + bytes(8) + record_set[:-7]


def _record_sets() -> Iterator[bytes]:
    for magic, codec in product((0, 1), OLD_CODECS[1:]):
        yield wrapper_of(magic, codec, records_from(5, magic=magic))
        yield wrapper_of(magic, codec, records_from(5, magic=magic), append_time=9 if magic else None)
    yield from (messages_of(magic, records_from(2, magic=magic)) for magic in (0, 1))
    yield messages_of(0, records_from(0, 2, magic=0)) + messages_of(1, records_from(2, 3)) + kafka_batch(base_offset=9)
    yield _SEVERAL[: len(_SEVERAL) - len(kafka_batch(codec=Codec.ZSTD))]
    yield kafka_batch() + _MARKER
    yield kafka_batch(base_offset=_I64_MOST - 1)
    late = BatchHeader.read(kafka_batch())._replace(base_timestamp=_I64_MOST - 2)
    yield late.pack() + kafka_batch()[HEADER_SIZE:]


def _conversions() -> Iterator[bytes]:
    for record_set in _record_sets():
        yield bytes([0, 0, 3]) + record_set
        yield bytes([5, 0, 0]) + record_set
    # Not compressed yet, so that what is inside can be changed bit by bit.
    for magic, codec in product((0, 1), OLD_CODECS[1:]):
        inside = messages_of(magic, [Record(at, 7 if magic else -1, b"k", b"v", ()) for at in range(3)])
        front = struct.pack(">qiIbB", 2, 0, 0, magic, codec) + (struct.pack(">q", 7) if magic else b"")
        whole = front + struct.pack(">ii", -1, len(inside)) + inside
        yield bytes([7, 0, 0]) + whole[:8] + struct.pack(">i", len(whole) - 12) + whole[12:]
    for codec in Codec:
        batch = bytearray(kafka_batch())
        batch[22] |= codec
        yield bytes([7, 0, 1]) + bytes(batch)


def _decompression() -> Iterator[bytes]:
    for codec in Codec:
        for content in (b"", b"some text " * 20, bytes(300_000)):
            packed = compressed(codec, content)
            if len(packed) < 4096:
                yield bytes([codec, 1]) + packed
                yield bytes([codec, 0]) + packed + compressed(codec, b"") + packed
    yield bytes([Codec.SNAPPY, 0]) + b"\x82SNAPPY\x00" + bytes(8) + b"\0\0\0\1\0" + b"\0\0\0\3\1\0x"


def _rewriting() -> Iterator[bytes]:
    plain = kafka_batch()[HEADER_SIZE:]
    for codec, flags, most_size in product(Codec, (1, 9), (0, 150)):
        front = struct.pack(">BBHHqiHqq", flags, codec, 0, most_size, 100, 2, len(RECORDS), 7, 1_700_000_000_000)
        yield front + plain
    yield struct.pack(">BBHHqiHqq", 1, 0, 1, 0, _I64_MOST - 1, 2, len(RECORDS), _I64_MOST, 7) + plain


def _fetch() -> Iterator[bytes]:
    partition: Values = {
        "partition_index": 3, "error_code": 0, "high_watermark": 9, "last_stable_offset": 9,
        "aborted_transactions": [(7, 1)], "records": kafka_batch(), "log_start_offset": 0,
        "preferred_read_replica": -1,
    }  # fmt: skip
    empty = {**partition, "aborted_transactions": None, "records": None}
    for number, version in enumerate(FETCH_RANGE):
        key = bytes(range(16)) if version >= 13 else "orders"
        drop = {"log_start_offset"} if version < 5 else set()
        drop |= {"preferred_read_replica"} if version < 11 else set()
        rows = [{name: value for name, value in one.items() if name not in drop} for one in (partition, empty)]
        values: Values = {"throttle_time_ms": 0, "responses": [(key, rows), (key, rows[1:])]}
        if version >= 7:
            values |= {"error_code": 0, "session_id": 5}
        if version >= 12:
            rows[0] |= {"diverging_epoch": (1, 5), "current_leader": (2, 9)}
        yield bytes([number]) + bytes(fetch_frame(version, values))


def _produce() -> Iterator[bytes]:
    for number, version in enumerate(PRODUCE_RANGE):
        yield bytes([number]) + bytes(produce_frame(version, rich(version)))
        yield bytes([number]) + bytes(produce_frame(version, plain(version)))


def _framing() -> Iterator[bytes]:
    frames = b"".join(response(number, body) for number, body in enumerate((b"", b"first", b"b" * 90, b"x"), start=1))
    for flags, step in product(range(8), (1, 7, 100)):
        yield bytes([flags, 4, step]) + frames
    yield bytes([1, 1, 9]) + struct.pack(">ii", (1 << 30) - 8, 1) + b"x" * 100


_SEEDS = {
    "scan": _scan,
    "up-conversion": _conversions,
    "down-conversion": _conversions,
    "decompression": _decompression,
    "rewriting": _rewriting,
    "fetch": _fetch,
    "produce": _produce,
    "framing": _framing,
}
