"""Selects the topics that a flow mirrors: matches its entries, names or regular expressions, against whole names.

It imports nothing from the configuration, because workers, which get their settings as data, use it as well.
"""

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from mirror.offsetmap.fields import INTERNAL_PREFIXES

GROUP_REFERENCE = re.compile(r"\\([1-9])")
"""A reference to a group in a new name of `topic.rename`: ``\\1`` stands for the text that the expression's first group
matched, and so on."""
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]+")


def is_topic_name(entry: str) -> bool:
    """Returns True if an entry of `topics` is a name (matched as it is) rather than a regular expression."""
    return _TOPIC_NAME.fullmatch(entry) is not None


@lru_cache(maxsize=1024)
def topic_pattern(entry: str) -> re.Pattern[str]:
    """Returns the pattern for an entry of `topics` or `exclude`, to be used with `fullmatch`.

    An entry that has only the characters of topic names is a name, so that "orders.v1" does not match "orders-v1"; any
    other entry is a regular expression, in which a dot matches any character: names of groups may have newlines.
    Raises ValueError with the reason if it is not a valid one.
    """
    if is_topic_name(entry):
        return re.compile(re.escape(entry))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # such as "possible nested set": it would not match what it seems to
            return re.compile(entry, re.DOTALL)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise ValueError(str(error)) from error


def is_internal(topic: str) -> bool:
    """Returns True if a topic is an internal topic of Kafka or of the mirror."""
    return topic.startswith(INTERNAL_PREFIXES)


@dataclass(frozen=True, slots=True)
class Selection:
    """The entries of `topics`, `exclude` and `topic.rename`, and the prefixes of `replication.policy`.

    Attributes:
        renames: (entry, new name): the first entry that matches counts.
        prefix: prefix for the names of topics that match no entry of ``renames``; empty: none.
        back: prefix of topics that came from the destination cluster.
        others: prefixes of topics that came from other clusters.
    """

    topics: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()
    prefix: str = ""
    back: str = ""
    others: tuple[str, ...] = ()

    def selects(self, topic: str) -> bool:
        """Returns True if the flow mirrors this topic: it matches `topics`, not `exclude`, is not internal, and did not
        come from the destination."""
        return (
            not is_internal(topic)
            and _any(self.topics, topic)
            and not _any(self.exclude, topic)
            and not self.came_from_destination(topic)
        )

    def came_from_destination(self, topic: str) -> bool:
        """Returns True if the topic's prefixes show that it was at the destination before: copied back, it would get
        another prefix with each round. If several prefixes match, the longest counts."""
        while self.back:
            passed = max((each for each in (self.back, *self.others) if topic.startswith(each)), key=len, default="")
            if not passed:
                return False
            if passed == self.back:
                return True
            topic = topic.removeprefix(passed)
        return False

    @property
    def names(self) -> tuple[str, ...]:
        """The topics that are selected by name."""
        return tuple(entry for entry in self.topics if is_topic_name(entry) and self.selects(entry))

    def destination_of(self, topic: str) -> str:
        """Returns the destination topic of a source topic: by the first entry of `renames` that matches, otherwise its
        own name with the prefix."""
        for entry, name in self.renames:
            match = topic_pattern(entry).fullmatch(topic)
            if match is not None:
                groups = ("", *match.groups(default=""))
                parts = GROUP_REFERENCE.split(name)
                return "".join(groups[int(part)] if at % 2 else part for at, part in enumerate(parts))
        return f"{self.prefix}{topic}"


def _any(entries: Iterable[str], topic: str) -> bool:
    return any(topic_pattern(entry).fullmatch(topic) for entry in entries)
