"""Asks a broker whether it is ready: one Metadata request over a plain socket, as small as the protocol allows."""

from __future__ import annotations

import dataclasses
import socket
import struct

__all__ = ["ClusterView", "metadata"]

_METADATA = 3
_VERSION = 2  # the first with the cluster id; every broker from 0.10.1 to 4.x takes it
_LARGEST_ANSWER = 1 << 20  # bytes; an answer without topics has a few hundred


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """A cluster as one of its brokers sees it.

    Attributes:
        cluster_id: as the brokers report it; empty if they have none yet.
        brokers: node ids of the brokers that are up.
        controller_id: node id of the controller that the broker names; None if it knows none.
    """

    cluster_id: str
    brokers: frozenset[int]
    controller_id: int | None


def metadata(port: int, *, timeout_s: float, host: str = "127.0.0.1") -> ClusterView:
    """Ask the broker on a loopback port for its view of the cluster.

    Raises:
        OSError: nobody listens there, or no answer came in time.
        ValueError: the answer is not a Metadata answer.
    """
    # Metadata request v2: header v1 (key i16, version i16, correlation i32, client id string), [topics]; 0 of them.
    body = struct.pack(">hhih7si", _METADATA, _VERSION, 1, 7, b"sandbox", 0)
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        if not 4 <= size <= _LARGEST_ANSWER:
            raise ValueError(f"an answer of {size} bytes")
        answer = _exactly(connection, size)
    try:
        return _parse(answer)
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"an answer of {size} bytes that is cut short: {error}") from error


def _parse(answer: bytes) -> ClusterView:
    # Metadata answer v2: correlation i32, [node id i32, host string, port i32, rack string?], cluster id string?,
    # controller id i32, [topics]
    (count,) = struct.unpack_from(">i", answer, 4)
    at = 8
    brokers = set()
    for _ in range(count):
        (node_id,) = struct.unpack_from(">i", answer, at)
        _host, at = _string(answer, at + 4)
        _rack, at = _string(answer, at + 4)  # skips the port, which is known
        brokers.add(node_id)
    cluster_id, at = _string(answer, at)
    (controller_id,) = struct.unpack_from(">i", answer, at)
    return ClusterView(
        cluster_id=cluster_id, brokers=frozenset(brokers), controller_id=None if controller_id < 0 else controller_id
    )


def _string(answer: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", answer, at)
    end = at + 2 + max(length, 0)
    return answer[at + 2 : end].decode(), end


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionResetError(f"the broker closed after {len(received)} of {size} bytes")
        received += chunk
    return bytes(received)
