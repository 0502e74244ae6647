"""References of Kafka's ConfigProviders in our notation, and secrets that never appear."""

import pytest

from mirror.service.importing.translate.references import Referring, refers, secret, translated, variable

_OF_KAFKA = "org.apache.kafka.common.config.provider."
PROVIDERS = {
    "env": f"{_OF_KAFKA}EnvVarConfigProvider",
    "dir": f"{_OF_KAFKA}DirectoryConfigProvider",
    "file": f"{_OF_KAFKA}FileConfigProvider",
    "vault": "com.example.Vault",
}


@pytest.mark.parametrize(
    ("value", "ours"),
    [
        ("plain", "plain"),
        ("${env:HOST}:9092", "${env:HOST}:9092"),
        ("${dir:/run/secrets:password}", "${file:/run/secrets/password}"),
        ("${dir:/run/secrets/:password}", "${file:/run/secrets/password}"),
        ("${strimzienv:HOST}", "${env:HOST}"),
        ("${strimzidir:/opt/x:key}", "${file:/opt/x/key}"),
        ("${file:/etc/a.properties:key}", "${env:V}"),
        ("${vault:secret/kafka:password}", "${env:V}"),
        ("${secrets:ns/name:key}", "${env:V}"),
        ("a${env:X}b${vault:y}", "a${env:X}b${env:V}"),
        ("literal ${", "literal $${"),
        ("${not closed", "$${not closed"),
        ("${nothing}", "$${nothing}"),
    ],
)
def test_in_our_notation(value: str, ours: str) -> None:
    assert translated(value, PROVIDERS, "V").text == ours


def test_what_has_to_be_done_is_said() -> None:
    assert "set V" in translated("${vault:a:b}", PROVIDERS, "V").note
    assert translated("${env:A}", PROVIDERS, "V").note == ""


@pytest.mark.parametrize("value", ["hunter2", "", "${env:A}hunter2", "hunter2${env:A}", "${nothing}", "${env:A"])
def test_a_secret_never_appears(value: str) -> None:
    found = secret(value, PROVIDERS, "V")
    assert found.text == "${env:V}"
    assert "hunter2" not in str(found)


def test_a_reference_to_a_secret_stays_one() -> None:
    assert secret("${env:PASSWORD}", PROVIDERS, "V") == Referring("${env:PASSWORD}", True)
    assert secret("${dir:/run:p}", PROVIDERS, "V").text == "${file:/run/p}"


def test_names_of_variables() -> None:
    assert variable("us-west.1", "sasl.password") == "MIRROR_US_WEST_1_SASL_PASSWORD"
    assert refers("a${env:X}")
    assert not refers("${X}")
