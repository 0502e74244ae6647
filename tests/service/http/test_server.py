"""The supervisor's HTTP server by itself: who may ask for what, and what becomes of those who go wrong."""

import asyncio
import http.client
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest

from mirror.service.http import client
from mirror.service.http.server import GUARD, HttpRequest, ListenFailed, Response, Server, _Handler, is_loopback


@asynccontextmanager
async def serving(host: str = "127.0.0.1") -> AsyncIterator[tuple[Server, list[HttpRequest]]]:
    """A server that remembers requests and answers with their path."""
    seen: list[HttpRequest] = []

    async def answer(request: HttpRequest) -> Response:
        seen.append(request)
        return Response(HTTPStatus.OK, "/".join(request.path).encode())

    server = Server((host, 0), answer, asyncio.get_running_loop())
    server.open()
    try:
        yield server, seen
    finally:
        server.close()


async def ask(server: Server, method: str, path: str, **headers: str) -> tuple[int, bytes]:
    def send() -> tuple[int, bytes]:
        host, _, port = server.address.rpartition(":")
        connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=60)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    return await asyncio.to_thread(send)


async def test_paths_and_queries() -> None:
    """Parts are unquoted one by one, so that a topic's name may hold anything; HEAD has no body."""
    async with serving() as (server, seen):
        assert await ask(server, "GET", "/a/b%2Fc%3F?x=1&y=%20") == (200, b"a/b/c?")
        assert seen[0] == HttpRequest("GET", ("a", "b/c?"), {"x": "1", "y": " "})
        assert await ask(server, "HEAD", "/a") == (200, b"")
        assert (await ask(server, "DELETE", "/a"))[0] == 501


async def test_other_sites_are_refused() -> None:
    """
    1. A name that somebody has made to point here (DNS rebinding) is not ours.
    2. What changes something needs a header that a form or a link cannot carry.
    """
    async with serving() as (server, seen):
        for host in ("mirror.example", "192.0.2.1:80", "localhost.example"):
            code, text = await ask(server, "GET", "/metrics", Host=host)
            assert (code, b"127.0.0.1" in text) == (403, True)
        assert (await ask(server, "POST", "/x"))[0] == 403
        assert not seen
        for host in ("localhost", "127.0.0.1:9", "[::1]:9"):
            assert (await ask(server, "POST", "/x", **{GUARD: "1", "Host": host}))[0] == 200


async def test_changes_under_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server for all addresses is scraped under any name. Changes need one of this machine's: a web page whose name
    was made to lead here (DNS rebinding) may send any header."""
    async with serving() as (server, _):
        monkeypatch.setattr(_Handler, "own_host_only", False)
        for kind in _Handler.__subclasses__():
            monkeypatch.setattr(kind, "own_host_only", False)
        assert (await ask(server, "GET", "/metrics", Host="mirror.example"))[0] == 200
        assert (await ask(server, "POST", "/x", **{GUARD: "1", "Host": "mirror.example"}))[0] == 403
        for kind in _Handler.__subclasses__():
            monkeypatch.setattr(kind, "own_name", "mirror.example")  # as ``http.listen`` names it, and so the CLI
        assert (await ask(server, "POST", "/x", **{GUARD: "1", "Host": "mirror.example"}))[0] == 200


async def test_a_client_that_goes_away() -> None:
    """It is nobody's concern, and others are served."""
    async with serving() as (server, _):
        host, _, port = server.address.rpartition(":")
        with socket.create_connection((host, int(port))) as sock:
            sock.sendall(b"GET /a HTTP/1.1\r\nHost: 127")
        assert (await ask(server, "GET", "/a"))[0] == 200


async def test_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        async with serving("::1") as (server, _):
            assert server.address.startswith("[::1]:")
            assert await ask(server, "GET", "/a") == (200, b"a")
    except ListenFailed as error:
        pytest.skip(str(error))


async def test_an_address_that_cannot_be() -> None:
    async with serving() as (server, _):
        port = int(server.address.rpartition(":")[2])
        for host, why in (("127.0.0.1", "in use"), ("192.0.2.1", "Cannot assign")):
            other = Server((host, port), server._answer, asyncio.get_running_loop())
            with pytest.raises(ListenFailed, match=f"cannot listen at {host}:{port}: .*{why}.*http.listen"):
                other.open()


async def test_something_else_listens_there() -> None:
    """The command line says so, instead of showing nonsense."""
    async with serving() as (server, _):
        where = ("127.0.0.1", int(server.address.rpartition(":")[2]))
        with pytest.raises(client.NotAnswered, match="does not seem to be a mirror"):
            await asyncio.to_thread(client.fetch_status, where)


async def test_another_flows_mirror_listens_there() -> None:
    """All configurations have the same address unless they say otherwise: nothing is shown or done of the wrong one."""
    seen: list[str] = []

    async def answer(request: HttpRequest) -> Response:
        seen.append(request.method)
        return Response(HTTPStatus.OK, b'{"flows": [{"flow": "west->east", "flow_id": "west->east"}]}')

    server = Server(("127.0.0.1", 0), answer, asyncio.get_running_loop())
    server.open()
    try:
        where = ("127.0.0.1", int(server.address.rpartition(":")[2]))
        told = await asyncio.to_thread(client.fetch_status, where, flows={"a": "west->east"})
        assert told["flows"][0]["flow"] == "west->east"
        for call in (client.fetch_status, client.resume):
            with pytest.raises(client.OtherFlow, match=r"runs flow west->east .*and not north->south.*http\.listen"):
                await asyncio.to_thread(call, where, flows={"a": "north->south"})
    finally:
        server.close()
    assert set(seen) == {"GET"}


def test_a_supervisor_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket takes connections, and nobody answers."""
    monkeypatch.setattr(client, "STATUS_TIMEOUT_S", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        pytest.raises(client.NotAnswered, match="has not answered for 0 s: its supervisor is stopped, or stuck"),
    ):
        client.fetch_status(listening.getsockname())


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("localhost", True),
        ("0.0.0.0", False), ("192.0.2.1", False), ("example.com", False), ("", False), ("localhost.", False),
    ],
)  # fmt: skip
def test_is_loopback(host: str, own: bool) -> None:
    assert is_loopback(host) is own
