"""What log cleaners have changed on either side is compared by what they left."""

from typing import Any
from unittest.mock import ANY, patch

import pytest

from mirror.offsetmap.compare.survivors import Common
from mirror.records.admit import Terms
from mirror.records.header import BatchHeader, Codec
from mirror.relay.locate import compare, tails
from mirror.relay.locate.cleaned import survivors
from mirror.relay.locate.compare import LOOKS_BACK, Proof
from tests.records.builders import kafka_batch
from tests.records.cleaner import SIZE, TIME, cleaned, record, written
from tests.relay.stage.flows import copies
from tests.relay.stage.scenes import Scene, scene
from tests.simulation.model.broker import marker_batch

COMPACTED = Terms(compacted=True, compacted_there=True)


async def copied(at: Scene, count: int, *, codec: int = Codec.ZSTD) -> None:
    """So many batches on both sides, and markers of ours in a hole behind them."""
    at.partition.terms = COMPACTED
    at.copy([written(SIZE * number, codec) for number in range(count)])


def hole(at: Scene, count: int) -> None:
    """Markers on both sides, at the ends of both logs."""
    for _ in range(count):
        at.source.store("t", 0, marker_batch(at.here.end, 7, 0))
        at.there.store(marker_batch(at.there.end, at.owner, 1))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("side", ["source", "destination", "both"])
async def test_a_cleaned_batch_is_the_same_in_what_is_left(side: str, codec: Codec) -> None:
    """Two records of one key, of which one is left on a side; on the other, the other, too, or only a common one."""
    async with scene() as at:
        await copied(at, 2, codec=codec)
        hole(at, 1)
        if side != "destination":
            at.here.batches[1] = cleaned(at.here.batches[1], [record(3), record(5)], codec=codec)
        if side != "source":
            at.there.batches[1] = cleaned(at.there.batches[1], [record(4), record(5)], codec=codec)
        found = await at.locate()
        assert (found.offset, found.proven) == (7, True)
        assert found.identity.epoch == 2
        assert not at.log.of("prefix_unproven")


async def test_a_delete_horizon() -> None:
    """A tombstone's batch gets another base timestamp and a bit, and is rewritten; its records are what they were."""
    async with scene() as at:
        at.partition.terms = COMPACTED
        tombstone = record(4, value=None)
        one = kafka_batch([record(0), tombstone._replace(offset=1)], base_offset=3)
        at.copy([written(0), one])
        at.there.batches[1] = cleaned(at.there.batches[1], [tombstone], horizon=True)
        assert (await at.locate()).proven


@pytest.mark.parametrize(
    "changes",
    [{"value": b"other"}, {"value": None}, {"key": b"other"}, {"timestamp": TIME}, {"headers": [("trace", b"x")]}],
)
async def test_a_record_that_differs(changes: dict[str, Any]) -> None:
    """In anything: it is no copy, whatever the cleaner did."""
    async with scene() as at:
        await copied(at, 2)
        at.there.batches[1] = cleaned(at.there.batches[1], [record(5, **changes)])
        reason, detail = await at.halts()
        assert reason == "not_a_copy"
        assert "the batches at offset 3 differ; both agree up to offset 2" in detail


async def test_other_boundaries() -> None:
    """A cleaner never moves a batch's last offset."""
    async with scene() as at:
        at.partition.terms = COMPACTED
        at.copy([written(0)])
        at.source.store("t", 0, written(3), written(6))
        at.copy_only([kafka_batch([record(at) for at in range(2)], base_offset=3)], sequence=3)
        at.here.batches[1] = cleaned(at.here.batches[1], [record(5)])
        assert (await at.halts())[0] == "not_a_copy"


async def test_the_last_batches_have_nothing_in_common() -> None:
    """
    1. Emptied at the destination, removed at the source, or other records left: an earlier batch is compared.
    2. Nothing can be compared as far back as is looked: told, and it goes on.
    """
    async with scene() as at:
        await copied(at, 5)
        hole(at, 2)
        at.there.batches[4] = cleaned(at.there.batches[4], [])
        at.there.batches[3] = cleaned(at.there.batches[3], [record(9)])
        at.here.batches[3] = cleaned(at.here.batches[3], [record(10)])
        del at.here.batches[2]
        found = await at.locate()
        assert (found.offset, found.proven, found.last_epoch) == (17, True, -1)
    async with scene() as at:
        await copied(at, LOOKS_BACK + 2)
        assert (await at.locate()).proven  # and its topics' ids are written down
        for number in range(1, LOOKS_BACK + 2):
            at.there.batches[number] = cleaned(at.there.batches[number], [])
        found = await at.locate()
        assert (found.offset, found.proven) == (SIZE * (LOOKS_BACK + 2), False)
        (line,) = at.log.of("prefix_unproven")
        assert "have left no record of the batch at" in line["detail"]


async def test_the_last_data_is_gone_altogether() -> None:
    """The destination's cleaner has removed the last data batch, a tombstone, and left our markers; the source's has
    not: no marker stands where the source has a record."""
    async with scene() as at:
        await copied(at, 3)
        hole(at, 2)
        del at.there.batches[2]
        found = await at.locate()
        assert (found.offset, found.proven) == (11, True)
        assert found.identity.epoch == 2
        # One that is not compacted on any side does not lose a batch like that.
        at.partition.terms = Terms()
        reason, detail = await at.halts()
        assert reason == "not_a_copy"
        assert "the source has a record at offset 6, and the destination nothing" in detail


async def test_a_marker_where_the_source_has_a_record() -> None:
    """Also on a compacted topic, behind a gap and behind one that is right."""
    async with scene() as at:
        await copied(at, 2)
        hole(at, 1)
        at.source.store("t", 0, written(7))
        at.there.store(marker_batch(8, at.owner, 1))
        at.there.store(marker_batch(9, at.owner, 1))
        at.source.store("t", 0, written(10))
        reason, detail = await at.halts()
        assert reason == "overfilled"
        assert "the source has a record at offset 7, and the destination a marker" in detail


async def test_what_cannot_be_opened_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too large, damaged or of a codec without a library: an earlier batch is looked at, and else it is told."""
    monkeypatch.setattr("mirror.records.content.opening.MOST_OPENED", 10)
    async with scene() as at:
        await copied(at, 2)
        at.there.batches[1] = cleaned(at.there.batches[1], [record(4)])
        assert (await at.locate()).proven
        at.there.batches[0] = cleaned(at.there.batches[0], [record(1)])
        assert not (await at.locate()).proven
        assert "more than 10 bytes of records" in at.log.of("prefix_unproven")[0]["detail"]


# Mutations.


async def test_without_survivors_a_cleaned_copy_halts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes alone are compared."""
    monkeypatch.setattr(survivors, "cleaned", lambda header: False)
    async with scene() as at:
        await copied(at, 2)
        at.there.batches[1] = cleaned(at.there.batches[1], [record(4)])
        assert (await at.halts())[0] == "not_a_copy"


async def test_without_looking_at_its_records_anything_is_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleaned batch is taken for a copy if its offsets fit."""

    async def any_common(*_: object) -> Common:
        return Common(1, 0)

    monkeypatch.setattr(survivors, "in_common", any_common)
    async with scene() as at:
        await copied(at, 2)
        at.there.batches[1] = cleaned(at.there.batches[1], [record(5, value=b"other")])
        assert (await at.locate()).proven


async def test_without_markers_a_gap_is_overfilled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is no data is a marker."""

    async def always(*_: object) -> bool:
        return True

    monkeypatch.setattr(tails.Markers, "within", always)
    async with scene() as at:
        await copied(at, 3)
        hole(at, 2)
        del at.there.batches[2]
        assert (await at.halts())[0] == "overfilled"


def test_the_copies_are_the_flow_s() -> None:
    """What the scenes clean is what a mirror writes."""
    (copy,) = copies([written(0)], cluster_id="c")
    again = BatchHeader.read(cleaned(copy, [record(1)]))
    assert again.producer_id == BatchHeader.read(copy).producer_id
    assert again.record_count == 1


@pytest.mark.parametrize("asked", [True, False])
async def test_a_marker_before_a_batch_that_nothing_can_be_compared_with(asked: bool) -> None:
    """
    1. A marker of ours stands where the source has a record. The batch behind it is a copy of one that the source has
       compacted away; the one before is the source's.
    2. What proves the copy is that one: behind it, no marker may be in a record's place.
    """
    async with scene() as at:
        await copied(at, 1)
        at.source.store("t", 0, written(SIZE), marker_batch(3 * SIZE, 7, 0))
        for offset in range(SIZE, 2 * SIZE):
            at.there.store(marker_batch(offset, at.owner, 1))
        (copy,) = copies([written(2 * SIZE)], cluster_id=at.source.cluster_id, epoch=2)
        assert at.there.produce(copy) == (0, 2 * SIZE)
        usual = compare.Comparison.prove

        async def unasked(*of: Any) -> Proof:
            return (await usual(*of))._replace(upto=None)

        with patch.object(compare.Comparison, "prove", usual if asked else unasked):
            if asked:
                assert await at.halts() == ("overfilled", ANY)
            else:
                assert (await at.locate()).offset == 3 * SIZE
