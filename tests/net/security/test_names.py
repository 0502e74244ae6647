"""The name under which a broker's certificate is looked at."""

import asyncio
import socket
from pathlib import Path

import pytest

from mirror.net.connect import connect
from mirror.net.errors import TlsFailed
from mirror.net.options import ClusterOptions, ConnectionOptions, certified
from mirror.net.security import sasl
from mirror.net.security.librdkafka import servers
from mirror.net.security.options import PLAINTEXT, SaslOptions, SecurityOptions, TlsOptions
from tests import secured
from tests.fakes.broker import FakeCluster

HOST = "kafka.example.com"


@pytest.mark.parametrize("mechanism", ["", "GSSAPI"])
async def test_a_dot_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: str) -> None:
    """
    1. The host is written as complete, and so it is resolved.
    2. Its certificate, SNI and Kerberos have the name without the dot.
    3. Another host's certificate is not accepted, with a dot or without.
    """
    asked: list[str] = []
    announced: list[str | None] = []
    principals: list[str] = []

    class Session(sasl.Session):
        def __init__(self, connection: object, security: object, host: str) -> None:
            principals.append(host)

        async def begin(self) -> None:
            """It is only asked for the name."""

    monkeypatch.setattr(sasl, "Session", Session)
    files = secured.made(tmp_path, hosts=(HOST,))
    context = secured.server_context(files)
    context.sni_callback = lambda _, name, __: announced.append(name)
    tls = TlsOptions(ca_file=str(files.ca))
    security = SecurityOptions(tls=tls, sasl=SaslOptions(mechanism=mechanism) if mechanism else None)
    async with FakeCluster(tls=context) as fake:

        async def getaddrinfo(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
            asked.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", fake.brokers[1].port))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        options = ConnectionOptions(security=security)
        for host in (HOST, f"{HOST}."):
            (await connect(host, 9093, name="b", options=options)).close()
        for host in ("other.example.com", "other.example.com."):
            with pytest.raises(
                TlsFailed, match=r"certificate is not valid for 'other\.example\.com'; connect by a name"
            ):
                await connect(host, 9093, name="b", options=options)
    assert asked == [HOST, f"{HOST}.", "other.example.com", "other.example.com."]
    assert announced == [HOST, HOST, "other.example.com", "other.example.com"]
    assert principals == ([HOST, HOST] if mechanism else [])
    assert certified("127.0.0.1") == "127.0.0.1"


def test_librdkafka_gets_names_of_certificates() -> None:
    """It compares what it is given, and would not find the dot in a certificate. Without one to compare, the dot stays:
    it keeps resolvers from looking elsewhere first."""

    def found(security: SecurityOptions) -> str:
        connection = ConnectionOptions(security=security)
        return servers(ClusterOptions(bootstrap=((f"{HOST}.", 9093), ("::1", 9094)), connection=connection))

    assert found(SecurityOptions(tls=TlsOptions())) == f"{HOST}:9093,[::1]:9094"
    assert found(PLAINTEXT) == f"{HOST}.:9093,[::1]:9094"
