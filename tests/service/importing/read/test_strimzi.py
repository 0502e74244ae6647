"""Strimzi's resource: both versions of its API, every kind of authentication, and hostile YAML."""

from pathlib import Path

import pytest

from mirror.service.config import ConfigError
from mirror.service.importing.read.strimzi import read
from tests.service.importing.importing import loaded, strimzi

HEAD = "apiVersion: kafka.strimzi.io/v1beta2\nkind: KafkaMirrorMaker2\n"
CLUSTERS = """spec:
  clusters:
    - {alias: a, bootstrapServers: "a:9092"}
    - alias: b
      bootstrapServers: "b:9092"
"""
MIRRORS = """  mirrors:
    - sourceCluster: a
      targetCluster: b
      sourceConnector: {}
"""
FILE = "${file:/etc/mirror/secrets/s/k}"
ENDPOINT = "tokenEndpointUri: https://idp/t, clientId: c"


def of_b(tmp_path: Path, more: str) -> dict[str, str]:
    """The settings of cluster b, as text, with this besides."""
    text = strimzi(tmp_path, f"{HEAD}{CLUSTERS}{more}{MIRRORS}").text
    loaded(tmp_path, text)
    lines = text.split('  "b":\n')[1].split("\nflows:")[0].splitlines()
    parts = (line.strip().partition(": ") for line in lines if not line.strip().startswith("#"))
    return {key: value.partition("  # ")[0].strip('"') for key, _, value in parts if key}


def test_nothing_is_protected(tmp_path: Path) -> None:
    assert of_b(tmp_path, "") == {"bootstrap.servers": "b:9092"}


@pytest.mark.parametrize("tls", ["{}", "{trustedCertificates: []}"])
def test_the_systems_authorities(tls: str, tmp_path: Path) -> None:
    assert of_b(tmp_path, f"      tls: {tls}\n")["security.protocol"] == "SSL"


def test_several_certificates(tmp_path: Path) -> None:
    listed = "{trustedCertificates: [{secretName: s, certificate: x.crt}, {secretName: t, pattern: '*.crt'}]}"
    text = strimzi(tmp_path, f"{HEAD}{CLUSTERS}      tls: {listed}\n{MIRRORS}").text
    assert "cat /etc/mirror/secrets/s/x.crt /etc/mirror/secrets/t/*.crt > /etc/mirror/secrets/b-ca.pem" in text


@pytest.mark.parametrize(
    ("kind", "mechanism"), [("plain", "PLAIN"), ("scram-sha-256", "SCRAM-SHA-256"), ("scram-sha-512", "SCRAM-SHA-512")]
)
def test_by_password(kind: str, mechanism: str, tmp_path: Path) -> None:
    given = f"{{type: {kind}, username: u, passwordSecret: {{secretName: s, password: p}}}}"
    assert of_b(tmp_path, f"      authentication: {given}\n") == {
        "bootstrap.servers": "b:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "u",
        "sasl.password": "${file:/etc/mirror/secrets/s/p}",
    }


def test_by_certificate(tmp_path: Path) -> None:
    given = "{type: tls, certificateAndKey: {secretName: s, certificate: c, key: k}}"
    found = of_b(tmp_path, f"      tls: {{}}\n      authentication: {given}\n")
    assert found["ssl.certificate.location"] == "/etc/mirror/secrets/s/c"
    assert found["ssl.key.location"] == "/etc/mirror/secrets/s/k"
    assert found["security.protocol"] == "SSL"


@pytest.mark.parametrize(
    ("given", "key", "value"),
    [
        ("accessToken: {secretName: s, key: k}", "sasl.oauthbearer.token", FILE),
        ("accessTokenLocation: /run/token", "sasl.oauthbearer.token", "${file:/run/token}"),
        (f"{ENDPOINT}, clientSecret: {{secretName: s, key: k}}", "sasl.oauthbearer.client.secret", FILE),
        (f"{ENDPOINT}, refreshToken: {{secretName: s, key: k}}", "sasl.oauthbearer.token.provider", "my_tokens:token"),
        ("username: u, clientAssertion: x", "sasl.oauthbearer.token.provider", "my_tokens:token"),
    ],
)  # fmt: skip
def test_by_token(given: str, key: str, value: str, tmp_path: Path) -> None:
    found = of_b(tmp_path, f"      authentication: {{type: oauth, {given}}}\n")
    assert (found["sasl.mechanism"], found[key]) == ("OAUTHBEARER", value)


def test_by_settings_of_kafkas_clients(tmp_path: Path) -> None:
    """``type: custom`` of API v1."""
    jaas = 'x.PlainLoginModule required username=\\"u\\" password=\\"hunter2\\";'
    config = f'{{sasl.mechanism: PLAIN, sasl.jaas.config: "{jaas}", some.thing: 1}}'
    found = of_b(tmp_path, f"      tls: {{}}\n      authentication: {{type: custom, sasl: true, config: {config}}}\n")
    assert (found["security.protocol"], found["sasl.username"]) == ("SASL_SSL", "u")
    assert found["sasl.password"] == "${env:MIRROR_B_SASL_PASSWORD}"


def test_unknown_authentication_needs_a_decision(tmp_path: Path) -> None:
    found = strimzi(tmp_path, f"{HEAD}{CLUSTERS}      authentication: {{type: new, token: hunter2}}\n{MIRRORS}")
    assert [each for each in found.decisions if "authentication.type" in each and "unknown" in each]
    assert "hunter2" not in found.text


def test_the_same_key_in_several_connectors(tmp_path: Path) -> None:
    more = "      checkpointConnector: {config: {replication.policy.separator: X, tasks.max: 1}}\n"
    text = f"{HEAD}{CLUSTERS}{MIRRORS}{more}".replace(
        "{}", "{config: {replication.policy.separator: '-', tasks.max: 1}}"
    )
    found = strimzi(tmp_path, text)
    assert 'replication.policy.separator: "-"' in found.text
    assert any("checkpointConnector" in each and "differs from line 11" in each for each in found.decisions)
    assert "checkpointConnector.config.tasks.max, line 12: the same as in line 11" in found.text


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (f"{HEAD}", "spec: copies nothing"),
        (f"{HEAD}spec: 1\n", ":3: spec: must be a mapping"),
        (f"{HEAD}spec: {{clusters: 1}}\n", "spec.clusters: must be a list"),
        (f"{HEAD}spec: {{clusters: [1]}}\n", "spec.clusters[0]: must be a mapping"),
        (f"{HEAD}spec: {{clusters: [{{}}]}}\n", "spec.clusters[0]: has no alias"),
        (f"{HEAD}{CLUSTERS}", "spec: copies nothing"),
        (f"{HEAD}{CLUSTERS}{MIRRORS}".replace("alias: b", "alias: a"), ":6: spec.clusters[1]: is a second cluster a"),
        (f"{HEAD}{CLUSTERS}{MIRRORS}".replace("Cluster: b", "Cluster: x"), ":9: spec.mirrors[0]: its target is no"),
        (f"{HEAD}{CLUSTERS}{MIRRORS}" + MIRRORS.replace("  mirrors:\n", ""), "is a second mirror a->b"),
        (f"{HEAD}{CLUSTERS}{MIRRORS}      sourceConnector: 1\n", ":12: spec.mirrors[0].sourceConnector: stands twice"),
        (f"{HEAD}spec: &x\n  clusters: *x\n", "nested too deeply"),
        (f"{HEAD}spec: *nothing\n", "undefined alias"),
        (f"{HEAD}a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
            f"{y}: &{y} [{','.join(['*' + x] * 10)}]\n" for x, y in zip("abcdef", "bcdefg", strict=True)
        ), "too many values"),
        (f"{HEAD}spec: {{\n", "is not valid YAML"),
        (f"{HEAD}spec: {'[' * 5_000}\n", "nested too deeply"),
        (f"{HEAD}x: \x07\n", "is not valid YAML"),
        (f"{HEAD}---\n{HEAD}", "is not valid YAML"),
        (f"{HEAD}spec: {{? [a] : b}}\n", "is a key that is not text"),
        (f"{HEAD}spec: !hunter2 x\n", "has a tag that means nothing here"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(content: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "mirrormaker.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read(str(path))
    assert problem in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "mirrormaker.yaml"
    path.write_bytes(HEAD.encode() + b"# caf\xe9\n")
    with pytest.raises(ConfigError, match=":3: the file is not UTF-8 text"):
        read(str(path))


def test_nothing_is_looked_up(tmp_path: Path) -> None:
    """Neither files nor variables of the machine where it is imported."""
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    more = f'      config: {{client.id: "${{file:{secret}}}", client.rack: "${{strimzienv:HOME}}"}}\n'
    text = strimzi(tmp_path, f"{HEAD}{CLUSTERS}{more}{MIRRORS}").text
    assert "hunter2" not in text
    assert 'client.rack: "${env:HOME}"' in text
