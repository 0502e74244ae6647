"""The mirror's memory across restarts, as its users know it: what it is called, what it does, and how it fails."""

from collections.abc import Callable, Iterable
from typing import Protocol

from mirror.net.errors import Damaged, NetworkError, Refused, Unreadable
from mirror.net.rights import Right
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.pins import FlowEntry
from mirror.offsetmap.internal.ledger import Ledger
from mirror.wire.errors import Reaction, outcome_of

May = Callable[[], bool]
"""Returns True if something may still be written: it is asked right before the request is sent."""
PREFIX = "mirror-internal."
"""Topics whose names begin so are never mirrored (``service.config``)."""
RESTORE = (
    "nobody but a mirror of this version may write there: restore the topic, or give the flow a new destination topic"
)
"""What to do about records that no mirror of this version wrote."""


class StateUnusable(NetworkError):
    """The internal topic is not what it has to be; the message says what to do."""

    slug = "state_unusable"


UNREADABLE = (Refused, StateUnusable, Damaged)
"""Errors by which another flow's internal topic cannot be read. They hold nobody up: see ``passes``."""


def passes(error: NetworkError) -> bool:
    """Returns True if asking again may help: not if it is forbidden, nor if the log is damaged on a broker's disk."""
    return (
        isinstance(error, Refused) and not isinstance(error, Unreadable) and outcome_of(error.code) is not Reaction.HALT
    )


def state_topic(flow: str) -> str:
    """Returns the internal topic of a flow: ``mirror-internal.dc1_to_dc2`` for ``dc1->dc2``."""
    return PREFIX + flow.replace("->", "_to_")


class Memory(Protocol):
    """The mirror's memory at the destination, as the relay needs it: ``InternalTopic``, or a model of it in tests.
    Every coroutine raises ``NetworkError``."""

    topic: str
    ledger: Ledger
    lost: Ledger | None
    """The ledger as of when the topic was found to have lost some of it; None again once that is repaired."""
    lacks: Right | None
    """The right to read its configs, if that is missing."""

    async def open(self, *, create: bool = True, replication_factor: int = -1) -> bool:
        """Finds or creates the topic, and reads it; False if there is none."""

    async def load(self) -> None:
        """Reads what others have written since."""

    async def look(self, *, replication_factor: int = -1) -> None:
        """Checks that it still has all that was read, and sets ``lost`` if not."""

    async def put(self, entry: Entry) -> None:
        """Writes one entry, together with those of others."""

    async def save(self, entries: Iterable[Entry], *, forget: Iterable[bytes] = (), may: May | None = None) -> None:
        """Writes entries, and takes keys away. ``may``: see ``InternalTopic.save``."""

    async def claim(self, flow: FlowEntry) -> None:
        """Writes down which flow it belongs to, unless that is known."""
