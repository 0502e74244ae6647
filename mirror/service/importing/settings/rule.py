"""The type of the tables' entries."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto


class How(Enum):
    """How a value is converted."""

    SAME = auto()
    NUMBER = auto()
    SECONDS = auto()
    """From seconds to milliseconds."""
    SWITCH = auto()
    ENTRIES = auto()
    """A list of names and expressions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What becomes of a setting.

    Attributes:
        becomes: the key in the mirror's configuration; empty if there is none.
        how: how the value is converted, if there is such a key.
        why: without ``becomes``: why the setting is not needed. With it: a comment; may be empty.
        fine: without ``becomes``: the values, in lower case, with which the setting is not needed; any other value
            needs a decision. None: it is not needed, whatever its value.
        otherwise: what the user has to decide in that case.
    """

    becomes: str = ""
    how: How = How.SAME
    why: str = ""
    fine: tuple[str, ...] | None = None
    otherwise: str = ""


def becomes(key: str, how: How = How.SAME, why: str = "") -> Rule:
    """Returns the rule for a setting that is taken over as ``key``."""
    return Rule(becomes=key, how=how, why=why)


def not_needed(why: str) -> Rule:
    """Returns the rule for a setting that is not needed here."""
    return Rule(why=why)


def decide(why: str, *, unless: Iterable[str] = (), then: str = "") -> Rule:
    """Returns the rule for a setting without an equivalent: the user has to decide. ``unless``: values with which it is
    not needed; ``then``: why."""
    return Rule(fine=tuple(unless), why=then, otherwise=why)


def each(rule: Rule, keys: str) -> Mapping[str, Rule]:
    """Returns a table with the same rule for several keys. ``keys``: separated by blanks."""
    return dict.fromkeys(keys.split(), rule)
