"""The long link: everything arrives, in order, later; and ends are passed on."""

import contextlib
import random
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from bench.data.longlink import LongLink

DELAY_S = 0.15


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends back what comes, until the client has ended; its port."""

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, contextlib.suppress(ConnectionError):
                while data := connection.recv(1 << 16):
                    connection.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(60)


def connected(link: LongLink) -> socket.socket:
    return socket.create_connection(("127.0.0.1", link.ports[0]), timeout=60)


def received(client: socket.socket) -> bytes:
    """All that comes until the end."""
    found = bytearray()
    while data := client.recv(1 << 16):
        found += data
    return bytes(found)


@pytest.mark.parametrize("most", [256 << 20, 1 << 16], ids=["wide", "narrow"])
def test_all_of_it_arrives_in_order(echo: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if more is sent than may be under way: the sender waits."""
    monkeypatch.setattr("bench.data.longlink.MOST_UNDER_WAY", most)
    sent = random.Random(1).randbytes(8 << 20)
    with LongLink() as link:
        link.attach_port(echo)
        link.delay_s = 0.01
        with connected(link) as client:
            found: list[bytes] = []
            reader = threading.Thread(target=lambda: found.append(received(client)))
            reader.start()
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            reader.join(60)
    assert found == [sent]


def test_each_way_takes_the_delay(echo: int) -> None:
    """Many pieces are under way at a time: ten of them, sent together, do not take ten round trips."""
    with LongLink() as link:
        link.attach_port(echo)
        link.delay_s = DELAY_S
        with connected(link) as client:
            for turn in range(2):
                began_at = time.monotonic()
                client.sendall(b"%d" % turn)
                assert client.recv(1) == b"%d" % turn
                assert time.monotonic() - began_at >= 2 * DELAY_S
            link.delay_s = 0.0
            client.sendall(b"x" * 10)
            assert client.recv(10, socket.MSG_WAITALL) == b"x" * 10


def test_without_a_broker_the_connection_breaks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    with LongLink() as link:
        link.attach_port(closed)
        with connected(link) as client, contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""


def test_at_its_end_connections_end(echo: int) -> None:
    with LongLink() as link:
        link.attach_port(echo)
        client = connected(link)
        client.sendall(b"a")
        assert client.recv(1) == b"a"
    with client, contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""
