"""The interface of the mirror's memory across restarts: its name, its methods and its errors."""

from collections.abc import Callable, Iterable
from typing import Protocol

from mirror.net.errors import Damaged, NetworkError, Refused, Unreadable
from mirror.net.rights import Right
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.pins import FlowEntry
from mirror.offsetmap.internal.ledger import Ledger
from mirror.wire.errors import Reaction, outcome_of

May = Callable[[], bool]
"""Returns True if something may still be written. It is called right before the request is sent."""
PREFIX = "mirror-internal."
"""The prefix of the names of internal topics. These topics are never mirrored (``service.config``)."""
RESTORE = (
    "nobody but a mirror of this version may write there: restore the topic, or give the flow a new destination topic"
)
"""The remedy for records that no mirror of this version can have written."""


class StateUnusable(NetworkError):
    """The internal topic has records or settings that it must not have; the message says what to do."""

    slug = "state_unusable"


UNREADABLE = (Refused, StateUnusable, Damaged)
"""Errors that mean that an internal topic cannot be read. A flow that reads the topic of another flow goes on without
it, unless asking again may help (``passes``)."""


def passes(error: NetworkError) -> bool:
    """Returns True if asking again may help after one of the errors in ``UNREADABLE``. It does not help if reading is
    forbidden, or if the log is damaged on a broker's disk."""
    return (
        isinstance(error, Refused) and not isinstance(error, Unreadable) and outcome_of(error.code) is not Reaction.HALT
    )


def state_topic(flow: str) -> str:
    """Returns the name of a flow's internal topic: ``mirror-internal.dc1_to_dc2`` for ``dc1->dc2``."""
    return PREFIX + flow.replace("->", "_to_")


class Memory(Protocol):
    """The mirror's memory at the destination, as the relay needs it: ``InternalTopic``, or a model of it in tests.
    Every coroutine raises ``NetworkError`` if the destination does not answer."""

    topic: str
    ledger: Ledger
    lost: Ledger | None
    """The ledger before the topic was found to have lost some of its records; None if it has lost nothing, or once that
    is repaired."""
    lacks: Right | None
    """The right to read the topic's configs, if that is missing."""

    async def open(self, *, create: bool = True, replication_factor: int = -1) -> bool:
        """Finds or creates the topic, and reads it. Returns False if there is none. See ``InternalTopic.open``."""

    async def load(self) -> None:
        """Reads what was written since the last time."""

    async def look(self, *, replication_factor: int = -1) -> None:
        """Checks that the topic still has everything that was read, and sets ``lost`` if not."""

    async def put(self, entry: Entry) -> None:
        """Writes one entry, together with those of other calls at the same time."""

    async def save(self, entries: Iterable[Entry], *, forget: Iterable[bytes] = (), may: May | None = None) -> None:
        """Writes entries, and removes the keys in ``forget``. See ``InternalTopic.save``."""

    async def claim(self, flow: FlowEntry) -> None:
        """Records which flow the topic belongs to, unless it has that entry."""
