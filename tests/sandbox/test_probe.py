"""The Metadata question, against sockets that answer well, badly, in pieces, or not at all."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from mirror.sandbox.probe import ClusterView, metadata


def string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


ANSWER = (
    struct.pack(">ii", 1, 2)
    + struct.pack(">i", 1) + string("localhost") + struct.pack(">i", 9092) + string(None)
    + struct.pack(">i", 7) + string("localhost") + struct.pack(">i", 9093) + string("rack")
    + string("an-id") + struct.pack(">i", 7) + struct.pack(">i", 0)
)  # fmt: skip

Serve = Callable[[list[bytes]], int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve one connection: take the question, send the pieces, close. Returns the port."""
    servers: list[tuple[socket.socket, threading.Thread]] = []

    def run(pieces: list[bytes]) -> int:
        listener = socket.create_server(("127.0.0.1", 0))

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
                assert len(connection.recv(size, socket.MSG_WAITALL)) == size
                for piece in pieces:
                    connection.sendall(piece)

        thread = threading.Thread(target=answer)
        thread.start()
        servers.append((listener, thread))
        port: int = listener.getsockname()[1]
        return port

    yield run
    for listener, thread in servers:
        thread.join()
        listener.close()


def framed(answer: bytes) -> bytes:
    return struct.pack(">i", len(answer)) + answer


def test_an_answer(serve: Serve) -> None:
    view = ClusterView(cluster_id="an-id", brokers=frozenset({1, 7}), controller_id=7)
    assert metadata(serve([framed(ANSWER)]), timeout_s=5) == view
    assert metadata(serve([bytes([byte]) for byte in framed(ANSWER)]), timeout_s=5) == view


def test_a_cluster_that_has_no_controller_yet(serve: Serve) -> None:
    answer = struct.pack(">ii", 1, 0) + string(None) + struct.pack(">i", -1) + struct.pack(">i", 0)
    assert metadata(serve([framed(answer)]), timeout_s=5) == ClusterView(
        cluster_id="", brokers=frozenset(), controller_id=None
    )


@pytest.mark.parametrize("cut", range(4, len(ANSWER) - 4))  # the last four bytes count the topics, which nobody reads
def test_an_answer_cut_short(serve: Serve, cut: int) -> None:
    with pytest.raises(ValueError, match="cut short"):
        metadata(serve([framed(ANSWER[:cut])]), timeout_s=5)


@pytest.mark.parametrize("size", [-1, 0, 3, 1 << 30])
def test_an_impossible_size(serve: Serve, size: int) -> None:
    with pytest.raises(ValueError, match=f"an answer of {size} bytes"):
        metadata(serve([struct.pack(">i", size)]), timeout_s=5)


@pytest.mark.parametrize("cut", [0, 2, 4, 10])
def test_a_broker_that_closes(serve: Serve, cut: int) -> None:
    with pytest.raises(ConnectionResetError, match="closed after"):
        metadata(serve([framed(ANSWER)[:cut]]), timeout_s=5)
