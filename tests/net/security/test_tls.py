"""TLS over a non-blocking socket: any pieces come through, whatever the kernel takes at a time; files that change."""

import asyncio
import os
import random
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mirror.net.errors import NetworkError, TlsFailed, TlsInterrupted
from mirror.net.options import ConnectionOptions
from mirror.net.security import tls
from mirror.net.security.options import TlsOptions
from mirror.net.security.tls import RECORD, TlsConnection, TlsSocket, are_usable, context_of, failure_of, secured
from mirror.wire.header import SIZE
from tests import secured as certificates
from tests.fakes.loop import until
from tests.secured import Files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return certificates.made(tmp_path_factory.mktemp("certificates"))


class Echo:
    """A server that answers each frame with itself; slow, if it has to be, and so many at once."""

    def __init__(self, pause_s: float, at_once: int) -> None:
        self.pause_s = pause_s
        self.at_once = at_once

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames: list[bytes] = []
        while not reader.at_eof():
            try:
                head = await reader.readexactly(SIZE.size)
                body = await reader.readexactly(SIZE.unpack(head)[0])
            except asyncio.IncompleteReadError:
                break
            frames.append(head + body)
            if len(frames) == self.at_once:
                await asyncio.sleep(self.pause_s)
                writer.write(b"".join(frames))
                frames.clear()
                await writer.drain()
        writer.close()


@asynccontextmanager
async def connected(
    files: Files, *, pause_s: float = 0.0, buffer: int = 0, at_once: int = 1
) -> AsyncIterator[TlsConnection]:
    """``buffer``: the size of the kernel's buffers; small ones fill in the middle of a record."""
    context = certificates.server_context(files)
    server = await asyncio.start_server(Echo(pause_s, at_once).serve, "127.0.0.1", 0, ssl=context, limit=1 << 24)
    sock = socket.socket()
    sock.setblocking(False)
    if buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    await asyncio.get_running_loop().sock_connect(sock, server.sockets[0].getsockname())
    secure = await secured(sock, "127.0.0.1", name="echo", options=TlsOptions(ca_file=str(files.ca)))
    connection = TlsConnection(secure, name="echo", options=ConnectionOptions(), read_ahead=64 * 1024)
    try:
        yield connection
    finally:
        connection.close()
        server.close()
        await server.wait_closed()


class Answers:
    """Takes what comes."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def receive(self, response: object) -> None:
        self.bodies.append(bytes(memoryview(response)))  # type: ignore[arg-type]

    def fail(self, error: Exception) -> None:
        """The connection is closed at the end."""


@pytest.mark.parametrize(("pause_s", "buffer"), [(0.0, 0), (0.0, 4_096), (0.01, 4_096)])
async def test_any_pieces(files: Files, pause_s: float, buffer: int) -> None:
    """Frames of a few bytes up to many records, in pieces of all sizes, many under way; each comes back as it was."""
    chance = random.Random(5)
    sizes = [0, 1, 100, RECORD - 1, RECORD, RECORD + 1, 3 * RECORD, 70_000, 300_000, 1_000_000]
    chance.shuffle(sizes)
    answers = Answers()
    expected = []
    async with connected(files, pause_s=pause_s, buffer=buffer) as connection:
        for size in sizes * 2:
            number = connection.next_correlation_id()
            body = number.to_bytes(4) + chance.randbytes(size)
            frame = SIZE.pack(len(body)) + body
            expected.append(body)
            connection.expect(number, answers)
            pieces = []
            while frame:
                cut = chance.choice([1, 50, 5_000, 40_000, 400_000])
                pieces.append(frame[:cut])
                frame = frame[cut:]
            connection.write(pieces)
        await until(lambda: len(answers.bodies) == len(expected))
        assert answers.bodies == expected
        assert not connection.closed


async def test_what_is_decrypted_is_not_left(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutation: many small answers in one record, of which the kernel tells once, and only the first are read."""

    async def answered(count: int) -> int:
        answers = Answers()
        async with connected(files, at_once=count) as connection:
            connection._inbox = memoryview(bytearray(64))
            frames = []
            for _ in range(count):
                number = connection.next_correlation_id()
                connection.expect(number, answers)
                frames.append(SIZE.pack(4) + number.to_bytes(4))
            connection.write(frames)
            for _ in range(100):
                await asyncio.sleep(0.01)
                if len(answers.bodies) == count:
                    break
            return len(answers.bodies)

    assert await answered(500) == 500
    monkeypatch.setattr(TlsSocket, "pending", lambda _: 0)
    assert await answered(500) < 500


def test_changed_files_are_read_again(tmp_path: Path) -> None:
    """And while a certificate and its key do not fit each other, the former ones are used on, which can be seen."""
    first = certificates.made(tmp_path)
    options = TlsOptions(ca_file=str(first.ca), certificate_file=str(first.client), key_file=str(first.key))
    context = context_of(options)
    assert context_of(options) is context
    assert are_usable(options)
    later = tmp_path / "later"
    later.mkdir()
    second = certificates.made(later)
    os.replace(second.client, first.client)
    assert context_of(options) is context
    assert not are_usable(options)
    os.replace(second.key, first.key)
    assert context_of(options) is not context
    assert are_usable(options)


def test_files_that_become_usable_unseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions are no part of a stamp: what could not be read is tried again, though no stamp has changed."""
    made = certificates.made(tmp_path)
    options = TlsOptions(ca_file=str(made.ca), certificate_file=str(made.client), key_file=str(made.key))
    monkeypatch.setattr(tls, "stamp", lambda _: (1, 1, 1))
    key = made.key.read_bytes()
    made.key.write_bytes(b"")
    assert not are_usable(options)
    made.key.write_bytes(key)
    assert are_usable(options)
    made.key.unlink()
    assert not are_usable(options)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(TlsFailed, match=r"/nowhere/ca.pem cannot be read: No such file"):
        context_of(TlsOptions(ca_file="/nowhere/ca.pem"))
    with pytest.raises(TlsFailed, match=r"ssl.cipher.suites: OpenSSL knows none of them"):
        context_of(TlsOptions(ciphers="NOTHING"))


class _NotAccepted(ssl.SSLCertVerificationError):
    """With what OpenSSL adds."""

    verify_code = 20
    verify_message = "unable to get local issuer certificate"


def _said(reason: str, kind: type[ssl.SSLError] = ssl.SSLError) -> ssl.SSLError:
    """OpenSSL's error with this reason."""
    error = kind(1, reason)
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "shaking", "kind"),
    [
        (ConnectionResetError(104, "Connection reset by peer"), True, TlsInterrupted),
        (_said("UNEXPECTED_EOF_WHILE_READING", ssl.SSLEOFError), True, TlsInterrupted),
        (_said("", ssl.SSLZeroReturnError), True, TlsInterrupted),
        (_said("TLSV1_ALERT_INTERNAL_ERROR"), True, TlsInterrupted),
        (_said("SSLV3_ALERT_BAD_RECORD_MAC"), True, TlsInterrupted),
        (_said("DECRYPTION_FAILED_OR_BAD_RECORD_MAC"), True, TlsInterrupted),
        (_said("DECRYPTION_FAILED_OR_BAD_RECORD_MAC"), False, TlsInterrupted),
        (_said("UNEXPECTED_EOF_WHILE_READING", ssl.SSLEOFError), False, TlsInterrupted),
        (_said("WRONG_VERSION_NUMBER"), False, TlsInterrupted),
        (_said("WRONG_VERSION_NUMBER"), True, TlsFailed),
        (_said("UNSUPPORTED_PROTOCOL"), True, TlsFailed),
        (_said("TLSV1_ALERT_PROTOCOL_VERSION"), True, TlsFailed),
        (_said("SSLV3_ALERT_HANDSHAKE_FAILURE"), True, TlsFailed),
        (_said("TLSV1_ALERT_UNKNOWN_CA"), False, TlsFailed),
        (_said("TLSV13_ALERT_CERTIFICATE_REQUIRED"), False, TlsFailed),
        (_said("CERTIFICATE_VERIFY_FAILED", _NotAccepted), True, TlsFailed),
    ],
)
def test_what_another_try_may_heal(error: OSError, shaking: bool, kind: type[NetworkError]) -> None:
    """A broker that goes away, and damage on the way. A side that does not accept the other will not, the next time."""
    found = failure_of("west broker 1", error, shaking=shaking)
    assert type(found) is kind
    assert found.slug == "tls_failed", (
        "what MirrorAuthErrors goes by: a port without TLS looks like a broker that stops"
    )
