"""Makes a cluster's security settings: Java's settings of TLS and SASL are translated, and secrets become
references."""

from pathlib import PurePosixPath
from shlex import quote

from mirror.service.config.errors import printable
from mirror.service.importing import accounting
from mirror.service.importing.make.picking import Picked
from mirror.service.importing.model import ClusterInput, Given, Inputs, Setting
from mirror.service.importing.settings import protection as names
from mirror.service.importing.settings.protection import PROTECTION
from mirror.service.importing.translate import references
from mirror.service.importing.translate.jaas import Jaas, parse

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_BY_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_FOLDER = "/etc/mirror"
_PROVIDER = "my_tokens:token"
_OF_TOKENS = {
    "scope": "sasl.oauthbearer.scope",
    "clientId": "sasl.oauthbearer.client.id",
    "oauth.client.id": "sasl.oauthbearer.client.id",
    "oauth.scope": "sasl.oauthbearer.scope",
    "oauth.token.endpoint.uri": "sasl.oauthbearer.token.endpoint.url",
}
"""Options of login modules for OAuth that are not secrets -> the mirror's settings."""
_SECRETS_OF_TOKENS = ("clientSecret", "oauth.client.secret")


def settings_of(inputs: Inputs, cluster: ClusterInput, picked: Picked) -> list[Setting]:
    """Returns a cluster's security settings, and accounts for all its keys of TLS and SASL."""
    return _Protection(inputs, cluster, picked).settings()


class _Protection:
    def __init__(self, inputs: Inputs, cluster: ClusterInput, picked: Picked) -> None:
        self._inputs = inputs
        self._ledger = inputs.ledger
        self._alias = cluster.alias
        self._picked = picked
        self._found: list[Setting] = list(cluster.made)
        self._made = {setting.path[-1] for setting in cluster.made}
        self._given_made = frozenset(self._made)

    def settings(self) -> list[Setting]:
        protocol = self._protocol()
        if protocol.endswith("SSL"):
            self._authorities()
            self._certificate()
            self._verification()
        if protocol.startswith("SASL_"):
            self._sasl()
        self._rest(protocol)
        return self._found

    # -- what is written ---------------------------------------------------------------------------------------------

    def _write(self, key: str, value: str, *given: Given, note: str = "", taken: bool = True) -> None:
        if key in self._made:
            return
        self._made.add(key)
        self._found.append(Setting(path=("clusters", self._alias, key), value=value, given=given, note=note))
        for each in given if taken else ():
            self._ledger.taken(each)

    def _plain(self, key: str, value: str, *given: Given) -> None:
        """Writes a value that is not a secret."""
        found = references.translated(value, self._inputs.providers, references.variable(self._alias, key))
        self._write(key, found.text, *given, note=found.note)

    def _secret(self, key: str, value: str, *given: Given) -> None:
        found = references.secret(value, self._inputs.providers, references.variable(self._alias, key))
        self._write(key, found.text, *given, note=found.note)

    # -- TLS ---------------------------------------------------------------------------------------------------------

    def _protocol(self) -> str:
        made = next((s for s in self._found if s.path[-1] == names.PROTOCOL), None)
        if made is not None:
            return str(made.value)
        given = self._picked(names.PROTOCOL)
        if given is None:
            return "PLAINTEXT"
        protocol = given.value.strip().upper()
        if protocol not in _PROTOCOLS:
            self._ledger.decide(
                given,
                "it is none of the four protocols, or comes from a ConfigProvider: write it, and what belongs to it",
            )
            return "PLAINTEXT"
        self._write(names.PROTOCOL, protocol, given)
        return protocol

    def _authorities(self) -> None:
        inline, location = self._picked(names.TRUSTSTORE_TEXT), self._picked(names.TRUSTSTORE)
        kind = self._kind(names.TRUSTSTORE_TYPE)
        key = "ssl.ca.location"
        if inline is not None:
            path = f"{_FOLDER}/{self._alias}-ca.pem"
            self._write(key, path, inline, taken=False)
            self._ledger.decide(inline, f"write these certificates into {path}")
        if location is None:
            pass
        elif kind == "PEM":
            self._plain(key, location.value, location)
        else:
            path = self._pem_beside(location, "ca")
            self._write(key, path, location, taken=False)
            self._ledger.decide(
                location,
                f"a Java keystore, where PEM is needed: keytool -list -rfc -keystore {self._shown(location)} > "
                f"{quote(path)}",
            )
        self._no_longer(
            names.TRUSTSTORE_PASSWORD, "PEM files with authorities have no password; keytool asks for it once"
        )

    def _certificate(self) -> None:
        location, kind = self._picked(names.KEYSTORE), self._kind(names.KEYSTORE_TYPE)
        chain, key = self._picked(names.KEYSTORE_TEXT), self._picked(names.KEYSTORE_KEY)
        password = self._picked(names.KEY_PASSWORD)
        is_pem = kind == "PEM"
        if chain is not None or key is not None:
            is_pem = True
            for given, setting, what in (
                (chain, "certificate", "this certificate chain"),
                (key, "key", "this private key"),
            ):
                path = f"{_FOLDER}/{self._alias}-{setting}.pem"
                if given is not None:
                    self._write(f"ssl.{setting}.location", path, given, taken=False)
                    self._ledger.decide(given, f"write {what} into {path}")
        if location is not None and is_pem:
            self._plain("ssl.certificate.location", location.value, location)
        elif location is not None:
            self._from_java(location, kind)
        if password is not None and is_pem and "ssl.certificate.location" in self._made:
            self._secret("ssl.key.password", password.value, password)
        else:
            self._no_longer(names.KEY_PASSWORD, "keytool and openssl ask for it once, when the keystore is converted")
        self._no_longer(names.KEYSTORE_PASSWORD, "keytool and openssl ask for it once, when the keystore is converted")

    def _from_java(self, location: Given, kind: str) -> None:
        certificate, key = self._pem_beside(location, "certificate"), self._pem_beside(location, "key")
        store, p12 = self._shown(location), quote(str(PurePosixPath(certificate).with_name(f"{self._alias}.p12")))
        self._write("ssl.certificate.location", certificate, location, taken=False)
        self._write("ssl.key.location", key, location, taken=False)
        of_java = ""
        if kind != "PKCS12":
            of_java = f"keytool -importkeystore -srckeystore {store} -destkeystore {p12} -deststoretype PKCS12 && "
            store = p12
        self._ledger.decide(
            location,
            f"a Java keystore, where PEM is needed: {of_java}openssl pkcs12 -in {store} -nokeys -out "
            f"{quote(certificate)} && openssl pkcs12 -in {store} -nocerts -nodes -out {quote(key)}. The key has no "
            f"password then: let only the mirror's user read it{f', and remove {p12}' if of_java else ''}",
        )

    def _kind(self, name: str) -> str:
        given = self._picked(name)
        if given is None:
            return "JKS"
        kind = given.value.strip().upper()
        self._ledger.not_needed(given, "all files of TLS are PEM here")
        return kind

    def _shown(self, location: Given) -> str:
        """Returns the path of a keystore, quoted for a shell."""
        return "FILE" if references.refers(location.value) else quote(printable(location.value.strip()))

    def _pem_beside(self, location: Given, what: str) -> str:
        """Returns the path of the PEM file into which the user has to convert a keystore."""
        path = PurePosixPath(location.value.strip())
        if references.refers(location.value) or not path.name:
            return f"{_FOLDER}/{self._alias}-{what}.pem"
        return str(path.with_name(f"{path.stem}-{what}.pem"))

    def _verification(self) -> None:
        verify = self._picked(names.VERIFY)
        if verify is not None:
            value = verify.value.strip().lower()
            if value in ("https", ""):
                self._write(names.VERIFY, value or "none", verify)
            else:
                self._ledger.decide(verify, "write https or none")
        ciphers = self._picked(names.CIPHERS)
        if ciphers is not None and ciphers.value.strip():
            self._ledger.decide(
                ciphers, "these are Java's names: write OpenSSL's as ssl.cipher.suites, or leave the choice to OpenSSL"
            )

    # -- SASL --------------------------------------------------------------------------------------------------------

    def _sasl(self) -> None:
        made = next((str(s.value) for s in self._found if s.path[-1] == names.MECHANISM), "")
        given = self._picked(names.MECHANISM)
        mechanism = made or (given.value.strip().upper() if given else "GSSAPI")
        config = self._picked(names.JAAS)
        jaas = parse(config.value) if config else None
        if mechanism in _BY_PASSWORD:
            self._mechanism(mechanism, given)
            self._by_password(config, jaas)
        elif mechanism == "OAUTHBEARER":
            self._mechanism(mechanism, given)
            self._by_token(config, jaas)
        elif mechanism == "GSSAPI":
            self._mechanism(mechanism, given)
            self._by_ticket(config)
        else:
            self._by_function(given, config)

    def _mechanism(self, mechanism: str, given: Given | None) -> None:
        if given is None:
            self._write(names.MECHANISM, mechanism, note="" if mechanism != "GSSAPI" else "Java's default")
        else:
            self._write(names.MECHANISM, mechanism, given)

    def _by_password(self, config: Given | None, jaas: Jaas | None) -> None:
        options = jaas.options if jaas else {}
        user, password = options.get("username"), options.get("password")
        given = () if config is None else (config,)
        if "sasl.username" not in self._made and user is None:
            self._write("sasl.username", f"${{env:{references.variable(self._alias, 'sasl.username')}}}", *given)
        elif user is not None:
            self._plain("sasl.username", user, *given)
        if "sasl.password" not in self._made:
            self._secret("sasl.password", password or "", *given)
        if config is not None and (user is None or password is None):
            self._ledger.decide(
                config, "no user name and password could be read from it: see sasl.username and sasl.password"
            )
        elif config is None and "sasl.username" not in self._given_made:
            self._ledger.remark(f"{self._alias}: the input has no {names.JAAS}: see sasl.username and sasl.password")
        if config is not None and options.get("tokenauth", "").lower() == "true":
            self._ledger.decide(
                config, "delegation tokens (tokenauth) cannot be used here: write a user name and a password"
            )

    def _by_token(self, config: Given | None, jaas: Jaas | None) -> None:
        options = dict(jaas.options) if jaas else {}
        url, scope = self._picked(names.TOKEN_URL), self._picked(names.SCOPE)
        client, secret = self._picked(names.CLIENT_ID), self._picked(names.CLIENT_SECRET)
        given = () if config is None else (config,)
        values: dict[str, tuple[str, tuple[Given, ...]]] = {
            key: (options[option], given) for option, key in _OF_TOKENS.items() if option in options
        }
        for key, each in (
            ("sasl.oauthbearer.token.endpoint.url", url),
            ("sasl.oauthbearer.client.id", client),
            ("sasl.oauthbearer.scope", scope),
        ):
            if each is not None:
                values[key] = (each.value, (each,))
        password = next((options[name] for name in _SECRETS_OF_TOKENS if name in options), None)
        if secret is not None:
            password, given = secret.value, (secret, *given)
        endpoint = values.get("sasl.oauthbearer.token.endpoint.url", ("", ()))[0]
        complete = endpoint and "@" not in endpoint and "sasl.oauthbearer.client.id" in values and password is not None
        if self._made & {"sasl.oauthbearer.token", "sasl.oauthbearer.token.endpoint.url"}:
            complete = False
        elif not complete:
            self._write(
                "sasl.oauthbearer.token.provider", _PROVIDER, note="name a Python function that returns a token"
            )
            for each in [*given, *(g for _, found in values.values() for g in found)]:
                self._ledger.decide(
                    each,
                    "no token server with client id and secret could be read: name a Python function "
                    "(sasl.oauthbearer.token.provider)",
                )
        if complete:
            for key, (value, found) in values.items():
                self._plain(key, value, *found)
            self._secret("sasl.oauthbearer.client.secret", password or "", *given)
        extensions = {
            name.removeprefix("extension_"): references.translated(
                value, self._inputs.providers, references.variable(self._alias, name)
            ).text
            for name, value in options.items()
            if name.startswith("extension_")
        }
        if extensions:
            self._found.append(
                Setting(path=("clusters", self._alias, "sasl.oauthbearer.extensions"), value=extensions, given=given)
            )

    def _by_ticket(self, config: Given | None) -> None:
        service = self._picked(names.KERBEROS)
        if service is not None:
            self._plain(names.KERBEROS, service.value, service)
        if config is not None:
            self._ledger.decide(
                config,
                "GSSAPI takes its ticket from the system's Kerberos: name the keytab in KRB5_CLIENT_KTNAME, and "
                "install gssapi",
            )

    def _by_function(self, given: Given | None, config: Given | None) -> None:
        """Handles a mechanism that the mirror does not have, such as AWS_MSK_IAM: OAUTHBEARER tokens take its place."""
        found = () if given is None else (given,)
        self._write(names.MECHANISM, "OAUTHBEARER", *found, taken=False)
        self._write("sasl.oauthbearer.token.provider", _PROVIDER, note="name a Python function that returns a token")
        for each in (given, config):
            if each is not None:
                self._ledger.decide(
                    each,
                    "this mechanism is not there (AWS_MSK_IAM: brokers take tokens by OAUTHBEARER): name a Python "
                    "function that gives them",
                )

    # -- the rest ----------------------------------------------------------------------------------------------------

    def _no_longer(self, name: str, why: str) -> None:
        given = self._picked(name)
        if given is not None and self._ledger.is_open(given):
            self._ledger.not_needed(given, why)

    def _rest(self, protocol: str) -> None:
        """Accounts for the remaining keys of TLS and SASL."""
        for name in (*names.MADE, *PROTECTION):
            given = self._picked(name)
            if given is None:
                continue
            if name in PROTECTION:
                accounting.by_rule(self._ledger, given, PROTECTION[name])
            elif self._ledger.is_open(given):
                self._ledger.not_needed(
                    given,
                    f"it is not used: {names.PROTOCOL} of {self._alias} is {protocol}, or its mechanism is another",
                )
