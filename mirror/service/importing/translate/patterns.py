"""Translates Java's regular expressions in MirrorMaker 2's lists into Python's, for the mirror's lists.

Both must match the whole name. MirrorMaker 2 makes one expression of a list: it splits the text at commas, and joins
the entries with ``|``.
"""

import re
from dataclasses import dataclass

from mirror.service.selection import is_topic_name, topic_pattern

_COMMA = re.compile(r"\s*,\s*")
_QUANTIFIER = re.compile(r"\{\d+(,\d*)?\}")
_GROUP_NAME = re.compile(r"<([A-Za-z][A-Za-z0-9]*)>")
_FLAGS = re.compile(r"\?([ims]*)(-[ims]+)?([:)])")
_CLASSES = {
    "Lower": "a-z", "Upper": "A-Z", "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9", "XDigit": "0-9a-fA-F",
    "javaLowerCase": "a-z", "javaUpperCase": "A-Z", "L": "a-zA-Z", "IsAlphabetic": "a-zA-Z", "IsDigit": "0-9",
}  # fmt: skip
"""Java's character classes -> ranges. Topic names have only ASCII characters, so classes for Unicode are the same."""
_SAME_ESCAPES = "dDwWsSbBAtnrfa123456789"


class Untranslatable(Exception):
    """The expression has something that does not exist in Python, or has another meaning. The message names it."""


@dataclass(frozen=True, slots=True)
class Entries:
    """A list in the mirror's notation.

    Attributes:
        entries: the entries that could be translated.
        notes: remarks on differences.
        failed: one text for each other entry: its number, from 1, and why it could not be translated.
    """

    entries: tuple[str, ...]
    notes: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


def split(text: str) -> list[str]:
    """Splits a list in the same way as Kafka's ConfigDef. Empty entries are left out."""
    return [entry for entry in _COMMA.split(text.strip()) if entry]


def entries(text: str, *, names: str = "topics") -> Entries:
    """Translates a list of names and Java expressions. ``names``: the kind of names, for the notes."""
    given = split(text)
    found, notes, failed = [], [], []
    for number, entry in enumerate(given, start=1):
        try:
            found.append(translated(entry))
        except Untranslatable as error:
            failed.append(f"entry {number} of {len(given)}: {error}")
    if failed and len(given) > 1:
        try:
            whole = translated("|".join(given))
        except Untranslatable:
            pass
        else:
            return Entries(
                (whole,), ("a comma inside an expression: MirrorMaker 2 splits there and joins by |, as here",)
            )
    if any("." in entry and is_topic_name(entry) for entry in given):
        notes.append(
            f"entries without special characters are names of {names} here, in which a dot is a dot; to MirrorMaker "
            f"2 it is "
            "any character"
        )
    return Entries(tuple(dict.fromkeys(found)), tuple(notes), tuple(failed))


def translated(entry: str) -> str:
    """Returns a Java expression in Python's notation.

    Raises:
        Untranslatable: there is no equivalent.
    """
    if is_topic_name(entry):
        return entry
    parts, at = [], 0
    while at < len(entry):
        part, at = _next(entry, at)
        parts.append(part)
    result = "".join(parts)
    try:
        topic_pattern(result)
    except ValueError as error:
        raise Untranslatable(f"it is not valid in Python ({error})") from None
    return result


def _next(entry: str, at: int) -> tuple[str, int]:
    """Returns the translation of the element at ``at``, and the position behind it."""
    char = entry[at]
    if char == "\\":
        return _escape(entry, at, inside=False)
    if char == "[":
        return _class(entry, at)
    if char == "(" and entry.startswith("(?", at):
        return _special_group(entry, at)
    if char == "{" and not _QUANTIFIER.match(entry, at):
        raise Untranslatable("a brace that is no quantifier")
    return char, at + 1


def _special_group(entry: str, at: int) -> tuple[str, int]:
    if entry.startswith(("(?:", "(?=", "(?!", "(?>"), at):
        return entry[at : at + 3], at + 3
    if entry.startswith(("(?<=", "(?<!"), at):
        return entry[at : at + 4], at + 4
    if name := _GROUP_NAME.match(entry, at + 2):
        return f"(?P<{name[1]}>", name.end()
    flags = _FLAGS.match(entry, at + 1)
    if flags and (flags[3] == ":" or (at == 0 and not flags[2])):
        return entry[at : flags.end()], flags.end()
    raise Untranslatable("flags of Java, or flags that do not stand at the beginning")


def _escape(entry: str, at: int, *, inside: bool) -> tuple[str, int]:
    """Translates an element that begins with a backslash. ``inside``: True inside a character class."""
    char = entry[at + 1 : at + 2]
    if char == "Q":
        end = entry.find("\\E", at + 2)
        end = len(entry) if end < 0 else end
        return re.escape(entry[at + 2 : end]), end + 2
    if char == "z" and not inside:
        return r"\Z", at + 2
    if char == "k" and (name := _GROUP_NAME.match(entry, at + 2)) and not inside:
        return f"(?P={name[1]})", name.end()
    if char in ("p", "P"):
        found = re.compile(r"\{(\w+)\}|(L)").match(entry, at + 2)
        ranges = _CLASSES.get((found[1] or found[2]) if found else "")
        if found is None or ranges is None or (inside and char == "P"):
            raise Untranslatable(f"a class of characters, \\{char}, that Python does not have")
        return ranges if inside else f"[{'^' if char == 'P' else ''}{ranges}]", found.end()
    if not char:
        raise Untranslatable("a backslash at the end")
    if (char.isascii() and char.isalnum() and char not in _SAME_ESCAPES) or (inside and char in "bBA"):
        raise Untranslatable(f"\\{char}, which means something else in Python, or nothing")
    return entry[at : at + 2], at + 2


def _class(entry: str, at: int) -> tuple[str, int]:
    """Translates a character class in brackets. Intersections and nested classes have no equivalent in Python."""
    parts, begin = ["["], at + 1
    if entry.startswith("^", begin):
        parts.append("^")
        begin += 1
    at = begin
    while at < len(entry):
        char = entry[at]
        if char == "]" and at > begin:
            return "".join([*parts, "]"]), at + 1
        if char in "[]" or entry.startswith("&&", at):
            raise Untranslatable("an intersection of classes of characters, or one inside another")
        if char == "\\":
            part, at = _escape(entry, at, inside=True)
            parts.append(part)
        else:
            parts.append(char)
            at += 1
    raise Untranslatable("a bracket that is not closed")
