"""Answers and ends that nobody expects: each is an authentication that failed, and none leaves anything hanging."""

import asyncio
import gc
import socket
import sys
import threading
import time
import types
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import BadStatusLine
from typing import Any

import pytest

from mirror.audit.read.leaders import Leaders
from mirror.net.connect import connect
from mirror.net.connection import Connection
from mirror.net.errors import AuthenticationFailed, ConnectionLost, NetworkError
from mirror.net.options import ConnectionOptions
from mirror.net.security import sasl
from mirror.net.security.options import SaslOptions, Secret, SecurityOptions, TokenOptions
from mirror.net.security.tokens import MOST_LIFE_S, Tokens
from mirror.relay.hot.link import Link
from tests.fakes.loop import until

GIVEN = b'HTTP/1.0 200 OK\r\n\r\n{"access_token":"x"'
SCRAM = SaslOptions(mechanism="SCRAM-SHA-256", username="u", password=Secret("p"))


@contextmanager
def answering(raw: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """One connection is answered with these bytes: where, and what was asked."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            with suppress(OSError), server.accept()[0] as connection:
                connection.settimeout(5)
                while b"grant_type" not in b"".join(asked):
                    asked.append(connection.recv(65_536))
                connection.sendall(raw)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/token", asked


def at(where: str) -> Tokens:
    return Tokens(TokenOptions(endpoint=where, client_id="me", client_secret=Secret("of a client: 4714")))


def pair() -> tuple[Connection, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return Connection(ours, name="west broker 1", options=ConnectionOptions()), theirs


@pytest.mark.parametrize(
    "raw",
    [
        b"\x15\x03\x03\x00\x02\x02\x50",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\nabc",
        b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 100_000,
        GIVEN + b',"expires_in":1' + b"0" * 400 + b"}",
        b'HTTP/1.0 200 OK\r\n\r\n{"access_token":"\\ud800"}',
        b'HTTP/1.0 200 OK\r\n\r\n{"access_token":"a\\u0001auth=b"}',
    ],
    ids=["tls", "cut", "deep", "large", "no text", "more fields"],
)
def test_any_other_answer(raw: bytes) -> None:
    with answering(raw) as (where, _), pytest.raises(AuthenticationFailed, match=r"^http://127"):
        at(where).token()


def test_an_address_that_is_none() -> None:
    with pytest.raises(AuthenticationFailed):
        at("http://127.0.0.1:99x/token").token()


def test_a_redirect_is_not_followed() -> None:
    """Whoever is named there would get the secret."""
    with answering(GIVEN + b"}") as (there, stolen):
        moved = f"HTTP/1.0 302 Found\r\nLocation: {there}\r\n\r\n".encode()
        with answering(moved) as (here, _), pytest.raises(AuthenticationFailed, match="302"):
            at(here).token()
        assert stolen == []


def test_a_token_without_end() -> None:
    with answering(GIVEN + b',"expires_in":1e999}') as (where, _):
        assert at(where).token().ends_at_s <= time.time() + MOST_LIFE_S


def test_a_valid_token_is_used_while_there_is_no_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is asked again after a pause; and there is none once it has ended."""
    module: Any = types.ModuleType("provider_a")
    module.tries = []
    module.left = [("token", 1_100.0)]

    def give() -> Any:
        module.tries.append(now[0])
        return module.left.pop()

    module.give = give
    monkeypatch.setitem(sys.modules, "provider_a", module)
    now = [1_000.0]
    tokens = Tokens(TokenOptions(provider="provider_a:give"), clock=lambda: now[0])
    for now[0] in (1_000.0, 1_081.0, 1_082.0, 1_089.0):
        assert tokens.token().value == "token"
    assert module.tries == [1_000.0, 1_081.0]
    now[0] = 1_092.0
    with pytest.raises(AuthenticationFailed, match="pop from empty list"):
        tokens.token()


async def test_a_renewal_that_ends_oddly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is closed: the broker would close it at the session's end, in the middle of something."""
    connection, theirs = pair()
    session = sasl.Session(connection, SecurityOptions(sasl=SCRAM), "h")

    async def odd() -> int:
        raise BadStatusLine("x")

    monkeypatch.setattr(session, "_exchange", odd)
    await session._again()
    assert isinstance(connection.closed, AuthenticationFailed)
    theirs.close()


async def test_a_closed_connection_is_not_waited_for() -> None:
    connection, theirs = pair()
    connection.hold()
    waits = asyncio.create_task(connection.may_send())
    await asyncio.sleep(0)
    connection.close()
    await asyncio.wait_for(waits, 5)
    theirs.close()


async def test_closed_connections_are_forgotten() -> None:
    """A session that would be renewed in an hour keeps nothing."""
    seen = []
    for _ in range(5):
        connection, theirs = pair()
        session = connection.session = sasl.Session(connection, SecurityOptions(sasl=SCRAM), "h")
        session._renew_in(3_600_000)
        connection.close()
        theirs.close()
        seen.append(weakref.ref(connection))
    del connection, session
    gc.collect()
    assert not any(each() for each in seen)


async def test_a_link_dials_again_whatever_happened() -> None:
    told: list[NetworkError] = []

    class Odd(Link):
        def pump(self) -> None:
            self._dial()

        async def _open(self) -> Connection:
            raise BadStatusLine("x")

        def _greet(self, connection: Connection) -> None:
            raise AssertionError

        def _unreachable(self, error: NetworkError) -> None:
            told.append(error)

    link = Odd(1)
    for times in (1, 2, 3):
        link.pump()
        await until(lambda times=times: len(told) >= times)  # type: ignore[misc]
    assert all(isinstance(error, ConnectionLost) for error in told)


async def test_host_names_that_cannot_be() -> None:
    with pytest.raises(ConnectionLost, match=r"'kafka\.\.example' is no host name"):
        await connect("kafka..example", 9092, name="x", options=ConnectionOptions())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("r={nonce}more,s=c2FsdA==,i=4095", "less than 4096 iterations"),
        ("r={nonce}more,s=,i=4096", "less than 4096 iterations"),
        ("r={nonce}more,s=c2FsdA==,i=2147483647", "asks for 2,147,483,647 iterations, more than 1,000,000"),
        ("r={nonce},s=c2FsdA==,i=4096", "does not continue ours"),
        ("r=another,s=c2FsdA==,i=4096", "does not continue ours"),
        ("e=unknown-user", "unknown-user"),
    ],
)
def test_what_a_scram_server_may_not_ask(answer: str, why: str) -> None:
    exchange = sasl._mechanism(SCRAM, "h")
    nonce = exchange.auth_bytes().decode().rpartition("r=")[2]
    with pytest.raises(AuthenticationFailed, match=why):
        exchange.receive(answer.format(nonce=nonce).encode())


async def test_the_audit_sends_nothing_while_a_session_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, theirs = pair()
    connection.hold()
    leaders: Any = Leaders.__new__(Leaders)
    leaders._connections = {1: connection}
    leaders._cluster = types.SimpleNamespace(leader=lambda *_: types.SimpleNamespace(node_id=1))
    sent: list[int] = []
    monkeypatch.setattr(leaders, "_write", lambda *_: sent.append(1))
    asking = asyncio.create_task(leaders.send(types.SimpleNamespace(topic="t", partition=0), 0, 0))
    for _ in range(5):
        await asyncio.sleep(0.05)
    assert sent == []
    connection.go_on()
    await asking
    assert sent == [1]
    connection.close()
    theirs.close()
