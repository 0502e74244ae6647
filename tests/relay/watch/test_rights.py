"""Partitions that halted for want of a right go on once brokers say that it is there. Real brokers:
``tests/service/runs/test_rights``."""

from collections.abc import Collection
from typing import Any
from unittest.mock import patch

import pytest

from mirror.net.cluster import Cluster
from mirror.net.errors import Unreachable
from mirror.relay.watch import rights
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import some_turns, until
from tests.relay.stage.flows import Flow, batches, clusters, fill, mirroring

OFTEN: dict[str, Any] = {"selects": lambda name: name == "t", "refresh_topics_interval_ms": 20}
READ, WRITE, ALTER, CLUSTER_ACTION, DESCRIBE = 3, 4, 7, 9, 8


class Brokers:
    """What they say that the mirror may do. ``told``: None if they do not say."""

    def __init__(self, told: Collection[int] | None = ()) -> None:
        self.told = told
        self.asked = 0
        self.silent = False

    async def of_topics(self, cluster: Cluster, names: list[str]) -> dict[str, Collection[int] | None]:
        self.asked += 1
        if self.silent:
            raise Unreachable("they do not answer")
        return dict.fromkeys(names, self.told)

    async def of_cluster(self, cluster: Cluster) -> Collection[int] | None:
        self.asked += 1
        return self.told


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    found = Brokers()
    monkeypatch.setattr(rights, "_of_topics", found.of_topics)
    monkeypatch.setattr(rights, "_of_cluster", found.of_cluster)
    return found


async def withdrawn(flow: Flow, cluster: FakeCluster, request: str, reason: str = "authorization", **more: int) -> None:
    """The next request is refused: the partition halts. More is written at the source."""
    await flow.copied(("t", 0))
    code = more.get("code", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    cluster.next(request, faults.refuse(code, only=None if more else ("t", 0)))
    flow.source.store("t", 0, *batches(2, first=flow.source.log("t").end))
    assert await flow.halted() == reason


async def looked(flow: Flow, brokers: Brokers) -> None:
    """Some looks for topics have passed."""
    asked = brokers.asked
    await until(lambda: brokers.asked > asked + 3)


@pytest.mark.parametrize(("side", "right"), [("source", READ), ("destination", WRITE)])
async def test_it_comes_back(brokers: Brokers, side: str, right: int) -> None:
    """
    1. A right is withdrawn: the partition halts, and the right is named. It stays halted, without a line, while brokers
       say that the right is not there.
    2. It is there: the partition goes on.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, **OFTEN) as flow:
            brokers.told = {DESCRIBE}
            cluster = source if side == "source" else destination
            await withdrawn(flow, cluster, "Fetch" if side == "source" else "Produce")
            halted = flow.partition().halted
            assert halted is not None
            assert f"{'Read' if side == 'source' else 'Write'} on topic t of cluster {side}" in halted.remedy
            lines = len(flow.log.lines)
            await looked(flow, brokers)
            assert [line.event for line in flow.log.lines[lines:]] == []
            brokers.told = {DESCRIBE, right}
            await flow.copied(("t", 0))
            assert flow.log.of("healed")


async def test_it_is_said_to_be_there_and_refused(brokers: Brokers) -> None:
    """It is tried once, and then again only after a long time: or once it is seen to be gone, and there again."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, **OFTEN) as flow:
            brokers.told = {WRITE}
            await flow.copied(("t", 0))
            for _ in range(40):
                destination.next("Produce", faults.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED, only=("t", 0)))
            source.store("t", 0, *batches(2, first=source.log("t").end))
            await until(lambda: len(flow.log.of("halted")) == 2)
            await looked(flow, brokers)
            assert len(flow.log.of("halted")) == 2
            brokers.told = ()
            await looked(flow, brokers)
            brokers.told = {WRITE}
            await until(lambda: len(flow.log.of("halted")) == 3)
            with patch.object(rights, "TRY_EVERY_S", 0.0):
                await until(lambda: len(flow.log.of("halted")) == 5)


async def test_brokers_do_not_say(brokers: Brokers) -> None:
    """Before Kafka 2.3, and for what they never say: it is tried after a long time."""
    brokers.told = None
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, **OFTEN) as flow:
            await withdrawn(flow, destination, "Produce")
            await looked(flow, brokers)
            assert not flow.log.of("healed")
            with patch.object(rights, "TRY_EVERY_S", 0.0):
                await until(lambda: flow.log.of("healed"))
            await flow.copied(("t", 0))


async def test_no_answer_is_no_answer_that_leaves_it_open(brokers: Brokers) -> None:
    """Brokers that do not answer now, and say later that the right is there: the partition goes on at once, and not
    after a long time."""
    brokers.silent = True
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, **OFTEN) as flow:
            await withdrawn(flow, destination, "Produce")
            await looked(flow, brokers)
            assert not flow.log.of("healed")
            brokers.silent, brokers.told = False, {WRITE}
            await until(lambda: flow.log.of("healed"))
            await flow.copied(("t", 0))


async def test_a_right_to_the_cluster(brokers: Brokers) -> None:
    """Markers: either of two rights will do."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, **OFTEN) as flow:
            await flow.copied(("t", 0))
            destination.next("WriteTxnMarkers", faults.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
            end = source.log("t").end
            source.topics["t"].configs["cleanup.policy"] = "compact"
            source.store("t", 0, *batches(2, first=end + 3))
            assert await flow.halted() == "fill_not_permitted"
            halted = flow.partition().halted
            assert halted is not None
            assert halted.detail.endswith("lacks Alter on cluster destination: grant it")
            await looked(flow, brokers)
            assert not flow.log.of("healed")
            brokers.told = {CLUSTER_ACTION}
            await until(lambda: flow.partition().queue.acknowledged == source.log("t").end)


async def test_nothing_is_asked_for_nothing(brokers: Brokers) -> None:
    """Without such a halt, no request is made."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, **OFTEN) as flow:
            await flow.copied(("t", 0))
            await some_turns(50)
            assert brokers.asked == 0
