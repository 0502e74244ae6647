"""A copy that ends inside of a source batch that was rewritten: found, compared by its records, and gone on with."""

from typing import Any

import pytest

from mirror.legacy import stand_ins
from mirror.offsetmap.entries.passed import DROPPED
from mirror.records.admit import Terms
from mirror.records.content.opening import Record as OldRecord
from mirror.records.content.raw import raw_records, record_digest
from mirror.records.content.rewriting import rewrite
from mirror.records.header import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, Codec
from mirror.relay.locate.cleaned.survivors import is_piece
from tests.legacy.samples import messages_of
from tests.records.builders import Record, kafka_batch, sealed
from tests.records.cleaner import TIME, cleaned, record, written
from tests.relay.stage.flows import copies
from tests.relay.stage.scenes import Scene, scene
from tests.simulation.model.broker import marker_batch

LARGE = kafka_batch([Record(at, TIME + at, b"key %d" % at, b"value %d" % at * 9) for at in range(6)], base_offset=3)
"""Offsets 3 to 8."""
SPARSE = cleaned(written(3), [record(3), record(5)])
"""Offsets 3 to 5, and nothing at 4."""


def pieces(batch: bytes, most: int | None = None, due: int = 0) -> list[bytes]:
    """The pieces of a batch, at their offsets."""
    made = rewrite(BatchHeader.read(batch), batch[HEADER_SIZE:], most_size=most, due=due)
    return [header.pack() + records for header, records in made]


def copy(at: Scene, *stored: bytes, epoch: int = 0, sequence: int = 0) -> None:
    """At the destination's end, as this flow would write them."""
    for one in copies([*stored], cluster_id=at.source.cluster_id, epoch=epoch, sequence=sequence):
        assert at.there.produce(one)[0] == 0


def begin(at: Scene, *source: bytes, **terms: Any) -> None:
    """A plain batch (0 to 2) is copied, and these stand behind it at the source."""
    at.partition.terms = Terms(rewrites=True, **terms)
    at.copy([written(0)])
    at.source.store("t", 0, *source)


def fill(at: Scene, count: int, epoch: int = 1) -> None:
    for _ in range(count):
        at.there.store(marker_batch(at.there.end, at.owner, epoch))


async def test_behind_a_piece() -> None:
    async with scene() as at:
        begin(at, LARGE)
        first, *others = pieces(LARGE, most=len(LARGE) // 2)
        assert others
        copy(at, first, sequence=3)
        found = await at.locate()
        assert found.offset == BatchHeader.read(first).next_offset < 9
        assert (found.proven, found.inside, found.last_epoch) == (True, 3, 0)
        assert found.identity.sequence == found.offset


async def test_behind_the_last_piece() -> None:
    async with scene() as at:
        begin(at, LARGE)
        copy(at, *pieces(LARGE, most=len(LARGE) // 2), sequence=3)
        found = await at.locate()
        assert (found.offset, found.proven, found.inside, found.last_epoch) == (9, True, -1, 0)


async def test_without_the_deep_path_a_piece_is_no_copy() -> None:
    async with scene() as at:
        begin(at, LARGE)
        at.partition.terms = Terms()
        copy(at, pieces(LARGE, most=len(LARGE) // 2)[0], sequence=3)
        assert (await at.halts())[0] == "not_a_copy"


@pytest.mark.parametrize("what", ["value", "time"])
async def test_a_piece_with_other_records_is_no_copy(what: str) -> None:
    async with scene() as at:
        begin(at, LARGE)
        records = [Record(each, TIME + each, b"key %d" % each, b"value %d" % each * 9) for each in range(2)]
        if what == "value":
            records[1] = records[1]._replace(value=b"another")
        else:
            records[1] = records[1]._replace(timestamp=TIME + 9)
        piece = kafka_batch(records, base_offset=3)
        for one in copies([piece], cluster_id=at.source.cluster_id, sequence=3):
            header = BatchHeader.read(one)._replace(base_offset=3)
            at.there.store(sealed(header.pack() + one[HEADER_SIZE:]))
        assert (await at.halts())[0] == "not_a_copy"


@pytest.mark.parametrize(("markers", "offset"), [(0, 4), (1, 5)])
async def test_between_the_pieces_of_a_batch_with_holes(markers: int, offset: int) -> None:
    """Markers stand between its records; the batch that holds the next one is known."""
    async with scene() as at:
        begin(at, SPARSE, compacted=True)
        copy(at, pieces(SPARSE)[0], sequence=3)
        fill(at, markers)
        found = await at.locate()
        assert (found.offset, found.proven, found.inside, found.fill_to) == (offset, True, 3, offset)


async def test_before_the_first_record_of_a_batch_with_holes() -> None:
    """Its first records are gone, and filled in part: the batch before it shows where it stands."""
    async with scene() as at:
        begin(at, cleaned(written(3), [record(5)]), compacted=True)
        fill(at, 1)
        found = await at.locate()
        assert (found.offset, found.proven, found.inside) == (4, True, 3)


async def test_a_marker_at_a_record_of_a_batch_with_holes() -> None:
    async with scene() as at:
        begin(at, SPARSE, written(6), compacted=True)
        copy(at, pieces(SPARSE)[0], sequence=3)
        fill(at, 2)
        reason, detail = await at.halts()
        assert (reason, "record at offset" in detail) == ("overfilled", True)


async def test_only_what_was_filled_has_to_be_superseded() -> None:
    """A batch came back where one offset was filled: the rest of it is copied."""
    async with scene() as at:
        batch = kafka_batch([Record(each, TIME + each, b"key", b"%d" % each) for each in range(3)], base_offset=3)
        begin(at, batch, compacted=True)
        fill(at, 1)
        found = await at.locate()
        assert (found.offset, found.fill_to, found.inside) == (4, 4, 3)


async def test_what_was_filled_and_has_no_later_record_of_its_key() -> None:
    async with scene() as at:
        begin(at, written(3), compacted=True)
        fill(at, 1)
        assert (await at.halts())[0] == "overfilled"


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("codec", Codec)
async def test_another_codec(codec: Codec, changed: bool) -> None:
    """The copy was compressed anew, by a worker or by the destination's broker: its records are compared."""
    async with scene() as at:
        begin(at, LARGE)
        other = kafka_batch(
            [Record(each, TIME + each, b"key %d" % each, b"value %d" % each * (9 + changed)) for each in range(6)],
            base_offset=3, codec=codec,
        )  # fmt: skip
        copy(at, other, sequence=3)
        if changed:
            assert (await at.halts())[0] == "not_a_copy"
        else:
            found = await at.locate()
            assert (found.offset, found.proven, found.inside) == (9, True, -1)


async def test_append_times() -> None:
    """The copy has the times of its own that consumers of the original see."""
    async with scene() as at:
        batch = written(3)
        header = BatchHeader.read(batch)
        appended = sealed(
            header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=TIME + 500).pack()
            + batch[HEADER_SIZE:]
        )
        begin(at, appended, append_times=True)
        copy(at, *pieces(appended), sequence=3)
        found = await at.locate()
        assert (found.offset, found.proven, found.inside) == (6, True, -1)


async def test_the_time_of_another_append_is_another_record() -> None:
    async with scene() as at:
        batch = written(3)
        header = BatchHeader.read(batch)._replace(max_timestamp=TIME + 500)
        first, second = (
            sealed(
                header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=TIME + each).pack()
                + batch[HEADER_SIZE:]
            )
            for each in (500, 501)
        )
        begin(at, first, append_times=True)
        copy(at, *pieces(second), sequence=3)
        assert (await at.halts())[0] == "not_a_copy"


async def test_a_source_that_has_lost_the_batch_of_a_piece() -> None:
    """It goes on with other records, of a later epoch, in the place of the batch."""
    async with scene() as at:
        other = kafka_batch([Record(each, TIME, b"x", b"other") for each in range(6)], base_offset=3, leader_epoch=5)
        begin(at, other)
        copy(at, pieces(LARGE, most=len(LARGE) // 2)[0], sequence=3)
        assert (await at.halts())[0] == "source_truncated"


def test_what_can_only_be_a_piece() -> None:
    whole = BatchHeader.read(LARGE)
    part = BatchHeader.read(pieces(LARGE, due=5)[0])
    assert is_piece(part, whole)
    assert not is_piece(whole, part)
    assert not is_piece(whole, whole)
    assert not is_piece(whole._replace(base_offset=4), whole)


@pytest.mark.parametrize("compacted", [False, True])
async def test_a_batch_that_only_seems_to_hold_the_position(compacted: bool) -> None:
    """No checksum covers its base offset: the batch before it ends elsewhere."""
    async with scene() as at:
        at.partition.terms = Terms(rewrites=True, compacted=compacted)
        at.copy([written(0), written(3)])
        lower = BatchHeader.read(written(6))._replace(base_offset=5)
        at.source.store("t", 0, sealed(lower.pack() + written(6)[HEADER_SIZE:]))
        found = await at.locate()
        assert (found.offset, found.inside) == (6, -1)


async def test_a_record_that_came_back_beside_one_that_was_passed_over() -> None:
    """Only the former has to be superseded: nothing but what is written down stands for the latter."""
    async with scene() as at:
        batch = kafka_batch([Record(each, TIME + each, b"key %d" % each, b"1") for each in range(3)], base_offset=3)
        later = kafka_batch([Record(0, TIME, b"key 1", b"2")], base_offset=6)
        begin(at, batch, later, compacted=True)
        assert (await at.locate()).offset == 3
        fill(at, 2)
        assert (await at.halts())[0] == "overfilled"
        await at.pins.passed.write(at.partition, 3, 0, DROPPED)
        found = await at.locate()
        assert (found.offset, found.inside) == (5, 3)


@pytest.mark.parametrize("other", [False, True])
async def test_a_raised_limit_behind_an_old_message_that_was_passed_over(other: bool) -> None:
    """The marker in its place is the last thing at the destination, and it would fit by now. It is excused, and no
    other message that stands there."""
    async with scene() as at:
        large, stands = (OldRecord(3, TIME, b"key", value * 300, ()) for value in (b"x", b"y" if other else b"x"))
        begin(at, messages_of(1, [stands]), max_batch_size=1_000, converts=True)
        fill(at, 1)
        assert (await at.halts())[0] == "overfilled"
        (batch,) = stand_ins(memoryview(messages_of(1, [large]))).batches
        header = BatchHeader.read(batch)
        (one,) = raw_records(header, batch[HEADER_SIZE:])
        await at.pins.passed.write(at.partition, 3, -1, DROPPED, record_digest(header, one))
        if other:
            assert (await at.halts())[0] == "overfilled"
        else:
            assert (await at.locate()).offset == 4


@pytest.mark.parametrize("passes_over", [None, 50])
async def test_before_a_record_that_may_be_passed_over_the_end_stands_still(passes_over: int | None) -> None:
    """As before any hole: markers are not idempotent."""
    async with scene() as at:
        begin(at, LARGE, max_batch_size=50, passes_over=passes_over)
        assert (await at.locate()).settled_at == 0.0 if passes_over else (await at.locate()).settled_at > 0.0
