"""Authenticates a connection (KIP-43, KIP-152), and again before its session ends (KIP-368).

The mechanisms are those of kafka-python; the requests go over our own connection.
"""

import asyncio
import importlib.util
import random
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Protocol, cast

from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from mirror.net.connection import Connection
from mirror.net.errors import AuthenticationFailed, NetworkError, RequestTimedOut, Unsupported
from mirror.net.security.options import GSSAPI, OAUTHBEARER, SCRAM, SaslOptions, SecurityOptions
from mirror.net.security.tokens import tokens_of
from mirror.wire.errors import ErrorCode, error_name

AGAIN_AFTER = (0.80, 0.90)
"""A session is renewed at a random point between these fractions of its lifetime, so that connections do not all renew
at the same moment."""
POLL_S = 0.01
TOKEN_AGAIN_S = 10.0
"""The longest pause before another try to get a token, while the session still lasts."""
LEAST_LEFT_S = 1.0
"""A connection whose session has less time left than this, and that cannot renew it, is closed."""
LEAST_ITERATIONS = 4096
"""Least iterations of SCRAM's hash: the minimum that Kafka's clients accept, and what brokers use."""
MOST_ITERATIONS = 1_000_000
"""Most iterations of SCRAM's hash: more than is ever recommended (OWASP: 600,000), and kafka-python's own limit. They
take some seconds; the largest number in the 32-bit field would take an hour."""
THREADS = 4
"""Number of threads for the steps of one mechanism."""
MOST_ROUNDS = 16
"""More messages than any mechanism exchanges."""


class Mechanism(Protocol):
    """The client's side of one SASL exchange. See ``kafka.net.sasl.abc.SaslMechanism``."""

    def auth_bytes(self) -> bytes:
        """Returns the bytes to send next."""

    def receive(self, auth_bytes: bytes) -> object:
        """Takes the broker's answer."""

    def is_done(self) -> bool:
        """Returns True if the exchange has ended: there is nothing more to send."""

    def is_authenticated(self) -> bool:
        """Returns True if the exchange has succeeded."""


class Session:
    """Keeps one connection authenticated.

    Args:
        connection: a new connection, on which only ApiVersions was sent.
        security: settings with ``sasl``.
        host: name of the broker's host, for GSSAPI.
    """

    def __init__(self, connection: Connection, security: SecurityOptions, host: str) -> None:
        assert security.sasl is not None
        self._connection = connection
        self._options = security.sasl
        self._host = host
        self._task: asyncio.Task[None] | None = None
        self._ends_at = 0.0
        """When the session ends, by the loop's clock."""

    async def begin(self) -> None:
        """Authenticates the connection, and schedules the renewal of its session.

        Raises:
            AuthenticationFailed: the broker does not accept us, or there is no token or password.
            Unsupported: the broker has no SaslAuthenticate (before Kafka 1.0).
            NetworkError: the connection failed.
        """
        self._connection.session = self
        self._renew_in(await self._exchange())

    def _renew_in(self, life_ms: int) -> None:
        if life_ms > 0:
            self._ends_at = asyncio.get_running_loop().time() + life_ms / 1000
            after_s = life_ms / 1000 * random.uniform(*AGAIN_AFTER)
            self._renew_after(after_s)

    def _renew_after(self, seconds: float) -> None:
        # A weak reference: a session may last for hours, and a connection that was closed must not keep its buffers.
        asyncio.get_running_loop().call_later(seconds, _renew, weakref.ref(self))

    def _due(self) -> None:
        if not self._connection.closed:
            self._task = asyncio.get_running_loop().create_task(self._again())

    async def _again(self) -> None:
        """Authenticates again. First all answers under way have to arrive, and nothing else may be sent meanwhile."""
        connection = self._connection
        try:
            # Before the connection is held: getting a token may take a while.
            begun = await self._begun()
        except Exception as error:  # otherwise the connection would be used after the end of its session
            left_s = self._ends_at - asyncio.get_running_loop().time()
            if left_s > LEAST_LEFT_S:
                self._renew_after(min(TOKEN_AGAIN_S, left_s / 2))
            else:
                connection.close(_failed(connection, error))
            return
        connection.hold()
        while connection.in_flight:  # noqa: ASYNC110 - an event would cost each answer; closing it answers all
            await asyncio.sleep(POLL_S)
        allocate = connection.receive_into(None)
        try:
            self._renew_in(await self._exchange(begun))
        except Exception as error:  # as above
            connection.close(_failed(connection, error))
        finally:
            connection.receive_into(allocate)
            connection.go_on()

    async def _exchange(self, begun: Mechanism | None = None) -> int:
        """Exchanges the messages of the mechanism. Returns the lifetime of the session in ms; 0: that of the
        connection. ``begun``: an exchange that was prepared; None: a new one."""
        name, mechanism = self._connection.name, self._options.mechanism
        for kind in (SaslHandshakeRequest, SaslAuthenticateRequest):
            if kind.API_KEY not in self._connection.api_versions:
                raise Unsupported(f"{name}: the broker has no {kind.name}; {mechanism} needs Kafka 1.0 or later")
        shaken = await self._connection.exchange(SaslHandshakeRequest(mechanism=mechanism), 1)
        if shaken.error_code:
            raise self._refused(shaken.error_code, f"it offers {', '.join(shaken.mechanisms) or 'none'}")
        begun = begun or await self._begun()
        for _ in range(MOST_ROUNDS):
            sent = await self._step(begun.auth_bytes)
            answer = await self._connection.exchange(SaslAuthenticateRequest(auth_bytes=sent), self._version)
            if answer.error_code:
                raise self._refused(answer.error_code, answer.error_message or "")
            await self._step(begun.receive, bytes(answer.auth_bytes or b""))
            if begun.is_done():
                break
        if not begun.is_authenticated():
            raise AuthenticationFailed(f"{name}: the broker does not accept {mechanism}")
        return int(getattr(answer, "session_lifetime_ms", 0) or 0)

    @property
    def _version(self) -> int:
        return self._connection.version_of(SaslAuthenticateRequest.API_KEY, (0, 2), "SaslAuthenticate")

    async def _begun(self) -> Mechanism:
        if self._options.mechanism != OAUTHBEARER:
            return cast(Mechanism, await self._step(_mechanism, self._options, self._host))
        try:
            # The token may come from a server, or from the operator's own code.
            token = await tokens_of(self._options.tokens).wait(self._connection.options.request_timeout_s)
        except AuthenticationFailed as error:
            raise AuthenticationFailed(f"{self._connection.name}: {error}") from error
        return _Bearer(token.value, self._options.tokens.extensions)

    async def _step(self, work: Any, *arguments: Any) -> Any:
        """Runs a step of the mechanism in a thread: SCRAM computes thousands of hashes, and GSSAPI asks a server. These
        threads are not those that resolve host names: otherwise a server that hangs would occupy them all, and no other
        broker could be reached."""
        mechanism, within_s = self._options.mechanism, self._connection.options.setup_timeout_s
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(within_s):
                return await loop.run_in_executor(_threads(mechanism), work, *arguments)
        except TimeoutError as error:
            why = "it waits for Kerberos, whose server (KDC) may not answer; see krb5.conf, or"
            raise RequestTimedOut(
                f"{self._connection.name}: {mechanism} was not done within {within_s:g} s: "
                f"{why if mechanism == GSSAPI else 'this machine is overloaded;'} raise "
                "socket.connection.setup.timeout.ms"
            ) from error
        except AuthenticationFailed as error:
            raise AuthenticationFailed(f"{self._connection.name}: {error}") from error
        except Exception as error:  # a mechanism may raise anything for an answer that it does not expect
            raise AuthenticationFailed(
                f"{self._connection.name}: {self._options.mechanism} failed: {error or type(error).__name__}"
            ) from error

    def _refused(self, code: int, told: str) -> AuthenticationFailed:
        name, mechanism = self._connection.name, self._options.mechanism
        if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            return AuthenticationFailed(f"{name}: the broker does not offer {mechanism} on this port: {told}")
        if code == ErrorCode.ILLEGAL_SASL_STATE:
            return AuthenticationFailed(
                f"{name}: this port takes no authentication; set security.protocol to PLAINTEXT or SSL, or use a port "
                "with SASL"
            )
        if code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            return AuthenticationFailed(f"{name}: {mechanism} is refused: {told or error_name(code)}")
        return AuthenticationFailed(f"{name}: {mechanism}: {error_name(code)}" + (f", {told}" if told else ""))


@cache
def _threads(mechanism: str) -> ThreadPoolExecutor:
    """Returns the threads for a mechanism: one that hangs does not hold up the others."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix=f"sasl {mechanism}")


def _failed(connection: Connection, error: Exception) -> NetworkError:
    if isinstance(error, NetworkError):
        return error
    return AuthenticationFailed(f"{connection.name}: not authenticated again: {error!r}")


def _renew(session: "weakref.ref[Session]") -> None:
    if (found := session()) is not None:
        found._due()


class _Scram:
    """SCRAM (RFC 5802), with the checks of the server's first message that kafka-python omits. From an answer with few
    iterations, an impostor could guess the password."""

    def __init__(self, inner: Mechanism) -> None:
        self._inner = inner
        self._nonce = ""
        self._answers = 0

    def auth_bytes(self) -> bytes:
        sent = self._inner.auth_bytes()
        if not self._answers:
            self._nonce = sent.decode().rpartition(",r=")[2]
        return sent

    def receive(self, auth_bytes: bytes) -> object:
        fields = dict(part.partition("=")[::2] for part in auth_bytes.decode().split(","))
        if "e" in fields:
            raise AuthenticationFailed(f"SCRAM is refused: {fields['e']}")
        if not self._answers:
            if not fields.get("r", "").startswith(self._nonce) or fields["r"] == self._nonce:
                raise AuthenticationFailed("SCRAM: the broker's nonce does not continue ours")
            if not fields.get("s") or int(fields.get("i", "0")) < LEAST_ITERATIONS:
                raise AuthenticationFailed(f"SCRAM: the broker asks for less than {LEAST_ITERATIONS} iterations")
            if int(fields["i"]) > MOST_ITERATIONS:
                raise AuthenticationFailed(
                    f"SCRAM: the broker asks for {int(fields['i']):,} iterations, more than {MOST_ITERATIONS:,}; "
                    "create the user's credentials anew with fewer"
                )
        self._answers += 1
        return self._inner.receive(auth_bytes)

    def is_done(self) -> bool:
        return self._inner.is_done()

    def is_authenticated(self) -> bool:
        return self._inner.is_authenticated()


class _Bearer:
    """OAUTHBEARER (RFC 7628), with a given token."""

    def __init__(self, token: str, extensions: tuple[tuple[str, str], ...]) -> None:
        more = "".join(f"\x01{name}={value}" for name, value in extensions)
        self._next = f"n,,\x01auth=Bearer {token}{more}\x01\x01".encode()
        self._done = False

    def auth_bytes(self) -> bytes:
        return self._next

    def receive(self, auth_bytes: bytes) -> None:
        # A non-empty answer describes an error. The broker sends the error code once it has received this byte.
        self._next, self._done = b"\x01", not auth_bytes

    def is_done(self) -> bool:
        return self._done

    def is_authenticated(self) -> bool:
        return self._done


def _mechanism(options: SaslOptions, host: str) -> Mechanism:
    """Returns a new exchange of the configured mechanism (all but OAUTHBEARER)."""
    _stub("kafka.net")
    from kafka.net import sasl

    if options.mechanism == GSSAPI:
        try:
            importlib.import_module("gssapi")
        except (ImportError, OSError) as error:
            raise AuthenticationFailed(
                f"GSSAPI needs the Python package gssapi and Kerberos' libraries ({error}): pip install gssapi"
            ) from error
    username = options.username
    if options.mechanism in SCRAM:
        username = username.replace("=", "=3D").replace(",", "=2C")  # RFC 5802; the library does not do it
    # Without security_protocol: if it names a protocol without TLS, the library prints a line for each connection.
    config = {
        "sasl_mechanism": options.mechanism,
        "sasl_plain_username": username,
        "sasl_plain_password": options.password.read(),
        "sasl_kerberos_service_name": options.service,
        "host": host,
    }
    made = cast(Mechanism, sasl.get_sasl_mechanism(options.mechanism)(**config))
    return _Scram(made) if options.mechanism in SCRAM else made


def _stub(package: str) -> None:
    """Makes a package's modules importable without running the package's own ``__init__``, which would load all of
    kafka-python's client."""
    if package not in sys.modules and (found := importlib.util.find_spec(package)) is not None:
        sys.modules[package] = importlib.util.module_from_spec(found)
