"""Security settings of a cluster: TLS and SASL, with the names of Kafka and librdkafka."""

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from mirror.net.security.options import (
    GSSAPI,
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    SCRAM,
    SaslOptions,
    Secret,
    SecurityOptions,
    TlsOptions,
    TokenOptions,
)
from mirror.service.config.checks.ciphers import check_ciphers
from mirror.service.config.checks.refusal import refused
from mirror.service.config.kinds import Choice, FileName, SecretText, Text, Words
from mirror.service.config.settings import Settings

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
REQUIRED = Field(validate_default=True)
"""For a setting that others can make necessary: it is validated even if it is not in the file."""
_BY_PASSWORD = (PLAIN, *SCRAM)
_PROVIDER = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_URL = re.compile(r"https?://\S+")


class SecuritySettings(Settings):
    """How connections to one cluster are protected."""

    security_protocol: Annotated[
        Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], Choice(PROTOCOLS, fold=str.upper)
    ] = "PLAINTEXT"
    """How connections are protected: encrypted (SSL), authenticated (SASL), or both."""
    ssl_ca_location: Annotated[str, FileName()] = ""
    """PEM file with the authorities that may issue the brokers' certificates, up to the root; empty: the system's."""
    ssl_certificate_location: Annotated[str, FileName()] = ""
    """PEM file with our certificate and its chain, for brokers that ask for one (mTLS)."""
    ssl_key_location: Annotated[str, FileName()] = ""
    """PEM file with the certificate's private key; empty: it is in the certificate's file."""
    ssl_key_password: Annotated[Secret, SecretText()] = Secret()
    """Password of the private key."""
    ssl_endpoint_identification_algorithm: Annotated[Literal["https", "none"], Choice(("https", "none"))] = "https"
    """https: the broker's certificate has to name the host that is connected to; none: it need not."""
    ssl_cipher_suites: Annotated[str, Text()] = ""
    """Ciphers for TLS 1.2, in OpenSSL's notation; empty: OpenSSL's choice."""
    sasl_mechanism: Annotated[str, Choice(MECHANISMS, fold=str.upper, empty=True), REQUIRED] = ""
    """How we say who we are."""
    sasl_username: Annotated[str, Text(), REQUIRED] = ""
    """User name, for PLAIN and SCRAM."""
    sasl_password: Annotated[Secret, SecretText(), REQUIRED] = Secret()
    """Password, for PLAIN and SCRAM."""
    sasl_kerberos_service_name: Annotated[str, Text()] = "kafka"
    """The brokers' service name, for GSSAPI."""
    sasl_oauthbearer_token: Annotated[Secret, SecretText()] = Secret()
    """A token, for OAUTHBEARER; from a file, it is read again for each connection."""
    sasl_oauthbearer_token_provider: Annotated[str, Text()] = ""
    """"module:function" of a Python function that returns a token."""
    sasl_oauthbearer_token_endpoint_url: Annotated[str, Text(), REQUIRED] = ""
    """URL of the server that gives tokens for client credentials (OIDC)."""
    sasl_oauthbearer_client_id: Annotated[str, Text(), REQUIRED] = ""
    """Client id for that server."""
    sasl_oauthbearer_client_secret: Annotated[Secret, SecretText(), REQUIRED] = Secret()
    """Client secret for that server."""
    sasl_oauthbearer_scope: Annotated[str, Text()] = ""
    """Scope that is asked for."""
    sasl_oauthbearer_extensions: Annotated[dict[str, str], Words()] = Field(default_factory=dict)
    """What the broker gets beside the token, such as a logical cluster's id."""
    https_ca_location: Annotated[str, FileName()] = ""
    """PEM file with the authorities of the token server; empty: the system's."""

    @property
    def security(self) -> SecurityOptions:
        """The settings in the form for ``net``."""
        return SecurityOptions(
            tls=self._tls() if self.security_protocol.endswith("SSL") else None,
            sasl=self._sasl() if self.security_protocol.startswith("SASL_") else None,
        )

    def _tls(self) -> TlsOptions:
        return TlsOptions(
            ca_file=self.ssl_ca_location,
            certificate_file=self.ssl_certificate_location,
            key_file=self.ssl_key_location,
            key_password=self.ssl_key_password,
            verify_hostname=self.ssl_endpoint_identification_algorithm == "https",
            ciphers=self.ssl_cipher_suites,
        )

    def _sasl(self) -> SaslOptions:
        return SaslOptions(
            mechanism=self.sasl_mechanism,
            username=self.sasl_username,
            password=self.sasl_password,
            service=self.sasl_kerberos_service_name,
            tokens=TokenOptions(
                token=self.sasl_oauthbearer_token,
                provider=self.sasl_oauthbearer_token_provider,
                endpoint=self.sasl_oauthbearer_token_endpoint_url,
                client_id=self.sasl_oauthbearer_client_id,
                client_secret=self.sasl_oauthbearer_client_secret,
                scope=self.sasl_oauthbearer_scope,
                ca_file=self.https_ca_location,
                extensions=tuple(self.sasl_oauthbearer_extensions.items()),
            ),
        )

    # -- rules, in the order of the fields: each sees those before it ------------------------------------------------

    @field_validator(
        "ssl_ca_location", "ssl_certificate_location", "ssl_key_location", "ssl_key_password",
        "ssl_endpoint_identification_algorithm", "ssl_cipher_suites",
    )  # fmt: skip
    @classmethod
    def _check_tls(cls, value: object, info: ValidationInfo) -> object:
        protocol = info.data.get("security_protocol", "SSL")
        if not value or value == "https":  # the default
            return value
        if not protocol.endswith("SSL"):
            raise refused(
                f"belongs to TLS, and security.protocol is {protocol}",
                "set security.protocol to SSL or SASL_SSL, or remove this",
            )
        if info.field_name in ("ssl_key_location", "ssl_key_password") and not info.data.get(
            "ssl_certificate_location", "unknown"
        ):
            raise refused("needs ssl.certificate.location", "name the certificate's PEM file there")
        return check_ciphers(str(value)) if info.field_name == "ssl_cipher_suites" else value

    @field_validator("sasl_mechanism")
    @classmethod
    def _check_mechanism(cls, value: str, info: ValidationInfo) -> str:
        protocol = info.data.get("security_protocol")
        if protocol is None:
            return value
        authenticated = protocol.startswith("SASL_")
        if value and not authenticated:
            raise refused(
                f"belongs to authentication, and security.protocol is {protocol}",
                "set security.protocol to SASL_SSL or SASL_PLAINTEXT, or remove this",
            )
        if authenticated and not value:
            raise refused(
                f"is missing: security.protocol is {protocol}",
                f"write one of {', '.join(MECHANISMS)}",
                at="security.protocol",
            )
        return value

    @field_validator("sasl_username", "sasl_password")
    @classmethod
    def _check_password(cls, value: object, info: ValidationInfo) -> object:
        return _for_mechanism(value, info, _BY_PASSWORD, required=True)

    @field_validator("sasl_kerberos_service_name")
    @classmethod
    def _check_service(cls, value: str, info: ValidationInfo) -> object:
        return value if value == "kafka" else _for_mechanism(value, info, (GSSAPI,))

    @field_validator(
        "sasl_oauthbearer_token", "sasl_oauthbearer_token_provider", "sasl_oauthbearer_scope",
        "sasl_oauthbearer_extensions", "https_ca_location",
    )  # fmt: skip
    @classmethod
    def _check_token(cls, value: object, info: ValidationInfo) -> object:
        if value and info.field_name == "sasl_oauthbearer_token_provider" and not _PROVIDER.fullmatch(str(value)):
            raise refused("names no function", 'write "module:function", such as "my_tokens:token"')
        if isinstance(value, dict):
            _check_extensions(value)
        return _for_mechanism(value, info, (OAUTHBEARER,))

    @field_validator("sasl_oauthbearer_token_endpoint_url")
    @classmethod
    def _check_source(cls, value: str, info: ValidationInfo) -> object:
        if value and not _URL.fullmatch(value):
            raise refused("is no URL", 'write "https://host/path"')
        named = bool(value) + sum(
            bool(info.data.get(name)) for name in ("sasl_oauthbearer_token", "sasl_oauthbearer_token_provider")
        )
        sources = "sasl.oauthbearer.token, .token.provider or .token.endpoint.url"
        if info.data.get("sasl_mechanism") == OAUTHBEARER and named != 1:
            raise refused(
                f"is one of three sources of tokens, and {named or 'none'} {'are' if named > 1 else 'is'} given",
                f"write one of {sources}",
                at="sasl.mechanism",
            )
        return _for_mechanism(value, info, (OAUTHBEARER,))

    @field_validator("sasl_oauthbearer_client_id", "sasl_oauthbearer_client_secret")
    @classmethod
    def _check_client(cls, value: object, info: ValidationInfo) -> object:
        endpoint = info.data.get("sasl_oauthbearer_token_endpoint_url")
        if endpoint is not None and bool(value) != bool(endpoint):
            raise refused(
                "is missing" if endpoint else "belongs to sasl.oauthbearer.token.endpoint.url, which is not given",
                "the token server asks for client id and secret" if endpoint else "give that, or remove this",
                at="sasl.oauthbearer.token.endpoint.url",
            )
        return _for_mechanism(value, info, (OAUTHBEARER,))


def _check_extensions(extensions: dict[str, str]) -> None:
    """Refuses extensions that RFC 7628 does not allow: brokers and librdkafka would refuse the whole connection."""
    for name, value in extensions.items():
        if not (name.isascii() and name.isalpha()) or name == "auth":
            raise refused(
                f"has the name {name!r}", 'write names of letters only, such as logicalCluster, and not "auth"'
            )
        if not all(" " <= each <= "~" or each in "\t\r\n" for each in value):
            raise refused(f"has a value of {name} that is no ASCII text", "write printable ASCII characters")


def _for_mechanism(value: object, info: ValidationInfo, mechanisms: Sequence[str], *, required: bool = False) -> object:
    """Returns the value of a setting that is only for these mechanisms. ``required``: True if they need it. Raises
    PydanticCustomError if it is missing, or set for another mechanism."""
    mechanism = info.data.get("sasl_mechanism")
    if mechanism is None:  # sasl.mechanism is invalid itself
        return value
    if value and mechanism not in mechanisms:
        whose = f"sasl.mechanism is {mechanism}" if mechanism else "nothing is authenticated"
        raise refused(f"belongs to {' and '.join(mechanisms)}, and {whose}", "remove it, or change sasl.mechanism")
    if required and not value and mechanism in mechanisms:
        raise refused(f"is missing: {mechanism} needs it", "write it, as ${file:PATH} or ${env:NAME} if it is a secret",
                      at="sasl.mechanism")  # fmt: skip
    return value
