"""TLS and SASL with real brokers: every mechanism, and what is said when one side does not accept the other."""

import asyncio
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.protocol.metadata import MetadataRequest

from mirror.net.connect import connect
from mirror.net.connection import Connection
from mirror.net.errors import AuthenticationFailed, NetworkError, TlsFailed
from mirror.net.options import ConnectionOptions
from mirror.net.security.options import PLAINTEXT, SaslOptions, Secret, SecurityOptions, TlsOptions
from mirror.sandbox import SandboxCluster
from tests import secured
from tests.secured import KEY_PASSWORD, MECHANISMS, MUTUAL, PASSWORD, SASL_PLAIN, SASL_TLS, TLS, Files

pytestmark = pytest.mark.broker
SESSION_MS = 8_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return secured.made(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def brokers(files: Files) -> Iterator[SandboxCluster]:
    with secured.cluster(files, session_ms=SESSION_MS) as running:
        yield running


async def connected(brokers: SandboxCluster, listener: str, security: SecurityOptions) -> Connection:
    port = brokers.brokers[0].ports[listener] if listener else brokers.brokers[0].port
    options = ConnectionOptions(security=security, request_timeout_s=10.0)
    return await connect("127.0.0.1", port, name="broker 1", options=options)


async def asked(connection: Connection) -> int:
    """Something that only a client that is accepted gets an answer to."""
    answer = await connection.call(MetadataRequest(topics=None))
    return len(answer.brokers)


@pytest.mark.parametrize("listener", [SASL_TLS, SASL_PLAIN])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_each_mechanism(brokers: SandboxCluster, files: Files, listener: str, mechanism: str) -> None:
    connection = await connected(brokers, listener, secured.security(files, listener, mechanism))
    assert await asked(connection) == 1
    connection.close()


async def test_tls(brokers: SandboxCluster, files: Files) -> None:
    """With a certificate of ours and without; the key with a password, and in the certificate's file."""
    for listener in (TLS, MUTUAL):
        connection = await connected(brokers, listener, secured.security(files, listener))
        assert await asked(connection) == 1
        connection.close()
    locked = TlsOptions(
        ca_file=str(files.ca), certificate_file=str(files.client), key_file=str(files.locked_key),
        key_password=Secret(KEY_PASSWORD),
    )  # fmt: skip
    connection = await connected(brokers, MUTUAL, SecurityOptions(tls=locked))
    assert await asked(connection) == 1
    connection.close()


async def test_a_session_is_renewed(brokers: SandboxCluster, files: Files) -> None:
    """KIP-368: the broker ends a connection that is used after its session, and this one is not ended. All mechanisms
    at the same time, as each has to outlive a session."""

    async def used(mechanism: str) -> None:
        connection = await connected(brokers, SASL_PLAIN, secured.security(files, SASL_PLAIN, mechanism))
        loop = asyncio.get_running_loop()
        until = loop.time() + 1.3 * SESSION_MS / 1000
        count = 0
        while loop.time() < until:
            assert await asked(connection) == 1, mechanism
            count += 1
            await asyncio.sleep(0.05)
        assert not connection.closed, mechanism
        assert count > 10, mechanism
        connection.close()

    await asyncio.gather(*map(used, MECHANISMS))


async def test_without_renewal_it_ends(brokers: SandboxCluster, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutation: shows that the brokers do ask for it."""
    monkeypatch.setattr("mirror.net.security.sasl.Session._renew_in", lambda *_: None)
    connection = await connected(brokers, SASL_PLAIN, secured.security(files, SASL_PLAIN))
    await asyncio.sleep(SESSION_MS / 1000 + 0.5)
    with pytest.raises(NetworkError):
        await asked(connection)


async def refused(brokers: SandboxCluster, listener: str, security: SecurityOptions) -> NetworkError:
    """The error, which shows no secret."""

    async def tried() -> None:
        await asked(await connected(brokers, listener, security))

    with pytest.raises(NetworkError) as caught:
        await tried()
    text = str(caught.value)
    assert text.startswith("broker 1: ")
    assert PASSWORD not in text
    assert KEY_PASSWORD not in text
    return caught.value


async def test_who_is_not_accepted(brokers: SandboxCluster, files: Files, tmp_path: Path) -> None:
    """Each says which side, which mechanism, and what to do."""
    for mechanism in MECHANISMS[:3]:
        wrong = secured.sasl(mechanism, "another")
        error = await refused(brokers, SASL_PLAIN, SecurityOptions(sasl=wrong))
        assert isinstance(error, AuthenticationFailed)
        assert f"{mechanism} is refused" in str(error)
    late = SaslOptions(mechanism="OAUTHBEARER", tokens=dataclasses.replace(
        secured.sasl("OAUTHBEARER").tokens, token=Secret(secured.token(life_s=-600))))  # fmt: skip
    error = await refused(brokers, SASL_PLAIN, SecurityOptions(sasl=late))
    assert "OAUTHBEARER is refused" in str(error)
    gone = Secret("", str(tmp_path / "gone"))
    error = await refused(brokers, SASL_PLAIN, SecurityOptions(sasl=dataclasses.replace(wrong, password=gone)))
    assert f"{tmp_path}/gone cannot be read: No such file" in str(error)


async def test_who_cannot_be_trusted(brokers: SandboxCluster, files: Files) -> None:
    tls = TlsOptions(ca_file=str(files.ca))
    cases = [
        (TLS, TlsOptions(ca_file=str(files.other_ca)), "ssl.ca.location has to name a file with the authority"),
        (TLS, TlsOptions(), "ssl.ca.location has to name a file with the authority"),
        (MUTUAL, tls, "the broker does not accept our side of TLS"),
        (
            MUTUAL,
            dataclasses.replace(tls, certificate_file=str(files.stranger)),
            "the broker does not accept our side of TLS",
        ),
        (
            MUTUAL,
            dataclasses.replace(tls, certificate_file=str(files.client), key_file=str(files.locked_key)),
            "ssl.key.password does not open",
        ),
        (TLS, dataclasses.replace(tls, ca_file=str(files.key)), "no certificate"),
        (TLS, dataclasses.replace(tls, certificate_file=str(files.client), key_file=str(files.stranger)), "belong"),
    ]
    for listener, options, expected in cases:
        error = await refused(brokers, listener, SecurityOptions(tls=options))
        assert isinstance(error, TlsFailed), error
        assert expected in str(error)


async def test_the_wrong_port(brokers: SandboxCluster, files: Files) -> None:
    """One that speaks something else than was set."""
    tls = SecurityOptions(tls=TlsOptions(ca_file=str(files.ca)))
    cases = [
        ("", tls, "set security.protocol to PLAINTEXT or SASL_PLAINTEXT"),
        ("", SecurityOptions(sasl=secured.sasl("PLAIN")), "this port takes no authentication"),
        (TLS, PLAINTEXT, "set security.protocol to SSL or SASL_SSL"),
        (SASL_PLAIN, PLAINTEXT, "or this port needs authentication"),
        (SASL_TLS, tls, "or this port needs authentication"),
        (
            SASL_PLAIN,
            SecurityOptions(sasl=SaslOptions(mechanism="GSSAPI")),
            "does not offer GSSAPI on this port",
        ),
    ]
    for listener, security, expected in cases:
        assert expected in str(await refused(brokers, listener, security)), (listener, security.protocol)


async def test_an_expired_certificate(tmp_path: Path) -> None:
    old = secured.made(tmp_path, expired=True)
    with secured.cluster(old, name="expired") as brokers:
        error = await refused(brokers, TLS, SecurityOptions(tls=TlsOptions(ca_file=str(old.ca))))
        assert isinstance(error, TlsFailed)
        assert "certificate has expired; give the broker a valid one" in str(error)


async def test_another_host(tmp_path: Path) -> None:
    """Whose certificate has another name; and it is accepted where nobody asks for the name."""
    elsewhere = secured.made(tmp_path, hosts=("elsewhere.example",))
    with secured.cluster(elsewhere, name="elsewhere") as brokers:
        tls = TlsOptions(ca_file=str(elsewhere.ca))
        error = await refused(brokers, TLS, SecurityOptions(tls=tls))
        assert isinstance(error, TlsFailed)
        assert "connect by a name that is in it" in str(error)
        connection = await connected(brokers, TLS, SecurityOptions(tls=dataclasses.replace(tls, verify_hostname=False)))
        assert await asked(connection) == 1
        connection.close()
