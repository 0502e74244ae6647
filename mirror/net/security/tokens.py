"""Tokens for OAUTHBEARER (KIP-255): from a setting, a file, an OIDC server (KIP-768) or an operator's own function.

A new token is requested only when the previous one has less than a fifth of its lifetime left. If that fails, the
previous one is used as long as it is valid.
"""

import asyncio
import base64
import importlib
import json
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from mirror.net.errors import AuthenticationFailed
from mirror.net.security.options import TokenOptions

TIMEOUT_S = 10.0
LIFE_USED = 0.8
"""The fraction of a token's lifetime after which it is replaced."""
UNKNOWN_LIFE_S = 300.0
"""A token with unknown expiry is replaced after this time."""
MOST_LIFE_S = 366 * 86_400.0
LEAST_LEFT_S = 10.0
"""A token that expires sooner than this is not used any more."""
AGAIN_AFTER_S = 10.0
"""The pause after a failed request for a new token, while the previous one is valid."""
MOST_ANSWER = 1 << 20
PIECE = 1 << 16


class Token(NamedTuple):
    """A token. ``ends_at_s``: its expiry in seconds since 1970."""

    value: str
    ends_at_s: float


class Tokens:
    """A source of tokens, shared by all connections of a cluster. It is thread-safe."""

    def __init__(self, options: TokenOptions, *, clock: Callable[[], float] = time.time) -> None:
        self._options = options
        self._clock = clock
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._asked: Future[Token] | None = None
        self._known: Token | None = None
        self._replace_at_s = 0.0

    async def wait(self, seconds: float) -> Token:
        """As ``token``, but waits at most ``seconds`` and does not block the event loop. All callers share one thread,
        which requests the token: a server or a function that hangs must not occupy the threads that resolve host names.

        Raises:
            AuthenticationFailed: as ``token``, or there was no token in time.
        """
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self._in_a_thread()), seconds)
        except TimeoutError:
            where = self._options.endpoint or self._options.provider or "sasl.oauthbearer.token"
            raise AuthenticationFailed(f"{where} gives no token within {seconds:g} s") from None

    def _in_a_thread(self) -> "Future[Token]":
        with self._asking:
            if self._asked is None or self._asked.done():
                self._asked = asked = Future[Token]()
                asked.set_running_or_notify_cancel()  # so that a caller that is cancelled does not cancel the others

                def ask() -> None:
                    try:
                        asked.set_result(self.token())
                    except BaseException as error:  # raised in the callers that wait
                        asked.set_exception(error)

                try:
                    threading.Thread(target=ask, name="token", daemon=True).start()
                except RuntimeError as error:
                    asked.set_exception(AuthenticationFailed(f"no thread can be started to ask for a token: {error}"))
            return self._asked

    def token(self) -> Token:
        """Returns the current token, or a new one if that is nearly used up. May block while a server answers.

        Raises:
            AuthenticationFailed: there is no token; the message names its source.
        """
        options = self._options
        if not options.endpoint and not options.provider:
            # Reading it costs nothing, and a file may be replaced at any time: it is not cached.
            return _given(options.token.read().strip(), self._clock())
        with self._lock:
            now = self._clock()
            if self._known is None or now >= self._replace_at_s:
                try:
                    token = _from_endpoint(options, now) if options.endpoint else _from_provider(options.provider, now)
                except AuthenticationFailed:
                    if self._known is None or self._known.ends_at_s - now < LEAST_LEFT_S:
                        raise
                    self._replace_at_s = now + AGAIN_AFTER_S
                else:
                    life_s = min(MOST_LIFE_S, max(0.0, token.ends_at_s - now))
                    self._known, self._replace_at_s = token, now + LIFE_USED * life_s
            return self._known


_sources: dict[TokenOptions, Tokens] = {}
"""The token source of each cluster's settings."""


def tokens_of(options: TokenOptions) -> Tokens:
    """Returns the token source for these settings: the same one for equal settings."""
    source = _sources.get(options)
    if source is None:
        source = _sources[options] = Tokens(options)
    return source


def _given(value: str, now: float) -> Token:
    if not value:
        raise AuthenticationFailed("the token is empty; see sasl.oauthbearer.token")
    return Token(value, _end_of(value) or now + UNKNOWN_LIFE_S)


def _from_provider(name: str, now: float) -> Token:
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)()
        value, ends_at_s = (found, None) if isinstance(found, str) else found
        if not _is_token(value):
            raise TypeError("it returned no token")
        return Token(value, float(ends_at_s) if ends_at_s is not None else _end_of(value) or now + UNKNOWN_LIFE_S)
    except Exception as error:  # it is not our code
        raise AuthenticationFailed(
            f"sasl.oauthbearer.token.provider {name} failed: {type(error).__name__}: {error}"
        ) from error


def _from_endpoint(options: TokenOptions, now: float) -> Token:
    """Requests a token with client credentials (RFC 6749, section 4.4). Redirects are not followed: the server that
    they name would receive the secret."""
    # Imported only here: with all that it imports, it takes 3 MB in every worker.
    import urllib.error
    import urllib.parse
    import urllib.request

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    where = options.endpoint
    pair = f"{urllib.parse.quote(options.client_id, '')}:{urllib.parse.quote(options.client_secret.read(), '')}"
    form = {"grant_type": "client_credentials", **({"scope": options.scope} if options.scope else {})}
    headers = {
        "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    try:
        request = urllib.request.Request(where, data=urllib.parse.urlencode(form).encode(), headers=headers)
        context = ssl.create_default_context(cafile=options.ca_file or None) if where.startswith("https:") else None
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), NoRedirects)
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            told = json.loads(_read(answer))
        value = told["access_token"]
        life_s = min(MOST_LIFE_S, max(0.0, float(told.get("expires_in") or 0)))
        if not _is_token(value):
            raise ValueError("access_token is not text")
    except urllib.error.HTTPError as error:
        with error:
            raise AuthenticationFailed(
                f"{where} gives no token: {error.code} {error.reason}; see sasl.oauthbearer.client.id and .secret"
            ) from None
    except OSError as error:
        why = getattr(error, "reason", None) or error.strerror or error
        raise AuthenticationFailed(f"{where} does not answer: {why}") from None
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        raise AuthenticationFailed(f"{where} answers with something else than JSON with an access_token") from None
    except Exception as error:  # http.client has many of its own, for answers that are not HTTP
        raise AuthenticationFailed(f"{where} gives no answer that can be read: {type(error).__name__}") from None
    return Token(value, now + life_s if life_s else _end_of(value) or now + UNKNOWN_LIFE_S)


def _read(answer: Any) -> bytes:
    """Returns the body of a response. The time limit is for the whole body: a server that sends a byte now and then
    gets no more."""
    parts: list[bytes] = []
    until, size = time.monotonic() + TIMEOUT_S, 0
    while size < MOST_ANSWER and (part := answer.read1(PIECE)):
        if time.monotonic() > until:
            raise TimeoutError("timed out")
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _is_token(value: object) -> bool:
    """Returns True for text that can be sent as a bearer token in a header (RFC 6750): printable ASCII."""
    return isinstance(value, str) and value.isascii() and value.isprintable() and bool(value)


def _end_of(token: str) -> float | None:
    """Returns the expiry of a JWT in seconds since 1970 (``exp``); None if it has none, or is no JWT."""
    parts = token.split(".")
    if len(parts) < 2:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
