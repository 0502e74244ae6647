"""The internal topic as a list in this process, for relays that run without one."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from mirror.net.errors import NotSent
from mirror.net.rights import Right
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.pins import FlowEntry
from mirror.offsetmap.internal.batches import KeyValue
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.internal.memory import May


async def _at_once() -> None:
    await asyncio.sleep(0)


class MemoryState:
    """A ``Memory``. Those that share ``rows`` see what the others write at their next ``load``.

    ``exchange``: what a request takes, or the error that it ends with; awaited before anything is read or written."""

    topic = "mirror-internal.memory"

    def __init__(self, rows: list[KeyValue], exchange: Callable[[], Awaitable[None]] = _at_once) -> None:
        self.rows = rows
        self.ledger = Ledger(lean=True)
        self.lost: Ledger | None = None
        self.lacks: Right | None = None
        self._exchange = exchange
        self._next = 0

    async def open(self, *, create: bool = True, replication_factor: int = -1) -> bool:
        """It is always there."""
        await self.load()
        return True

    async def look(self, *, replication_factor: int = -1) -> None:
        """It loses nothing."""

    async def load(self) -> None:
        """What others have written since."""
        await self._exchange()
        for key, value in self.rows[self._next :]:
            self.ledger.apply(key, value)
        self._next = len(self.rows)

    async def put(self, entry: Entry) -> None:
        """One entry."""
        await self.save([entry])

    async def save(self, entries: Iterable[Entry], *, forget: Iterable[bytes] = (), may: May | None = None) -> None:
        """Entries, and keys that are no more."""
        await self._exchange()
        if may is not None and not may():
            raise NotSent("not any more")
        self.rows += [(entry.key(), entry.value()) for entry in entries]
        self.rows += [(key, None) for key in forget]
        for key, value in self.rows[self._next :]:
            self.ledger.apply(key, value)
        self._next = len(self.rows)

    async def claim(self, flow: FlowEntry) -> None:
        """Whose it is; tests with several flows share it."""
        if all(one.key() != flow.key() for one in self.ledger.flows):
            await self.put(flow)
