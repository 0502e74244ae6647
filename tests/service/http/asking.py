"""Asks the HTTP server's application without a server, and the server as any client does."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

from mirror.service.http.server import Server


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


async def asked(app: ASGIApp, method: str, target: str, headers: Mapping[str, str] | None = None) -> Answer:
    """What an application answers, as uvicorn asks it."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }  # fmt: skip
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], told, b"".join(each.get("body", b"") for each in sent[1:]))


@asynccontextmanager
async def serving(app: ASGIApp, host: str = "127.0.0.1") -> AsyncIterator[Server]:
    """A server that is open, and answers."""
    server = Server((host, 0), app)
    server.open()
    task = asyncio.get_running_loop().create_task(server.serve())
    try:
        yield server
    finally:
        server.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def address_of(server: Server) -> tuple[str, int]:
    host, _, port = server.address.rpartition(":")
    return host.strip("[]"), int(port)


async def ask(server: Server, method: str, path: str, **headers: str) -> Answer:
    """What a server answers over the network."""

    def send() -> Answer:
        connection = http.client.HTTPConnection(*address_of(server), timeout=60)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    return await asyncio.to_thread(send)
