"""Access control. Everyone who reaches the port may read; changes need a token (``http.token``).

If no token is configured, changes are accepted only if the server listens on a loopback address, and only with a header
that a web page of another site cannot send without a CORS preflight (``GUARD``).
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from mirror.net.errors import AuthenticationFailed
from mirror.net.security.options import Secret

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

GUARD = "X-Mirror-Request"
"""Without a token, a request that changes something must have this header, with any value. A browser asks (CORS
preflight) before it sends such a header to another site, and this server never allows it."""
READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""
FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""Headers of proxies. One of them in a request from this machine means: a proxy here has passed on the request of
another machine."""
_HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::[0-9]*)?")
_SET_TOKEN = 'set http.token, such as "${file:/etc/mirror/http-token}", from where the mirror\'s commands take it, too'


class Refusal(NamedTuple):
    """Why a request is refused."""

    status: HTTPStatus
    why: str


class Guard:
    """Refuses requests that are not permitted, and passes on the others."""

    def __init__(self, app: ASGIApp, *, host: str, token: Callable[[], Secret]) -> None:
        """``app``: answers the requests. ``host``: host of ``http.listen``. ``token``: returns the token in effect."""
        self._app = app
        self._host = host
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope["method"], _headers(scope))
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await _send(refusal, scope["path"], send)

    def _refusal(self, method: str, headers: Mapping[str, str]) -> Refusal | None:
        here = is_loopback(self._host)
        host = headers.get("host", "")
        if here and host and not is_loopback(_without_port(host)):
            # An attacker's name resolves to this address (DNS rebinding), or a proxy passes on requests.
            return Refusal(
                HTTPStatus.FORBIDDEN, "this address serves this machine only: use 127.0.0.1, [::1] or localhost"
            )
        if method in READING:
            return None
        token = self._token()
        return _without_token(here, headers) if not token else _with_token(token, headers)


def _without_port(host: str) -> str:
    """Returns the name or address in a Host header, without the brackets of an IPv6 address; the whole header if it is
    malformed."""
    found = _HOST.fullmatch(host)
    return host if found is None else found[1] or found[2]


def _without_token(here: bool, headers: Mapping[str, str]) -> Refusal | None:
    if not here:
        why = f"http.listen reaches beyond this machine, so changes need a token: {_SET_TOKEN}"
    elif any(name in headers for name in FORWARDED):
        why = f"a proxy has passed this request on, so changes need a token: {_SET_TOKEN}"
    elif GUARD.lower() not in headers:
        why = f"the header {GUARD} is missing"
    else:
        return None
    return Refusal(HTTPStatus.FORBIDDEN, why)


def _with_token(token: Secret, headers: Mapping[str, str]) -> Refusal | None:
    try:
        expected = token.read()
    except AuthenticationFailed as error:
        return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"http.token: {error}")
    if not expected:
        return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"http.token: {token.file} is empty; it has to hold a token")
    scheme, _, given = headers.get("authorization", "").partition(" ")
    # Compared even if the scheme is wrong, and in constant time: the time must not tell how much of it is right.
    is_right = hmac.compare_digest(given.strip().encode("latin-1"), expected.encode())
    if is_right and scheme.lower() == "bearer":
        return None
    return Refusal(
        HTTPStatus.UNAUTHORIZED,
        "changes need the token of http.token, as the header `Authorization: Bearer TOKEN`; the mirror's commands take "
        "it from their configuration, which has to be this mirror's",
    )


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def _send(refusal: Refusal, path: str, send: Send) -> None:
    if path.startswith("/api/"):
        kind, body = "application/json", json.dumps({"error": refusal.why})
    else:
        kind, body = "text/plain", refusal.why
    text = f"{body}\n".encode()
    headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(text))}
    if refusal.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="mirror"'
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status.value, "headers": raw})
    await send({"type": "http.response.body", "body": text})


def is_loopback(host: str) -> bool:
    """Returns True if a host (an address or a name) is a loopback address. ``localhost.`` is not: resolvers may look up
    a name with a dot at its end in the DNS."""
    if host.lower() == "localhost":
        return True
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        mapped = getattr(address, "ipv4_mapped", None)
        return bool((mapped or address).is_loopback)
    return False
