"""Batches that were opened: which of them have a max timestamp that none of their records has."""

import pytest

from mirror.audit.model.places import Span
from mirror.audit.model.rows import RecordRow
from mirror.audit.read.opened import as_units, opened_rows
from mirror.audit.read.rows import digester, headers_of, make_block
from mirror.records.header import LOG_APPEND_TIME, BatchHeader
from mirror.records.scan import BatchPlace
from tests.audit.clusters import edited
from tests.records.builders import Record, kafka_batch

BATCH = kafka_batch([Record(at, 1_000 + at % 2, b"k", b"v") for at in range(3)])
"""The newest is in the middle."""


def opened(batch: bytes, *, timed: bool = True) -> list[RecordRow]:
    places = [BatchPlace(0, len(batch))]
    body = memoryview(batch)
    return list(opened_rows(body, places, headers_of(body, places), digester("xxh3_128"), timed=timed))


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize(("by", "wrong"), [(0, False), (1, True), (-1, True)])
def test_the_max_timestamp_is_that_of_the_newest_record(by: int, wrong: bool, timed: bool) -> None:
    """Also where times are not compared: brokers look up offsets with it. The last record says so: of a batch that
    begins before the audited offsets, it is among these. Mutation: the first one does."""
    newest = BatchHeader.read(BATCH).max_timestamp
    assert newest == 1_001
    rows = opened(edited(BATCH, max_timestamp=newest + by), timed=timed)
    assert [row.mistimed for row in rows] == [False, False, wrong]


def test_the_time_of_the_append_is_that_of_all_records() -> None:
    rows = opened(edited(BATCH, max_timestamp=9_999, attributes=LOG_APPEND_TIME))
    assert not any(row.mistimed for row in rows)


def test_records_without_a_time() -> None:
    rows = opened(kafka_batch([Record(0, -1, b"k", b"v")]))
    assert [(row.whole, row.mistimed) for row in rows] == [(True, False)]


def test_one_that_cannot_be_opened() -> None:
    rows = opened(edited(BATCH, record_count=7, max_timestamp=5))
    assert [row.whole for row in rows] == [True, True, True, False]
    assert not any(row.mistimed for row in rows)


def test_records_as_batches_of_one() -> None:
    """Only those of the range: a batch may begin before it, or end behind it."""
    batch = kafka_batch([Record(at, 1_000, b"k", bytes(at)) for at in range(5)], base_offset=7)
    there = opened(batch)
    body, places = memoryview(batch), [BatchPlace(0, len(batch))]
    block = make_block(body, places, headers_of(body, places), digester("xxh3_128"))
    found = as_units(block._replace(records=tuple(there)), Span(8, 11))
    assert found.headers["base_offset"].tolist() == [8, 9, 10]
    assert found.headers["record_count"].tolist() == [1, 1, 1]
    assert found.digests == [row.digest for row in there[1:4]]
    assert (found.headers["length"] + 12).tolist() == [row.size for row in there[1:4]]
