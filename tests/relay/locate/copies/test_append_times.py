"""Copies into which the destination's broker has put the time of their append: compared by all else."""

from typing import Any

import pytest

from mirror.records.admit import Terms
from mirror.records.content.rewriting import rewrite
from mirror.records.header import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, Codec
from tests.records.builders import Record, kafka_batch, sealed
from tests.records.cleaner import TIME, cleaned, record, written
from tests.relay.stage.flows import copies
from tests.relay.stage.scenes import Scene, scene
from tests.simulation.model.broker import stamped

APPENDED = TIME + 99_000
TAKES: dict[str, Any] = {"takes_append_times": True, "rewrites": True}


def begin(at: Scene, *source: bytes, stamp: bool = True, **terms: Any) -> None:
    """These are at the source, and copied; the broker has stamped the copies, or not."""
    at.partition.terms = Terms(**TAKES | terms)
    at.copy([*source])
    if stamp:
        at.there.batches[:] = [stamped(one, APPENDED + number) for number, one in enumerate(at.there.batches)]


@pytest.mark.parametrize("config", [False, True])
@pytest.mark.parametrize("codec", Codec)
async def test_the_same_but_for_the_time(codec: Codec, config: bool) -> None:
    """Whatever the topic's config is by now: the batch says itself that it has been stamped."""
    async with scene() as at:
        begin(at, written(0, codec), written(3, codec), append_times_there=config)
        found = await at.locate()
        assert (found.offset, found.proven) == (6, True)


@pytest.mark.parametrize("which", [0, 1])
async def test_each_is_judged_by_itself(which: int) -> None:
    """The config was changed between the two, in either direction."""
    async with scene() as at:
        begin(at, written(0), written(3), stamp=False, append_times_there=True)
        at.there.batches[which] = stamped(at.there.batches[which], APPENDED)
        found = await at.locate()
        assert (found.offset, found.proven) == (6, True)


async def test_where_it_is_not_allowed() -> None:
    """It is another batch, and the halt says what would take it."""
    async with scene() as at:
        begin(at, written(0), takes_append_times=False)
        reason, detail = await at.halts()
        assert reason == "not_a_copy"
        assert "the time of its append into its own; with destination.timestamps: append" in detail


@pytest.mark.parametrize("what", ["value", "time", "base timestamp", "max timestamp"])
async def test_all_else_has_to_be_the_same(what: str) -> None:
    """Records with other bytes, also if these are but other times; and without the mark, the max timestamp counts."""
    async with scene() as at:
        begin(at, written(0))
        (one,) = at.there.batches
        header = BatchHeader.read(one)
        records = [Record(each, TIME + each, b"key %d" % each, b"value %d" % each) for each in range(3)]
        if what == "value":
            records[1] = records[1]._replace(value=b"VALUE 1")
        elif what == "time":
            records[1] = records[1]._replace(timestamp=TIME + 2)
        other = kafka_batch(records, codec=Codec.ZSTD)
        mine = BatchHeader.read(other)
        header = header._replace(length=mine.length, base_timestamp=mine.base_timestamp)
        if what == "base timestamp":
            header = header._replace(base_timestamp=TIME - 1)
        elif what == "max timestamp":
            header = header._replace(attributes=header.attributes & ~LOG_APPEND_TIME)
        at.there.batches[0] = sealed(header.pack() + other[HEADER_SIZE:])
        assert (await at.halts())[0] == "not_a_copy"


async def test_pieces() -> None:
    large = kafka_batch([Record(each, TIME + each, b"key", b"value %d" % each * 9) for each in range(6)], base_offset=3)
    async with scene() as at:
        begin(at, written(0))
        at.source.store("t", 0, large)
        made = list(rewrite(BatchHeader.read(large), large[HEADER_SIZE:], most_size=len(large) // 2))
        pieces = copies([header.pack() + rest for header, rest in made], cluster_id=at.source.cluster_id, sequence=3)
        for one in pieces[:-1]:
            assert at.there.produce(one, append_time=APPENDED)[0] == 0
        found = await at.locate()
        assert (found.offset, found.proven, found.inside) == (made[-1].header.base_offset, True, 3)


@pytest.mark.parametrize("same", [True, False])
async def test_times_of_the_source_s_append(same: bool) -> None:
    """Both brokers put their times in. The records carry those of the source, although nobody sees them any more."""
    async with scene() as at:
        appended = [stamped(written(0), TIME + each) for each in (500, 501)]
        begin(at, append_times=True)
        at.source.store("t", 0, appended[0])
        ((header, records),) = rewrite(BatchHeader.read(appended[not same]), appended[not same][HEADER_SIZE:])
        (one,) = copies([header.pack() + records], cluster_id=at.source.cluster_id)
        assert at.there.produce(one, append_time=APPENDED)[0] == 0
        if same:
            assert (await at.locate()).proven
        else:
            assert (await at.halts())[0] == "not_a_copy"


@pytest.mark.parametrize("horizon", [False, True])
@pytest.mark.parametrize("side", ["destination", "both"])
async def test_a_cleaner_has_left_the_time_of_the_append_only(side: str, horizon: bool) -> None:
    """It writes what it leaves with the time that consumers see: all else of the records is compared."""
    async with scene() as at:
        begin(at, written(0), compacted=True, compacted_there=True)
        left = [record(each, timestamp=APPENDED) for each in (1, 2)]
        at.there.batches[0] = stamped(cleaned(at.there.batches[0], left, horizon=horizon), APPENDED)
        if side == "both":
            at.here.batches[0] = cleaned(at.here.batches[0], [record(2)])
        found = await at.locate()
        assert (found.offset, found.proven) == (3, True)


@pytest.mark.parametrize("changes", [{"value": b"other"}, {"key": b"other"}])
async def test_a_cleaned_record_that_differs(changes: dict[str, Any]) -> None:
    async with scene() as at:
        begin(at, written(0), compacted=True, compacted_there=True)
        left = [record(2, timestamp=APPENDED)._replace(**changes)]
        at.there.batches[0] = stamped(cleaned(at.there.batches[0], left), APPENDED)
        assert (await at.halts())[0] == "not_a_copy"


async def test_a_batch_that_stands_elsewhere_at_the_source() -> None:
    """No checksum covers base offsets: it must not pass for another one."""
    async with scene() as at:
        begin(at, written(0), written(3))
        header = BatchHeader.read(at.here.batches[1])
        at.here.batches[1] = sealed(header._replace(base_offset=4).pack() + at.here.batches[1][HEADER_SIZE:])
        at.source.store("t", 0, written(7))
        assert (await at.halts())[0] == "corrupt"
