"""Settings of TLS and SASL of Kafka's Java clients. ``make/protection.py`` translates those in ``MADE``."""

from collections.abc import Mapping

from mirror.service.importing.settings.rule import Rule, decide, each, not_needed

_JAVA_TLS = "it is for Java's TLS; here it is OpenSSL's, with TLS 1.2 or later"
_LOGIN = "tokens and tickets are renewed by themselves"
_BROKER = "brokers check tokens; the mirror only sends them"

PROTOCOL = "security.protocol"
MECHANISM = "sasl.mechanism"
JAAS = "sasl.jaas.config"
TRUSTSTORE, TRUSTSTORE_TYPE = "ssl.truststore.location", "ssl.truststore.type"
TRUSTSTORE_PASSWORD, TRUSTSTORE_TEXT = "ssl.truststore.password", "ssl.truststore.certificates"
KEYSTORE, KEYSTORE_TYPE, KEYSTORE_PASSWORD = "ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password"
KEYSTORE_TEXT, KEYSTORE_KEY = "ssl.keystore.certificate.chain", "ssl.keystore.key"
KEY_PASSWORD = "ssl.key.password"
VERIFY = "ssl.endpoint.identification.algorithm"
CIPHERS = "ssl.cipher.suites"
KERBEROS = "sasl.kerberos.service.name"
TOKEN_URL, SCOPE = "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope"
CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"

MADE = (
    PROTOCOL, MECHANISM, JAAS, TRUSTSTORE, TRUSTSTORE_TYPE, TRUSTSTORE_PASSWORD, TRUSTSTORE_TEXT, KEYSTORE,
    KEYSTORE_TYPE, KEYSTORE_PASSWORD, KEYSTORE_TEXT, KEYSTORE_KEY, KEY_PASSWORD, VERIFY, CIPHERS, KERBEROS, TOKEN_URL,
    SCOPE, CLIENT_ID, CLIENT_SECRET,
)  # fmt: skip
"""The settings that become settings of the mirror, or files in another format."""

PROTECTION: Mapping[str, Rule] = {
    **each(
        not_needed(_JAVA_TLS),
        "ssl.protocol ssl.enabled.protocols ssl.provider ssl.keymanager.algorithm ssl.trustmanager.algorithm "
        "ssl.secure.random.implementation",
    ),
    "ssl.engine.factory.class": decide("no Java class can be plugged in: name PEM files "
    "(ssl.ca.location)", unless=("",), then="none"),
    **each(
        decide(
            "no Java class can be plugged in: a Python function may give tokens instead "
            "(sasl.oauthbearer.token.provider)",
            unless=("", "org.apache.kafka.common.security.oauthbearer.oauthbearerlogincallbackhandler",
                    "org.apache.kafka.common.security.oauthbearer.secured.oauthbearerlogincallbackhandler",
                    "org.apache.kafka.common.security.oauthbearer.defaultjwtretriever",
                    "org.apache.kafka.common.security.oauthbearer.defaultjwtvalidator"),
            then="tokens are asked for at sasl.oauthbearer.token.endpoint.url",
        ),
        "sasl.login.callback.handler.class sasl.client.callback.handler.class sasl.login.class "
        "sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class",
    ),
    **each(
        not_needed(_LOGIN),
        "sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds "
        "sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter "
        "sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.kerberos.kinit.cmd "
        "sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter "
        "sasl.kerberos.ticket.renew.window.factor "
        "sasl.oauthbearer.header.urlencode",
    ),
    **each(
        not_needed(_BROKER),
        "sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer "
        "sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms "
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url "
        "sasl.oauthbearer.scope.claim.name "
        "sasl.oauthbearer.sub.claim.name",
    ),
    **each(
        decide("signed assertions are not made here: a Python function may give tokens instead "
        "(sasl.oauthbearer.token.provider)"),
        "sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud "
        "sasl.oauthbearer.assertion.claim.exp.seconds "
        "sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include "
        "sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub "
        "sasl.oauthbearer.assertion.file "
        "sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase "
        "sasl.oauthbearer.assertion.template.file",
    ),
}  # fmt: skip
"""Settings that have no counterpart here."""
