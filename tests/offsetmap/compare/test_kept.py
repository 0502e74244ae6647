"""Originals that are read when they are asked for, and forgotten when they are passed."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mirror.offsetmap.compare import kept
from mirror.offsetmap.compare.kept import KeptOriginals
from mirror.offsetmap.compare.looks import ComparedBatch
from mirror.records.header import BatchHeader
from tests.records.builders import Record, kafka_batch

COUNT = 4


def batch(number: int) -> ComparedBatch:
    raw = kafka_batch([Record(0, 1_000, b"key", b"value %d" % number)], base_offset=number)
    return ComparedBatch.of(BatchHeader.read(raw), memoryview(raw))


def fetching(count: int = COUNT) -> Callable[[], Awaitable[ComparedBatch | None]]:
    """Gives so many batches, then none."""
    numbers = iter(range(count))

    async def fetch() -> ComparedBatch | None:
        number = next(numbers, None)
        return None if number is None else batch(number)

    return fetch


def originals() -> KeptOriginals:
    return KeptOriginals(fetching(), asyncio.Lock(), begins=0)


async def test_it_reads_as_far_as_it_is_asked() -> None:
    them = originals()
    found = await them.read(1)
    assert found is not None
    assert (found.header.base_offset, them.end) == (1, 2)
    assert await them.read(COUNT) is None
    assert (them.end, them.at(0).header.base_offset) == (COUNT, 0)


async def test_what_is_dropped() -> None:
    """The index of an original stays the same."""
    them = originals()
    await them.read(COUNT - 1)
    assert [each.header.base_offset for each in them.drop_before(3)] == [0, 1, 2]
    assert (them.first, them.ends, them.end) == (3, 3, COUNT)
    assert them.at(3).header.base_offset == 3


async def test_records_are_opened_once_until_they_are_passed() -> None:
    them = originals()
    assert them.rows(1) is None
    rows = await them.open(1)
    assert rows is not None
    assert await them.open(1) is them.rows(1) is rows
    size = them.size
    them.forget(1)
    assert them.rows(1) is rows
    assert them.size < size
    them.forget(2)
    assert them.rows(1) is None
    assert them.size == 0
    assert await them.open(1) is None, "its bytes are gone"


async def test_the_oldest_bytes_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    them = originals()
    await them.read(COUNT - 1)
    monkeypatch.setattr(kept, "MOST_KEPT", them.size // 2)
    them.forget(0)
    assert [them.at(index).records is None for index in range(COUNT)] == [True, True, False, False]
