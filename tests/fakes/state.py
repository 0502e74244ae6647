"""An internal topic in memory, for relays that run without a real one."""

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
    """A ``Memory``. Instances that share ``rows`` see what the others have written at their next ``load``.

    ``exchange``: stands for a request: it takes time, or raises an error. It is awaited before anything is read or
    written.
    """

    topic = "mirror-internal.memory"

    def __init__(self, rows: list[KeyValue], exchange: Callable[[], Awaitable[None]] = _at_once) -> None:
        self.rows = rows
        self.ledger = Ledger(lean=True)
        self.lost: Ledger | None = None
        self.lacks: Right | None = None
        self._exchange = exchange
        self._next = 0

    async def open(self, *, create: bool = True, replication_factor: int = -1) -> bool:
        """Reads the topic, which always exists."""
        await self.load()
        return True

    async def look(self, *, replication_factor: int = -1) -> None:
        """Does nothing: this topic loses nothing."""

    async def load(self) -> None:
        """Reads what others have written since."""
        await self._exchange()
        for key, value in self.rows[self._next :]:
            self.ledger.apply(key, value)
        self._next = len(self.rows)

    async def put(self, entry: Entry) -> None:
        """Writes one entry."""
        await self.save([entry])

    async def save(self, entries: Iterable[Entry], *, forget: Iterable[bytes] = (), may: May | None = None) -> None:
        """Writes entries, and removes keys."""
        await self._exchange()
        if may is not None and not may():
            raise NotSent("not any more")
        self.rows += [(entry.key(), entry.value()) for entry in entries]
        self.rows += [(key, None) for key in forget]
        for key, value in self.rows[self._next :]:
            self.ledger.apply(key, value)
        self._next = len(self.rows)

    async def claim(self, flow: FlowEntry) -> None:
        """Writes which flow the topic belongs to. Tests with several flows share it, so nothing is refused."""
        if all(one.key() != flow.key() for one in self.ledger.flows):
            await self.put(flow)
