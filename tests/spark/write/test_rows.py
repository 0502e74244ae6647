"""Rows: their columns, their order, and the batches in them."""

import pyarrow as pa
import pytest

from mirror.raw.model import TopicPartition
from mirror.spark.write.errors import SinkError
from mirror.spark.write.rows import TYPES, Order, Row, check_columns, pieces_of, rows_of
from tests.records.builders import kafka_batch, raw_batch
from tests.spark.rows import arrow, row


def at(partition: int, offset: int, topic: str = "t") -> Row:
    return Row(TopicPartition(topic, partition), offset, memoryview(b""))


def check(rows: list[Row]) -> None:
    order = Order()
    for each in rows:
        order.check(each)


def test_rows_in_order() -> None:
    check([at(1, 0), at(1, 2), at(1, 9), at(0, 0), at(0, 7), at(0, 4, "u")])


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([at(0, 4), at(0, 2)], r"t-0 at 2 comes behind 4 of its partition, or twice"),
        ([at(0, 4), at(0, 4)], r"t-0 at 4 comes behind 4 of its partition, or twice"),
        ([at(0, 4), at(1, 0), at(0, 6)], r"t-0 at 6 comes behind rows of another partition"),
    ],
)
def test_rows_out_of_order(rows: list[Row], told: str) -> None:
    with pytest.raises(SinkError, match=rf"^not_in_order: {told}; write mirror\.spark\.in_order\(df\)"):
        check(rows)


def test_columns() -> None:
    check_columns({**TYPES, "crc_ok": "boolean"}, "")
    without = {name: kind for name, kind in TYPES.items() if name != "topic"}
    check_columns(without, "there")
    with pytest.raises(SinkError, match=r"^columns: there is no column topic \(string\); select the columns"):
        check_columns(without, "")
    with pytest.raises(SinkError, match=r"^columns: the column partition is bigint, not int"):
        check_columns({**TYPES, "partition": "bigint"}, "")


def test_rows_of_arrow() -> None:
    batch = kafka_batch(base_offset=7)
    (read,) = rows_of(arrow([row("t", 3, batch)]), "")
    assert (read.at, read.base_offset, bytes(read.batch)) == (TopicPartition("t", 3), 7, batch)
    rows = pa.RecordBatch.from_pylist([{"batch": batch, "base_offset": 7, "other": 1, "partition": 3}])
    (read,) = rows_of(rows, "there")
    assert read.at == TopicPartition("there", 3)
    sliced = arrow([row("t", 3, batch), row("t", 4, kafka_batch())]).slice(1)
    assert [each.at.partition for each in rows_of(sliced, "")] == [4]


@pytest.mark.parametrize("name", TYPES)
def test_nulls(name: str) -> None:
    whole = arrow([row("t", 3, kafka_batch())])
    columns = [pa.nulls(1, field.type) if field.name == name else whole[field.name] for field in whole.schema]
    with pytest.raises(SinkError, match=r"^columns: a row has null in one of topic, partition, base_offset, batch"):
        list(rows_of(pa.RecordBatch.from_arrays(columns, schema=whole.schema), ""))


def test_a_batch_is_sent_as_it_is() -> None:
    batch = kafka_batch(base_offset=7)
    ((piece,), end) = pieces_of(row("t", 0, batch), None)
    assert (piece.value, piece.base, piece.end, end) == (batch, 7, 10, 10)
    assert bytes(piece.records) == batch[61:]


def test_what_is_left_out_or_opened() -> None:
    assert pieces_of(row("t", 0, raw_batch(b"", attributes=0x20)), None) == ([], 1_005)
    transactional = kafka_batch(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0, base_offset=4)
    ((piece,), _) = pieces_of(row("t", 0, transactional), None)
    assert (piece.base, piece.header.attributes) == (4, 0)
    pieces, end = pieces_of(row("t", 0, kafka_batch(base_offset=7)), 250)
    assert [(each.base, each.end) for each in pieces] == [(7, 8), (8, 10)]
    assert end == 10


def test_what_no_broker_takes() -> None:
    batch = kafka_batch(base_offset=7)
    with pytest.raises(SinkError, match=r"^not_sendable: t-0 at 7: corrupt: .* checksum; the bytes were damaged"):
        pieces_of(row("t", 0, batch[:-1] + b"?"), None)
    with pytest.raises(SinkError, match=r"^not_sendable: t-0 at 8: the batch itself says base offset 7; write the col"):
        pieces_of(Row(TopicPartition("t", 0), 8, memoryview(batch)), None)
