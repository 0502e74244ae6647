"""TLS on a connection's socket, without a transport or a thread: OpenSSL reads and writes the non-blocking socket.

``TlsSocket`` has the few methods of a socket that ``net.stream`` uses. OpenSSL handles one TLS record (at most 16 KiB)
per call, so its methods call OpenSSL until the buffer is full or nothing is left.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress

from mirror.net.connection import Connection
from mirror.net.errors import AuthenticationFailed, ConnectionLost, NetworkError, TlsFailed, TlsInterrupted
from mirror.net.options import ConnectionOptions
from mirror.net.security.files import Stamp, stamp
from mirror.net.security.options import TlsOptions
from mirror.net.stream import Piece

RECORD = 16 * 1024
"""Most bytes of a TLS record."""
JOINED = 256 * 1024
"""Small pieces are joined up to this size: each record costs a system call and a cipher's set-up."""
HELD_BACK = RECORD + 1024
"""OpenSSL may already hold the beginning of a record. So the kernel is asked to gather so many bytes less than are
missing: otherwise it might wait for bytes that OpenSSL has."""

_NO_ROOT, _SELF_SIGNED, _UNKNOWN_ISSUER, _EXPIRED, _NOT_YET, _WRONG_HOST, _WRONG_ADDRESS = (
    2, (18, 19), (20, 21), 10, 9, 62, 64,
)  # fmt: skip
"""OpenSSL's codes for a certificate that was not accepted (X509_V_ERR_...)."""
_BROKEN = ("INTERNAL_ERROR", "BAD_RECORD_MAC", "DECODE_ERROR", "USER_CANCELED")
"""Endings of OpenSSL's reasons that do not mean that one side refuses the other: damaged bytes, a broker in trouble."""
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")

_contexts: dict[TlsOptions, tuple[tuple[Stamp, ...], ssl.SSLContext]] = {}
"""Options -> the stamps of their files, and the context that was made of these files."""
_usable: dict[TlsOptions, tuple[Stamp, ...]] = {}
"""Options -> the stamps of their files when a context could last be made of them."""


def context_of(options: TlsOptions) -> ssl.SSLContext:
    """Returns the context for these options. It is cached, and made again when one of their files has changed.

    While a certificate and its key are being replaced, they may not match each other. Until they do, the previous
    context is returned.

    Raises:
        TlsFailed: a file cannot be read or has the wrong content, and there is no previous context; the message names
            the file.
    """
    now = _stamps(options)
    known = _contexts.get(options)
    if known is not None and known[0] == now:
        return known[1]
    try:
        context = _made(options)
    except TlsFailed:
        if known is None:
            raise
        return known[1]
    _contexts[options] = now, context
    return context


def check_files(options: TlsOptions) -> None:
    """Checks that a context can be made of the files as they are now.

    Raises:
        TlsFailed: as ``context_of``.
    """
    _made(options)


def are_usable(options: TlsOptions) -> bool:
    """Returns True if a context can be made of the files as they are now. They are read only if one has changed since
    they were last usable. Permissions are checked each time, because a stamp does not include them."""
    now = _stamps(options)
    if _usable.get(options) == now and all(os.access(file, os.R_OK) for file in _files(options)):
        return True
    _usable.pop(options, None)
    try:
        _made(options)
    except TlsFailed:
        return False
    _usable[options] = now
    return True


def _files(options: TlsOptions) -> list[str]:
    files = (options.ca_file, options.certificate_file, options.key_file, options.key_password.file)
    return [file for file in files if file]


def _stamps(options: TlsOptions) -> tuple[Stamp, ...]:
    return tuple(map(stamp, _files(options)))


def _made(options: TlsOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.check_hostname = options.verify_hostname
    file = options.ca_file
    try:
        if options.ca_file:
            context.load_verify_locations(cafile=options.ca_file)
        else:
            context.load_default_certs()
        file = options.certificate_file
        if options.certificate_file:
            file = " and ".join(filter(None, (options.certificate_file, options.key_file)))
            context.load_cert_chain(
                options.certificate_file, options.key_file or None, password=options.key_password.read
            )
    except AuthenticationFailed as error:
        raise TlsFailed(str(error)) from None
    except ssl.SSLError as error:
        raise TlsFailed(f"{file}: {_of_a_file(error)}") from None
    except (OSError, ValueError) as error:
        raise TlsFailed(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if options.ciphers:
        try:
            context.set_ciphers(options.ciphers)
        except ssl.SSLError:
            raise TlsFailed("ssl.cipher.suites: OpenSSL knows none of them") from None
    return context


def _of_a_file(error: ssl.SSLError) -> str:
    """Returns what is wrong with a PEM file, in words."""
    if "PEM lib" in str(error):  # OpenSSL says nothing else of a key that it cannot read
        return "ssl.key.password does not open the private key, or it is not PEM text"
    return {
        "KEY_VALUES_MISMATCH": "the private key does not belong to the certificate",
        "NO_CERTIFICATE_OR_CRL_FOUND": "there is no certificate in it; it has to be PEM text",
        "NO_START_LINE": "there is no certificate or no private key in it; both have to be PEM text",
    }.get(getattr(error, "reason", None) or "", f"it cannot be used ({getattr(error, 'reason', None) or error})")


class TlsSocket:
    """A connected socket with TLS on it. Like a plain non-blocking socket, it raises BlockingIOError if a call would
    block."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock

    def fileno(self) -> int:
        """Returns the descriptor of the socket underneath."""
        return self._sock.fileno()

    def close(self) -> None:
        """Closes the socket."""
        self._sock.close()

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Sets an option of the socket underneath."""
        self._sock.setsockopt(level, option, value)

    def pending(self) -> int:
        """Returns the number of bytes that are decrypted but not read yet. The kernel does not know of them, and does
        not report the socket as readable for them."""
        return self._sock.pending()

    def recv_into(self, buffer: memoryview) -> int:
        """Reads as much as there is and fits. Returns the number of bytes; 0 at the end of the connection.

        Raises:
            BlockingIOError: there is nothing to read yet.
            OSError: the connection is broken, or OpenSSL does not accept the received bytes.
        """
        filled, size = 0, len(buffer)
        while filled < size:
            try:
                received = self._sock.recv_into(buffer[filled:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            if not received:
                return filled
            filled += received
            if received < RECORD and not self._sock.pending():
                break  # most likely nothing else was received: another try would cost a system call
        if not filled:
            raise BlockingIOError
        return filled

    def send(self, piece: Piece) -> int:
        """As ``sendmsg``, for one piece."""
        return self.sendmsg((piece,))

    def sendmsg(self, pieces: Sequence[Piece]) -> int:
        """Writes as much as the kernel takes. Returns the number of bytes.

        After a call that did not take everything, the next call has to begin with the rest, as ``Connection.write``
        does: OpenSSL has already encrypted the beginning of the rest as a record.

        Raises:
            BlockingIOError: the kernel's buffer is full.
            OSError: the connection is broken.
        """
        total = 0
        for chunk in _joined(pieces):
            view = memoryview(chunk)
            while view:
                try:
                    sent = self._sock.send(view)
                except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                    if not total:
                        raise BlockingIOError from None
                    return total
                total += sent
                view = view[sent:]
        return total


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Returns the pieces joined to about ``JOINED`` bytes each; larger pieces are not copied."""
    runs: list[Piece] = []
    some: list[Piece] = []
    size = 0
    for piece in pieces:
        if size and size + len(piece) > JOINED:
            runs.append(some[0] if len(some) == 1 else b"".join(some))
            some, size = [], 0
        some.append(piece)
        size += len(piece)
    if some:
        runs.append(some[0] if len(some) == 1 else b"".join(some))
    return runs


class TlsConnection(Connection):
    """A connection with TLS."""

    def __init__(self, sock: TlsSocket, *, name: str, options: ConnectionOptions, read_ahead: int) -> None:
        super().__init__(sock, name=name, options=options, read_ahead=read_ahead)
        self._secure = sock

    def _on_readable(self) -> None:
        super()._on_readable()
        while not self.closed and self._secure.pending():
            super()._on_readable()

    def _set_low_water(self, low_water: int) -> None:
        self._low_water = low_water
        self._secure.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, max(1, low_water - HELD_BACK))

    def _lost(self, error: OSError) -> NetworkError:
        return failure_of(self.name, error)


async def secured(sock: socket.socket, host: str, *, name: str, options: TlsOptions) -> TlsSocket:
    """Makes the TLS handshake.

    Args:
        sock: a connected, non-blocking socket. The result owns it; it is closed if this raises.
        host: the name or address that was connected to, as it stands in certificates (``certified``).
        name: the broker's name in messages.
        options: the settings for TLS.

    Raises:
        TlsFailed: one side does not accept the other, or the port has no TLS.
        ConnectionLost: the connection broke, for example because the broker was stopped.
    """
    try:
        context = context_of(options)
        secure = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    except TlsFailed as error:
        sock.close()
        raise TlsFailed(f"{name}: {error}") from None
    except (OSError, ValueError) as error:
        sock.close()
        raise failure_of(name, error) from error
    try:
        await _handshake(secure)
    except OSError as error:
        secure.close()
        raise failure_of(name, error, shaking=True) from error
    except BaseException:
        secure.close()
        raise
    return TlsSocket(secure)


async def _handshake(secure: ssl.SSLSocket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        ready: asyncio.Future[None] = loop.create_future()
        try:
            secure.do_handshake()
            return
        except ssl.SSLWantReadError:
            loop.add_reader(secure, _wake, ready)
            forget = loop.remove_reader
        except ssl.SSLWantWriteError:
            loop.add_writer(secure, _wake, ready)
            forget = loop.remove_writer
        try:
            await ready
        finally:
            with suppress(ValueError):
                forget(secure)


def _wake(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


def failure_of(name: str, error: Exception, *, shaking: bool = False) -> NetworkError:
    """Returns the error to raise for an error of OpenSSL or the socket, with a remedy in words. It is
    ``TlsInterrupted`` if another try may succeed.

    Args:
        name: the broker's name in messages.
        error: the error of OpenSSL or the socket.
        shaking: True if it occurred during the handshake.
    """
    kind: type[NetworkError]
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsFailed(f"{name}: the broker's certificate is not accepted: {_unaccepted(error)}")
    reason = getattr(error, "reason", None) or ""
    if isinstance(error, ssl.SSLEOFError | ConnectionResetError | ssl.SSLZeroReturnError) and shaking:
        return TlsInterrupted(
            f"{name}: the connection was closed during the TLS handshake: the broker has just stopped, or this port "
            "does not speak TLS (then set security.protocol to PLAINTEXT or SASL_PLAINTEXT)"
        )
    if isinstance(error, ssl.SSLError):
        if reason in _NO_TLS and shaking:
            return TlsFailed(
                f"{name}: this port does not speak TLS; set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use "
                "the port of the brokers' TLS listener"
            )
        if "ALERT" in reason:
            told = reason.partition("ALERT_")[2].replace("_", " ").lower()
            kind = TlsInterrupted if reason.endswith(_BROKEN) else TlsFailed
            return kind(
                f"{name}: the broker does not accept our side of TLS: {told}; see ssl.certificate.location and "
                "ssl.key.location, and what the broker trusts (ssl.truststore.location there)"
            )
        # After the handshake, both sides have accepted each other: the error can only be damaged bytes.
        kind = TlsFailed if shaking and not reason.endswith(_BROKEN) else TlsInterrupted
        return kind(f"{name}: TLS failed: {reason or error}")
    return ConnectionLost(f"{name}: {getattr(error, 'strerror', None) or error}")


def _unaccepted(error: ssl.SSLCertVerificationError) -> str:
    code, told = error.verify_code, error.verify_message.removesuffix(".")
    if code in (_WRONG_HOST, _WRONG_ADDRESS):
        remedy = "connect by a name that is in it, or set ssl.endpoint.identification.algorithm to none"
    elif code == _NO_ROOT:  # librdkafka does not accept partial chains, either, but does not say so
        remedy = "ssl.ca.location has to name a file with the root, too: an intermediate authority alone is not enough"
    elif code in _SELF_SIGNED or code in _UNKNOWN_ISSUER:
        remedy = "ssl.ca.location has to name a file with the authority that issued it"
    elif code in (_EXPIRED, _NOT_YET):
        remedy = "give the broker a valid one, or set this machine's clock"
    else:
        remedy = "see the broker's certificate"
    return f"{told}; {remedy}"
