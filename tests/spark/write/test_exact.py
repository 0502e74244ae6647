"""``offsets=exact`` and the daemon: each goes on where the other one stopped."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from mirror.records.header import BatchHeader
from mirror.spark.write.errors import SinkError
from mirror.spark.write.options import SinkOptions
from mirror.spark.write.task import write_rows
from mirror.wire.errors import ErrorCode
from tests.fakes.broker import FakeCluster
from tests.fakes.faults import refuse
from tests.records.builders import raw_batch
from tests.relay.stage.flows import FLOW, batches, clusters, fill, mirroring
from tests.spark.rows import arrow, contents, row


def options(source: FakeCluster, destination: FakeCluster, **named: str) -> SinkOptions:
    """Those of the daemon's flow; names with underscores."""
    host, port = destination.options().bootstrap[0]
    return SinkOptions.read(
        {
            "kafka.bootstrap.servers": f"{host}:{port}",
            "flow": FLOW,
            "offsets": "exact",
            "source.cluster.id": source.cluster_id,
            **{name.replace("_", "."): value for name, value in named.items()},
        }
    )


@pytest.mark.parametrize("first", ["sink", "daemon"])
async def test_one_goes_on_behind_the_other(first: str) -> None:
    async with clusters() as (source, destination):
        fill(source, count=9)
        rows = [row("t", 0, bytes(batch)) for batch in source.log("t").batches]
        sink = options(source, destination)
        destination.add_topic("t")
        if first == "sink":
            done = await asyncio.to_thread(write_rows, sink, [arrow(rows[:5])])
            assert done.appended == 5
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert flow.copied_batches == (4 if first == "sink" else 9)
        source.store("t", 0, *batches(3, first=27))
        more = [row("t", 0, bytes(batch)) for batch in source.log("t").batches]
        done = await asyncio.to_thread(write_rows, sink, [arrow(more)])
        assert (done.appended, done.there) == (3, 9)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert flow.copied_batches == 0


async def test_another_flow_is_foreign() -> None:
    async with clusters() as (source, destination):
        fill(source, count=9)
        rows = [row("t", 0, bytes(batch)) for batch in source.log("t").batches]
        destination.add_topic("t")
        await asyncio.to_thread(write_rows, options(source, destination), [arrow(rows[:5])])
        for name, value in {"flow": "other", "source_cluster_id": "other"}.items():
            with pytest.raises(SinkError, match=r"^foreign_writer: t-0: the batch at offset \d+ is of producer id"):
                await asyncio.to_thread(write_rows, options(source, destination, **{name: value}), [arrow(rows)])


async def test_a_destination_that_has_lost_its_end() -> None:
    """The task fails, and what is tried again writes what is missing."""
    async with clusters() as (source, destination):
        fill(source, count=9)
        rows = [row("t", 0, bytes(batch)) for batch in source.log("t").batches]
        destination.add_topic("t")

        def losing() -> Iterator[Any]:
            yield arrow(rows[:5])
            destination.log("t").truncate(6)
            destination.next("Produce", refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            yield arrow(rows[5:])

        for offsets in ("mapped", "exact"):
            sink = options(source, destination, offsets=offsets)
            with pytest.raises(SinkError, match=r"^lost_end: t-0 was read or written to offset 15, and ends at 6 now"):
                await asyncio.to_thread(write_rows, sink, losing())
            assert (await asyncio.to_thread(write_rows, sink, [arrow(rows)])).appended == 7
            assert contents(destination.log("t").batches) == contents(bytes(each.batch) for each in rows)
            destination.log("t").truncate(0)


def marker(offset: int) -> bytes:
    """A transaction's marker, as a broker stores it."""
    return raw_batch(b"marker", base_offset=offset, attributes=0x20, last_offset_delta=0, record_count=1)


async def test_a_marker_in_the_place_of_a_row() -> None:
    """It was there before, or it comes meanwhile."""
    async with clusters() as (source, destination):
        fill(source, count=9)
        rows = [row("t", 0, bytes(batch)) for batch in source.log("t").batches]
        destination.add_topic("t")

        def marked() -> Iterator[Any]:
            yield arrow(rows[:2])
            destination.store("t", 0, marker(6))
            yield arrow(rows[2:])

        with pytest.raises(SinkError, match=r"^misplaced: t-0: the row at offset 6 was appended at 7"):
            await asyncio.to_thread(write_rows, options(source, destination), marked())
        destination.log("t").truncate(6)
        destination.store("t", 0, marker(6), marker(7), marker(8))
        with pytest.raises(SinkError, match=r"^not_a_copy: t-0 ends at 9, and has no batch at 6"):
            await asyncio.to_thread(write_rows, options(source, destination), [arrow(rows)])


async def test_a_log_that_was_emptied() -> None:
    """Nothing but the leader's memory tells how the producer goes on."""
    async with clusters() as (source, destination):
        fill(source, count=9)
        rows = [row("t", 0, bytes(batch)) for batch in source.log("t").batches]
        destination.add_topic("t")
        sink = options(source, destination)
        await asyncio.to_thread(write_rows, sink, [arrow(rows[:4])])
        destination.log("t").delete_before(12)
        done = await asyncio.to_thread(write_rows, sink, [arrow(rows)])
        assert (done.appended, done.there) == (5, 4)
        headers = [BatchHeader.read(each) for each in destination.log("t").batches]
        assert [each.base_sequence for each in headers] == [12, 15, 18, 21, 24]
