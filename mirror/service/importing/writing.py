"""Writes the configuration that was made: YAML with a comment for every key of the input, and a summary for people."""

import json
import re
from collections.abc import Callable, Iterator, Mapping

from mirror.service.config.errors import elide, printable
from mirror.service.importing.model import Fate, Outcome, Path, Setting
from mirror.service.importing.settings.defaults import DEFAULTS

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_NOT_PLAIN = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
_SHOWN_MAX = 200

Shown = Callable[[Setting], str | None]
"""Returns a setting's value as YAML; None: the line is left out."""


def counted(outcome: Outcome) -> str:
    """Returns how many keys were taken over, are not needed, and need a decision."""
    ledger = outcome.ledger
    decisions = len(ledger.accounts(Fate.DECIDE)) + len(ledger.remarks)
    return (
        f"{len(ledger.accounts(Fate.TAKEN))} taken over, {len(ledger.accounts(Fate.NOT_NEEDED))} not needed, "
        f"{decisions} need{'s' * (decisions == 1)} a decision"
    )


def decisions(outcome: Outcome) -> list[str]:
    """Returns everything that needs a decision, or a manual step: one line each."""
    found = [f"{_name(account.given.place)}: {account.why}" for account in outcome.ledger.accounts(Fate.DECIDE)]
    return [_line(each) for each in [*outcome.ledger.remarks, *found]]


def document(outcome: Outcome) -> str:
    """Returns the whole configuration file as text."""
    return "\n".join(line for line, _ in lines(outcome, value_text)) + "\n"


def lines(outcome: Outcome, shown: Shown) -> Iterator[tuple[str, Setting | None]]:
    """Yields each line of the file, with its setting, if it has one. ``shown``: returns a setting's value as YAML."""
    for comment in _head(outcome):
        yield f"# {comment}".rstrip(), None
    for section in ("clusters", "flows"):
        yield "", None
        yield f"{section}:", None
        if section == "clusters":
            yield from ((f"  # {_line(_name(each))}", None) for each in _without_a_line(outcome))
        for name, settings in _named(outcome, section).items():
            yield f"  {json.dumps(name)}:", None
            for note in outcome.notes.get((section, name), []):
                yield f"    # {_line(note)}", None
            for setting in settings:
                yield from _setting(setting, shown)
    not_needed = outcome.ledger.accounts(Fate.NOT_NEEDED)
    if not_needed:
        yield "", None
        yield "# Not needed here:", None
        for account in not_needed:
            yield f"#   {_line(f'{_name(account.given.place)}: {account.why}')}", None


def value_text(setting: Setting) -> str:
    """Returns a setting's value as YAML."""
    value = setting.value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(key)}: {json.dumps(each)}' for key, each in value.items())}}}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(json.dumps, value))}]"
    return value if _PLAIN.fullmatch(value) and value.lower() not in _NOT_PLAIN else json.dumps(value)


def _head(outcome: Outcome) -> Iterator[str]:
    yield _line(
        f"Made from {outcome.file}, a configuration of MirrorMaker 2, by `mirror config import`: {counted(outcome)}."
    )
    yield "A comment behind a setting names the key of the input that it comes from."
    yield "Next: `mirror validate`, then `mirror plan`."
    yield "docs/from-mirrormaker.md has what is different, and how to move."
    found = decisions(outcome)
    if found:
        yield ""
        yield "Needs a decision, or a step by hand:"
        yield from (f"  {each}" for each in found)
    differing = [f"  {key}: {text}" for key, text in DEFAULTS.items() if not _is_everywhere(outcome, key)]
    if differing:
        yield ""
        yield "Defaults that differ, where the input says nothing:"
        yield from differing


def _without_a_line(outcome: Outcome) -> Iterator[str]:
    """Yields the keys that were taken over but have no line of their own: those that name clusters and flows."""
    written = {given for setting in outcome.settings for given in setting.given}
    yield from (each.given.place for each in outcome.ledger.accounts(Fate.TAKEN) if each.given not in written)


def _is_everywhere(outcome: Outcome, key: str) -> bool:
    flows = _named(outcome, "flows")
    return all(any(setting.path[-1] == key for setting in settings) for settings in flows.values())


def _named(outcome: Outcome, section: str) -> dict[str, list[Setting]]:
    found: dict[str, list[Setting]] = {}
    for setting in outcome.settings:
        if setting.path[0] == section:
            found.setdefault(setting.path[1], []).append(setting)
    return found


def _setting(setting: Setting, shown: Shown) -> Iterator[tuple[str, Setting | None]]:
    if setting.note:
        yield f"    # {_line(setting.note)}", None
    text = shown(setting)
    if text is None:
        yield "    #", None
        return
    origin = "; ".join(_name(given.place) for given in setting.given)
    yield f"    {setting.path[-1]}: {text}{f'  # {_line(origin)}' if origin else ''}", setting


def _name(place: str) -> str:
    return elide(place, _SHOWN_MAX)


def _line(text: str) -> str:
    return printable(text)


def path_text(path: Path) -> str:
    """Returns the path of a setting as text, for people."""
    return ".".join(path)
