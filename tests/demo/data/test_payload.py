"""The records: every kind is there, they fit the console producer's lines, and the same seed gives the same bytes."""

import json
from itertools import islice

import pytest

from mirror.demo.data import payload
from mirror.demo.data.payload import NULL_MARKER, DemoRecord, console_line


@pytest.fixture(scope="module")
def records() -> list[DemoRecord]:
    return payload.pool(2_000)


def test_the_first_40_hold_every_kind(records: list[DemoRecord]) -> None:
    first = records[:40]
    assert any(record.value is None for record in first)
    assert any(record.key is None for record in first)
    assert any(not record.headers for record in first)
    assert any(value is None for record in first for _, value in record.headers)
    assert any(record.key and record.value and record.headers for record in first)


def test_a_null_value_has_a_key_and_sometimes_headers(records: list[DemoRecord]) -> None:
    deletions = [record for record in records if record.value is None]
    assert all(record.key for record in deletions)
    assert any(record.headers for record in deletions)


def test_values_are_json_of_some_hundred_bytes_to_some_kilobytes(records: list[DemoRecord]) -> None:
    values = [record.value for record in records if record.value is not None]
    assert all(json.loads(value)["lines"] for value in values)
    assert min(map(len, values)) < 500
    assert 2_000 < max(map(len, values)) < 5_000


def test_records_are_distinct_and_repeatable(records: list[DemoRecord]) -> None:
    assert payload.pool(100) == records[:100]
    assert payload.pool(100, seed=1) != records[:100]
    values = [record.value for record in records if record.value is not None]
    assert len(set(values)) == len(values)


def test_size_counts_key_value_and_headers() -> None:
    assert DemoRecord(b"key", b"value", (("name", b"1"), ("none", None))).size == 3 + 5 + 5 + 4
    assert DemoRecord(None, None, ()).size == 0


def test_a_console_line_holds_headers_key_and_value() -> None:
    record = DemoRecord(b"key", b"value", (("a", b"1"), ("b", None)))
    assert console_line(record) == b"a:1,b:NULL\tkey\tvalue\n"
    assert console_line(DemoRecord(None, None, ())) == b"NULL\tNULL\tNULL\n"


def test_every_record_can_be_taken_apart_again(records: list[DemoRecord]) -> None:
    """What the console producer does with a line, undone: no separator hides inside a part."""
    for record in records:
        line = console_line(record)
        assert line.count(b"\n") == 1
        headers, key, value = line.rstrip(b"\n").decode().split("\t")
        assert record.key == _part(key)
        assert record.value == _part(value)
        pairs = [] if headers == NULL_MARKER else [pair.split(":") for pair in headers.split(",")]
        assert record.headers == tuple((name, _part(content)) for name, content in pairs)


def test_cycle_begins_anywhere_and_goes_round(records: list[DemoRecord]) -> None:
    three = records[:3]
    assert list(islice(payload.cycle(three, start=5), 4)) == [three[2], three[0], three[1], three[2]]


def _part(text: str) -> bytes | None:
    return None if text == NULL_MARKER else text.encode()
