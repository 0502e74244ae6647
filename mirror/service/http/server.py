"""The supervisor's HTTP server: threads read the requests, and the event loop makes the answers.

Loopback by default, no TLS, no authentication: everyone who reaches the port may read. Changes are accepted only from
this machine, and only with a header that a web page cannot send along without asking first (``GUARD``).
"""

import asyncio
import errno
import ipaddress
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import TimeoutError as AnswerTimeout
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from mirror.net.options import address_text

GUARD = "X-Mirror-Request"
"""Every POST must have this header, with any value. A browser asks (CORS preflight) before it sends such a header to
another site, and this server never allows it."""
ANSWER_S = 70.0
"""An event loop that does not answer for this long is not healthy."""
SILENCE_S = 15.0
"""A client that sends nothing for this long is disconnected."""
JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"


class ListenFailed(Exception):
    """The server cannot listen on the address; the message says why and what to do."""


class HttpRequest(NamedTuple):
    """One request. ``path`` in parts, unquoted."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str]


class Response(NamedTuple):
    """The answer to a request."""

    status: HTTPStatus
    body: bytes
    content_type: str = TEXT


class Server:
    """The server, from ``open`` to ``close``. ``answer`` is called in the event loop."""

    def __init__(
        self,
        listen: tuple[str, int],
        answer: Callable[[HttpRequest], Awaitable[Response]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._listen = listen
        self._answer = answer
        self._loop = loop
        self._server: ThreadingHTTPServer | None = None

    def open(self) -> None:
        """Starts to listen.

        Raises:
            ListenFailed: somebody else has the port, or this machine has no such address.
        """
        host, port = self._listen
        own = {"respond": staticmethod(self._respond), "own_host_only": is_loopback(host), "own_name": host}
        handler = type("Handler", (_Handler,), own)
        try:
            self._server = (_Server6 if ":" in host else _Server)((host, port), handler)
        except (OSError, OverflowError) as error:
            told = getattr(error, "strerror", None) or error
            raise ListenFailed(f"cannot listen at {address_text(host, port)}: {told}; {_remedy(error)}") from error
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="http", daemon=True).start()

    @property
    def address(self) -> str:
        """The host:port that it listens on."""
        assert self._server is not None
        host, port = self._server.server_address[:2]
        return address_text(str(host), port)

    def close(self) -> None:
        """Stops listening. Does not wait for requests that are being answered."""
        if self._server is not None:
            self._server.server_close()
            threading.Thread(target=self._server.shutdown, daemon=True).start()
            self._server = None

    def _respond(self, request: HttpRequest) -> Response:
        """Returns the event loop's answer; called in a thread of the server."""
        coroutine = self._run(request)
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(ANSWER_S)
        except (AnswerTimeout, RuntimeError, asyncio.CancelledError):
            coroutine.close()
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, b"the supervisor does not answer\n")

    async def _run(self, request: HttpRequest) -> Response:
        return await self._answer(request)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores the error: a client that goes away in the middle is nobody's concern."""


class _Server6(_Server):
    address_family = AF_INET6


def _remedy(error: Exception) -> str:
    if getattr(error, "errno", None) == errno.EADDRINUSE:
        return "another mirror or program uses it: set http.listen to another port, or to port 0 for any that is free"
    return "set http.listen to an address of this machine and a port that it may use"


class _Handler(BaseHTTPRequestHandler):
    """Reads one request, and either refuses it or has it answered."""

    respond: Callable[[HttpRequest], Response]
    own_host_only = True
    own_name = ""
    timeout = SILENCE_S
    server_version = "mirror"
    sys_version = ""

    def do_GET(self) -> None:
        """Answers a request that reads."""
        self._serve("GET")

    def do_HEAD(self) -> None:
        """Answers a request that reads, with the headers alone."""
        self._serve("GET")

    def do_POST(self) -> None:
        """Answers a request that changes something."""
        self._serve("POST")

    def _serve(self, method: str) -> None:
        refused = self._refuse(method)
        if refused is not None:
            self._send(Response(HTTPStatus.FORBIDDEN, f"{refused}\n".encode()))
            return
        parts = urlsplit(self.path)
        path = tuple(unquote(part) for part in parts.path.strip("/").split("/"))
        self._send(type(self).respond(HttpRequest(method, path, dict(parse_qsl(parts.query)))))

    def _refuse(self, method: str) -> str | None:
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0].strip("[]")
        if self.own_host_only and host and not is_loopback(host):
            return "this address serves this machine only: use 127.0.0.1, [::1] or localhost"
        if method == "POST":
            if not is_loopback(str(self.client_address[0])):
                return "changes are accepted from this machine only"
            if host and host != self.own_name and not is_loopback(host):
                # A web page whose name was made to lead here may send any header.
                return "changes are accepted under a name of this machine only: 127.0.0.1, [::1] or localhost"
            if self.headers.get(GUARD) is None:
                return f"the header {GUARD} is missing"
        return None

    def _send(self, response: Response) -> None:
        with suppress(OSError):
            self.send_response(response.status)
            self.send_header("Content-Type", response.content_type)
            self.send_header("Content-Length", str(len(response.body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(response.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: the log is about mirroring, not about scrapes."""


def is_loopback(host: str) -> bool:
    """Returns True if a host, as an address or a name, is this machine's loopback."""
    if host == "localhost":
        return True
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        mapped = getattr(address, "ipv4_mapped", None)
        return bool((mapped or address).is_loopback)
    return False
