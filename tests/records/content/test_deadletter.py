"""A record as a dead letter: what it was, and what it is told of."""

import pytest

from mirror.records.content.deadletter import PREFIX, dead_letter
from mirror.records.content.decompressing import NotOpened
from mirror.records.content.opening import opened
from mirror.records.content.raw import raw_records
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.intact import is_intact
from tests.records.builders import RECORDS, kafka_batch

TOLD = {"topic": "orders", "offset": "7", "message": "zu groß " * 30}


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("at", range(3))
def test_everything_stays_and_headers_are_added(codec: int, at: int) -> None:
    """Also of a record without key, without value, and without headers of its own."""
    batch = kafka_batch(codec=codec, base_offset=40)
    header = BatchHeader.read(batch)
    record = list(raw_records(header, batch[HEADER_SIZE:]))[at]
    letter = dead_letter(header, record, TOLD)
    made = BatchHeader.read(letter)
    assert is_intact(letter)
    assert (made.base_offset, made.record_count, made.codec_bits, made.producer_id) == (0, 1, codec, -1)
    (one,) = opened(made, letter[HEADER_SIZE:])
    assert one[:4] == (0, *RECORDS[at][1:4])
    own = list(RECORDS[at].headers)
    assert list(one.headers) == [*own, *((PREFIX + name, text.encode()) for name, text in TOLD.items())]


def test_a_record_whose_sizes_do_not_fit() -> None:
    batch = kafka_batch()
    header = BatchHeader.read(batch)
    (record, *_) = raw_records(header, batch[HEADER_SIZE:])
    with pytest.raises(NotOpened, match="the record at offset 0 is damaged"):
        dead_letter(header, record._replace(content=record.content[:2]), TOLD)
