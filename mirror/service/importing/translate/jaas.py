"""Parses ``sasl.jaas.config``: a login module's class, its flag, and its options."""

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"'=;]+)|(=)|(;))""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_FLAGS = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True)
class Jaas:
    """A login module (its class without the package) and its options. The options contain secrets: never show them."""

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"Jaas({self.module!r}, ...)"


def parse(text: str) -> Jaas | None:
    """Parses the text; None if it is not a single login module with options."""
    tokens = _tokens(text)
    if tokens is None or len(tokens) < 2 or tokens[1][1].lower() not in _FLAGS:
        return None
    if tokens[-1] == ("", ";"):
        tokens = tokens[:-1]
    rest = tokens[2:]
    if ("", ";") in rest or len(rest) % 3:
        return None
    options = {}
    for name, sign, value in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if sign != ("", "=") or "" in (name[0], value[0]):
            return None
        options[name[1]] = value[1]
    return Jaas(tokens[0][1].rpartition(".")[2], options)


def _tokens(text: str) -> list[tuple[str, str]] | None:
    """Returns (kind, text) of each token; the kind of = and ; is empty. None if the text has something else."""
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        quoted, single, bare, equals, semicolon = match.groups()
        if quoted is not None or single is not None:
            found.append(("quoted", _ESCAPE.sub(r"\1", quoted if quoted is not None else single)))
        elif bare is not None:
            found.append(("bare", bare))
        else:
            found.append(("", equals or semicolon))
        at = match.end()
    return found
