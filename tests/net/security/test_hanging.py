"""Token servers and functions that hang, and clusters that refuse us: nobody else waits, and nobody asks too often."""

import asyncio
import itertools
import socket
import sys
import threading
import time
import types
from collections.abc import Iterator

import pytest

import mirror.net.cluster
from mirror.net.cluster import Cluster
from mirror.net.connection import Connection
from mirror.net.errors import AuthenticationFailed, RequestTimedOut
from mirror.net.health import pulse
from mirror.net.options import ClusterOptions, ConnectionOptions
from mirror.net.security import sasl, tokens
from mirror.net.security.librdkafka import client_config
from mirror.net.security.options import SaslOptions, Secret, SecurityOptions, TokenOptions
from mirror.net.security.tokens import Tokens
from mirror.wire.fetch import Node
from tests.fakes.loop import until

_number = itertools.count()


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenOptions]:
    """An operator's function that returns at the end of the test."""
    over = threading.Event()
    # A name of its own for each test: what is known of a function stays, and one of an earlier test has returned.
    module = types.ModuleType(f"hanging_provider_{next(_number)}")
    module.token = lambda: over.wait(30) and "x"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    yield TokenOptions(provider=f"{module.__name__}:token")
    over.set()
    for each in threading.enumerate():
        if each.name == "token":  # the next test counts them
            each.join(30)


async def test_a_function_that_hangs_takes_no_threads(hanging: TokenOptions) -> None:
    """However many connections wait for its token: one thread asks, and names are resolved meanwhile."""
    source = Tokens(hanging)
    waiting = [asyncio.create_task(source.wait(0.3)) for _ in range(100)]
    await asyncio.sleep(0)
    assert sum(each.name == "token" for each in threading.enumerate()) == 1
    await asyncio.wait_for(asyncio.get_running_loop().getaddrinfo("127.0.0.1", 9092), 5)
    for found in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(found, AuthenticationFailed)
        assert str(found) == f"{hanging.provider} gives no token within 0.3 s"


@pytest.mark.parametrize("lasts_s", [0.05, 3_600.0])
async def test_a_session_that_is_renewed_without_a_token(hanging: TokenOptions, lasts_s: float) -> None:
    """Nothing is held up while it is asked for, and the connection ends only when its session does."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        connection = Connection(ours, name="west broker 1", options=ConnectionOptions(request_timeout_s=0.1))
        options = SecurityOptions(sasl=SaslOptions(mechanism="OAUTHBEARER", tokens=hanging))
        session = sasl.Session(connection, options, "h")
        session._ends_at = asyncio.get_running_loop().time() + lasts_s
        session._due()
        await asyncio.sleep(0)
        assert not connection.throttled_s
        assert session._task is not None
        await session._task
        assert bool(connection.closed) == (lasts_s < 1)
        connection.close()


class Hangs:
    """Kerberos, whose server does not answer."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.asked = 0

    def auth_bytes(self) -> bytes:
        self.asked += 1
        self.over.wait(30)
        return b""


async def test_kerberos_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many connections wait for it: each ends within its time, names are resolved meanwhile, and clusters with
    another mechanism are reached. Whoever has given up is not asked for later."""
    kerberos, quick = Hangs(), types.SimpleNamespace()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    monkeypatch.setattr(sasl, "_mechanism", lambda options, _: kerberos if options.mechanism == "GSSAPI" else quick)

    def session(mechanism: str) -> sasl.Session:
        connection = Connection(ours, name="west broker 1", options=ConnectionOptions(setup_timeout_s=0.3))
        return sasl.Session(connection, SecurityOptions(sasl=SaslOptions(mechanism=mechanism)), "h")

    with ours, theirs:
        waiting = [asyncio.create_task(session("GSSAPI")._step(kerberos.auth_bytes)) for _ in range(40)]
        await until(lambda: kerberos.asked == sasl.THREADS)
        assert await asyncio.wait_for(session("PLAIN")._begun(), 5) is quick
        await asyncio.wait_for(asyncio.get_running_loop().getaddrinfo("127.0.0.1", 9092), 5)
        for found in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(found, RequestTimedOut)
            assert str(found) == (
                "west broker 1: GSSAPI was not done within 0.3 s: it waits for Kerberos, whose server (KDC) may not "
                "answer; see krb5.conf, or raise socket.connection.setup.timeout.ms"
            )
        assert kerberos.asked == sasl.THREADS
        kerberos.over.set()
        await asyncio.wait_for(session("GSSAPI")._step(kerberos.auth_bytes), 5)
        assert kerberos.asked == sasl.THREADS + 1


def test_a_server_that_drips_gets_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then is no answer."""
    monkeypatch.setattr(tokens, "TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            with server.accept()[0] as connection:
                connection.recv(65_536)
                try:
                    connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
                    for _ in range(100):
                        connection.sendall(b" ")
                        time.sleep(0.1)
                except OSError:
                    return

        threading.Thread(target=drip, daemon=True).start()
        source = Tokens(
            TokenOptions(
                endpoint=f"http://127.0.0.1:{server.getsockname()[1]}/t", client_id="a", client_secret=Secret("b")
            )
        )
        with pytest.raises(AuthenticationFailed, match="does not answer: timed out"):
            source.token()


def test_the_group_s_client_is_not_made_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka would wait for ten seconds, and end in an error that names no cause."""
    module = types.ModuleType("failing_provider")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    options = SecurityOptions(
        sasl=SaslOptions(mechanism="OAUTHBEARER", tokens=TokenOptions(provider="failing_provider:f"))
    )
    with pytest.raises(AuthenticationFailed, match=r"failing_provider:f failed: AttributeError"):
        client_config(options)


@pytest.mark.parametrize("rule", [True, False])
async def test_who_is_refused_asks_less_and_less_often(rule: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that does not authenticate us is asked with growing pauses. (Otherwise thirteen times a second.)"""
    monkeypatch.setattr(pulse, "ASK_AFTER_S", 0.0)
    monkeypatch.setattr(pulse, "LOOK_EVERY_S", 0.005)
    if not rule:
        monkeypatch.setattr(pulse, "REFUSED_LEAST_MS", 0)
        monkeypatch.setattr(pulse, "REFUSED_MOST_MS", 0)
    tries: list[str] = []

    async def refuses(host: str, *_: object, **__: object) -> None:
        tries.append(host)
        raise AuthenticationFailed("no")

    monkeypatch.setattr(mirror.net.cluster, "connect", refuses)
    cluster = Cluster("west", ClusterOptions(bootstrap=(("b", 1),)))
    cluster.nodes = {1: Node(1, "h", 1)}
    asking = asyncio.create_task(pulse.Pulse(cluster).keep())
    try:
        if rule:
            await until(lambda: bool(tries))
            await asyncio.sleep(0.3)
            assert len(tries) <= 2 * len(set(tries))
        else:
            await until(lambda: len(tries) > 10 * len(set(tries)))
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await cluster.close()
