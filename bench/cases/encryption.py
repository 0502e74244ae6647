"""Measures the cost of TLS alone, for the ways in which Python can do TLS. One process reads or writes the same bytes.

    python -m bench.cases.encryption [MB]        (2000)

``socket``: OpenSSL reads and writes the socket (``net.security.tls.TlsSocket``). ``bio``: Python code reads and writes
the socket, and passes the bytes to OpenSSL in memory (``ssl.MemoryBIO``), as asyncio does. ``plain``: without TLS. Each
is measured three times, alternately; the medians count.
"""

import multiprocessing
import select
import socket
import ssl
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from bench.data import certificates
from mirror.net.security.tls import TlsSocket

PIECE = 1 << 20
ROUNDS = 3
Way = Callable[[socket.socket, ssl.SSLContext, int], None]


def wait(sock: socket.socket, *, to_write: bool = False) -> None:
    """Waits until the socket can be read or written."""
    select.select([] if to_write else [sock], [sock] if to_write else [], [])


def read_plain(sock: socket.socket, context: ssl.SSLContext, size: int) -> None:
    buffer = memoryview(bytearray(PIECE))
    while size:
        wait(sock)
        size -= sock.recv_into(buffer[: min(size, PIECE)])


def write_plain(sock: socket.socket, context: ssl.SSLContext, size: int) -> None:
    piece = memoryview(bytes(PIECE))
    while size:
        wait(sock, to_write=True)
        size -= sock.send(piece[: min(size, PIECE)])


def shaken(sock: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    sock.setblocking(True)
    secure = context.wrap_socket(sock, server_hostname="127.0.0.1")
    secure.setblocking(False)
    return secure


def read_socket(sock: socket.socket, context: ssl.SSLContext, size: int) -> None:
    secure = shaken(sock, context)
    reader, buffer = TlsSocket(secure), memoryview(bytearray(PIECE))
    while size:
        if not reader.pending():
            wait(secure)
        try:
            size -= reader.recv_into(buffer[: min(size, PIECE)])
        except BlockingIOError:
            continue


def write_socket(sock: socket.socket, context: ssl.SSLContext, size: int) -> None:
    secure = shaken(sock, context)
    writer, piece = TlsSocket(secure), memoryview(bytes(PIECE))
    while size:
        wait(secure, to_write=True)
        try:
            size -= writer.send(piece[: min(size, PIECE)])
        except BlockingIOError:
            continue


class Bio:
    """A TLS connection in memory, whose bytes are moved by this code."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.sock = sock
        self.come, self.go = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.come, self.go, server_hostname="127.0.0.1")
        self.raw = memoryview(bytearray(PIECE // 4))
        while True:
            try:
                self.tls.do_handshake()
                self.flush()
                return
            except ssl.SSLWantReadError:
                self.flush()
                self.fill()

    def fill(self) -> None:
        """Waits for bytes from the socket, and passes them to OpenSSL."""
        wait(self.sock)
        self.come.write(self.raw[: self.sock.recv_into(self.raw)])

    def flush(self) -> None:
        """Sends everything that OpenSSL has written."""
        while rest := self.go.read():
            view = memoryview(rest)
            while view:
                wait(self.sock, to_write=True)
                view = view[self.sock.send(view) :]


def read_bio(sock: socket.socket, context: ssl.SSLContext, size: int) -> None:
    bio, buffer = Bio(sock, context), memoryview(bytearray(PIECE))
    filled = 0
    while size:
        try:
            received = cast(int, bio.tls.read(min(size, PIECE - filled), buffer[filled:]))
            size -= received
            filled = (filled + received) % PIECE
        except ssl.SSLWantReadError:
            bio.fill()


def write_bio(sock: socket.socket, context: ssl.SSLContext, size: int) -> None:
    bio, piece = Bio(sock, context), memoryview(bytes(PIECE))
    while size:
        view = piece[: min(size, PIECE)]
        while view:
            view = view[bio.tls.write(view) :]
        bio.flush()
        size -= min(size, PIECE)


WAYS: dict[str, tuple[Way, Way]] = {
    "plain": (read_plain, write_plain),
    "socket": (read_socket, write_socket),
    "bio": (read_bio, write_bio),
}


def peer(listener: socket.socket, keystore: Path | None, size: int, *, sends: bool) -> None:
    """The other side of the connection, in a separate process: sends or receives ``size`` bytes.

    Args:
        listener: socket that listens.
        keystore: PEM file with key and certificate; None: without TLS.
        size: number of bytes.
        sends: True to send, False to receive.
    """
    sock, _ = listener.accept()
    with sock:
        if keystore is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(keystore)
            sock = context.wrap_socket(sock, server_side=True)
        piece = memoryview(bytearray(PIECE))
        while size:
            some = piece[: min(size, PIECE)]
            size -= sock.send(some) if sends else sock.recv_into(some)
        if not sends:
            sock.recv(1)  # waits until the other side has closed the connection


def cpu_per_gb(way: str, reads: bool, size: int, keys: certificates.Certificates) -> float:
    """Measures once, and returns the CPU of this process in seconds per GB.

    Args:
        way: a key of ``WAYS``.
        reads: True to read, False to write.
        size: number of bytes.
        keys: certificates for the connection.
    """
    context = ssl.create_default_context(cafile=str(keys.ca))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        keystore = None if way == "plain" else keys.keystore
        other = multiprocessing.get_context("fork").Process(
            target=peer, args=(listener, keystore, size), kwargs={"sends": reads}
        )
        other.start()
        try:
            with socket.create_connection(listener.getsockname()) as sock:
                sock.setblocking(False)
                began = time.process_time()
                WAYS[way][0 if reads else 1](sock, context, size)
                took = time.process_time() - began
        finally:
            other.kill()
            other.join()
    return took / size * 1e9


def main(megabytes: int = 2000) -> None:
    """Measures all ways, and prints the medians. ``megabytes``: size of each measurement, in 10^6 bytes."""
    size = megabytes * 1_000_000
    with certificates.made() as keys:
        found: dict[tuple[str, bool], list[float]] = {}
        for _ in range(ROUNDS):
            for way in WAYS:
                for reads in (True, False):
                    found.setdefault((way, reads), []).append(cpu_per_gb(way, reads, size, keys))
    for (way, reads), some in found.items():
        median, least, most = statistics.median(some), min(some), max(some)
        print(f"{way:6} {'read' if reads else 'write':5} {median:.3f} CPU-s/GB ({least:.3f} to {most:.3f})")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
