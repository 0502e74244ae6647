"""Opens connections: TCP, then TLS, then which versions the broker speaks, then authentication."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

from mirror.net.buffers import Frame
from mirror.net.connection import READ_AHEAD, Connection, why
from mirror.net.errors import ConnectionLost, RequestTimedOut
from mirror.net.options import ConnectionOptions
from mirror.net.security import tls


async def connect(
    host: str,
    port: int,
    *,
    name: str,
    options: ConnectionOptions,
    read_ahead: int = READ_AHEAD,
    allocate: Callable[[int], Frame] | None = None,
) -> Connection:
    """Opens a connection, protected as the options say, and learns which versions the broker speaks.

    Raises:
        ConnectionLost: refused, not resolved, or no Kafka broker there; the message says which.
        TlsFailed, AuthenticationFailed: one side does not accept the other.
        RequestTimedOut: not established or not answered in time.
        Unsupported: the broker is from before Kafka 0.11.
    """
    loop, security = asyncio.get_running_loop(), options.security
    secure: tls.TlsSocket | None = None
    try:
        async with asyncio.timeout(options.setup_timeout_s):
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            sock = await _open(loop, infos, options)
            if security.tls is not None:
                secure = await tls.secured(sock, host, name=name, options=security.tls)
    except TimeoutError as error:
        raise RequestTimedOut(f"{name}: no connection within {options.setup_timeout_s:g} s") from error
    except OSError as error:
        raise ConnectionLost(f"{name}: {why(error)}") from error
    connection = _made(sock if secure is None else secure, name=name, options=options, read_ahead=read_ahead)
    try:
        await connection.negotiate()
        if security.sasl is not None:
            # Only where it is needed: with all that it imports, it is 5 MB in every worker.
            from mirror.net.security import sasl

            await sasl.Session(connection, security, host).begin()
    except BaseException:
        connection.close()
        raise
    connection.receive_into(allocate)
    return connection


def _made(sock: socket.socket | tls.TlsSocket, *, name: str, options: ConnectionOptions, read_ahead: int) -> Connection:
    if isinstance(sock, tls.TlsSocket):
        return tls.TlsConnection(sock, name=name, options=options, read_ahead=read_ahead)
    return Connection(sock, name=name, options=options, read_ahead=read_ahead)


async def _open(
    loop: asyncio.AbstractEventLoop, infos: Sequence[tuple[Any, ...]], options: ConnectionOptions
) -> socket.socket:
    """Connects to the first address that accepts the connection."""
    failure: OSError = OSError("no address")
    for family, kind, protocol, _, address in infos:
        sock = socket.socket(family, kind, protocol)
        try:
            _configure(sock, options)
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure


def _configure(sock: socket.socket, options: ConnectionOptions) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if options.receive_buffer > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer)
    if options.send_buffer > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer)
