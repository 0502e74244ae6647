"""Which authorities a file has to hold: what our own connections accept, librdkafka accepts, and nothing else.

Both take only a root for the end of a chain. (Java takes whatever its truststore has.)
"""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Queue
from typing import NamedTuple

import pytest
import trustme
from confluent_kafka.admin import AdminClient

from mirror.net.errors import TlsFailed
from mirror.net.security.librdkafka import client_config
from mirror.net.security.options import SecurityOptions, TlsOptions
from mirror.net.security.tls import secured

PATIENCE_S = 60.0


class Chain(NamedTuple):
    """PEM: a root, an intermediate authority, and a broker's key with its certificate, alone and with the
    intermediate's."""

    root: bytes
    intermediate: bytes
    alone: bytes
    whole: bytes


@pytest.fixture(scope="module")
def chain() -> Chain:
    root = trustme.CA()
    intermediate = root.create_child_ca()
    broker = intermediate.issue_cert("127.0.0.1")
    alone = broker.private_key_pem.bytes() + broker.cert_chain_pems[0].bytes()
    whole = broker.private_key_and_cert_chain_pem.bytes()
    return Chain(root.cert_pem.bytes(), intermediate.cert_pem.bytes(), alone, whole)


@contextmanager
def serving(pem: Path) -> Iterator[tuple[int, "Queue[bool]"]]:
    """A port that makes handshakes with this certificate, and whether the client had each."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem)
    ends: Queue[bool] = Queue()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            with suppress(OSError):
                while True:
                    raw, _ = server.accept()
                    raw.settimeout(PATIENCE_S)
                    with raw:
                        try:
                            with context.wrap_socket(raw, server_side=True) as secure:
                                # With TLS 1.3, the client's verdict comes behind the handshake: data, or an alert.
                                ends.put(bool(secure.recv(1)))
                        except OSError:
                            ends.put(False)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield server.getsockname()[1], ends
        server.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE_S)


@pytest.mark.parametrize(
    ("sent", "trusted", "accepted"),
    [
        ("whole", "root", True),
        ("alone", "root intermediate", True),
        ("whole", "intermediate", False),
        ("alone", "intermediate", False),
    ],
)
async def test_authorities(chain: Chain, tmp_path: Path, sent: str, trusted: str, accepted: bool) -> None:
    """``sent``: what the broker sends of its chain. ``trusted``: what ``ssl.ca.location`` has."""
    broker, ca = tmp_path / "broker.pem", tmp_path / "ca.pem"
    broker.write_bytes(getattr(chain, sent))
    ca.write_bytes(b"".join(getattr(chain, name) for name in trusted.split()))
    options = TlsOptions(ca_file=str(ca))
    with serving(broker) as (port, ends):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setblocking(False)
        if accepted:
            ours = await secured(sock, "127.0.0.1", name="broker 1", options=options)
            ours.send(b"x")
            assert ends.get(timeout=PATIENCE_S)
            ours.close()
        else:
            told = "unable to get issuer certificate; ssl.ca.location has to name a file with the root, too: an interm"
            with pytest.raises(TlsFailed, match=told):
                await secured(sock, "127.0.0.1", name="broker 1", options=options)
            assert not ends.get(timeout=PATIENCE_S)
        config = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0, "error_cb": lambda _: None}
        client = AdminClient({**config, **client_config(SecurityOptions(tls=options))})
        end = time.monotonic() + PATIENCE_S
        while ends.empty() and time.monotonic() < end:
            client.poll(0.05)
        assert ends.get_nowait() is accepted
        del client
