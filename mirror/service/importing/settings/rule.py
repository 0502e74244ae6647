"""The form of the tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto


class How(Enum):
    """How a value is converted."""

    SAME = auto()
    NUMBER = auto()
    SECONDS = auto()
    """Seconds; ours are milliseconds."""
    SWITCH = auto()
    ENTRIES = auto()
    """A list of names and expressions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What becomes of a setting.

    Attributes:
        becomes: the key here. Empty: it has none.
        how: how the value is converted, if it becomes something.
        why: without ``becomes``: why it is not needed. With it: what is worth a comment; may be empty.
        fine: without ``becomes``: the values, in lower case, with which it is not needed; any other needs a decision.
            None: it is not needed, whatever its value.
        otherwise: what is to be decided then.
    """

    becomes: str = ""
    how: How = How.SAME
    why: str = ""
    fine: tuple[str, ...] | None = None
    otherwise: str = ""


def becomes(key: str, how: How = How.SAME, why: str = "") -> Rule:
    """A setting that is taken over."""
    return Rule(becomes=key, how=how, why=why)


def not_needed(why: str) -> Rule:
    """A setting that needs no equal."""
    return Rule(why=why)


def decide(why: str, *, unless: Iterable[str] = (), then: str = "") -> Rule:
    """A setting that has no equal. ``unless``: values with which none is needed, because of ``then``."""
    return Rule(fine=tuple(unless), why=then, otherwise=why)


def each(rule: Rule, keys: str) -> Mapping[str, Rule]:
    """The same rule for several keys, which are parted by blanks."""
    return dict.fromkeys(keys.split(), rule)
