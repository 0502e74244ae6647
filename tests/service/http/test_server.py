"""The supervisor's HTTP server: where it listens, what becomes of those who go wrong, and the command line's side."""

import asyncio
import json
import logging
import signal
import socket
from typing import Any

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mirror.net.security.options import Secret
from mirror.service.http import client, connections
from mirror.service.http.guard import GUARD, Guard
from mirror.service.http.server import ListenFailed, Server
from mirror.service.log import logs
from tests.fakes.loop import until
from tests.service.flows.test_flow import Lines
from tests.service.http.asking import address_of, ask, serving


async def path(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the path."""
    await Response(scope["raw_path"])(scope, receive, send)


async def told(reader: asyncio.StreamReader) -> bytes:
    """All that a server sends until it ends the connection."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def test_answers() -> None:
    """HEAD has the headers alone; nothing is kept by browsers."""
    async with serving(path) as server:
        answer = await ask(server, "GET", "/a/b%2Fc")
        assert (answer.status, answer.body) == (200, b"/a/b%2Fc")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["server"] == "mirror"
        head = await ask(server, "HEAD", "/a")
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "2")


@pytest.mark.parametrize(
    "request_", [b"\x16\x03\x01 is TLS\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nA: " + b"x" * (1 << 20)]
)
async def test_what_is_no_request(request_: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """It is refused, whatever it is, and the log has nothing of it: it is about mirroring. Others are served."""
    caplog.set_level(logging.DEBUG)
    async with serving(path) as server:
        reader, writer = await asyncio.open_connection(*address_of(server))
        writer.write(request_)
        assert (await told(reader) or b"HTTP/1.1 400").startswith(b"HTTP/1.1 400")
        writer.close()
        assert (await ask(server, "GET", "/a")).body == b"/a"
    assert not [each for each in caplog.records if each.name.startswith("uvicorn")]


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET /a HTTP/1.1\r\nHost: 127",
        b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999\r\n\r\nbody",
        b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP",
    ],
)
async def test_a_request_that_is_never_whole(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection ends, also if something arrives all the time: descriptors are for workers."""
    monkeypatch.setattr(connections, "SILENCE_S", 0.2)
    async with serving(path) as server:
        reader, writer = await asyncio.open_connection(*address_of(server))
        writer.write(begun)
        ended = asyncio.ensure_future(told(reader))
        while not ended.done():
            if begun and not writer.is_closing():
                writer.write(b"x")
            await asyncio.wait([ended], timeout=0.02)
        writer.close()
        assert server._serving is not None
        await until(lambda: not server._serving.server_state.connections)  # type: ignore[union-attr]


async def test_an_answer_that_nobody_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. A client that asks for much and reads nothing: its connection ends.
    2. One that reads slowly, but reads, gets all of it.
    """
    monkeypatch.setattr(connections, "SILENCE_S", 0.3)
    size = 8 << 20

    async def much(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(b"x" * size)(scope, receive, send)

    async with serving(much) as server:
        _, lazy = await asyncio.open_connection(*address_of(server), limit=1 << 10)
        lazy.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        slow, writer = await asyncio.open_connection(*address_of(server), limit=1 << 10)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        got = 0
        while part := await slow.read(1 << 18):
            got += len(part)
            await asyncio.sleep(0.02)
        assert got > size
        assert server._serving is not None
        await until(lambda: not server._serving.server_state.connections)  # type: ignore[union-attr]
        lazy.transport.abort()
        writer.close()


async def test_too_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those above the bound are closed, and the ones before are served."""
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 2)
    async with serving(path) as server:
        kept = [await asyncio.open_connection(*address_of(server)) for _ in range(2)]
        assert server._serving is not None
        await until(lambda: len(server._serving.server_state.connections) == 2)  # type: ignore[union-attr]
        reader, writer = await asyncio.open_connection(*address_of(server))
        assert await told(reader) == b""
        writer.close()
        for reader, writer in kept:
            writer.write(b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert (await told(reader)).endswith(b"/a")
            writer.close()


async def test_signals_stay_the_supervisors() -> None:
    before = signal.getsignal(signal.SIGTERM)
    async with serving(path) as server:
        await ask(server, "GET", "/a")
        assert signal.getsignal(signal.SIGTERM) is before


async def test_the_server_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is logged, and raises nothing: copying goes on without it."""

    def broken(app: object) -> None:
        raise RuntimeError("no")

    lines = Lines()
    monkeypatch.setattr(logs, "get_logger", lambda: lines)
    monkeypatch.setattr(connections, "Serving", broken)
    server = Server(("127.0.0.1", 0), path)
    server.open()
    try:
        await server.serve()
    finally:
        server.close()
    assert [each.event for each in lines.lines] == ["http_failed"]


async def test_ipv6() -> None:
    """On all addresses, clients with IPv4 are served as well."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    try:
        async with serving(path, "::1") as server:
            assert server.address.startswith("[::1]:")
            assert (await ask(server, "GET", "/a")).body == b"/a"
    except ListenFailed as error:
        pytest.skip(str(error))
    async with serving(path, "::") as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", address_of(server)[1])
        writer.write(b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert (await told(reader)).endswith(b"/a")
        writer.close()


async def test_an_address_that_cannot_be() -> None:
    async with serving(path) as server:
        port = address_of(server)[1]
        for host, why in (("127.0.0.1", "in use"), ("192.0.2.1", "Cannot assign")):
            other = Server((host, port), path)
            with pytest.raises(ListenFailed, match=f"^cannot listen at {host}:{port}: [^(]*{why}[^(]*; .*http.listen"):
                other.open()


async def test_something_else_listens_there() -> None:
    """The command line says so, instead of showing nonsense."""
    async with serving(path) as server:
        with pytest.raises(client.NotAnswered, match="does not seem to be a mirror"):
            await asyncio.to_thread(client.fetch_status, address_of(server))


async def test_another_flows_mirror_listens_there() -> None:
    """All configurations have the same address unless they say otherwise: nothing is shown or done of the wrong one."""
    seen: list[str] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["method"])
        await Response(json.dumps({"flows": [{"flow": "west->east", "flow_id": "west->east"}]}))(scope, receive, send)

    async with serving(answer) as server:
        where = address_of(server)
        found = await asyncio.to_thread(client.fetch_status, where, flows={"a": "west->east"})
        assert found["flows"][0]["flow"] == "west->east"
        for call in (client.fetch_status, client.resume):
            with pytest.raises(client.OtherFlow, match=r"runs flow west->east .*and not north->south.*http\.listen"):
                await asyncio.to_thread(call, where, flows={"a": "north->south"})
    assert set(seen) == {"GET"}


async def test_the_client_shows_its_token() -> None:
    """With each request that changes something, beside the header that is enough without a token."""
    seen: list[dict[bytes, bytes]] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(dict(scope["headers"]))
        body: Any = {"partitions": [], "elsewhere": [], "nobody": False}
        await Response(json.dumps(body))(scope, receive, send)

    async with serving(answer) as server:
        where = address_of(server)
        for call in (client.pause, client.resume, client.reload):
            await asyncio.to_thread(call, where, token="t0ken")
        await asyncio.to_thread(client.pause, where)
    assert [each.get(b"authorization") for each in seen] == [*[b"Bearer t0ken"] * 3, None]
    assert all(GUARD.lower().encode() in each for each in seen)


async def test_the_client_is_not_allowed() -> None:
    """It says why, as the mirror does."""
    async with serving(Guard(path, host="0.0.0.0", token=Secret)) as server:
        where = address_of(server)
        for call in (client.pause, client.resume, client.reload):
            with pytest.raises(client.NotDone, match=r"changes need a token: set http\.token"):
                await asyncio.to_thread(call, where)


def test_a_supervisor_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket takes connections, and nobody answers."""
    monkeypatch.setattr(client, "STATUS_TIMEOUT_S", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        pytest.raises(client.NotAnswered, match="has not answered for 0 s: its supervisor is stopped, or stuck"),
    ):
        client.fetch_status(listening.getsockname())
