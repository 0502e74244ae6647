"""Entries of `topics`, `exclude`, `groups` and the like: names, or regular expressions that match whole names.

An entry that cannot match any topic, or that looks like a glob, is refused: it would silently mirror something else
than its author intended, or nothing.
"""

import re
from collections.abc import Iterable

from mirror.offsetmap.fields import INTERNAL_PREFIXES
from mirror.service.config.checks.refusal import refused
from mirror.service.selection import is_internal, is_topic_name, topic_pattern

TOPIC_NAME_MAX = 249
"""Longest topic name that a broker takes (org.apache.kafka.common.internals.Topic)."""

_TOPIC = 'write a topic\'s name, or a regular expression that matches whole names, such as "payments\\\\..*"'
_GROUP = 'write a group\'s name, or a regular expression that matches whole names, such as "billing-.*"'

_GLOB = re.compile(r"(?:[A-Za-z0-9._-]|\\[.-]|[*?])*")
"""Characters of names, and those of globs: an entry of them alone may be a glob."""
_GLOB_STAR = re.compile(r"(?:[A-Za-z0-9_-]|\\[.-])\*")
"""A star behind a character: as an expression it repeats that character, but it was probably meant as a glob."""
_BEGINNING = re.compile(r"\^?(?P<prefix>(?:[A-Za-z0-9_-]|\\[.-])*)(?P<rest>\.[*+]\$?)")
"""An expression for all names that begin with a text."""
_NOT_REQUIRED = re.compile(
    r"\\."  # an escape
    r"|\[\^?\]?[^\]]*\]"  # a class
    r"|\{[0-9]*,?[0-9]*\}"  # a repetition
    r"|[^A-Za-z0-9._\-\\\[()](?:[*?]|\{0*(?:,[0-9]*)?\})"  # a character that may be missing
    r"|[\^$.*+?]",
    re.DOTALL,
)
"""The parts of an expression that are not characters which every matching name must contain."""
_AFTER_THE_END = re.compile(r"\$(?=[A-Za-z0-9_-])")
_PERHAPS_MISSING = re.compile(r"[?*+{].*", re.DOTALL)
_OTHER = re.compile(r"[^A-Za-z0-9._-]")

_REMEDIES = (
    (re.compile(r"\A/.*/\Z", re.DOTALL), "leave the slashes out: an entry without them can be a regular expression"),
    (_AFTER_THE_END, "write ${env:NAME} for an environment variable; in an expression, $ stands at its end"),
    (re.compile(r"\A!"), "write what is to be left out as an entry of exclude, without the exclamation mark"),
    (re.compile(r"\A\s|\s\Z"), "remove the blanks around it"),
    (re.compile(r"\s"), "write one list entry for each topic, without blanks"),
    (re.compile(r"[{}]"), 'write braces as a group: "orders-(eu|us)" instead of "orders-{eu,us}"'),
    (re.compile(r"%"), 'write ".*" for any characters: entries are regular expressions'),
)
"""(pattern, remedy): something found in an entry that cannot match any topic, and what to do about it."""
_ALLOWED = "letters, digits, dots, dashes and underscores"


def check_topic_entry(entry: str) -> str:
    """Returns an entry of `topics` or `exclude` as it is; raises PydanticCustomError if it cannot match any topic."""
    if not entry:
        raise refused("is empty", _TOPIC)
    if is_topic_name(entry) and (len(entry) > TOPIC_NAME_MAX or entry in (".", "..")):
        raise refused(f'is not a topic name (at most {TOPIC_NAME_MAX} characters, not "." or "..")', _TOPIC)
    names = re.split("[,;]", entry.replace(" ", ""))
    if len(names) > 1 and all(map(is_topic_name, names)):
        raise refused("is several names in one", "write one list entry for each topic")
    _check_expression(entry, "topic", _TOPIC)
    if _matches_no_topic(entry):
        remedy = next((remedy for found, remedy in _REMEDIES if found.search(entry)), "write it as the source lists it")
        raise refused(f"is no topic's name, and matches none: names have {_ALLOWED} alone", remedy)
    return entry


def check_included(entry: str) -> str:
    """As `check_topic_entry`, for `topics`; raises PydanticCustomError also if the entry can only match internal
    topics."""
    if is_topic_name(entry) and is_internal(entry):
        raise refused("is an internal topic, and those are never mirrored", "take it off the list")
    beginning = _PERHAPS_MISSING.sub("", entry.removeprefix("^").replace("\\", ""))
    surely = beginning if beginning == entry else beginning[:-1]
    if "|" not in entry and surely.startswith(INTERNAL_PREFIXES):
        raise refused("is for internal topics alone, and those are never mirrored", "take it off the list")
    return check_topic_entry(entry)


def check_group_entry(entry: str) -> str:
    """Returns an entry of `groups` or `groups.exclude` as it is; raises PydanticCustomError if it is empty, a glob, or
    an invalid expression."""
    if not entry:
        raise refused("is empty", _GROUP)
    _check_expression(entry, "group", _GROUP)
    return entry


def leaves_nothing(entries: Iterable[str], exclude: Iterable[str]) -> bool:
    """Returns True if `exclude` certainly covers everything that the entries can match. It is detected entry by entry:
    `exclude` has the same text, or matches the entry's name, or matches all names with a prefix that the entry's prefix
    begins with. Other cases show only at run time: no topic is mirrored."""
    excluded = tuple(exclude)
    return all(any(_covers(other, entry) for other in excluded) for entry in entries)


def _check_expression(entry: str, what: str, remedy: str) -> None:
    """Refuses globs, and expressions that are not valid. ``what``: topic or group."""
    if entry == "*":
        raise refused("is a glob, and entries are regular expressions", f'write ".*" for all {what}s')
    if _GLOB.fullmatch(entry):
        if entry[0] in "*?":
            raise refused(
                "is a glob, and entries are regular expressions",
                'write ".*" where a glob has "*", and "." where it has "?", such as ".*-orders"',
            )
        if _GLOB_STAR.search(entry):
            raise refused(
                'is a glob, it seems: as a regular expression, "*" repeats the character before it',
                'write ".*" for any characters, such as "orders.*"; or put the repeated character in brackets, as in '
                '"order[s]*", if that is meant',
            )
    try:
        topic_pattern(entry)
    except ValueError as error:
        raise refused(f"is not a valid regular expression ({error})", remedy) from error


def _matches_no_topic(entry: str) -> bool:
    """Returns True if every text that the expression matches contains a character that topic names cannot have.

    Expressions with groups or alternatives are not judged, nor is a character that may be missing.
    """
    if "|" in entry or "(" in entry:
        return False
    return bool(_OTHER.search(_NOT_REQUIRED.sub("", entry)) or _AFTER_THE_END.match(entry))


def _covers(exclude: str, entry: str) -> bool:
    if exclude == entry:
        return True
    if is_topic_name(entry):
        return topic_pattern(exclude).fullmatch(entry) is not None
    wide = _BEGINNING.fullmatch(exclude)
    if wide is None:
        return False
    if not wide["prefix"]:  # it matches every name, since names are not empty
        return True
    narrow = _BEGINNING.fullmatch(entry)
    if narrow is None or not narrow["prefix"].startswith(wide["prefix"]):
        return False
    longer = narrow["prefix"] != wide["prefix"] or narrow["rest"].startswith(".+")
    return longer or wide["rest"].startswith(".*")
