"""Sends any request to one broker over a plain socket, for requests that Kafka's clients do not offer."""

import socket
import struct
from typing import Any

__all__ = ["ask"]

_LARGEST_ANSWER = 64 << 20


def ask(address: str, request: Any, version: int, *, timeout_s: float = 30.0) -> Any:
    """Sends a request of ``kafka.protocol`` to a broker, and returns the decoded answer.

    Args:
        address: ``host:port`` of the broker.
        request: an instance of a request class.
        version: API version of the request.
        timeout_s: timeout for connecting and for each read.

    Raises:
        OSError: the broker did not answer.
    """
    host, _, port = address.rpartition(":")
    request.API_VERSION = version
    request.with_header(correlation_id=1, client_id="chaos")
    with socket.create_connection((host, int(port)), timeout_s) as connection:
        connection.sendall(bytes(request.encode(header=True, framed=True)))
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        if not 0 <= size <= _LARGEST_ANSWER:
            raise ConnectionError(f"an answer of {size} bytes")
        return request.header.get_response_class().decode(_exactly(connection, size), version=version, header=True)


def _exactly(connection: socket.socket, size: int) -> bytes:
    out = bytearray()
    while len(out) < size:
        chunk = connection.recv(size - len(out))
        if not chunk:
            raise ConnectionResetError(f"the broker closed after {len(out)} of {size} bytes")
        out += chunk
    return bytes(out)
