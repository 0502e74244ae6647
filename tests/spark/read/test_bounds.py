"""What a query is to read, by what brokers say."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mirror.net.logs.leader_requests import LATEST
from mirror.raw.errors import InvalidConfig, NoOffset, NotAuthorized, OffsetOutOfRange, Unavailable, UnknownTopic
from mirror.raw.model import TopicPartition
from mirror.spark.read import bounds as module
from mirror.spark.read import fetching
from mirror.spark.read.bounds import Bounds
from mirror.spark.read.fetching import Fetcher
from mirror.spark.read.ranges import OffsetRange
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.records.builders import raw_batch
from tests.spark.read.stage import batches, of, options, scripted

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@asynccontextmanager
async def asking(fake: FakeCluster, streaming: bool = False, /, **given: str) -> AsyncIterator[Bounds]:
    found = of(fake, streaming, **given)
    async with await Fetcher.open(found.settings) as fetcher:
        yield Bounds(fetcher, found)


# -- partitions ---


async def test_partitions() -> None:
    async with scripted(partitions=2) as fake:
        fake.add_topic("u")
        fake.add_topic("hidden", internal=True)
        for given, wanted in (
            ({"subscribe": "u,t"}, [("u", 0), ("t", 0), ("t", 1)]),
            ({"subscribePattern": "."}, [("t", 0), ("t", 1), ("u", 0)]),
            ({"subscribePattern": ".*"}, [("t", 0), ("t", 1), ("u", 0)]),
            ({"assign": '{"t": [1], "u": [0]}'}, [("t", 1), ("u", 0)]),
        ):
            async with asking(fake, **given) as here:
                assert await here.partitions() == wanted


async def test_what_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirror.raw.leaders.UNKNOWN_FOR_S", 0.1)
    async with scripted() as fake:
        for given, told in (
            ({"subscribe": "nope"}, "has no topic nope; create it, or check its name"),
            ({"subscribePattern": "no.*"}, "has no topic that matches 'no.*', or shows none to this client"),
            ({"assign": '{"t": [0, 7]}'}, "t has 1 partitions, counted from 0, and no partition 7"),
        ):
            async with asking(fake, **given) as here:
                with pytest.raises(UnknownTopic, match=told):
                    await here.partitions()
        async with asking(fake, True, subscribePattern="no.*") as here:
            assert await here.partitions() == [], "a stream waits for them"


async def test_what_may_not_be_seen() -> None:
    async with scripted() as fake:
        fake.topics["t"].error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        async with asking(fake) as here:
            with pytest.raises(NotAuthorized, match="Describe on topic t"):
                await here.partitions()


async def test_a_cluster_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "OPEN_FOR_S", 0.2)
    with pytest.raises(Unavailable, match=r"cannot reach cluster 127.0.0.1:1: .* check bootstrap.servers"):
        await Fetcher.open(options().settings)


# -- offsets ---


async def test_starts_and_ends() -> None:
    async with scripted(*batches(0, 5, 10), partitions=2) as fake:
        fake.log("t").delete_before(5)
        fake.log("t").open_from = 10
        fake.store("t", 1, raw_batch(b"", base_offset=0, max_timestamp=50), raw_batch(b"", base_offset=5))
        for given, starts, ends in (
            ({}, (5, 0), (15, 10)),
            ({"startingOffsets": '{"t": {"0": 12, "1": -2}}'}, (12, 0), (15, 10)),
            ({"endingOffsets": '{"t": {"0": 7, "1": -1}}'}, (5, 0), (7, 10)),
            ({"startingTimestamp": "60"}, (5, 5), (15, 10)),
            ({"startingOffsetsByTimestamp": '{"t": {"0": 0, "1": 60}}'}, (5, 5), (15, 10)),
            ({"endingTimestamp": "60"}, (5, 0), (5, 5)),
            ({"endingTimestamp": str(1 << 50)}, (5, 0), (15, 10)),
            ({"startingTimestamp": str(1 << 50), "startingOffsetsByTimestampStrategy": "latest"}, (15, 10), (15, 10)),
        ):
            async with asking(fake, **given) as here:
                partitions = await here.partitions()
                assert await here.starts(partitions) == dict(zip((T0, T1), starts, strict=True)), given
                assert await here.ends(partitions) == dict(zip((T0, T1), ends, strict=True)), given


async def test_no_record_is_as_late() -> None:
    async with scripted(*batches(0)) as fake, asking(fake, startingTimestamp=str(1 << 50)) as here:
        with pytest.raises(NoOffset, match="startingTimestamp: t-0 has no record as late as that; take an earlier"):
            await here.starts([T0])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ('{"t": {"0": 0}}', "startingOffsets: lacks t-1; it must have exactly the partitions that are read"),
        ('{"t": {"0": 0, "1": 0, "2": 0}, "u": {"0": 0}}', "startingOffsets: has also t-2, u-0; it must"),
    ],
)
async def test_offsets_of_other_partitions(given: str, told: str) -> None:
    async with scripted(partitions=2) as fake, asking(fake, startingOffsets=given) as here:
        with pytest.raises(InvalidConfig, match=told):
            await here.starts([T0, T1])


async def test_offsets_that_the_log_does_not_have(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted(*batches(0, 5, 10)) as fake:
        fake.log("t").delete_before(5)
        for limit, told, instead in (
            ("startingOffsets", '"0": 3', 5),
            ("startingOffsets", '"0": 16', 15),
            ("endingOffsets", '"0": 16', 15),
        ):
            given = {limit: f'{{"t": {{{told}}}}}'}
            async with asking(fake, **given) as here:
                find = here.starts if limit == "startingOffsets" else here.ends
                with pytest.raises(OffsetOutOfRange, match=r"t-0: .*failOnDataLoss"):
                    await find([T0])
            with caplog.at_level(logging.WARNING, "mirror.spark"):
                async with asking(fake, failOnDataLoss="false", **given) as here:
                    find = here.starts if limit == "startingOffsets" else here.ends
                    assert await find([T0]) == {T0: instead}
        assert "offsets 3 to 4 are gone" in caplog.text
        assert "endingOffsets has offset 16, and what can be read ends at 15" in caplog.text


async def test_a_log_that_begins_inside_of_the_batch() -> None:
    """Nothing is lost: the batch is whole."""
    async with scripted(*batches(0, 5, 10)) as fake:
        fake.log("t").delete_before(7)
        async with asking(fake, startingOffsets='{"t": {"0": 6}}') as here:
            assert await here.starts([T0]) == {T0: 7}


async def test_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ASKED_AT_ONCE", 1)
    async with scripted(*batches(5, 10), partitions=2) as fake:
        fake.store("t", 1, *batches(0))
        async with asking(fake) as here:
            await here.partitions()
            for offset, wanted in ((0, 0), (3, 3), (5, 5), (9, 5), (14, 10), (15, 15)):
                assert await here.aligned({T0: offset, T1: 2}) == {T0: wanted, T1: 0}


async def test_committed_ends() -> None:
    async with scripted(*batches(0, 5)) as fake:
        fake.next("ListOffsets", faults.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        async with asking(fake, kafka_isolation_level="read_committed") as here:
            await here.partitions()
            assert await here.list_offsets([T0], LATEST) == {T0: 10}
        assert [seen.request.isolation_level for seen in fake.seen("ListOffsets")] == [1, 1]


# -- Spark partitions ---


async def test_tasks_by_bytes() -> None:
    """Of 20 batches of 111 bytes, which are 5 offsets each."""
    async with scripted(*batches(*range(0, 100, 5)), partitions=2) as fake:
        fake.store("t", 1, *batches(*range(0, 100, 5)))
        async with asking(fake, maxBytesPerPartition="1024") as here:
            ends = {at: 100 for at in await here.partitions()}
            found = await here.tasks({T0: 0, T1: 50}, ends, first=lambda at: at == T0)
        ranges = [each for task in found for each in task.ranges]
        topic_id = fake.topics["t"].topic_id
        assert topic_id is not None
        assert ranges[0] == OffsetRange("t", 0, 0, 33, True, topic_id.hex)
        assert [(each.partition, each.start, each.end, each.first) for each in ranges[1:]] == [
            (0, 33, 66, False), (0, 66, 100, False), (1, 50, 75, False), (1, 75, 100, False),
        ]  # fmt: skip
