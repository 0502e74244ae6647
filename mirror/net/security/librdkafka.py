"""Converts a cluster's settings to those of librdkafka, for the group's consumer and the tools for committed
offsets."""

from typing import Any

from mirror.net.options import ClusterOptions, address_text, certified
from mirror.net.security.options import GSSAPI, OAUTHBEARER, PLAIN, PLAINTEXT, SCRAM, SecurityOptions
from mirror.net.security.tokens import tokens_of


def servers(options: ClusterOptions) -> str:
    """Returns ``bootstrap.servers`` for librdkafka. If connections are secured, the dot at the end of a name is
    removed: librdkafka would expect it in the certificate, and in Kerberos."""
    if options.connection.security == PLAINTEXT:
        return options.bootstrap_servers
    return ",".join(address_text(certified(host), port) for host, port in options.bootstrap)


def client_config(security: SecurityOptions) -> dict[str, Any]:
    """Returns librdkafka's security settings. May wait for a token server.

    Raises:
        AuthenticationFailed: a secret's file cannot be read, or there is no token.
    """
    config: dict[str, Any] = {"security.protocol": security.protocol}
    tls, sasl = security.tls, security.sasl
    if tls is not None:
        config |= {
            "ssl.endpoint.identification.algorithm": "https" if tls.verify_hostname else "none",
            "ssl.ca.location": tls.ca_file or "probe",
        }
        if tls.certificate_file:
            config |= {
                "ssl.certificate.location": tls.certificate_file,
                "ssl.key.location": tls.key_file or tls.certificate_file,
            }
        if tls.key_password:
            config["ssl.key.password"] = tls.key_password.read()
        if tls.ciphers:
            config["ssl.cipher.suites"] = tls.ciphers
    if sasl is not None:
        config["sasl.mechanisms"] = sasl.mechanism
        if sasl.mechanism in (PLAIN, *SCRAM):
            config |= {"sasl.username": sasl.username, "sasl.password": sasl.password.read()}
        elif sasl.mechanism == OAUTHBEARER:
            tokens = tokens_of(sasl.tokens)
            extensions = dict(sasl.tokens.extensions)
            tokens.token()  # raises with the cause; a client that is made without a token fails without naming one
            config["oauth_cb"] = lambda _: (*tokens.token(), "", extensions) if extensions else tuple(tokens.token())
        elif sasl.mechanism == GSSAPI:
            config["sasl.kerberos.service.name"] = sasl.service
    return config
