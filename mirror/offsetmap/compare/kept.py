"""Keeps the originals that ``Alignment`` has read and may still need, by index: 0 is the first one that is compared."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator

from mirror.offsetmap.compare.looks import ComparedBatch
from mirror.offsetmap.compare.pieces import Rows, rows_of

MOST_KEPT = 16 << 20
"""Maximum number of bytes of originals that are kept so that they can be opened. Of earlier ones, only the digests are
kept."""


class KeptOriginals:
    """Reads originals when they are first asked for.

    Attributes:
        first: the index of the first original that is kept.
        ends: the end offset of the original before that one.
        size: bytes of records that are kept.
    """

    def __init__(
        self, fetch: Callable[[], Awaitable[ComparedBatch | None]], opening: asyncio.Lock, *, begins: int
    ) -> None:
        """
        Args:
            fetch: returns the next original; None: there is none now.
            opening: is held while an original is open, to limit memory.
            begins: the source offset before which everything was copied.
        """
        self.first = 0
        self.ends = begins
        self.size = 0
        self._fetch = fetch
        self._opening = opening
        self._originals: deque[ComparedBatch] = deque()
        self._rows: dict[int, Rows | None] = {}
        """The records of originals that were searched for pieces."""
        self._whole_from = 0
        """Index of the first original whose records are kept."""

    @property
    def end(self) -> int:
        """The index behind the last original that was read."""
        return self.first + len(self._originals)

    def at(self, index: int) -> ComparedBatch:
        """Returns an original that was read, and is kept."""
        return self._originals[index - self.first]

    async def read(self, index: int) -> ComparedBatch | None:
        """Returns an original, and reads it first if need be; None if it cannot be read now."""
        while index >= self.end:
            original = await self._fetch()
            if original is None:
                return None
            self._originals.append(original)
            self.size += len(original.records or b"")
        return self.at(index)

    def rows(self, index: int) -> Rows | None:
        """Returns the records of an original that ``open`` has opened; None if it has not."""
        return self._rows.get(index)

    async def open(self, index: int) -> Rows | None:
        """Returns the records of an original that can be read; None if its bytes are no longer kept, or are
        damaged."""
        if index not in self._rows:
            original = await self.read(index)
            assert original is not None
            async with self._opening:
                self._rows[index] = await rows_of(original)
        return self._rows[index]

    def drop_before(self, index: int) -> Iterator[ComparedBatch]:
        """Drops the originals before ``index``, and yields each."""
        while self.first < index:
            original = self._originals.popleft()
            self.ends = original.header.next_offset
            self.first += 1
            yield original

    def forget(self, passed: int) -> None:
        """Drops the records of the originals before ``passed``, and of the oldest ones if too many bytes are kept.

        Args:
            passed: the index of the first original that may still be compared.
        """
        self._rows = {index: rows for index, rows in self._rows.items() if index >= passed}
        while self._whole_from < self.end and (self._whole_from < passed or self.size > MOST_KEPT):
            at = self._whole_from - self.first
            self.size -= len(self._originals[at].records or b"")
            self._originals[at] = self._originals[at]._replace(records=None)
            self._whole_from += 1
