"""One connection to one broker: the requests on a stream of frames, their versions, and when they may be sent.

``call`` and ``ask`` are for requests off the data path: each costs a future. The data path frames its requests itself
and uses the stream underneath (``net.stream``).
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from mirror.net.buffers import Frame
from mirror.net.errors import ConnectionLost, NetworkError, Unsupported
from mirror.net.health.codes import error_codes
from mirror.net.options import ConnectionOptions
from mirror.net.stream import READ_AHEAD, Socket, Stream
from mirror.wire.errors import error_slug
from mirror.wire.header import SIZE, request_header
from mirror.wire.versions import API_NAMES, VersionRange, common_version

HELD_S = 0.05
THROTTLE_POLL_S = 1.0
MOST_POSTPONED_S = 300.0
"""A throttle extends the deadlines of answers by at most this, whatever throttle time a broker announces."""


class PendingRequest(NamedTuple):
    """A request without an answer yet, off the data path."""

    broker: str
    """The connection's name."""
    what: str
    """The request; "Connect" while the connection is made."""
    at_s: float
    """When it was sent (monotonic)."""


class _FutureWaiter:
    """Passes a response to one task that awaits a future; copies the response out of the read-ahead buffer."""

    __slots__ = ("future",)

    def __init__(self, future: "asyncio.Future[bytes]") -> None:
        self.future = future

    def receive(self, response: memoryview | Frame) -> None:
        assert not isinstance(response, Frame), "calls are for connections without allocate"
        if not self.future.done():
            self.future.set_result(bytes(response))

    def fail(self, error: NetworkError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class FrameWaiter:
    """Waits for one response that comes in a frame, on a connection with ``allocate``. ``future``: the frame; the task
    that awaits it has to release it."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()

    def receive(self, response: memoryview | Frame) -> None:
        """See ``Waiter``. If nobody waits any more, the frame is released."""
        assert isinstance(response, Frame), "data connections are given allocate, and no response fits the read-ahead"
        if self.future.done():
            response.release()
        else:
            self.future.set_result(response)

    def fail(self, error: NetworkError) -> None:
        """See ``Waiter``."""
        if not self.future.done():
            self.future.set_exception(error)
            # A request that was sent ahead may be abandoned: nobody would retrieve the exception, and asyncio would
            # log it.
            self.future.exception()


class Connection(Stream):
    """See the module's docstring. Made by ``net.connect.connect``."""

    def __init__(self, sock: Socket, *, name: str, options: ConnectionOptions, read_ahead: int = READ_AHEAD) -> None:
        super().__init__(sock, name=name, request_timeout_s=options.request_timeout_s, read_ahead=read_ahead)
        self.options = options
        self.api_versions: dict[int, VersionRange] = {}
        self.on_error: Callable[[str, str], None] | None = None
        """Called with the API and the error's stable name for each failed ``call`` and ``ask``, and for each error code
        in a ``call``'s answer."""
        self.on_answer: Callable[[str, float], None] | None = None
        """Called with the API and the seconds that it took for each answered ``call``, ``ask`` and ``exchange``."""
        self.asked: dict[object, PendingRequest] = {}
        """Requests of ``call`` and ``ask`` without an answer yet. A cluster's connections share the cluster's dict."""
        self.permits: Callable[[int, Any], bool] | None = None
        """Returns True if a request may be sent; for users that must not change anything. It gets the API key and the
        request (None for one that its caller has encoded). None: all requests may be sent."""
        self.throttled_until = 0.0
        self._held: asyncio.Event | None = None
        self.session: object | None = None
        """The object that keeps the connection authenticated (``security.sasl.Session``); None: without SASL."""

    # -- when requests may be sent -----------------------------------------------------------------------------------

    def throttle(self, throttle_ms: int) -> None:
        """Takes note of a response's throttle_time_ms. The broker mutes the connection for that time, so the caller has
        to wait before the next request (``may_send``). Requests already sent are read and answered so much later; their
        deadlines are extended."""
        if throttle_ms > 0:
            self.postpone(min(throttle_ms / 1000, MOST_POSTPONED_S))
            self.throttled_until = max(self.throttled_until, self._loop.time() + throttle_ms / 1000)

    def hold(self) -> None:
        """Lets no request be sent until ``go_on``, except by ``exchange``: the SASL session is being renewed."""
        if self._held is None:
            self._held = asyncio.Event()

    def close(self, error: NetworkError | None = None) -> None:
        """See ``Stream``. Callers of ``may_send`` do not wait any longer."""
        super().close(error)
        if self._held is not None:
            self._held.set()

    def go_on(self) -> None:
        """Ends ``hold``."""
        if self._held is not None:
            self._held.set()
            self._held = None
            if self.after_receive is not None and not self.closed:
                self.after_receive()

    @property
    def throttled_s(self) -> float:
        """Seconds to wait before the next request. While the connection is held: a short time, after which to look
        again."""
        if self._held is not None:
            return HELD_S
        return max(0.0, self.throttled_until - self._loop.time()) if self.throttled_until else 0.0

    async def may_send(self) -> None:
        """Waits until a request may be sent: the broker does not throttle us, and the session is not being renewed. The
        broker would not read the request sooner, and would execute it even after its caller has given up. Returns at
        once when the connection is closed."""
        while not self.closed:
            if self._held is not None:
                await self._held.wait()
            elif pause_s := self.throttled_s:
                await asyncio.sleep(min(pause_s, THROTTLE_POLL_S))
            else:
                return

    # -- requests that are not hot -----------------------------------------------------------------------------------

    def version_of(self, api_key: int, ours: tuple[int, int], what: str) -> int:
        """Returns the highest common version of an API.

        Raises:
            Unsupported: there is none.
        """
        theirs = self.api_versions.get(api_key)
        version = common_version(ours, theirs)
        if version is None:
            offered = f"versions {theirs.least} to {theirs.most}" if theirs else "no version"
            raise Unsupported(
                f"{self.name}: the broker has {offered} of {what}, and the mirror needs one of {ours[0]} to {ours[1]}"
            )
        return version

    async def call(self, request: Any, *, version: int | None = None, timeout_s: float | None = None) -> Any:
        """Sends a ``kafka.protocol`` request in the highest common version (at most ``version``). Returns its response.

        Raises:
            NetworkError: the connection failed, timed out or was closed, or there is no common version.
        """
        kind = type(request)
        most = kind.max_version if version is None else min(version, kind.max_version)
        api = kind.name.removesuffix("Request")
        version = self.version_of(kind.API_KEY, (0, most), api)
        await self.may_send()
        try:
            answer = await self.exchange(request, version, timeout_s)
        except NetworkError as error:
            self._note(api, error.slug)
            raise
        self.throttle(getattr(answer, "throttle_time_ms", 0) or 0)
        for code in error_codes(answer):
            self._note(api, error_slug(code))
        return answer

    def _note(self, api: str, error: str) -> None:
        if self.on_error is not None:
            self.on_error(api, error)

    async def ask(self, api_key: int, version: int, body: bytes, *, flexible: bool) -> bytes:
        """Sends a request whose body the caller has encoded, for Fetch and Produce off the data path. Returns a copy of
        the whole response. The caller passes the response's throttle time to ``throttle``.

        Raises:
            NetworkError: as ``call``.
        """
        self._check_permitted(api_key, None)
        await self.may_send()
        correlation_id = self.next_correlation_id()
        head = request_header(
            api_key=api_key,
            version=version,
            correlation_id=correlation_id,
            client_id=self.options.client_id,
            flexible=flexible,
        )
        future: asyncio.Future[bytes] = self._loop.create_future()
        self.expect(correlation_id, _FutureWaiter(future))
        self.write([SIZE.pack(len(head) + len(body)) + head, body])
        try:
            return await self._answered(future, API_NAMES[api_key])
        except NetworkError as error:
            self._note(API_NAMES[api_key], error.slug)
            raise

    async def exchange(self, request: Any, version: int, timeout_s: float | None = None) -> Any:
        """As ``call``, but in exactly this version, whatever versions the broker speaks, and also while the connection
        is held."""
        self._check_permitted(request.API_KEY, request)
        correlation_id = self.next_correlation_id()
        request.API_VERSION = version
        request.with_header(correlation_id=correlation_id, client_id=self.options.client_id)
        future: asyncio.Future[bytes] = self._loop.create_future()
        self.expect(correlation_id, _FutureWaiter(future), timeout_s)
        self.write([bytes(request.encode(header=True, framed=True))])
        data = await self._answered(future, type(request).name.removesuffix("Request"))
        kind = request.header.get_response_class()
        try:
            return kind.decode(data, header=True)
        except Exception as error:
            # kafka.protocol raises what its codecs raise: struct.error, IndexError, ValueError, UnicodeDecodeError.
            failure = ConnectionLost(f"{self.name}: malformed {kind.name}, {type(error).__name__}")
            self.close(failure)
            raise failure from error

    def _check_permitted(self, api_key: int, request: Any) -> None:
        """Raises AssertionError for a request that must not be sent on this connection: a bug, found before it does
        harm."""
        if self.permits is not None and not self.permits(api_key, request):
            raise AssertionError(f"{self.name}: a request with API key {api_key} would change something")

    async def _answered(self, future: "asyncio.Future[bytes]", what: str) -> bytes:
        """Waits for the answer. The request is in ``asked`` meanwhile."""
        asked = self.asked[future] = PendingRequest(self.name, what, time.monotonic())
        try:
            answer = await future
        finally:
            del self.asked[future]
        if self.on_answer is not None:
            self.on_answer(what, time.monotonic() - asked.at_s)
        return answer

    def _hint(self) -> str:
        """See ``Stream``. A broker that hangs up before it has answered anything but ApiVersions may demand
        authentication; or it was stopped or killed just then."""
        if self.options.security.sasl is None and 0 < self.greeted_at == self.bytes_received:
            return (
                " at the first request: it has just stopped, or this port needs authentication (then set "
                "security.protocol to SASL_PLAINTEXT or SASL_SSL)"
            )
        return ""
