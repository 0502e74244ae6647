"""Translates references to Kafka's ConfigProviders, ``${provider:path:key}``; makes placeholders for secrets."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_REFERENCE = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")
"""The same expression as in ``org.apache.kafka.common.config.ConfigTransformer``."""
_NOT_A_NAME = re.compile(r"[^A-Z0-9]+")
_ENV = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
_DIRECTORY = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
_FILE = "org.apache.kafka.common.config.provider.FileConfigProvider"
_STRIMZI = {"strimzienv": _ENV, "strimzidir": _DIRECTORY, "strimzifile": _FILE}
"""Providers that Strimzi declares in each worker."""


@dataclass(frozen=True, slots=True)
class Referring:
    """A text in the mirror's notation.

    Attributes:
        text: the text, with ``${env:NAME}`` and ``${file:PATH}``.
        refers: True if it has any of these.
        note: what the user has to do for them; may be empty.
    """

    text: str
    refers: bool = False
    note: str = ""


def refers(value: str) -> bool:
    """Returns True if the value refers to a ConfigProvider."""
    return _REFERENCE.search(value) is not None


def translated(value: str, providers: Mapping[str, str], variable: str) -> Referring:
    """Returns a value in the mirror's notation. A reference without an equivalent becomes ``${env:VARIABLE}``, with a
    note.

    Args:
        value: the value in the input.
        providers: name of a ConfigProvider -> its Java class.
        variable: name of the environment variable for a reference without an equivalent.
    """
    notes: dict[str, None] = {}

    def ours(match: re.Match[str]) -> str:
        provider, path, key = match[1], match[2] or "", match[3]
        kind = {**_STRIMZI, **providers}.get(provider, "")
        if kind == _ENV and key and not path:
            return f"${{env:{key}}}"
        if kind == _DIRECTORY and path and key:
            return f"${{file:{path.rstrip('/')}/{key}}}"
        where = "a properties file" if kind == _FILE else "a ConfigProvider"
        notes[
            f"set {variable} to what {where} has given for it: only environment variables and whole files exist here"
        ] = None
        return f"${{env:{variable}}}"

    parts, at = [], 0
    for match in _REFERENCE.finditer(value):
        parts += [_literal(value[at : match.start()]), ours(match)]
        at = match.end()
    return Referring("".join([*parts, _literal(value[at:])]), len(parts) > 0, "; ".join(notes))


def secret(value: str, providers: Mapping[str, str], variable: str) -> Referring:
    """Returns a reference to a secret, never the secret itself: the reference in the input, if it can be translated,
    otherwise ``${env:VARIABLE}``."""
    match = _REFERENCE.fullmatch(value)
    if match is not None:
        found = translated(value, providers, variable)
        if "}${" not in found.text:
            return found
    return Referring(
        f"${{env:{variable}}}",
        True,
        f"set {variable} to the secret that the input has, or write ${{file:PATH}} instead",
    )


def variable(*parts: str) -> str:
    """Returns the name of an environment variable: ``variable("us-west", "sasl.password")`` is
    ``MIRROR_US_WEST_SASL_PASSWORD``."""
    return "_".join(["MIRROR", *(_NOT_A_NAME.sub("_", part.upper()).strip("_") for part in parts)])


def _literal(text: str) -> str:
    return text.replace("${", "$${")
