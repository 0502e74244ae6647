"""Copies that were made of several batches of the source: compared with all that the source has at their offsets."""

from collections.abc import Sequence
from typing import Any

import pytest

from mirror.records.admit import Terms
from mirror.records.content.rewriting import rebatch
from mirror.records.header import HEADER_SIZE, BatchHeader, Codec
from tests.records.builders import Record, kafka_batch, sealed
from tests.records.cleaner import TIME, cleaned, record, written
from tests.relay.stage.flows import copies
from tests.relay.stage.scenes import Scene, scene
from tests.simulation.model.broker import stamped

ROW = [written(3), written(6), written(9)]


def joined(batches: Sequence[bytes], most: int | None = None) -> list[bytes]:
    """What the deep path makes of a row of batches."""
    made = rebatch([(BatchHeader.read(one), one[HEADER_SIZE:]) for one in batches], most_size=most)
    return [header.pack() + records for header, records in made]


def begin(at: Scene, source: Sequence[bytes], copy: Sequence[bytes], **terms: Any) -> None:
    """A batch as it is, and then these."""
    at.partition.terms = Terms(**{"rewrites": True} | terms)
    at.copy([written(0)])
    at.source.store("t", 0, *source)
    for one in copies([*copy], cluster_id=at.source.cluster_id, sequence=3):
        assert at.there.produce(one)[0] == 0


@pytest.mark.parametrize("codec", Codec)
async def test_a_row_that_became_one(codec: Codec) -> None:
    row = [written(base, codec) for base in (3, 6, 9)]
    async with scene() as at:
        begin(at, [*row, written(12)], joined(row))
        found = await at.locate()
        assert (found.offset, found.proven, found.inside) == (12, True, -1)


async def test_the_epoch_is_that_of_the_last_batch_of_the_row() -> None:
    row = [kafka_batch([record(0)], base_offset=3 + each, leader_epoch=each) for each in range(3)]
    async with scene() as at:
        begin(at, row, joined(row))
        found = await at.locate()
        assert (found.offset, found.last_epoch) == (6, 2)


@pytest.mark.parametrize("mode_is_off", [False, True])
async def test_a_row_that_was_cut_inside_of_a_batch(mode_is_off: bool) -> None:
    """Each part is compared, wherever it begins and ends; also once no more of them are made."""
    row = [written(base, Codec.NONE) for base in range(3, 30, 3)]
    parts = joined(row, most=230)
    ends = [BatchHeader.read(one).next_offset for one in parts]
    assert len(ends) > 3
    assert any(end % 3 for end in ends)
    for count, end in enumerate(ends, 1):
        async with scene() as at:
            begin(at, row, parts[:count], rebatches=0 if mode_is_off else 1_000)
            found = await at.locate()
            assert (found.offset, found.proven) == (end, True)
            assert found.inside == (-1 if end % 3 == 0 else end - end % 3)


async def test_the_last_part_may_be_as_long_as_a_batch() -> None:
    """It has its offsets and records, and other bytes: its timestamps relate to the first batch of the row."""
    first = kafka_batch([Record(0, TIME, b"", b"." * 60)], base_offset=3)
    last = kafka_batch([Record(at, TIME + 9, b"", b"." * (0 if at else 100)) for at in range(3)], base_offset=4)
    parts = joined([first, last], most=220)
    assert [BatchHeader.read(one).base_offset for one in parts] == [3, 4]
    assert len(parts[1]) == len(last)
    assert parts[1][HEADER_SIZE:] != last[HEADER_SIZE:]
    async with scene() as at:
        begin(at, [first, last], parts)
        found = await at.locate()
        assert (found.offset, found.proven) == (7, True)


@pytest.mark.parametrize("changed", [0, 4, 8])
async def test_a_record_that_differs(changed: int) -> None:
    source = [written(3), written(6), written(9)]
    other = [
        kafka_batch([record(at)._replace(offset=at - base, value=b"other" if at == 3 + changed else b"value %d" % at)
                     for at in range(base, base + 3)], base_offset=base)
        for base in (3, 6, 9)
    ]  # fmt: skip
    async with scene() as at:
        begin(at, source, joined(other))
        assert (await at.halts())[0] == "not_a_copy"


@pytest.mark.parametrize("left", [0, 1, 2])
async def test_a_source_that_has_lost_some_of_the_row(left: int) -> None:
    """It goes on with other records, of a later epoch, where a part of the row stood."""
    other = [
        kafka_batch([Record(0, TIME, b"x", b"other")], base_offset=3 + 3 * left + each, leader_epoch=5)
        for each in range(20)
    ]
    async with scene() as at:
        begin(at, [*ROW[:left], *other], joined(ROW))
        assert (await at.halts())[0] == "source_truncated"


@pytest.mark.parametrize("left", [1, 2])
async def test_a_source_that_ends_among_the_row(left: int) -> None:
    async with scene() as at:
        begin(at, ROW[:left], joined(ROW))
        assert (await at.halts())[0] == "source_truncated"


async def test_without_the_deep_path_it_is_no_copy() -> None:
    async with scene() as at:
        begin(at, ROW, joined(ROW), rewrites=False)
        assert (await at.halts())[0] == "not_a_copy"


@pytest.mark.parametrize("gone", [[0], [1], [2], [0, 1]])
async def test_the_sources_cleaner_has_taken_batches_of_the_row(gone: list[int]) -> None:
    async with scene() as at:
        begin(at, [*ROW, written(12)], joined(ROW), compacted=True)
        at.here.batches[:] = [one for index, one in enumerate(at.here.batches) if index - 1 not in gone]
        found = await at.locate()
        assert (found.offset, found.proven) == (12, True)


async def test_the_sources_cleaner_has_taken_records_of_the_row() -> None:
    async with scene() as at:
        begin(at, [*ROW, written(12)], joined(ROW), compacted=True)
        at.here.batches[2] = cleaned(at.here.batches[2], [record(7)])
        found = await at.locate()
        assert (found.offset, found.proven) == (12, True)


async def test_a_batch_of_the_source_that_stands_elsewhere() -> None:
    """No checksum covers base offsets. A copy that was made of this batch alone still says so."""
    async with scene() as at:
        begin(at, [written(3)], [written(3)])
        header = BatchHeader.read(at.here.batches[1])
        at.here.batches[1] = sealed(header._replace(base_offset=4).pack() + at.here.batches[1][HEADER_SIZE:])
        at.source.store("t", 0, written(7))
        assert (await at.halts())[0] == "corrupt"


def alike(base: int, count: int) -> bytes:
    """All records the same, and of the same moment."""
    return kafka_batch([Record(at, TIME, b"", b"beat" * 10) for at in range(count)], base_offset=base)


async def test_a_part_of_a_row_that_looks_like_a_batch_of_the_source() -> None:
    """It begins in the middle of one, and has as many bytes and records, and the same times."""
    row = [alike(3, 1), *(alike(base, 3) for base in range(4, 40, 3))]
    parts = joined(row, most=len(row[1]) + 25)
    for count in range(1, len(parts) + 1):
        async with scene() as at:
            begin(at, row, parts[:count], rebatches=1_000)
            assert (await at.locate()).proven


@pytest.mark.parametrize(
    "times", [(-1, 1 << 62), (-(1 << 62), 1 << 62), (-1, (1 << 63) - 1), (0, (1 << 63) - 1), (-2, (1 << 63) - 1)]
)
async def test_times_that_lie_far_apart(times: tuple[int, int]) -> None:
    row = [
        kafka_batch([Record(0, at, b"k", b"v%d" % number)], base_offset=3 + number) for number, at in enumerate(times)
    ]
    async with scene() as at:
        begin(at, row, joined(row))
        found = await at.locate()
        assert (found.offset, found.proven) == (5, True)


@pytest.mark.parametrize("append", [False, True])
async def test_a_source_that_begins_in_the_middle_of_a_row(append: bool) -> None:
    """Also where the destination's broker has put its own time into the copy."""
    async with scene() as at:
        begin(at, [*ROW, written(12)], joined(ROW), takes_append_times=append)
        if append:
            at.there.batches[:] = [stamped(one, TIME + 99_000) for one in at.there.batches]
        at.here.delete_before(6)
        found = await at.locate()
        assert (found.offset, found.proven) == (12, True)
