"""Survivors that change nothing that anybody could see, each with the reason."""

import difflib
import tomllib
from pathlib import Path
from typing import NamedTuple

__all__ = ["LIST", "Change", "Equivalent", "change", "load", "stale"]

LIST = Path(__file__).with_name("equivalent.toml")


class Change(NamedTuple):
    """The lines that differ, without their indentation."""

    before: str
    after: str


class Equivalent(NamedTuple):
    """One entry of the list."""

    path: str
    change: Change
    why: str


def change(before: str, after: str) -> Change:
    """Of two versions of a file."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))[2:]
    gone, come = ("\n".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    return Change(gone, come)


def load(path: Path = LIST) -> list[Equivalent]:
    """The list.

    Raises:
        ValueError: an entry lacks something.
    """
    made = []
    for number, entry in enumerate(tomllib.loads(path.read_text()).get("mutant", []), start=1):
        if entry.keys() != {"path", "before", "after", "why"} or not all(entry[key].strip() for key in ("path", "why")):
            raise ValueError(f"{path.name}: mutant {number} needs path, before, after and why")
        made.append(Equivalent(entry["path"], Change(entry["before"].strip(), entry["after"].strip()), entry["why"]))
    return made


def stale(entries: list[Equivalent], root: Path) -> list[Equivalent]:
    """Those whose line is not in the file any more."""
    found = []
    for entry in entries:
        file = root / entry.path
        lines = {line.strip() for line in file.read_text().splitlines()} if file.exists() else set()
        if not set(entry.change.before.splitlines()) <= lines:
            found.append(entry)
    return found
