"""``offsets=mapped``: what a task finds of its flow's batches where the first row's time does not lead to."""

import asyncio
from collections.abc import Sequence

import pytest

from mirror.spark.write import mapped
from mirror.spark.write.errors import SinkError
from mirror.spark.write.options import SinkOptions
from mirror.spark.write.rows import Row
from mirror.spark.write.task import Written, write_rows
from mirror.wire.errors import ErrorCode
from tests.fakes.broker import FakeCluster
from tests.fakes.faults import refuse
from tests.legacy.samples import messages_of, records_from
from tests.records.builders import Record, kafka_batch, raw_batch
from tests.spark.rows import arrow, row

TIME_MS = 1_700_000_000_000


def falling(count: int, *, first: int = 0) -> list[Row]:
    """Batches of three records, each with an earlier time than the one before it."""
    return [
        row(
            "t",
            0,
            kafka_batch(
                [Record(each, TIME_MS - 10 * number, b"k", f"{number}".encode()) for each in range(3)],
                base_offset=3 * number,
            ),
        )
        for number in range(first, first + count)
    ]


async def write(destination: FakeCluster, rows: Sequence[Row]) -> Written:
    host, port = destination.options().bootstrap[0]
    sink = SinkOptions.read({"kafka.bootstrap.servers": f"{host}:{port}", "flow": "copy"})
    return await asyncio.to_thread(write_rows, sink, [arrow(rows)])


@pytest.mark.parametrize("others", [0, 1, 30])
async def test_rows_before_those_that_were_written(others: int) -> None:
    """
    1. The flow has written source offsets 3 to 14. Then others write.
    2. A row comes from before. Its time is later than all in the log, so that nothing is found where it leads to.
    3. It is refused, as all rows before those that were written. Mutation: it is appended, behind later ones.
    """
    rows = falling(5)
    async with FakeCluster("destination") as destination:
        destination.add_topic("t")
        await write(destination, rows[1:])
        destination.log("t").producers.clear()  # brokers forget those of old records
        for _ in range(others):
            destination.store("t", 0, raw_batch(b"x" * 50, base_offset=destination.log("t").end, max_timestamp=TIME_MS))
        with pytest.raises(SinkError, match=r"^behind: t-0 does not have source offset 0, and has 12 at 9"):
            await write(destination, rows)
        assert len(destination.log("t").batches) == 4 + others


async def test_rows_that_retention_has_taken() -> None:
    """A later batch of their run is left, so they were there. Those behind are appended."""
    rows = falling(12)
    async with FakeCluster("destination") as destination:
        destination.add_topic("t")
        await write(destination, rows[:10])
        destination.log("t").delete_before(27)
        destination.log("t").producers.clear()
        done = await write(destination, rows)
        assert (done.appended, done.there) == (2, 10)
        assert len(destination.log("t").batches) == 1 + 2


async def test_later_rows_are_appended() -> None:
    """Behind what stands there, be it of others: a message of an old format is older than all that a flow writes. Its
    newest batch is looked for once."""
    rows = falling(9)
    async with FakeCluster("destination") as destination:
        destination.add_topic("t")
        destination.store("t", 0, messages_of(1, records_from(0, 1)), raw_batch(b"x", base_offset=1))
        for upto in (3, 6, 9):
            destination.requests.clear()
            destination.next("Produce", refuse(ErrorCode.NOT_ENOUGH_REPLICAS))
            assert (await write(destination, rows[upto - 3 : upto])).appended == 3
            read = [seen.request.topics[0].partitions[0].fetch_offset for seen in destination.seen("Fetch")]
            assert len(read) == len(set(read))
        assert (await write(destination, rows)).there == 9


@pytest.mark.parametrize(("most", "found"), [(3_000, False), (10_000, True)])
async def test_others_may_have_written_too_much(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, most: int, found: bool
) -> None:
    """Not more than so many bytes are looked at, and no more at a time than would be too much. It is said what was not:
    rows that stand there may be written once more. Mutation: not a word."""
    monkeypatch.setattr(mapped, "MOST_BACK_BYTES", most)
    monkeypatch.setattr(mapped, "AT_ONCE_BYTES", 1_000)
    rows = falling(5)
    async with FakeCluster("destination") as destination:
        destination.add_topic("t")
        await write(destination, rows[1:])
        destination.log("t").producers.clear()
        for _ in range(40):
            base = destination.log("t").end
            destination.store("t", 0, raw_batch(b"x" * 50, base_offset=base, max_timestamp=TIME_MS - 1_000))
        if found:
            with pytest.raises(SinkError, match=r"^behind: "):
                await write(destination, rows)
        else:
            assert (await write(destination, rows[:1])).appended == 1
    said = [one.getMessage() for one in caplog.records if "not_all_was_looked_at" in one.getMessage()]
    assert len(said) == (not found)
    assert all("t-0: none of the flow's batches stands in the last " in one for one in said)
    assert all("offsets 0 to " in one and "rows that stand there are appended once more" in one for one in said)
