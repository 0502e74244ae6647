"""``tls`` and ``authentication`` of a cluster in Strimzi's resource: references to Kubernetes' secrets become files."""

from collections.abc import Callable, Mapping
from typing import Any

from mirror.service.config.errors import Path
from mirror.service.importing import accounting
from mirror.service.importing.model import ClusterInput, Given, Ledger, Setting
from mirror.service.importing.read import scopes
from mirror.service.importing.settings.protection import MECHANISM, PROTOCOL
from mirror.service.importing.settings.strimzi import OAUTH

FOLDER = "/etc/mirror/secrets"
"""The folder in which secrets are expected to be mounted: ``FOLDER/SECRET/KEY``."""
_BY_PASSWORD = {"plain": "PLAIN", "scram-sha-256": "SCRAM-SHA-256", "scram-sha-512": "SCRAM-SHA-512"}
_UNKNOWN = "unknown: this version knows no such part of the resource"
_PROVIDER = "my_tokens:token"


class Authentication:
    """Reads a cluster's security settings into ``ClusterInput.made``."""

    def __init__(self, ledger: Ledger, cluster: ClusterInput, given: Callable[[Path, object], Given]) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._given_at = given

    def read(self, path: Path, found: Mapping[str, Any]) -> None:
        """Reads ``tls`` and ``authentication`` of the cluster at ``path``. ``found``: the cluster's mapping."""
        tls, authentication = found.get("tls"), found.get("authentication")
        kind = str(authentication.get("type") or "") if isinstance(authentication, dict) else ""
        by_sasl = kind in (*_BY_PASSWORD, "oauth") or (kind == "custom" and _is_true(authentication or {}, "sasl"))
        encrypted = tls is not None or kind == "tls"
        protocol = f"{'SASL_' if by_sasl else ''}{'SSL' if encrypted else 'PLAINTEXT'}"
        if protocol != "PLAINTEXT":
            self._make(PROTOCOL, protocol)
        if tls is not None:
            self._encryption((*path, "tls"), tls)
        if authentication is not None:
            self._authentication((*path, "authentication"), authentication, kind)

    def _make(self, key: str, value: str, *given: Given, note: str = "") -> None:
        path = ("clusters", self._cluster.alias, key)
        self._cluster.made.append(Setting(path=path, value=value, given=given, note=note))
        for each in given:
            self._ledger.taken(each)

    def _encryption(self, path: Path, tls: object) -> None:
        listed = tls.get("trustedCertificates") if isinstance(tls, dict) else None
        for name in tls if isinstance(tls, dict) else ():
            if name != "trustedCertificates":
                self._ledger.decide(self._given_at((*path, name), ""), _UNKNOWN)
        here = (*path, "trustedCertificates") if isinstance(tls, dict) and "trustedCertificates" in tls else path
        self._authorities("ssl.ca.location", listed, self._given_at(here, ""))

    def _authorities(self, key: str, listed: object, given: Given) -> None:
        """Adds the setting for a file with the trusted certificates. ``listed``: references to secrets."""
        files = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        if not files:
            self._ledger.not_needed(given, "the system's authorities are trusted")
            return
        names = [
            f"{FOLDER}/{each.get('secretName')}/{each.get('certificate') or each.get('pattern') or 'ca.crt'}"
            for each in files
        ]
        if len(names) == 1 and "pattern" not in files[0]:
            self._make(key, names[0], given, note=_mounted(files[0].get("secretName")))
            return
        together = f"{FOLDER}/{self._cluster.alias}-{'token-' if key.startswith('https') else ''}ca.pem"
        self._make(key, together, given)
        self._ledger.decide(given, f"write all of these into one file: cat {' '.join(names)} > {together}")

    def _authentication(self, path: Path, found: object, kind: str) -> None:
        if not isinstance(found, dict):
            self._ledger.decide(self._given_at(path, ""), "it is no mapping with a type")
            return
        given = {name: self._given_at((*path, name), value) for name, value in found.items() if name != "config"}
        if kind in _BY_PASSWORD:
            self._by_password(found, given, kind)
        elif kind == "tls":
            self._by_certificate(found, given)
        elif kind == "oauth":
            self._by_token(found, given)
        elif kind == "custom":
            self._custom(path, found, given)
        for each in given.values():
            if self._ledger.is_open(each):
                self._ledger.decide(each, _UNKNOWN)

    def _by_password(self, found: Mapping[str, Any], given: Mapping[str, Given], kind: str) -> None:
        self._make(MECHANISM, _BY_PASSWORD[kind], *self._of(given, "type"))
        self._make("sasl.username", str(found.get("username") or ""), *self._of(given, "username"))
        self._secret("sasl.password", found.get("passwordSecret"), "password", *self._of(given, "passwordSecret"))

    def _by_certificate(self, found: Mapping[str, Any], given: Mapping[str, Given]) -> None:
        for each in self._of(given, "type"):
            self._ledger.taken(each)
        secret = found.get("certificateAndKey")
        if not isinstance(secret, dict):
            return
        folder = f"{FOLDER}/{secret.get('secretName')}"
        here = self._of(given, "certificateAndKey")
        self._make(
            "ssl.certificate.location",
            f"{folder}/{secret.get('certificate')}",
            *here,
            note=_mounted(secret.get("secretName")),
        )
        self._make("ssl.key.location", f"{folder}/{secret.get('key')}", *here)

    def _by_token(self, found: Mapping[str, Any], given: Mapping[str, Given]) -> None:
        self._make(MECHANISM, "OAUTHBEARER", *self._of(given, "type"))
        if "accessToken" in found:
            self._secret("sasl.oauthbearer.token", found["accessToken"], "key", *self._of(given, "accessToken"))
        elif "accessTokenLocation" in found:
            location = str(found["accessTokenLocation"])
            self._make("sasl.oauthbearer.token", f"${{file:{location}}}", *self._of(given, "accessTokenLocation"))
        elif {"tokenEndpointUri", "clientId", "clientSecret"} <= set(found) and "@" not in str(
            found["tokenEndpointUri"]
        ):
            self._make(
                "sasl.oauthbearer.token.endpoint.url",
                str(found["tokenEndpointUri"]),
                *self._of(given, "tokenEndpointUri"),
            )
            self._make("sasl.oauthbearer.client.id", str(found["clientId"]), *self._of(given, "clientId"))
            self._secret(
                "sasl.oauthbearer.client.secret", found["clientSecret"], "key", *self._of(given, "clientSecret")
            )
            if "scope" in found:
                self._make("sasl.oauthbearer.scope", str(found["scope"]), *self._of(given, "scope"))
            if "tlsTrustedCertificates" in found:
                (authorities,) = self._of(given, "tlsTrustedCertificates")
                self._authorities("https.ca.location", found["tlsTrustedCertificates"], authorities)
        else:
            self._make("sasl.oauthbearer.token.provider", _PROVIDER, note="name a Python function that returns a token")
        for name, each in given.items():
            if name in OAUTH:
                accounting.by_rule(self._ledger, each, OAUTH[name])
            elif self._ledger.is_open(each):
                self._ledger.decide(
                    each, "it is not used: see sasl.oauthbearer.token, .token.endpoint.url or .token.provider"
                )

    def _custom(self, path: Path, found: Mapping[str, Any], given: Mapping[str, Given]) -> None:
        """Reads authentication of type custom: settings of Kafka's clients, as in the cluster's own ``config``."""
        for each in self._of(given, "type", "sasl"):
            self._ledger.taken(each)
        config = found.get("config")
        for name, value in config.items() if isinstance(config, dict) else ():
            scopes.to_cluster(self._ledger, self._cluster, name, self._given_at((*path, "config", name), value))

    def _secret(self, key: str, found: object, field: str, *given: Given) -> None:
        """Adds a setting that refers to a secret. ``field``: name of the field that has the name of the secret's
        key."""
        secret = found if isinstance(found, dict) else {}
        name = secret.get("secretName")
        self._make(key, f"${{file:{FOLDER}/{name}/{secret.get(field)}}}", *given, note=_mounted(name))

    @staticmethod
    def _of(given: Mapping[str, Given], *names: str) -> tuple[Given, ...]:
        return tuple(given[name] for name in names if name in given)


def _mounted(secret: object) -> str:
    return f"mount the secret {secret} at {FOLDER}/{secret}, or write another path"


def _is_true(found: Mapping[str, Any], key: str) -> bool:
    return str(found.get(key)).lower() == "true"
