"""Opens connections: TCP, then TLS, then ApiVersions, then authentication."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from kafka.protocol.metadata import ApiVersionsRequest

from mirror.net.buffers import Frame
from mirror.net.connection import Connection
from mirror.net.errors import (
    AuthenticationFailed,
    ConnectionLost,
    NetworkError,
    Refused,
    RequestTimedOut,
    TlsFailed,
    TlsInterrupted,
    Unsupported,
)
from mirror.net.options import ConnectionOptions, certified
from mirror.net.security import tls
from mirror.net.stream import READ_AHEAD, error_text
from mirror.wire.errors import ErrorCode
from mirror.wire.versions import API_NAMES, FETCH_KEY, FETCH_VERSIONS, PRODUCE_KEY, PRODUCE_VERSIONS, VersionRange

NEXT_AFTER_S = 2.0
"""If an attempt to connect takes longer than this, an attempt to the next address begins beside it. A connection over a
long distance takes less, TLS and SASL included."""


async def connect(
    host: str,
    port: int,
    *,
    name: str,
    options: ConnectionOptions,
    read_ahead: int = READ_AHEAD,
    allocate: Callable[[int], Frame] | None = None,
) -> Connection:
    """Opens a connection, with TLS and SASL as the options say, and learns which versions the broker speaks.

    If the host has several addresses, all of them are tried (Kafka's client.dns.lookup=use_all_dns_ips);
    ``setup_timeout_s`` holds for each of them.

    Args:
        host: name or address of the broker.
        port: the broker's port.
        name: the broker's name in messages.
        options: settings of the connection.
        read_ahead: see ``Stream``.
        allocate: see ``Stream.receive_into``.

    Raises:
        ConnectionLost: refused, not resolved, broken, or no Kafka broker listens there; the message says which.
        TlsFailed, AuthenticationFailed: one side does not accept the other.
        RequestTimedOut: not established or not answered in time.
        Unsupported: the broker is from before Kafka 0.11, or 0.10.1 if nothing is produced to it.
    """
    try:
        async with asyncio.timeout(options.setup_timeout_s):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError as error:
        raise RequestTimedOut(f"{name}: the host name was not resolved within {options.setup_timeout_s:g} s") from error
    except OSError as error:
        raise ConnectionLost(f"{name}: {error_text(error)}") from error
    except UnicodeError as error:
        raise ConnectionLost(f"{name}: {host!r} is no host name") from error
    infos = list(dict.fromkeys(found))
    attempts = [partial(_connect_to, info, host, name=name, options=options, read_ahead=read_ahead) for info in infos]
    connection, failures = await first_of(attempts, spare=_close, final=AuthenticationFailed)
    if connection is None:
        raise _none_of(name, [str(info[-1][0]) for info in infos], failures)
    connection.receive_into(allocate)
    return connection


async def first_of(
    attempts: Sequence[Callable[[], Coroutine[Any, Any, Connection]]],
    *,
    spare: Callable[[Connection], None],
    final: type[NetworkError] | tuple[()] = (),
) -> tuple[Connection | None, list[NetworkError]]:
    """Makes one attempt after the other, until one succeeds. The next one begins when the previous one has failed, or
    has taken ``NEXT_AFTER_S``; slow attempts go on beside it.

    Args:
        attempts: open a connection; called in this order.
        spare: called with each surplus connection, if several attempts succeed at the same moment.
        final: kinds of failure after which the next attempt would fail, too: such a failure is raised at once.

    Returns:
        The first connection (None if all attempts have failed), and the failures until then, in the order of the
        attempts.
    """
    failures: dict[asyncio.Task[Connection], NetworkError] = {}
    left, made, running = deque(attempts), list[asyncio.Task[Connection]](), list[asyncio.Task[Connection]]()
    won: Connection | None = None
    try:
        while won is None and (left or running):
            if left:
                made.append(asyncio.create_task(left.popleft()()))
                running.append(made[-1])
            timeout_s = NEXT_AFTER_S if left else None
            done, _ = await asyncio.wait(running, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            for task in [each for each in running if each in done]:
                running.remove(task)
                failure = task.exception()
                if isinstance(failure, NetworkError) and not isinstance(failure, final):
                    failures[task] = failure
                elif won is None:
                    won = task.result()
                else:
                    running.append(task)
    finally:
        for task in running:
            task.cancel()
        for result in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(result, Connection):
                spare(result)
    return won, [failures[task] for task in made if task in failures]


def _close(connection: Connection) -> None:
    connection.close()


def _none_of(name: str, addresses: Sequence[str], failures: Sequence[NetworkError]) -> NetworkError:
    """Returns the error for a host of which all addresses have failed."""
    if len(failures) == 1:
        return failures[0]
    causes = [str(error).removeprefix(f"{name}: ") for error in failures]
    told = f"{name}: {'; '.join(f'{at}: {cause}' for at, cause in zip(addresses, causes, strict=False))}"
    (kind, *others) = {type(error) for error in failures}
    told_alike = (RequestTimedOut, TlsFailed, TlsInterrupted, Unsupported)
    return kind(told) if not others and kind in told_alike else ConnectionLost(told)


async def _connect_to(
    info: tuple[Any, ...], host: str, *, name: str, options: ConnectionOptions, read_ahead: int
) -> Connection:
    """Connects to one address of the host. ``info``: as getaddrinfo returns it. Raises as ``connect``."""
    security = options.security
    secure: tls.TlsSocket | None = None
    try:
        async with asyncio.timeout(options.setup_timeout_s):
            sock = await _open(info, options)
            if security.tls is not None:
                secure = await tls.secured(sock, certified(host), name=name, options=security.tls)
    except TimeoutError as error:
        raise RequestTimedOut(f"{name}: no connection within {options.setup_timeout_s:g} s") from error
    except OSError as error:
        raise ConnectionLost(f"{name}: {error_text(error)}") from error
    connection = _made(sock if secure is None else secure, name=name, options=options, read_ahead=read_ahead)
    try:
        await negotiate(connection)
        if security.sasl is not None:
            # Imported only here: with all that it imports, it takes 5 MB in every worker.
            from mirror.net.security import sasl

            await sasl.Session(connection, security, certified(host)).begin()
    except BaseException:
        connection.close()
        raise
    return connection


async def negotiate(connection: Connection) -> None:
    """Asks which versions the broker speaks (KIP-35; Kafka 0.10 and later), and stores them in the connection.

    Raises:
        Refused: the broker answers with an error.
        Unsupported: the broker is from before Kafka 0.11, or 0.10.1 if nothing is produced to it.
        NetworkError: the connection failed.
    """
    # Brokers before 2.4 refuse version 3 with code 35, in an answer of version 0 that lists their versions.
    request = ApiVersionsRequest(client_software_name="mirror", client_software_version="0.1.0")
    answer = await connection.exchange(request, 3)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION and not answer.api_keys:
        answer = await connection.exchange(ApiVersionsRequest(), 0)
    if answer.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
        raise Refused(f"{connection.name}: ApiVersions", answer.error_code)
    connection.api_versions = {api.api_key: VersionRange(api.min_version, api.max_version) for api in answer.api_keys}
    _refuse_old(connection)
    connection.greeted_at = connection.bytes_received


def _refuse_old(connection: Connection) -> None:
    """Raises ``Unsupported`` for a broker that is too old. Otherwise each request would find no common version."""
    needed = [(FETCH_KEY, FETCH_VERSIONS[0], "0.10.1")]
    if not connection.options.reads_only:
        needed.append((PRODUCE_KEY, PRODUCE_VERSIONS[0], "0.11"))
    for key, least, since in needed:
        theirs = connection.api_versions.get(key)
        if theirs is not None and theirs.most < least:
            raise Unsupported(
                f"{connection.name}: the broker is from before Kafka {since} ({API_NAMES[key]} up to version "
                f"{theirs.most}, and {least} is needed); upgrade it"
            )


def _made(sock: socket.socket | tls.TlsSocket, *, name: str, options: ConnectionOptions, read_ahead: int) -> Connection:
    if isinstance(sock, tls.TlsSocket):
        return tls.TlsConnection(sock, name=name, options=options, read_ahead=read_ahead)
    return Connection(sock, name=name, options=options, read_ahead=read_ahead)


async def _open(info: tuple[Any, ...], options: ConnectionOptions) -> socket.socket:
    """Makes the TCP connection. ``info``: as getaddrinfo returns it."""
    family, kind, protocol, _, address = info
    sock = socket.socket(family, kind, protocol)
    try:
        _configure(sock, options)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def _configure(sock: socket.socket, options: ConnectionOptions) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if options.receive_buffer > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer)
    if options.send_buffer > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer)
