"""The columns against an encoder that is not ours, and the sizes of Arrow batches."""

from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

from mirror.legacy.entries import LegacySpan, span_at
from mirror.records.header import LOG_APPEND_TIME, Codec
from mirror.records.intact import is_intact
from mirror.records.scan import scan
from mirror.spark.read import rows
from mirror.spark.read.rows import Entry, arrow_rows, gathered
from mirror.spark.schema import ARROW_SCHEMA
from tests.legacy.samples import messages_of, records_from, wrapper_of
from tests.records.builders import RECORDS, kafka_batch, raw_batch
from tests.simulation.model.broker import marker_batch


def table(*stored: bytes, include_batch: bool = True) -> list[dict[str, Any]]:
    body = memoryview(b"".join(stored))
    entries = []
    for place in scan(body):
        span = span_at(body, *place)
        intact = is_intact(body[place.at : place.at + place.size])
        entries.append(Entry(place, intact, span if isinstance(span, LegacySpan) else None))
    found = arrow_rows("t", 3, body, entries, include_batch=include_batch)
    assert found.schema == ARROW_SCHEMA
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch(codec: Codec) -> None:
    batch = kafka_batch(codec=codec, base_offset=40, leader_epoch=6, producer_id=9, producer_epoch=2, base_sequence=5)
    assert table(batch) == [
        {
            "topic": "t",
            "partition": 3,
            "base_offset": 40,
            "last_offset": 42,
            "record_count": len(RECORDS),
            "magic": 2,
            "codec": codec.name.lower(),
            "timestamp_type": "CreateTime",
            "is_transactional": False,
            "is_control": False,
            "leader_epoch": 6,
            "producer_id": 9,
            "producer_epoch": 2,
            "base_sequence": 5,
            "base_timestamp": RECORDS[0].timestamp,
            "max_timestamp": max(record.timestamp for record in RECORDS),
            "size": len(batch),
            "crc_ok": True,
            "batch": batch,
        }
    ]


def test_flags() -> None:
    (transactional, appended, marker, strange) = table(
        kafka_batch(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
        raw_batch(b"", attributes=LOG_APPEND_TIME),
        marker_batch(7, 1, 0, leader_epoch=0, coordinator_epoch=0),
        raw_batch(b"", attributes=6),
    )
    assert (transactional["is_transactional"], transactional["is_control"]) == (True, False)
    assert appended["timestamp_type"] == "LogAppendTime"
    assert (marker["is_transactional"], marker["is_control"]) == (True, True)
    assert strange["codec"] == "unknown 6"


def test_a_damaged_batch() -> None:
    batch = bytearray(kafka_batch())
    batch[-1] ^= 1
    (row,) = table(bytes(batch))
    assert (row["crc_ok"], row["batch"]) == (False, bytes(batch))


def test_without_bytes() -> None:
    (row,) = table(kafka_batch(), include_batch=False)
    assert row["batch"] is None
    assert row["size"] == len(kafka_batch())


def test_old_formats_between_batches() -> None:
    """A wrapper is one row, at its stored offset. What its header does not say is null."""
    single, wrapper = messages_of(0, records_from(4, 1, magic=0)), wrapper_of(1, Codec.GZIP, records_from(5, 4))
    appended = wrapper_of(1, Codec.LZ4, records_from(9, 2), append_time=77)
    found = table(single, wrapper, appended, kafka_batch(base_offset=11))
    assert [(row["base_offset"], row["last_offset"], row["magic"]) for row in found] == [
        (4, 4, 0), (8, 8, 1), (10, 10, 1), (11, 13, 2),
    ]  # fmt: skip
    assert [row["codec"] for row in found] == ["none", "gzip", "lz4", "none"]
    assert [row["record_count"] for row in found] == [1, None, None, 3]
    assert [row["timestamp_type"] for row in found] == [None, "CreateTime", "LogAppendTime", "CreateTime"]
    assert [row["max_timestamp"] for row in found][0::2] == [None, 77]
    assert [row["base_timestamp"] for row in found][:3] == [None] * 3
    assert [row["producer_id"] for row in found] == [None, None, None, -1]
    assert [row["batch"] for row in found] == [single, wrapper, appended, kafka_batch(base_offset=11)]


async def test_gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    def some(count: int) -> Any:
        return pa.record_batch({"n": pa.array(range(count), pa.int64())})

    async def given(*counts: int) -> AsyncIterator[Any]:
        for count in counts:
            yield some(count)

    async def sizes(*counts: int) -> list[int]:
        return [batch.num_rows async for batch in gathered(given(*counts))]

    assert await sizes(1, 2, 3) == [6]
    assert await sizes() == []
    assert await sizes(5_000, 1) == [5_000, 1]
    monkeypatch.setattr(rows, "GATHERED_BYTES", 80)
    monkeypatch.setattr(rows, "ARROW_BYTES", 80)
    assert await sizes(4, 4, 4, 100, 4, 8) == [8, 4, 100, 4, 8]
