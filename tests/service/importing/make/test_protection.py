"""TLS and SASL of Java's clients in our settings, loaded by the program's own loader."""

from pathlib import Path

import pytest

from mirror.service.config import ClusterSettings
from tests.service.importing.importing import TWO, imported, loaded

SCRAM = "a.security.protocol = SASL_SSL\na.sasl.mechanism = SCRAM-SHA-512\n"
TOKENS = "a.security.protocol = SASL_SSL\na.sasl.mechanism = OAUTHBEARER\n"
URL = "a.sasl.oauthbearer.token.endpoint.url = https://idp/t\n"


def cluster(folder: Path, text: str) -> tuple[ClusterSettings, str]:
    """Cluster a with this besides, and the text that it was loaded from."""
    text = imported(folder, TWO + text).text
    return loaded(folder, text).clusters["a"], text


def test_user_name_and_password(tmp_path: Path) -> None:
    jaas = 'a.sasl.jaas.config = x.ScramLoginModule required username="u" password="hunter2";\n'
    found, text = cluster(tmp_path, SCRAM + jaas)
    assert (found.security_protocol, found.sasl_mechanism, found.sasl_username) == ("SASL_SSL", "SCRAM-SHA-512", "u")
    assert 'sasl.password: "${env:MIRROR_A_SASL_PASSWORD}"' in text
    assert "hunter2" not in text


@pytest.mark.parametrize("jaas", ["", "${vault:a:jaas}", "x.ScramLoginModule required;"])
def test_a_user_name_that_cannot_be_read(jaas: str, tmp_path: Path) -> None:
    _, text = cluster(tmp_path, SCRAM + (f"a.sasl.jaas.config = {jaas}\n" if jaas else ""))
    assert 'sasl.username: "${env:MIRROR_A_SASL_USERNAME}"' in text
    assert "sasl.username and sasl.password" in text


def test_what_holds_for_all_clusters(tmp_path: Path) -> None:
    text = imported(tmp_path, f"{TWO}security.protocol = SSL\nb.security.protocol = PLAINTEXT\n").text
    clusters = loaded(tmp_path, text).clusters
    assert [clusters[alias].security_protocol for alias in "ab"] == ["SSL", "PLAINTEXT"]


def test_clients_that_differ(tmp_path: Path) -> None:
    found, text = cluster(tmp_path, "a.consumer.security.protocol = SSL\na.admin.security.protocol = PLAINTEXT\n")
    assert found.security_protocol == "SSL"
    assert "a.admin.security.protocol, line 6: differs from line 5" in text


def test_java_keystores(tmp_path: Path) -> None:
    _, text = cluster(
        tmp_path,
        "a.security.protocol = SSL\na.ssl.truststore.location = /k/it's trust.jks\n"
        "a.ssl.keystore.location = /k/key.jks\na.ssl.truststore.password = hunter2\n"
        "a.ssl.keystore.password = hunter2\na.ssl.key.password = hunter2\n",
    )
    assert 'ssl.ca.location: "/k/it\'s trust-ca.pem"' in text
    assert """keytool -list -rfc -keystore '/k/it'"'"'s trust.jks' > '/k/it'"'"'s trust-ca.pem'""" in text
    assert "keytool -importkeystore -srckeystore /k/key.jks -destkeystore /k/a.p12 -deststoretype PKCS12" in text
    assert "openssl pkcs12 -in /k/a.p12 -nocerts -nodes -out /k/key-key.pem" in text
    assert "ssl.key.password:" not in text.partition("# Not needed here")[0]


def test_pkcs12(tmp_path: Path) -> None:
    given = "a.security.protocol = SSL\na.ssl.keystore.type = pkcs12\na.ssl.keystore.location = /k/a.p12\n"
    _, text = cluster(tmp_path, given)
    assert "openssl pkcs12 -in /k/a.p12 -nokeys -out /k/a-certificate.pem && " in text
    assert "keytool" not in text


def test_pem(tmp_path: Path) -> None:
    found, text = cluster(
        tmp_path,
        "a.security.protocol = SSL\na.ssl.truststore.type = PEM\na.ssl.truststore.location = /k/ca.pem\n"
        "a.ssl.keystore.type = PEM\na.ssl.keystore.location = /k/both.pem\na.ssl.key.password = ${env:KEY_PASSWORD}\n"
        "a.ssl.endpoint.identification.algorithm =\n"
        "config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider\n",
    )
    assert 'ssl.ca.location: "/k/ca.pem"' in text
    assert 'ssl.certificate.location: "/k/both.pem"' in text
    assert 'ssl.key.password: "${env:KEY_PASSWORD}"' in text
    assert found.ssl_endpoint_identification_algorithm == "none"
    assert "1 needs a decision" in text  # which is not about this cluster


def test_certificates_in_the_text(tmp_path: Path) -> None:
    given = ("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key")
    _, text = cluster(tmp_path, "a.security.protocol = SSL\n" + "".join(f"a.{key} = hunter2\n" for key in given))
    assert "write this private key into /etc/mirror/a-key.pem" in text
    assert 'ssl.ca.location: "/etc/mirror/a-ca.pem"' in text
    assert "hunter2" not in text


def test_what_is_not_used_without_tls(tmp_path: Path) -> None:
    _, text = cluster(tmp_path, "a.ssl.truststore.location = /k/t.jks\na.sasl.jaas.config = hunter2\n")
    assert "a.ssl.truststore.location, line 5: it is not used: security.protocol of a is PLAINTEXT" in text
    assert "ssl.ca.location" not in text


@pytest.mark.parametrize(
    "given",
    [
        'a.sasl.jaas.config = x.OAuthBearerLoginModule required clientId="c" clientSecret="hunter2" scope="s";\n',
        "a.sasl.oauthbearer.client.credentials.client.id = c\n"
        "a.sasl.oauthbearer.client.credentials.client.secret = hunter2\na.sasl.oauthbearer.scope = s\n",
    ],
)
def test_a_token_server(given: str, tmp_path: Path) -> None:
    found, text = cluster(tmp_path, TOKENS + URL + given)
    assert found.sasl_oauthbearer_token_endpoint_url == "https://idp/t"
    assert (found.sasl_oauthbearer_client_id, found.sasl_oauthbearer_scope) == ("c", "s")
    assert "hunter2" not in text


def test_options_of_strimzis_login_module(tmp_path: Path) -> None:
    options = 'oauth.token.endpoint.uri="https://idp/t" oauth.client.id="c" oauth.client.secret="hunter2"'
    found, _ = cluster(tmp_path, f"{TOKENS}a.sasl.jaas.config = x.OAuthBearerLoginModule required {options};\n")
    assert found.sasl_oauthbearer_token_endpoint_url == "https://idp/t"
    assert found.sasl_oauthbearer_client_id == "c"


@pytest.mark.parametrize(
    "given",
    ["", URL, "a.sasl.jaas.config = x.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=a;\n",
     "a.sasl.oauthbearer.token.endpoint.url = https://u:hunter2@idp/t\n"
     'a.sasl.jaas.config = x.OAuthBearerLoginModule required clientId="c" clientSecret="s";\n'],
)  # fmt: skip
def test_no_token_server(given: str, tmp_path: Path) -> None:
    found, text = cluster(tmp_path, TOKENS + given)
    assert found.sasl_oauthbearer_token_provider == "my_tokens:token"
    assert "hunter2" not in text


def test_kerberos_is_javas_default(tmp_path: Path) -> None:
    found, text = cluster(tmp_path, "a.security.protocol = SASL_PLAINTEXT\na.sasl.kerberos.service.name = broker\n")
    assert (found.sasl_mechanism, found.sasl_kerberos_service_name) == ("GSSAPI", "broker")
    assert "Java's default" in text


def test_a_mechanism_that_is_not_there(tmp_path: Path) -> None:
    found, text = cluster(tmp_path, "a.security.protocol = SASL_SSL\na.sasl.mechanism = AWS_MSK_IAM\n")
    assert found.sasl_mechanism == "OAUTHBEARER"
    assert "a.sasl.mechanism, line 6: this mechanism is not there" in text


def test_a_protocol_that_is_not_known(tmp_path: Path) -> None:
    found, text = cluster(tmp_path, "a.security.protocol = ${env:PROTOCOL}\na.sasl.mechanism = PLAIN\n")
    assert found.security_protocol == "PLAINTEXT"
    assert "a.security.protocol, line 5: it is none of the four protocols" in text


def test_extensions(tmp_path: Path) -> None:
    given = 'clientId=c clientSecret=hunter2 extension_logicalCluster="lkc-1"'
    found, _ = cluster(tmp_path, f"{TOKENS}{URL}a.sasl.jaas.config = x.OAuthBearerLoginModule required {given};\n")
    assert found.sasl_oauthbearer_extensions == {"logicalCluster": "lkc-1"}
