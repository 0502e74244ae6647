"""One range, at a scripted cluster: each kind of answer, and each kind of silence."""

import asyncio
import logging
from typing import Any

import pytest

from mirror.raw.errors import NotAuthorized, OffsetOutOfRange, TopicRecreated, Unavailable, UnreadableLog
from mirror.records.header import Codec
from mirror.spark.read import fetching, tasks
from mirror.spark.read.fetching import Fetcher
from mirror.spark.read.ranges import OffsetRange
from mirror.spark.read.tasks import EMPTY_ANSWERS, UNREADABLE_TRIES, RangeReading, read_ranges
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.legacy.samples import records_from, wrapper_of
from tests.net.logs.test_reading import flipped
from tests.records.builders import raw_batch
from tests.simulation.model.broker import marker_batch
from tests.spark.read.stage import bases, batches, of, rows, scripted

PID = 7


async def test_all_of_it() -> None:
    """Whatever a response brings."""
    stored = batches(*range(0, 50, 5))
    async with scripted(*stored) as fake:
        for size in ("1024", "8MiB"):
            found = await rows(fake, 0, 50, kafka_fetch_max_bytes=size)
            assert [row["batch"] for row in found] == stored
        assert len(fake.seen("Fetch")) > 2


async def test_no_more_than_two_responses_are_held() -> None:
    """The next one is asked for while one is copied; none is kept."""
    async with scripted(*batches(*range(0, 200, 5))) as fake:
        given = of(fake, kafka_fetch_max_bytes="1024")
        async with await Fetcher.open(given.settings) as fetcher:
            pool = fetcher._pool
            async for _ in RangeReading(fetcher, given, OffsetRange("t", 0, 0, 200, True)).rows():
                assert pool.used <= pool.frame_size
            await RangeReading(fetcher, given, OffsetRange("t", 0, 7, 8)).base_of(7)
            assert pool.used == 0


async def test_a_topic_without_an_id() -> None:
    async with scripted(*batches(0)) as fake:
        fake.topics["t"].topic_id = None
        assert await bases(fake, 0, 5) == [0]


async def test_ranges_that_touch() -> None:
    async with scripted(*batches(0, 5, 10, 15)) as fake:
        assert await bases(fake, 0, 7) == [0, 5]
        assert await bases(fake, 7, 20, first=False) == [10, 15]
        assert await bases(fake, 7, 20) == [5, 10, 15]


async def test_several_ranges_of_one_task() -> None:
    async with scripted(*batches(0, 5)) as fake:
        fake.add_topic("u")
        fake.store("u", 0, *batches(0))
        ranges = [OffsetRange("t", 0, 0, 10, True), OffsetRange("u", 0, 0, 5, True)]
        found = await asyncio.to_thread(lambda: list(read_ranges(of(fake), ranges)))
        assert [(row["topic"], row["base_offset"]) for batch in found for row in batch.to_pylist()] == [
            ("t", 0), ("t", 5), ("u", 0),
        ]  # fmt: skip


async def test_a_task_that_is_given_up_closes_its_connections() -> None:
    """As with limit(): Spark takes no more rows."""
    async with scripted(*batches(*range(0, 500, 5))) as fake:

        def some() -> None:
            given = of(fake, kafka_fetch_max_bytes="1024")
            reading = read_ranges(given, [OffsetRange("t", 0, 0, 250), OffsetRange("t", 0, 250, 500)])
            assert next(reading).num_rows
            reading.close()  # type: ignore[attr-defined]

        await asyncio.to_thread(some)
        while any(broker.writers for broker in fake.brokers.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


# -- trouble ---


async def test_a_cluster_that_is_away_when_a_task_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than the planning of a query would wait."""
    monkeypatch.setattr(fetching, "OPEN_FOR_S", 0.0)
    async with scripted(*batches(0)) as fake:
        given = of(fake)
        await fake.stop(1)

        def read() -> list[int]:
            found = read_ranges(given, [OffsetRange("t", 0, 0, 5, True)])
            return [base for batch in found for base in batch.column("base_offset").to_pylist()]

        reading = asyncio.ensure_future(asyncio.to_thread(read))
        await asyncio.sleep(0.3)
        assert not reading.done()
        await fake.start(1)
        assert await reading == [0]


async def test_lost_connections_and_moved_leaders() -> None:
    """1. Each Fetch brings one batch; after the first, the connection is cut in the middle of an answer.
    2. Then another broker leads, and the first one says so; then an error that passes.
    3. Each batch comes once, in order.
    """
    async with scripted(*batches(*range(0, 50, 5)), brokers=2) as fake:
        fake.next("Fetch", faults.nothing())
        fake.next("Fetch", faults.disconnect(after_bytes=20))
        given = of(fake, kafka_fetch_max_bytes="1024")
        async with await Fetcher.open(given.settings) as fetcher:
            found = []
            moved = False
            async for batch in RangeReading(fetcher, given, OffsetRange("t", 0, 0, 50, True)).rows():
                found += batch.column("base_offset").to_pylist()
                if not moved:
                    moved = True
                    fake.lead("t", 0, 2)
                    fake.next("Fetch", faults.refuse(ErrorCode.UNKNOWN_SERVER_ERROR), node_id=2)
        assert found == list(range(0, 50, 5))
        assert {seen.node_id for seen in fake.seen("Fetch")} == {1, 2}


async def test_a_throttled_reader_waits() -> None:
    async with scripted(*batches(0)) as fake:
        fake.next("Fetch", faults.throttle(200))
        assert await bases(fake, 0, 5) == [0]


async def test_no_right() -> None:
    async with scripted(*batches(0)) as fake:
        fake.next("Fetch", faults.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        with pytest.raises(NotAuthorized, match="grant the principal Read on topic t"):
            await bases(fake, 0, 5)


async def test_a_broker_that_cannot_read_its_log() -> None:
    async with scripted(*batches(0)) as fake:
        for _ in range(UNREADABLE_TRIES + 1):
            fake.next("Fetch", faults.refuse(ErrorCode.CORRUPT_MESSAGE))
        with pytest.raises(UnreadableLog, match="t-0 at offset 0: the broker cannot read its log"):
            await bases(fake, 0, 5)


async def test_no_leader_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "PATIENCE_S", 0.3)
    async with scripted(*batches(0), brokers=2) as fake:
        fake.lead("t", 0, 2)
        await fake.stop(2)
        with pytest.raises(Unavailable, match="t-0 has no leader"):
            await bases(fake, 0, 5)


async def test_a_topic_that_was_created_again() -> None:
    async with scripted(*batches(0)) as fake:
        with pytest.raises(TopicRecreated, match="created again while it was read"):
            await rows(fake, 0, 5, topic_id="0" * 32)


async def test_a_damaged_log() -> None:
    stored = batches(0, 5, 10)
    async with scripted(stored[0], flipped(stored[1], 70), stored[2]) as fake:
        assert [row["crc_ok"] for row in await rows(fake, 0, 15)] == [True, False, True]
    async with scripted(stored[0], flipped(stored[1], 8, 0x80), stored[2]) as fake:
        with pytest.raises(UnreadableLog, match="t-0 at offset 5: the log is damaged"):
            await rows(fake, 0, 15)


@pytest.mark.parametrize("size", ["1024", "8MiB"])
@pytest.mark.parametrize(
    "sizes", [(100, 900, 100), (100, 100, 900), (100, 100, 100), (900, 900, 900), (2_000, 100, 100)]
)
@pytest.mark.parametrize("claimed", [4, 9, 14, 19, 24])
async def test_a_damaged_last_offset_hides_nothing(size: str, sizes: tuple[int, ...], claimed: int) -> None:
    """Each batch comes once, or the task fails and names the offset, also where a broker answers with the damaged batch
    alone. Up to where the damaged batch really ends, its own range has it."""
    stored = [raw_batch(b"p" * 50, base_offset=0)]
    stored += [raw_batch(b"p" * part, base_offset=5 * at + 5) for at, part in enumerate(sizes)]
    stored[1] = stored[1][:23] + claimed.to_bytes(4, "big") + stored[1][27:]
    async with scripted(*stored) as fake:
        for end in (12, 17, 20):
            wanted = [each for at, each in enumerate(stored) if 5 * at < end]
            try:
                found = [row["batch"] for row in await rows(fake, 0, end, kafka_fetch_max_bytes=size)]
            except UnreadableLog as error:
                assert "t-0 at offset " in str(error)  # noqa: PT017
            else:
                assert found == wanted


async def test_a_damaged_batch_that_ends_a_segment() -> None:
    """1. A Fetch brings batches of one segment only: here, the damaged one alone.
    2. What it claims to have, another one has: that is an error.
    """
    stored = batches(0, 5, 10)
    damaged = raw_batch(b"p" * 50, base_offset=0)
    damaged = damaged[:23] + (7).to_bytes(4, "big") + damaged[27:]

    def alone(answer: Any) -> None:
        for partition in answer.responses[0].partitions:
            partition.records = damaged

    for log, told in (([damaged, *stored[1:]], "nothing shows where it ends"), ([flipped(stored[0], 70)], "")):
        async with scripted(*log) as fake:
            if told:
                for _ in range(2):
                    fake.next("Fetch", faults.alter(alone))

                def segment(answer: Any) -> None:
                    for partition in answer.responses[0].partitions:
                        partition.records = b"".join(stored[1:])

                fake.next("Fetch", faults.alter(segment))
                with pytest.raises(UnreadableLog, match=told):
                    await rows(fake, 0, 15)
            else:
                assert len(await rows(fake, 0, 5)) == 1


# -- what is not there ---


async def test_records_that_are_gone(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted(*batches(0, 5, 10)) as fake:
        fake.log("t").delete_before(10)
        told = r"t-0: offsets 3 to 9 are gone: the log begins at 10 \(by retention"
        with pytest.raises(OffsetOutOfRange, match=told):
            await bases(fake, 3, 15)
        with caplog.at_level(logging.WARNING, "mirror.spark"):
            assert await bases(fake, 3, 15, failOnDataLoss="false") == [10]
            assert await bases(fake, 3, 8, failOnDataLoss="false") == []
        assert "offsets 3 to 9 are gone" in caplog.text
        assert "failOnDataLoss is false" in caplog.text


async def test_a_log_that_begins_inside_of_the_batch_that_is_due() -> None:
    """DeleteRecords: the batch is still whole, so nothing is lost. The range before has had it."""
    async with scripted(*batches(0, 5, 10)) as fake:
        fake.log("t").delete_before(7)
        assert await bases(fake, 5, 15, first=False) == [5, 10]
        assert await bases(fake, 6, 15, first=False) == [10]
        assert await bases(fake, 6, 15) == [5, 10]


async def test_a_log_that_begins_inside_of_the_next_batch_by_now() -> None:
    """
    1. A range is being read: its first batch has come, and the second one is due.
    2. DeleteRecords makes the log begin inside of that one. It is still whole, and comes.
    3. Mutation: the batch that has the log's start was read before.
    """
    for start, begins_in in ((0, 7), (0, 5), (5, 12)):
        async with scripted(*(raw_batch(b"p" * 2_000, base_offset=base) for base in (0, 5, 10, 15))) as fake:

            def deleted(_: Any, fake: FakeCluster = fake, at: int = begins_in) -> None:
                fake.log("t").delete_before(at)

            fake.next("Fetch", faults.alter(deleted))
            assert await bases(fake, start, 20, kafka_fetch_max_bytes="1024") == list(range(start, 20, 5))


async def test_a_log_that_has_lost_its_end(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted(*batches(0)) as fake:
        with pytest.raises(OffsetOutOfRange, match="t-0: offsets 7 to 9 are not there: the log ends at 5"):
            await bases(fake, 7, 10)
        assert await bases(fake, 7, 10, failOnDataLoss="false") == []


async def test_what_compaction_has_left() -> None:
    async with scripted(*batches(5, 20)) as fake:
        assert await bases(fake, 0, 25) == [5, 20]
        fake.log("t").end = 40
        assert await bases(fake, 0, 40) == [5, 20], "a log cleaner has taken the rest"


async def test_a_broker_that_does_not_show_what_it_has() -> None:
    """1. It answers with nothing where it has batches, time and again.
    2. The last one it does show: then some are missing, and that is an error.
    """
    async with scripted(*batches(0, 5)) as fake:
        for _ in range(EMPTY_ANSWERS):
            fake.next("Fetch", faults.nothing())
        with pytest.raises(UnreadableLog, match="shows nothing, and has a batch with offset 9"):
            await bases(fake, 0, 10)


async def test_a_new_leader_that_does_not_know_the_end_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted(*batches(0, 5)) as fake:
        log = fake.log("t")
        log.hidden = 5

        async def later() -> None:
            await asyncio.sleep(0.2)
            log.hidden = 0

        _, found = await asyncio.gather(later(), bases(fake, 0, 10))
        assert found == [0, 5]
        log.hidden = 5
        monkeypatch.setattr(tasks, "PATIENCE_S", 0.2)
        with pytest.raises(Unavailable, match="shows its log up to offset 5 only"):
            await bases(fake, 0, 10)


# -- transactions ---


async def test_isolation() -> None:
    """Uncommitted, all of the log; committed, no markers, nothing aborted, and damaged batches all the same."""
    aborted, committed = (
        batches(base, attributes=0x10, producer_id=PID, producer_epoch=0, base_sequence=0)[0] for base in (0, 6)
    )
    markers = [marker_batch(5, PID, 0, leader_epoch=0, coordinator_epoch=0), *batches(12)]
    damaged = flipped(raw_batch(b"p" * 9, base_offset=20, attributes=0x30, producer_id=PID), 65)
    async with scripted(aborted, markers[0], committed, markers[1], damaged) as fake:
        fake.log("t").aborted.append((PID, 0))
        everything = await rows(fake, 0, 25)
        assert [(row["base_offset"], row["is_transactional"], row["is_control"]) for row in everything] == [
            (0, True, False), (5, True, True), (6, True, False), (12, False, False), (20, True, True),
        ]  # fmt: skip
        assert await bases(fake, 0, 25, kafka_isolation_level="read_committed") == [6, 12, 20]


async def test_old_formats() -> None:
    wrapper = wrapper_of(1, Codec.GZIP, records_from(0, 4))
    async with scripted(wrapper) as fake:
        fake.log("t").end = 4
        (row,) = await rows(fake, 0, 4)
        assert (row["base_offset"], row["magic"], row["batch"]) == (3, 1, wrapper)
