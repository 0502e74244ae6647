"""TLS and SASL in the configuration: what goes together, what is missing, and that no secret is shown."""

import dataclasses
import json
from pathlib import Path

import pytest

from mirror.net.security.options import Secret, SecurityOptions
from mirror.service.config.resolve import cluster_options, handover
from mirror.service.worker_settings import Handover
from tests.service.config.loading import AT_CLUSTER, CLUSTER, Load, base

PASSWORD = "correct horse"


def lines(*settings: str) -> str:
    """Of a cluster, one below the other."""
    return "\n    ".join(settings)


def test_everything_reaches_the_workers(loading: Load, tmp_path: Path) -> None:
    """Also through JSON, with files as absolute paths, and the file that a secret came from."""
    for name in ("ca.pem", "client.pem", "key.pem"):
        (tmp_path / name).write_text("-----")
    (tmp_path / "password").write_text(PASSWORD + "\n")
    config = loading(
        base(
            cluster=lines(
                "security.protocol: sasl_ssl",
                "ssl.ca.location: ca.pem",
                f"ssl.certificate.location: {tmp_path}/client.pem",
                "ssl.key.location: key.pem",
                'ssl.key.password: "${env:KEY}"',
                "ssl.endpoint.identification.algorithm: none",
                "sasl.mechanism: scram-sha-512",
                "sasl.username: mirror",
                'sasl.password: "${file:password}"',
            )
        ),
        {"KEY": "of the key"},
    )
    security = cluster_options(config.enabled_flow().source).connection.security
    assert security.protocol == "SASL_SSL"
    assert security.tls is not None
    assert security.sasl is not None
    assert security.tls.ca_file == str(tmp_path / "ca.pem")
    assert security.tls.key_password == Secret("of the key")
    assert not security.tls.verify_hostname
    assert (security.sasl.mechanism, security.sasl.username) == ("SCRAM-SHA-512", "mirror")
    assert security.sasl.password == Secret(PASSWORD, str(tmp_path / "password"))
    packed = json.loads(json.dumps(handover(config.enabled_flow(), config).pack()))
    assert Handover.unpack(packed).source.connection.security == security
    assert SecurityOptions.unpack(dataclasses.asdict(security)) == security
    for shown in (repr(config), repr(security), str(config), repr(config.enabled_flow())):
        assert PASSWORD not in shown
        assert "of the key" not in shown


def test_a_rotated_secret_is_read_again(loading: Load, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("old")
    config = loading(
        base(
            cluster=lines(
                "security.protocol: SASL_PLAINTEXT",
                "sasl.mechanism: PLAIN",
                "sasl.username: mirror",
                'sasl.password: "${file:password}"',
            )
        )
    )
    sasl = config.enabled_flow().source.security.sasl
    assert sasl is not None
    (tmp_path / "password").write_text("new\r\n")
    assert sasl.password.read() == "new"


SASL = "security.protocol: SASL_SSL"
TOKENS = (SASL, "sasl.mechanism: OAUTHBEARER")
NOT_TOGETHER = [
    (["ssl.ca.location: mirror.yaml"], "ssl.ca.location: belongs to TLS, and security.protocol is PLAINTEXT"),
    (["security.protocol: SSL", "ssl.ca.location: no.pem"], "ssl.ca.location: names no file that can be read"),
    (["security.protocol: SSL", "ssl.key.location: mirror.yaml"], "ssl.key.location: needs ssl.certificate.location"),
    (["security.protocol: SSL", "sasl.mechanism: PLAIN"], "sasl.mechanism: belongs to authentication, and security.p"),
    ([SASL], "sasl.mechanism: is missing: security.protocol is SASL_SSL; write one of PLAIN"),
    (
        [SASL, "sasl.mechanism: PLAIN", "sasl.username: me"],
        "sasl.password: is missing: PLAIN needs it; write it, as ${",
    ),
    (["sasl.username: me"], "sasl.username: belongs to PLAIN and SCRAM-SHA-256 and SCRAM-SHA-512, and nothing is"),
    ([*TOKENS], "sasl.oauthbearer.token.endpoint.url: is one of three sources of tokens, and none is given; write one"),
    (
        [*TOKENS, "sasl.oauthbearer.token: a", "sasl.oauthbearer.token.provider: my.tokens:token"],
        "sasl.oauthbearer.token.endpoint.url: is one of three sources of tokens, and 2 are given; write one of",
    ),
    (
        [*TOKENS, "sasl.oauthbearer.token.provider: tokens"],
        "sasl.oauthbearer.token.provider: names no function; write",
    ),
    (
        [*TOKENS, "sasl.oauthbearer.extensions: {logical_cluster: x}"],
        "sasl.oauthbearer.extensions: has the name 'logical_cluster'; write names of letters only",
    ),
    ([*TOKENS, "sasl.oauthbearer.extensions: {auth: x}"], "sasl.oauthbearer.extensions: has the name 'auth'; write"),
    (["sasl.jaas.config: x"], "sasl.jaas.config: is a setting of Java clients; write what is in it as sasl.username"),
]


@pytest.mark.parametrize(("settings", "expected"), NOT_TOGETHER)
def test_what_does_not_go_together(loading: Load, settings: list[str], expected: str) -> None:
    found = loading.errors(base(cluster=lines(*settings)))
    assert any(f": {AT_CLUSTER}{expected}" in f": {error.partition(': ')[2]}" for error in found), found
    assert all(CLUSTER <= int(error.partition(":")[0]) < CLUSTER + len(settings) for error in found)


@pytest.mark.parametrize(
    "written",
    [
        PASSWORD,
        f"[{PASSWORD}]",
        "4711471147",
        f'"{PASSWORD}"',
        f"*{PASSWORD}",
        f"!{PASSWORD} x",
        f"!{PASSWORD}!x",
        f"a${{{PASSWORD}}}",
    ],
)
def test_a_secret_that_is_wrong_is_not_shown(loading: Load, written: str) -> None:
    for settings in ((f"sasl.password: {written}",), (*TOKENS, f"sasl.oauthbearer.client.secret: {written}")):
        for error in loading.errors(base(cluster=lines(*settings))):
            assert PASSWORD not in error
            assert "4711471147" not in error


def test_a_client_needs_both_id_and_secret(loading: Load) -> None:
    given = ("security.protocol: SASL_SSL", "sasl.mechanism: OAUTHBEARER",
             "sasl.oauthbearer.token.endpoint.url: https://id.example/token")  # fmt: skip
    found = loading.errors(base(cluster=lines(*given, "sasl.oauthbearer.client.id: me")))
    assert len(found) == 1
    assert f"{AT_CLUSTER}sasl.oauthbearer.client.secret: is missing; the token server asks for client id" in found[0]
