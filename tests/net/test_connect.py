"""Opening a connection, and requests that are not hot: what each kind of peer leads to."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from mirror.net import connect as net_connect
from mirror.net.connect import connect, first_of
from mirror.net.connection import Connection
from mirror.net.errors import (
    AuthenticationFailed,
    ConnectionLost,
    NetworkError,
    Refused,
    RequestTimedOut,
    Unsupported,
)
from mirror.net.options import ConnectionOptions
from mirror.net.stream import READ_AHEAD, SIZE_ONLY
from mirror.wire.errors import ErrorCode
from mirror.wire.versions import FETCH_KEY, PRODUCE_KEY
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.net.stage.sockets import deaf

METADATA = MetadataRequest(topics=[], allow_auto_topic_creation=False)
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(talk: Talk) -> AsyncIterator[int]:
    """A server that is no Kafka broker; its port."""
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def serve() -> None:
            try:
                await talk(reader, writer)
            finally:
                writer.transport.abort()

        tasks.add(asyncio.get_running_loop().create_task(serve()))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def dial(port: int, *, options: ConnectionOptions | None = None, read_ahead: int = READ_AHEAD) -> Connection:
    return await connect(
        "127.0.0.1", port, name=f"broker at {port}", options=options or ConnectionOptions(), read_ahead=read_ahead
    )


def socket_count() -> int:
    """Sockets that this process has open."""
    import psutil

    return len(psutil.Process().net_connections(kind="inet"))


# Peers that are no brokers.


async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionLost, match=f"broker at {port}: Connection refused"):
        await dial(port)


async def test_a_name_that_does_not_resolve() -> None:
    with pytest.raises(ConnectionLost, match="b: "):
        await connect("no-such-host.invalid", 9092, name="b", options=ConnectionOptions())


async def test_a_web_server() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        await reader.read()

    before = socket_count()
    async with listening(talk) as port:
        with pytest.raises(ConnectionLost, match="malformed response, response size 1213486160"):
            await dial(port)
    assert socket_count() == before


async def test_a_server_that_hangs_up() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)

    async with listening(talk) as port:
        with pytest.raises(ConnectionLost, match=r"closed the connection|reset by peer"):
            await dial(port)


async def test_a_server_that_says_nothing() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(talk) as port:
        with pytest.raises(RequestTimedOut, match="no answer within"):
            await dial(port, options=ConnectionOptions(request_timeout_s=0.02))


async def test_a_queue_that_is_full() -> None:
    """A listener that never accepts and whose queue is full: the connection is given up in its own time."""
    with deaf() as port, pytest.raises(RequestTimedOut, match=r"no connection within 0\.05 s"):
        await dial(port, options=ConnectionOptions(setup_timeout_s=0.05))


# Names with several addresses.


Resolve = Callable[..., None]


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Resolve:
    """Lets every name resolve to these ports of 127.0.0.1, in this order, and the next attempt follow soon."""
    monkeypatch.setattr(net_connect, "NEXT_AFTER_S", 0.05)

    def to(*ports: int) -> None:
        async def getaddrinfo(*_: object, **__: object) -> list[tuple[object, ...]]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)

    return to


async def test_every_address_is_tried(resolve: Resolve) -> None:
    """Where nothing answers, where nobody listens, and where the connection is closed at once (a load balancer
    without a broker): the next address is tried. Nothing is left of the attempts in vain."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)

    with socket.create_server(("127.0.0.1", 0)) as server:
        refusing = server.getsockname()[1]
    with deaf() as silent:
        async with listening(talk) as closing, FakeCluster() as fake:
            before = socket_count()
            resolve(silent, refusing, closing, fake.brokers[1].port)
            connection = await connect("kafka", 9092, name="b", options=ConnectionOptions())
            assert connection.api_versions
            connection.close()
            await until(lambda: socket_count() == before)


async def test_no_address_answers(resolve: Resolve) -> None:
    """The message has each address with its own reason, in the order of the name's addresses."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        refusing = server.getsockname()[1]
    with deaf() as silent:
        before = socket_count()
        resolve(silent, refusing)
        options = ConnectionOptions(setup_timeout_s=0.2)
        with pytest.raises(ConnectionLost) as caught:
            await connect("kafka", 9092, name="b", options=options)
        assert str(caught.value) == "b: 127.0.0.1: no connection within 0.2 s; 127.0.0.1: Connection refused"
        resolve(silent, silent)  # the same address twice is one
        with pytest.raises(RequestTimedOut, match=r"^b: no connection within 0\.2 s$"):
            await connect("kafka", 9092, name="b", options=options)
        assert socket_count() == before


async def test_two_addresses_answer_at_the_same_moment() -> None:
    """One connection is had; the other one is given to ``spare``."""
    async with FakeCluster(brokers=2) as fake:
        made = [await dial(broker.port) for broker in fake.brokers.values()]
        ready, spared = asyncio.Event(), list[Connection]()

        async def attempt(connection: Connection) -> Connection:
            await ready.wait()
            return connection

        asyncio.get_running_loop().call_later(0.1, ready.set)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(net_connect, "NEXT_AFTER_S", 0.01)
            found, failures = await first_of([partial(attempt, each) for each in made], spare=spared.append)
        assert found is not None
        assert not failures
        assert {found, *spared} == set(made)
        for each in made:
            each.close()


async def test_a_password_that_is_refused_is_not_tried_at_every_address() -> None:
    tried = 0

    async def attempt() -> Connection:
        nonlocal tried
        tried += 1
        raise AuthenticationFailed("no")

    with pytest.raises(AuthenticationFailed):
        await first_of([attempt, attempt], spare=Connection.close, final=AuthenticationFailed)
    assert tried == 1
    assert (await first_of([attempt, attempt], spare=Connection.close))[0] is None
    assert tried == 3


async def test_given_up_while_connecting() -> None:
    """Cancelled during the negotiation: the socket is closed."""
    asked = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        asked.set()
        await reader.read()
        asked.clear()

    async with listening(talk) as port:
        dialling = asyncio.create_task(dial(port))
        await asked.wait()
        dialling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialling
        await until(lambda: not asked.is_set())


# Brokers.


@pytest.mark.parametrize("read_ahead", [SIZE_ONLY, READ_AHEAD])
async def test_versions_are_learnt(read_ahead: int) -> None:
    async with FakeCluster(versions={"Produce": (3, 8)}) as cluster:
        connection = await dial(cluster.brokers[1].port, read_ahead=read_ahead)
        assert connection.version_of(PRODUCE_KEY, (3, 13), "Produce") == 8
        assert connection.version_of(FETCH_KEY, (4, 11), "Fetch") == 11
        with pytest.raises(Unsupported, match="has versions 3 to 8 of Produce, and the mirror needs one of 9 to 13"):
            connection.version_of(PRODUCE_KEY, (9, 13), "Produce")
        with pytest.raises(Unsupported, match="has no version of"):
            connection.version_of(999, (0, 0), "Nothing")
        connection.close()


async def test_brokers_before_2_4() -> None:
    """They refuse ApiVersions v3 with code 35, and are asked again in version 0."""
    async with FakeCluster(versions={"ApiVersions": (0, 2)}) as cluster:
        connection = await dial(cluster.brokers[1].port)
        assert connection.version_of(FETCH_KEY, (4, 17), "Fetch") == 17
        connection.close()


async def test_a_broker_that_refuses() -> None:
    async with FakeCluster() as cluster:
        cluster.next("ApiVersions", faults.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        with pytest.raises(Refused, match=r"ApiVersions: CLUSTER_AUTHORIZATION_FAILED \(31\)"):
            await dial(cluster.brokers[1].port)


async def test_socket_options() -> None:
    options = ConnectionOptions(receive_buffer=32_768, send_buffer=16_384)
    async with FakeCluster() as cluster:
        connection = await dial(cluster.brokers[1].port, options=options)
        sock = connection._sock
        assert isinstance(sock, socket.socket)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * 32_768
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * 16_384
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        connection.close()


async def test_what_is_held_waits_and_a_throttle_outlives_it() -> None:
    """A session is renewed: calls wait, whoever asks waits only a moment at a time, and a throttle is not forgotten."""
    async with FakeCluster() as cluster:
        connection = await dial(cluster.brokers[1].port)
        connection.hold()
        asked = asyncio.create_task(connection.call(METADATA))
        await asyncio.sleep(0.02)
        assert not connection.in_flight
        assert 0 < connection.throttled_s < 1
        connection.throttle(60_000)
        assert connection.throttled_s < 1
        connection.go_on()
        await asyncio.sleep(0.02)
        assert not connection.in_flight
        assert connection.throttled_s > 1
        connection.throttled_until = 0.0
        assert (await asked).brokers
        connection.close()


async def test_a_throttle_that_a_call_hears_of_holds_the_next_one() -> None:
    """Until the time is over, or the connection is closed: then the call fails as any other would."""
    async with FakeCluster() as cluster:
        connection = await dial(cluster.brokers[1].port)
        cluster.next("Metadata", faults.throttle(60_000))
        assert (await connection.call(METADATA)).brokers
        assert 50 < connection.throttled_s <= 60
        asked = asyncio.create_task(connection.call(METADATA))
        await asyncio.sleep(0.02)
        assert not connection.in_flight
        connection.close()
        with pytest.raises(NetworkError):
            await asked


# Calls.


async def test_calls_in_a_row_and_at_once() -> None:
    """Each gets its own answer, in the highest common version or the one asked for."""
    async with FakeCluster(versions={"Metadata": (0, 9)}) as cluster:
        connection = await dial(cluster.brokers[1].port)
        answer = await connection.call(METADATA)
        assert answer.cluster_id == cluster.cluster_id
        requests = [MetadataRequest(topics=[], allow_auto_topic_creation=False) for _ in range(5)]
        await asyncio.gather(*(connection.call(request, version=5) for request in requests))
        assert [seen.version for seen in cluster.seen("Metadata")] == [9, 5, 5, 5, 5, 5]
        with pytest.raises(Unsupported, match="has no version of FindCoordinator,"):
            await connection.call(FindCoordinatorRequest())
        assert connection.closed is None
        connection.close()


async def test_a_call_given_up() -> None:
    """
    1. A call is cancelled while its answer is held back; a second one waits behind it.
    2. The answers come: the first is dropped, the second arrives where it belongs.
    """
    async with FakeCluster() as cluster:
        connection = await dial(cluster.brokers[1].port)
        held = cluster.next("Metadata", faults.held())
        first = asyncio.create_task(connection.call(METADATA))
        await held.came.wait()
        second = asyncio.create_task(connection.call(MetadataRequest(topics=None, allow_auto_topic_creation=False)))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        cluster.add_topic("t")
        held.open()
        assert [topic.name for topic in (await second).topics] == ["t"]
        connection.close()


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        pytest.param(faults.disconnect(9), ConnectionLost, "the broker closed", id="cut"),
        pytest.param(faults.wrong_correlation_id(), ConnectionLost, "correlation id", id="correlation id"),
        pytest.param(faults.malformed(b""), ConnectionLost, "malformed MetadataResponse", id="empty"),
        pytest.param(faults.malformed(b"\x00\xff" * 40), ConnectionLost, "malformed", id="garbage"),
        pytest.param(faults.malformed(b"\x7f\xff\xff\xff" * 9), ConnectionLost, "malformed", id="absurd counts"),
        pytest.param(faults.raw(b"\x00\x00\x00\x02ab"), ConnectionLost, "response size 2", id="too short"),
    ],
)
async def test_calls_that_go_wrong(fault: faults.Fault, error: type[NetworkError], message: str) -> None:
    """One error with the broker's name; the connection is closed, and whoever comes later hears of it."""
    async with FakeCluster() as cluster:
        connection = await dial(cluster.brokers[1].port)
        cluster.next("Metadata", fault)
        with pytest.raises(error, match=f"{connection.name}: .*{message}"):
            await connection.call(METADATA, version=5)
        assert connection.closed is not None
        with pytest.raises(ConnectionLost):
            await connection.call(METADATA)


async def test_a_call_without_an_answer() -> None:
    async with FakeCluster() as cluster:
        connection = await dial(cluster.brokers[1].port)
        cluster.next("Metadata", faults.silence())
        with pytest.raises(RequestTimedOut):
            await connection.call(METADATA, timeout_s=0.02)
        assert isinstance(connection.closed, RequestTimedOut)
