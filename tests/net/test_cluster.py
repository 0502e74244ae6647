"""A cluster as a client sees it: found, refreshed, hinted at, lost and found again."""

import asyncio
import re
import socket
from dataclasses import replace
from unittest.mock import patch

import pytest
from kafka.protocol.metadata import MetadataRequest

from mirror.net import connect
from mirror.net.cluster import Cluster
from mirror.net.errors import (
    ConnectionLost,
    NetworkError,
    Refused,
    RequestTimedOut,
    Unreachable,
    Unsupported,
)
from mirror.net.health import unreached
from mirror.net.options import ClusterOptions, ConnectionOptions, Use
from mirror.wire.errors import ErrorCode
from mirror.wire.fetch import Node
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.net.stage.sockets import deaf


def free_port() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


# Finding it.


async def test_open() -> None:
    async with FakeCluster(brokers=2) as fake, await Cluster.open("source", fake.options()) as cluster:
        assert cluster.cluster_id == fake.cluster_id
        assert cluster.controller_id == 1
        assert cluster.nodes == {
            node_id: Node(node_id, "127.0.0.1", broker.port) for node_id, broker in fake.brokers.items()
        }
        assert cluster.topics == {}


async def test_the_second_bootstrap_address() -> None:
    async with FakeCluster() as fake:
        options = ClusterOptions(bootstrap=(("127.0.0.1", free_port()), ("127.0.0.1", fake.brokers[1].port)))
        async with await Cluster.open("source", options) as cluster:
            assert cluster.cluster_id == fake.cluster_id


async def test_unreachable() -> None:
    """The message has the cluster, each address with its own reason, and what to do."""
    ports = [free_port(), free_port()]
    options = ClusterOptions(bootstrap=tuple(("127.0.0.1", port) for port in ports))
    with pytest.raises(Unreachable) as caught:
        await Cluster.open("source", options)
    assert str(caught.value) == (
        f"cannot reach cluster source: source bootstrap 127.0.0.1:{ports[0]}: Connection refused; "
        f"source bootstrap 127.0.0.1:{ports[1]}: Connection refused; "
        "check bootstrap.servers and that its brokers listen there"
    )


def refused(code: int) -> faults.Fault:
    """A Metadata answer that is an error as a whole, as v13 and later may be."""

    def refuse(answer: object) -> None:
        answer.error_code = code  # type: ignore[attr-defined]
        answer.brokers = []  # type: ignore[attr-defined]

    return faults.alter(refuse)


async def test_metadata_refused() -> None:
    """The whole request is refused: nothing of the answer is believed."""
    async with FakeCluster() as fake, await Cluster.open("source", fake.options()) as cluster:
        fake.next("Metadata", refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        with pytest.raises(Refused, match="cluster source: Metadata: CLUSTER_AUTHORIZATION_FAILED"):
            await cluster.refresh([])
        assert cluster.nodes


async def test_a_broker_asks_to_begin_with_the_bootstrap_servers_again() -> None:
    """
    1. REBOOTSTRAP_REQUIRED (KIP-1102) by broker 2: no connection made before is used on, also none of a user's own, and
       the first bootstrap server is asked. That it happened is counted.
    2. If that says the same, it is an error; the next refresh begins anew.
    """
    async with FakeCluster(brokers=2) as fake, await Cluster.open("source", fake.options()) as cluster:
        used = [await cluster.control(2), await cluster.control(1, use=Use.WRITING), await cluster.dial(1)]
        cluster._control[-1].close()
        fake.next("Metadata", refused(ErrorCode.REBOOTSTRAP_REQUIRED), node_id=2)
        before = len(fake.requests)
        await cluster.refresh([])
        assert all("as the bootstrap servers are asked again" in str(each.closed) for each in used)
        asked = [seen for seen in fake.requests[before:] if seen.name == "Metadata"]
        assert [seen.node_id for seen in asked] == [2, 1]
        assert cluster.errors["Metadata", "rebootstrap_required"] == 1
        assert set(cluster.nodes) == {1, 2}
        for _ in range(2):
            fake.next("Metadata", refused(ErrorCode.REBOOTSTRAP_REQUIRED))
        with pytest.raises(Refused, match=r"REBOOTSTRAP_REQUIRED \(129\)"):
            await cluster.refresh([])
        await cluster.refresh([])


async def test_all_that_ask_at_once_begin_anew_once() -> None:
    """Several refreshes hear REBOOTSTRAP_REQUIRED of one connection: one new one is made, and serves all."""
    async with FakeCluster() as fake, await Cluster.open("source", fake.options()) as cluster:
        for _ in range(5):
            fake.next("Metadata", refused(ErrorCode.REBOOTSTRAP_REQUIRED))
        await asyncio.gather(*(cluster.refresh([]) for _ in range(5)))
        assert len({seen.connection for seen in fake.seen("Metadata")}) == 2


async def test_brokers_have_moved() -> None:
    """
    1. A cluster's brokers move to other ports, and the bootstrap address leads there: found again.
    2. They move again, and another cluster's broker takes a port that one of them had. It is asked first, and is not
       taken for ours: the bootstrap address is asked.
    """
    bootstrap = free_port()
    async with FakeCluster("ours", brokers=2) as fake, FakeCluster("theirs") as theirs:
        await fake.stop(1)
        fake.brokers[1].port = bootstrap
        await fake.start(1)
        async with await Cluster.open("source", ClusterOptions(bootstrap=(("127.0.0.1", bootstrap),))) as cluster:
            await fake.stop(2)
            fake.brokers[2].port = free_port()
            await fake.start(2)
            with pytest.raises(NetworkError):
                await cluster.control(2)
            await cluster.refresh([])
            await cluster.control(2)
            cluster.nodes[2] = Node(2, "127.0.0.1", theirs.brokers[1].port)
            for connection in cluster._control.values():
                connection.close()
            cluster.nodes.pop(1)
            await cluster.refresh([])
            assert cluster.nodes[2].port == fake.brokers[2].port
            assert cluster.cluster_id == fake.cluster_id


async def test_known_brokers_that_hang_do_not_keep_the_bootstrap_servers_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All known brokers have left their addresses, where nothing answers or refuses now: each of them would be waited
    for. The bootstrap server is asked beside them."""
    monkeypatch.setattr(connect, "NEXT_AFTER_S", 0.02)
    with deaf() as port:
        async with FakeCluster() as fake, await Cluster.open("source", fake.options()) as cluster:
            cluster.nodes = {node_id: Node(node_id, "127.0.0.1", port) for node_id in (1, 2, 3)}
            cluster._control[-1].close()
            await cluster.refresh([])
            assert cluster.nodes[1].port == fake.brokers[1].port


async def test_addresses_in_messages() -> None:
    """One of IPv6 has brackets."""
    port = free_port()
    with pytest.raises(Unreachable, match=rf"source bootstrap \[::1\]:{port}: Connection refused"):
        await Cluster.open("source", ClusterOptions(bootstrap=(("::1", port),)))


# Connections.


async def test_one_control_connection_per_broker() -> None:
    """However many ask at once, each broker is dialled once; calls are pipelined on it."""
    async with FakeCluster(brokers=2) as fake, await Cluster.open("source", fake.options()) as cluster:
        connections = await asyncio.gather(*(cluster.control(node_id) for node_id in (1, 2) * 5))
        assert len(set(connections)) == 2
        requests = [MetadataRequest(topics=[], allow_auto_topic_creation=False) for _ in range(6)]
        await asyncio.gather(*(cluster.call(request, node_id=2) for request in requests))
        at_two = {seen.connection for seen in fake.seen("Metadata") if seen.node_id == 2}
        assert len(at_two) == 1


async def test_one_bootstrap_connection() -> None:
    """Several that ask for any broker, when none is known, share one connection: none is left behind."""
    async with FakeCluster() as fake:
        cluster = Cluster("source", fake.options())
        await asyncio.gather(*(cluster.refresh([]) for _ in range(5)))
        assert len({seen.connection for seen in fake.requests}) == 1
        await cluster.close()


async def test_an_attempt_that_is_called_off_before_it_begins() -> None:
    """Whoever waits for it hears that it was; whoever asks next gets a connection."""
    async with FakeCluster(brokers=2) as fake, await Cluster.open("source", fake.options()) as cluster:
        asking = asyncio.create_task(cluster.control(2))
        await asyncio.sleep(0)  # it has asked for the attempt, which has not begun
        cluster._disconnect()
        with pytest.raises(ConnectionLost, match="cluster source: closed"):
            await asking
        assert not (await cluster.control(2)).closed


@pytest.mark.parametrize("ways", ["several addresses", "a rebootstrap beside it"])
async def test_bootstraps_at_the_same_moment(monkeypatch: pytest.MonkeyPatch, ways: str) -> None:
    """One connection is kept, whoever made it, and everybody has it. None is left when the cluster is closed."""
    monkeypatch.setattr(connect, "NEXT_AFTER_S", 0.0)
    async with FakeCluster() as fake:
        address = ("127.0.0.1", fake.brokers[1].port)
        several = ways == "several addresses"
        cluster = Cluster("source", ClusterOptions(bootstrap=(address,) * (5 if several else 1)))
        asked = (
            [cluster.control_of_any()] if several else [cluster.control_of_any(), cluster._connection_by_bootstrap()]
        )
        found = await asyncio.gather(*asked)
        assert {id(each) for each in found} == {id(cluster._control[-1])}
        assert [each for each in cluster._open if not each.closed] == [cluster._control[-1]]
        assert not found[0].closed
        await cluster.close()
        await until(lambda: not fake.brokers[1].writers)


async def test_the_control_connection_is_opened_again() -> None:
    """
    1. A broker breaks its connections: the call under way fails with what is known of it.
    2. The next call has a new connection.
    """
    async with FakeCluster() as fake, await Cluster.open("source", fake.options()) as cluster:
        first = await cluster.control(1)
        fake.next("Metadata", faults.disconnect(), node_id=1)
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        with pytest.raises(ConnectionLost):
            await cluster.call(request, node_id=1)
        await cluster.call(request, node_id=1)
        assert await cluster.control(1) is not first


async def test_when_brokers_go_the_others_are_asked() -> None:
    """
    1. The broker of the bootstrap connection stops: another one that the metadata named is asked.
    2. All stop: unreachable, with every address tried. One comes back at its bootstrap address: found again.
    """
    async with FakeCluster(brokers=2) as fake, await Cluster.open("source", fake.options()) as cluster:
        await fake.stop(1)
        with pytest.raises(NetworkError):
            await cluster.refresh([])
        await cluster.refresh([])
        assert set(cluster.nodes) == {2}
        await fake.stop(2)
        with pytest.raises(NetworkError):
            await cluster.refresh([])
        with pytest.raises(Unreachable) as caught:
            await cluster.refresh([])
        for broker in fake.brokers.values():
            assert f"127.0.0.1:{broker.port}: Connection refused" in str(caught.value)
        await fake.start(1)
        await cluster.refresh([])
        assert set(cluster.nodes) == {1}


async def test_a_broker_that_cannot_be_reached_is_named() -> None:
    """
    1. Named as soon as one attempt has failed, with the cause; as long as attempts go on failing.
    2. Not any more once a connection was had, once it is no part of the cluster, or once nobody has tried for long.
    """
    async with FakeCluster(brokers=2) as fake, await Cluster.open("source", fake.options()) as cluster:
        fake.unnoticed = True
        name = f"source broker 2 at 127.0.0.1:{fake.brokers[2].port}"
        await fake.stop(2)
        with pytest.raises(NetworkError):
            await cluster.control(2)
        assert cluster.unreached.now == {name: "Connection refused"}
        with patch.object(unreached, "FRESH_S", 0.0):
            assert cluster.unreached.now == {}
        await fake.start(2)
        await cluster.control(2)
        assert cluster.unreached.now == {}
        await fake.stop(2)
        await until(lambda: cluster._control[2].closed is not None)
        with pytest.raises(NetworkError):
            await cluster.control(2)
        await cluster.refresh([])
        assert cluster.unreached.now == {name: "Connection refused"}
        fake.unnoticed = False
        await cluster.refresh([])
        assert cluster.unreached.now == {}


async def test_a_broker_that_is_not_in_the_metadata() -> None:
    async with FakeCluster() as fake, await Cluster.open("source", fake.options()) as cluster:
        with pytest.raises(Unreachable, match="broker 9 is not in the metadata of cluster source"):
            await cluster.control(9)


async def test_open_gives_up_in_time() -> None:
    """A broker that accepts and does not answer Metadata: the error, and no connection left."""
    async with FakeCluster() as fake:
        options = fake.options(connection=ConnectionOptions(request_timeout_s=0.05))
        fake.next("Metadata", faults.silence())
        with pytest.raises(RequestTimedOut):
            await Cluster.open("source", options)


# What fails is counted.


async def test_failed_requests_are_counted() -> None:
    """An error code, wherever it stands in the answer; a connection that ends; one that is not to be had."""
    async with FakeCluster() as fake, await Cluster.open("source", fake.options()) as cluster:
        assert not cluster.errors
        fake.add_topic("t")
        await cluster.refresh(["t", "u"])
        assert cluster.errors == {("Metadata", "unknown_topic_or_partition"): 1}
        fake.next("Metadata", faults.disconnect())
        with pytest.raises(ConnectionLost):
            await cluster.refresh(["t"])
        assert cluster.errors["Metadata", "connection_lost"] == 1
        await fake.stop(1)
        with pytest.raises(Unreachable):
            await cluster.refresh(["t"])
        assert cluster.errors["Connect", "connection_lost"] >= 1
        assert cluster.errors.keys() == {
            ("Metadata", "unknown_topic_or_partition"), ("Metadata", "connection_lost"), ("Connect", "connection_lost"),
        }  # fmt: skip


async def test_bytes_received() -> None:
    """On all connections, those that were closed since among them."""
    async with FakeCluster() as fake, await Cluster.open("source", fake.options()) as cluster:
        before = cluster.bytes_received
        assert before > 0
        fake.drop(1)
        with pytest.raises(ConnectionLost):
            await cluster.refresh([])
        assert cluster.bytes_received == before
        await cluster.refresh([])
        assert cluster.bytes_received > before


# Brokers that are too old.


@pytest.mark.parametrize(("api", "most", "needed", "since"), [("Fetch", 2, 3, "0.10.1"), ("Produce", 2, 3, "0.11")])
async def test_a_broker_that_is_too_old(api: str, most: int, needed: int, since: str) -> None:
    """It is called that at the first connection; waiting for it makes no sense, unless another broker may be newer."""
    async with FakeCluster(versions={api: (0, most)}) as fake:
        told = f"the broker is from before Kafka {since} ({api} up to version {most}, and {needed} is needed)"
        expected = re.escape(told)
        with pytest.raises(Unsupported, match=expected):
            await Cluster.open("source", fake.options())
        options = fake.options()
        nobody = replace(options, bootstrap=(*options.bootstrap, ("127.0.0.1", free_port())))
        with pytest.raises(Unreachable, match=expected):
            await Cluster.open("source", nobody)


async def test_where_nothing_is_produced_an_older_broker_will_do() -> None:
    """A source of Kafka 0.10 takes no batches of magic 2, and need not."""
    async with FakeCluster(versions={"Produce": (0, 2)}) as fake:
        options = fake.options(connection=ConnectionOptions(reads_only=True))
        async with await Cluster.open("source", options):
            pass


async def test_a_broker_that_is_too_old_and_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule taken away: whatever request is first fails, if any does."""
    monkeypatch.setattr("mirror.net.connect._refuse_old", lambda _: None)
    async with FakeCluster(versions={"Produce": (0, 2)}) as fake, await Cluster.open("source", fake.options()):
        pass
