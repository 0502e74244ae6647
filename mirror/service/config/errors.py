"""Errors in a configuration: what is wrong, and where."""

from collections.abc import Iterable
from dataclasses import dataclass

Path = tuple[str | int, ...]
"""The path of a value: keys and list indices from the top, such as ("flows", "a->b", "topics", 0)."""

KEY_MAX = 100
"""Most characters of one key that a message shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFinding:
    """One problem in a configuration file. `line` is None for a file that cannot be read at all."""

    file: str
    line: int | None
    key: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        key = f"{self.key}: " if self.key else ""
        return printable(f"{place}: {key}{self.problem}; {self.remedy}")


class ConfigError(Exception):
    """A configuration that cannot be used. It has all findings, in the order of the file."""

    def __init__(self, findings: Iterable[ConfigFinding]) -> None:
        self.findings = tuple(sorted(findings, key=lambda finding: finding.line or 0))
        super().__init__("\n".join(map(str, self.findings)))


def key_text(path: Path) -> str:
    """Returns a path as messages show it: `flows.a->b.topics[0]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{elide(part, KEY_MAX)}" for part in path).removeprefix(
        "."
    )


def printable(text: str) -> str:
    """Returns the text, safe to print as one line on a terminal: control characters and the like are escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def elide(text: str, most: int) -> str:
    """Returns the text, cut to at most ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."
