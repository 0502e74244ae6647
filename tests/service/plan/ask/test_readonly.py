"""Nothing can be changed through the clusters of a plan, whatever the code does that judges."""

from typing import Any

import pytest
from kafka.protocol import admin, consumer, metadata, producer

from mirror.net.errors import RequestTimedOut, Unreachable
from mirror.net.options import Use
from mirror.offsetmap.entries.pins import FlowEntry
from mirror.relay.leading.cleanup import Cleanup
from mirror.service.plan.ask.readonly import ReadOnlyCluster, ReadOnlyState, Untouched, WouldLead, only_asks
from mirror.wire.versions import FETCH_KEY, PRODUCE_KEY
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import pytest_pyfunc_call  # noqa: F401 - a hook

READS = {"Describe", "List", "OffsetFetch", "OffsetForLeaderEpoch", "Metadata", "ApiVersions"}


def requests() -> list[Any]:
    """Every request that kafka.protocol has."""
    modules = (admin, consumer, metadata, producer)
    found = {getattr(one, name) for one in modules for name in dir(one) if name.endswith("Request")}
    return sorted((each for each in found if hasattr(each, "API_KEY")), key=lambda each: str(each.__name__))


@pytest.mark.parametrize("kind", requests(), ids=lambda kind: str(kind.__name__))
def test_each_request(kind: Any) -> None:
    """What changes something is refused, and so is FindCoordinator, which has brokers create topics of their own."""
    name = kind.__name__.removesuffix("Request")
    if name in ("CreateTopics", "CreatePartitions"):
        assert only_asks(kind.API_KEY, kind(validate_only=True))
        assert not only_asks(kind.API_KEY, kind(validate_only=False))
    elif name == "Metadata":
        assert only_asks(kind.API_KEY, kind(allow_auto_topic_creation=False))
        assert not only_asks(kind.API_KEY, kind(allow_auto_topic_creation=True))
    elif only_asks(kind.API_KEY, kind()):
        assert name == "Fetch" or any(name.startswith(each) for each in READS), name


@pytest.mark.parametrize(
    "name",
    ["FindCoordinator", "InitProducerId", "WriteTxnMarkers", "AddPartitionsToTxn", "EndTxn", "Produce", "JoinGroup",
     "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "DeleteRecords", "DeleteTopics", "DeleteGroups",
     "AlterConfigs", "IncrementalAlterConfigs", "CreateAcls"],
)  # fmt: skip
def test_what_is_refused(name: str) -> None:
    modules = (admin, consumer, metadata, producer)
    kind = next(getattr(one, f"{name}Request") for one in modules if hasattr(one, f"{name}Request"))
    assert not only_asks(kind.API_KEY, kind())


def test_requests_that_are_framed_here() -> None:
    assert only_asks(FETCH_KEY, None)
    assert not only_asks(PRODUCE_KEY, None)
    assert not only_asks(admin.CreateTopicsRequest.API_KEY, None)


async def opened(fake: FakeCluster) -> ReadOnlyCluster:
    return await ReadOnlyCluster.open("fake", fake.options())


async def test_on_a_connection() -> None:
    """A request that would change something does not leave this process."""
    async with FakeCluster() as fake:
        fake.add_topic("t")
        async with await opened(fake) as cluster:
            seen = len(fake.requests)
            for use in Use:
                with pytest.raises(AssertionError, match="would change something"):
                    await cluster.call(admin.CreateTopicsRequest(topics=[], timeout_ms=1), node_id=1, use=use)
            connection = await cluster.control(1)
            with pytest.raises(AssertionError, match="would change something"):
                await connection.ask(PRODUCE_KEY, 3, b"", flexible=False)
            assert not {each.name for each in fake.requests[seen:]} & {"CreateTopics", "Produce"}


async def test_a_broker_that_is_down_is_asked_once() -> None:
    async with FakeCluster(brokers=2) as fake, await opened(fake) as cluster:
        connection = await cluster.control(2)
        connection.close(RequestTimedOut("fake broker 2: no answer"))
        assert cluster.down == {2: "fake broker 2: no answer"}
        with pytest.raises(Unreachable, match="no answer"):
            await cluster.control(2)
        await cluster.control(1)


async def test_the_internal_topic() -> None:
    """It is neither created nor written; one that is not there has said nothing."""
    async with FakeCluster() as fake, await opened(fake) as cluster:
        state = ReadOnlyState(cluster, "a->b")
        assert not await state.open()
        flow = FlowEntry(flow="a->b", source_cluster="a", destination_cluster="b")
        await state.load()
        await state.put(flow)
        await state.save([flow], forget=[b"x"])
        await state.claim(flow)
        assert not state.ledger.flows
        assert list(fake.topics) == []


async def test_cleanup_is_left_alone() -> None:
    cleanup: Cleanup = Untouched()
    with pytest.raises(WouldLead):
        cleanup.suspended()
    assert not await cleanup.suspend_again()
    await cleanup.finish()
