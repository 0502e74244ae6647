"""Which topics are paired, how the destination's are made, and what is refused before a byte is sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import pytest

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.rights import DESCRIBE_CONFIGS, TOPIC, Right
from mirror.offsetmap.fields import id_shown
from mirror.records.header import Codec
from mirror.relay.topics import creating
from mirror.relay.topics.copies import KnownCopies
from mirror.relay.topics.creating import CREATE_TRIES
from mirror.relay.topics.describing import Unread
from mirror.relay.topics.pairing import Pair, pair_topics
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.fakes.state import MemoryState
from tests.relay.stage.flows import Log, clusters, settings

SYNCED = ("cleanup.policy", "retention.ms", "max.message.bytes", "segment.bytes")
FIXED = {"compression.type": "producer", "message.timestamp.type": "CreateTime"}


@asynccontextmanager
async def pairing(**told: Any) -> AsyncIterator[tuple[FakeCluster, FakeCluster, Any]]:
    """Both clusters, and what pairs them: settings -> topic -> pair."""
    async with clusters(**told) as (source, destination):

        async def pair(*, log: Log | None = None, **changes: Any) -> dict[str, Pair]:
            async with (
                await Cluster.open("source", source.options()) as here,
                await Cluster.open("destination", destination.options()) as there,
            ):
                flow = settings(synced_configs=SYNCED, **changes)
                pairs = await pair_topics(here, there, flow, log or Log(), copies=KnownCopies(there, MemoryState([])))
                return {each.source.name: each for each in pairs}

        yield source, destination, pair


def reason(pair: Pair, index: int = 0) -> str | None:
    halted = pair.halt_of(index)
    assert halted is None or halted.remedy
    return halted.reason if halted else None


# Which.


async def test_what_is_mirrored() -> None:
    """What the flow selects, in order; internal topics never, whatever the flow says."""
    async with pairing() as (source, _, pair):
        for name in ("b", "a", "no"):
            source.add_topic(name)
        source.add_topic("__consumer_offsets", internal=True)
        assert list(await pair(selects=lambda name: name != "no")) == ["a", "b"]
        assert await pair(selects=lambda name: False) == {}


LONG = "t" * 249


@pytest.mark.parametrize(
    ("name", "into", "why"),
    [
        (LONG, f"west.{LONG}", "of 254 characters, is no name of a topic"),
        ("a", "__consumer_offsets", "belong to Kafka or to the mirror"),
        ("a", "mirror-internal.source_to_destination", "belong to Kafka or to the mirror"),
        ("a", "..", "is no name of a topic"),
        ("a", "", "is no name of a topic"),
    ],
)
async def test_a_name_that_nothing_may_be_copied_into(name: str, into: str, why: str) -> None:
    """A prefix or a rename has made it: the topic halts by itself, and nobody is asked to create that one."""
    async with pairing() as (source, destination, pair):
        source.add_topic(name)
        source.add_topic("b")
        found = await pair(destination_of=lambda each: into if each == name else each)
        assert reason(found[name]) == "invalid_topic"
        halted = found[name].halted
        assert halted is not None
        assert why in halted.detail
        assert reason(found["b"]) is None
        assert [each.name for seen in destination.seen("CreateTopics") for each in seen.request.topics] == ["b"]


async def test_a_topic_that_is_told_with_an_error() -> None:
    """
    1. A new topic of the source has no leaders yet, and is told with an error: asked for again.
    2. If that goes on, the others are mirrored all the same.
    """
    async with pairing() as (source, _, pair):
        source.add_topic("a")
        source.add_topic("b")

        def leaderless(answer: Any) -> None:
            answer.topics[0].error_code = ErrorCode.LEADER_NOT_AVAILABLE
            answer.topics[0].partitions = []

        source.next("Metadata", faults.Fault())
        source.next("Metadata", faults.alter(leaderless))
        assert list(await pair()) == ["a", "b"]
        source.topics["a"].error = ErrorCode.LEADER_NOT_AVAILABLE
        assert list(await pair()) == ["b"]


# Creating.


async def test_created_like_the_source() -> None:
    """
    1. The partition count, and the settings made on the source topic that are synced; not its defaults.
    2. What keeps the destination from rewriting batches, whatever the source has. Its batch limit, also by default.
    """
    async with pairing() as (source, destination, pair):
        source.add_topic(
            "t", partitions=5, configs={"retention.ms": "1000", "compression.type": "gzip", "min.insync.replicas": "2"}
        )
        found = (await pair(replication_factor=1))["t"]
        assert reason(found) is None
        assert found.partitions_there == 5
        assert found.terms.max_batch_size == 1_048_588
        made = destination.topics["t"]
        assert len(made.logs) == 5
        assert made.configs == {"retention.ms": "1000", "max.message.bytes": "1048588"} | FIXED
        (seen,) = destination.seen("CreateTopics")
        assert seen.request.topics[0].replication_factor == 1
        assert not seen.request.validate_only


@pytest.mark.parametrize(("version", "expected"), [(4, -1), (3, 2)])
async def test_the_default_replication_factor(version: int, expected: int) -> None:
    """-1 is the broker's to resolve since KIP-464; before, as many as there are brokers, at most three."""
    async with pairing(brokers=2, there={"CreateTopics": (2, version)}) as (source, destination, pair):
        source.add_topic("t")
        await pair()
        assert destination.seen("CreateTopics")[0].request.topics[0].replication_factor == expected


async def test_a_source_partition_without_a_leader_counts() -> None:
    """The topic is made with all of the source's partitions, also while one of them has no leader."""
    async with pairing(brokers=2) as (source, destination, pair):
        source.add_topic("t", partitions=4)
        await source.stop(2)
        found = (await pair())["t"]
        assert len(destination.topics["t"].logs) == 4
        assert sorted(found.source.leaders) == [0, 1, 2, 3]


async def test_a_destination_partition_without_a_leader_counts() -> None:
    """It is not said to have fewer partitions."""
    async with pairing(brokers=2) as (source, destination, pair):
        source.add_topic("t", partitions=4)
        destination.add_topic("t", partitions=4)
        await destination.stop(2)
        assert reason((await pair())["t"], 3) is None


async def test_not_created_if_the_flow_says_so() -> None:
    async with pairing() as (source, destination, pair):
        source.add_topic("t")
        found = (await pair(create_topics=False))["t"]
        assert reason(found) == "topic_missing"
        assert "t" in str(found.halt_of(0))
        assert destination.topics == {}


async def test_some_are_there_and_some_are_not() -> None:
    """Only what lacks is made; what is there stays as it is."""
    async with pairing() as (source, destination, pair):
        source.add_topic("old", partitions=2, configs={"retention.ms": "1"})
        source.add_topic("new")
        destination.add_topic("old", partitions=3)
        found = await pair()
        assert {name: reason(each) for name, each in found.items()} == {"old": None, "new": None}
        assert found["old"].partitions_there == 3
        assert [topic.name for topic in destination.seen("CreateTopics")[0].request.topics] == ["new"]
        assert destination.topics["old"].configs == {}


async def test_creation_is_refused() -> None:
    """For good: that topic halts with the broker's words; the others are mirrored."""
    async with pairing() as (source, destination, pair):
        source.add_topic("a")
        source.add_topic("b")
        destination.add_topic("b")
        destination.next("CreateTopics", faults.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        found = await pair()
        assert reason(found["a"]) == "create_failed"
        assert "TOPIC_AUTHORIZATION_FAILED (29), as scripted" in str(found["a"].halt_of(0))
        assert reason(found["b"]) is None


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, 89])
async def test_creation_fails_for_now(code: int) -> None:
    """
    1. A controller that moves or is busy is no reason to halt for good: asked again.
    2. If it goes on so, it is an error for the caller.
    """
    async with pairing() as (source, destination, pair):
        for name in "ab":
            source.add_topic(name)
        destination.next("CreateTopics", faults.refuse(code))
        assert [reason(each) for each in (await pair()).values()] == [None, None]
        destination.topics.clear()
        for _ in range(CREATE_TRIES):
            destination.next("CreateTopics", faults.refuse(code))
        with pytest.raises(NetworkError, match="cannot create a at destination"):
            await pair()


async def test_somebody_else_creates_it_first() -> None:
    async with pairing() as (source, destination, pair):
        source.add_topic("t")
        destination.next("CreateTopics", faults.refuse(ErrorCode.TOPIC_ALREADY_EXISTS))
        destination.add_topic("t")
        destination.topics["t"].error = ErrorCode.LEADER_NOT_AVAILABLE

        async def settle() -> None:
            await until(lambda: destination.seen("CreateTopics"))
            destination.topics["t"].error = 0

        settling = asyncio.create_task(settle())
        assert reason((await pair())["t"]) is None
        await settling


async def test_new_topics_without_leaders_at_first() -> None:
    """Metadata lag behind creation: waited for."""
    async with pairing(brokers=2) as (source, destination, pair):
        source.add_topic("t", partitions=2)

        def leaderless(answer: Any) -> None:
            answer.topics[0].error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer.topics[0].partitions = []

        for fault in (faults.Fault(), faults.Fault(), faults.alter(leaderless)):
            destination.next("Metadata", fault)
        assert reason((await pair())["t"], 1) is None


async def test_what_is_created_is_told() -> None:
    """Once, with its id, as the destination then has it; not what is there, nor what somebody else creates first."""
    async with pairing() as (source, destination, pair):
        for name in ("new", "there", "race"):
            source.add_topic(name, partitions=3)
        destination.add_topic("there", partitions=3)
        log = Log()
        destination.next("CreateTopics", faults.alter(_exists_already))
        await pair(log=log)
        (line,) = log.of("topic_created")
        made = destination.topics["new"].topic_id
        assert made is not None
        assert (line["topic"], line["partitions"], line["topic_id"]) == ("new", 3, id_shown(made.bytes))
        await pair(log=log)
        assert len(log.of("topic_created")) == 1
        del destination.topics["new"]
        await pair(log=log)
        assert [each["topic"] for each in log.of("topic_created")] == ["new", "new"]


def _exists_already(answer: Any) -> None:
    for each in answer.topics:
        if each.name == "race":
            each.error_code = ErrorCode.TOPIC_ALREADY_EXISTS


# Refused before a byte is sent.


async def test_fewer_partitions() -> None:
    """Those that are there are mirrored; the others say why not: none may be added, or it was refused."""
    async with pairing() as (source, destination, pair):
        source.add_topic("t", partitions=3)
        destination.add_topic("t", partitions=2)
        for changes in ({"create_topics": False}, {"mapped": True}):
            found = (await pair(**changes))["t"]
            assert [reason(found, index) for index in range(3)] == [None, None, "fewer_partitions"]
            assert str(found.halt_of(2)).count("t-2: the destination has 2 partitions, the source has 3") == 1
        destination.next("CreatePartitions", faults.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        found = (await pair())["t"]
        assert [reason(found, index) for index in range(3)] == [None, None, "fewer_partitions"]
        assert "adding them was refused: TOPIC_AUTHORIZATION_FAILED (29), as scripted" in str(found.halt_of(2))
        assert len(destination.topics["t"].logs) == 2


async def test_partitions_are_added() -> None:
    """As many as the source has; never more, and what another worker has added meanwhile is no failure."""
    async with pairing() as (source, destination, pair):
        source.add_topic("t", partitions=5)
        source.add_topic("wide", partitions=1)
        destination.add_topic("t", partitions=2)
        destination.add_topic("wide", partitions=3)
        log = Log()
        found = await pair(log=log)
        assert [reason(found["t"], index) for index in range(5)] == [None] * 5
        (line,) = log.of("partitions_added")
        assert (line["topic"], line["partitions"]) == ("t", 5)
        assert len(destination.topics["wide"].logs) == 3
        (seen,) = destination.seen("CreatePartitions")
        assert [(topic.name, topic.count) for topic in seen.request.topics] == [("t", 5)]

        def quicker(answer: Any) -> None:
            answer.results[0].error_code = ErrorCode.INVALID_PARTITIONS

        source.topics["t"].logs[5] = type(source.topics["t"].logs[0])(leader=1)
        destination.next("CreatePartitions", faults.alter(quicker))
        assert reason((await pair())["t"], 5) is None


async def test_before_kafka_1_0_nobody_can_add_partitions() -> None:
    async with pairing(there={"CreatePartitions": (9, 9)}) as (source, destination, pair):
        source.add_topic("t", partitions=2)
        destination.add_topic("t")
        assert "adding them was refused: " in str((await pair())["t"].halt_of(1))


async def test_many_partitions_are_created_in_pieces() -> None:
    """And in halves where a controller finds a piece too large; what is refused alone is what a policy forbids."""
    async with pairing() as (source, destination, pair):
        for number in range(8):
            source.add_topic(f"t{number}", partitions=3)
        with patch.object(creating, "MOST_AT_ONCE", 12):

            def policy(answer: Any) -> None:
                many = len(answer.topics) > 2
                for each in answer.topics:
                    if many or each.name == "t5":
                        each.error_code = ErrorCode.POLICY_VIOLATION
                        destination.topics.pop(each.name, None)

            for _ in range(20):
                destination.next("CreateTopics", faults.alter(policy))
            found = await pair()
        assert {name: reason(each) for name, each in found.items() if reason(each)} == {"t5": "create_failed"}
        sizes = [len(seen.request.topics) for seen in destination.seen("CreateTopics")]
        assert sizes[0] == 4
        assert max(sizes) == 4
        assert sizes.count(2) >= 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compression.type", "zstd"),
        ("compression.type", "uncompressed"),
        ("message.timestamp.type", "LogAppendTime"),
    ],
)
async def test_a_destination_that_rewrites(name: str, value: str) -> None:
    async with pairing() as (source, destination, pair):
        source.add_topic("t")
        destination.add_topic("t", configs={name: value})
        found = (await pair())["t"]
        assert reason(found) == "destination_rewrites"
        assert f"t: {name}={value}" in str(found.halt_of(0))


@pytest.mark.parametrize(
    ("wanted", "value", "codec"),
    [
        ("zstd", "zstd", Codec.ZSTD), ("zstd", "producer", Codec.ZSTD), ("none", "uncompressed", Codec.NONE),
        ("zstd", "gzip", None), ("none", "zstd", None), ("gzip", "uncompressed", None),
    ],
)  # fmt: skip
async def test_a_codec_on_purpose(wanted: str, value: str, codec: Codec | None) -> None:
    """The topic's own may be the flow's: then its broker has nothing to do."""
    async with pairing() as (source, destination, pair):
        source.add_topic("t")
        destination.add_topic("t", configs={"compression.type": value})
        found = (await pair(compression=wanted, rewrites=True))["t"]
        assert reason(found) == ("destination_rewrites" if codec is None else None)
        assert codec is None or found.terms.codec is codec


async def test_the_destination_s_batch_limit() -> None:
    async with pairing() as (source, destination, pair):
        source.add_topic("t")
        destination.add_topic("t", configs={"max.message.bytes": "2000"})
        assert (await pair())["t"].terms.max_batch_size == 2_000


async def test_settings_that_may_not_be_read() -> None:
    """Without DescribeConfigs the brokers judge for themselves."""
    async with pairing() as (source, destination, pair):
        source.add_topic("t")
        destination.add_topic("t", configs={"compression.type": "zstd"})
        destination.next("DescribeConfigs", faults.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        found = (await pair())["t"]
        assert reason(found) is None
        assert found.terms.max_batch_size is None
        assert found.unread == (Right(DESCRIBE_CONFIGS, TOPIC, "t", "destination"),)
        assert (await pair())["t"].unread == ()


async def test_a_topic_is_not_created_without_its_settings() -> None:
    """It would get Kafka's defaults, such as cleanup.policy=delete for a compacted one."""
    async with pairing() as (source, destination, pair):
        source.add_topic("t", configs={"cleanup.policy": "compact"})
        source.next("DescribeConfigs", faults.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        found = (await pair())["t"]
        assert reason(found) == "create_failed"
        halted = found.halt_of(0)
        assert halted is not None
        assert "lacks DescribeConfigs on topic t of cluster source" in halted.detail
        assert "Grant the mirror's principal DescribeConfigs on topic t of cluster source" in halted.remedy
        assert "t" not in destination.topics
        assert reason((await pair())["t"]) is None


def test_unread_settings_are_told_once() -> None:
    """All of one cluster in a line; again once they were readable meanwhile."""
    log = Log()
    unread = Unread(log, "source")
    rights = [Right(DESCRIBE_CONFIGS, TOPIC, f"t{at}", "destination") for at in range(7)]
    here = Right(DESCRIBE_CONFIGS, TOPIC, "s", "source")
    for _ in range(2):
        unread.tell([*rights, here])
    lines = log.of("configs_unknown")
    assert [line["cluster"] for line in lines] == ["destination", "source"]
    assert "t0, t1, t2, t3, t4 and 2 more at cluster destination" in lines[0]["detail"]
    assert "a gap in one halts its partition" in lines[1]["detail"]
    unread.tell(rights[1:])
    unread.tell(rights)
    assert "of t0 at cluster destination" in log.of("configs_unknown")[-1]["detail"]
