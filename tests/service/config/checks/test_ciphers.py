"""What OpenSSL's notation of ciphers must not switch off, and what OpenSSL does not know."""

import ssl

import pytest

from mirror.raw.errors import InvalidConfig
from mirror.raw.settings import ConsumerSettings, read_settings
from tests.service.config.loading import AT_CLUSTER, CLUSTER, Load, base

KEY = "ssl.cipher.suites"


def written(ciphers: str) -> str:
    return base(cluster=f'security.protocol: SSL\n    {KEY}: "{ciphers}"')


@pytest.mark.parametrize(
    "ciphers", ["ALL:@SECLEVEL=0", "DEFAULT@SECLEVEL=0", "@SECLEVEL=0", "HIGH:@SECLEVEL=2:@SECLEVEL=0"]
)
def test_the_level_that_protects_nothing(loading: Load, ciphers: str) -> None:
    """By name, with what else there is."""
    (error,) = loading.errors(written(ciphers))
    told = (
        "has @SECLEVEL=0, with which OpenSSL accepts keys and signatures of any weakness, and ciphers without authent"
    )
    assert error.startswith(f"{CLUSTER + 1}: {AT_CLUSTER}{KEY}: {told}")
    assert error.endswith("for brokers with short keys or SHA-1, @SECLEVEL=1 is enough")


@pytest.mark.parametrize(
    "ciphers", ["NOTHING", "TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "@SECLEVEL=9"]
)
def test_what_openssl_does_not_know(loading: Load, ciphers: str) -> None:
    """Java's names are others, and those of TLS 1.3 are no choice."""
    (error,) = loading.errors(written(ciphers))
    assert error.startswith(
        f"{CLUSTER + 1}: {AT_CLUSTER}{KEY}: has no cipher that OpenSSL knows; write OpenSSL's names"
    )


@pytest.mark.parametrize(
    "ciphers",
    ["", "HIGH", "DEFAULT:@SECLEVEL=1", "HIGH:@SECLEVEL=3", "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256"],
)
def test_what_is_accepted(loading: Load, ciphers: str) -> None:
    assert loading(written(ciphers)).enabled_flow().source.ssl_cipher_suites == ciphers


def test_a_level_that_the_machine_has_set(loading: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in openssl.cnf is not of this file."""
    monkeypatch.setattr(ssl.SSLContext, "security_level", 0)
    assert loading(written("HIGH")).enabled_flow().source.ssl_cipher_suites == "HIGH"


def test_raw_clients_as_well() -> None:
    config = {"bootstrap.servers": "a:1", "security.protocol": "SSL", KEY: "ALL:@SECLEVEL=0"}
    with pytest.raises(InvalidConfig, match=r"ssl\.cipher\.suites: has @SECLEVEL=0"):
        read_settings(ConsumerSettings, config)
