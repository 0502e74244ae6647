"""``offsets=exact`` and the daemon: each goes on where the other one stopped."""

import asyncio

import pytest

from mirror.spark.write.errors import SinkError
from mirror.spark.write.options import SinkOptions
from mirror.spark.write.task import write_rows
from tests.fakes.broker import FakeCluster
from tests.relay.stage.flows import FLOW, batches, clusters, fill, mirroring
from tests.spark.rows import arrow, row


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
