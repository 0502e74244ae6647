"""A source partition as it lies on a broker's disk, in segment files. Single bits of it can be flipped.

``fetch`` finds batches as brokers do (4.x: ``LocalLog.read``, ``FileRecords.searchForOffsetFromPosition``): the segment
by its name, a place in it by an index made when the batches were written, and from there on by what the headers say.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mirror.net.errors import Damaged
from mirror.net.logs.log import Segment
from mirror.net.logs.reading import verified
from mirror.records.header import HEADER_SIZE, PREFIX, PREFIX_SIZE, BatchHeader, CorruptBatch
from mirror.records.scan import NOT_SEEN

LEAST_LENGTH = 14


class Written(NamedTuple):
    """A batch as it was written."""

    header: BatchHeader
    data: bytes


class CannotRead(Exception):
    """The broker answers with an error, again and again: it has found an impossible length."""


class Disk:
    """A partition's segment files.

    Args:
        stored: the batches.
        per_segment: batches in each file.
        indexed: True if the index has an entry for every batch; otherwise it has none.
    """

    name = "t-0 at source"

    def __init__(self, stored: Sequence[bytes], *, per_segment: int = 4, indexed: bool = True) -> None:
        self.written = [Written(BatchHeader.read(one), one) for one in stored]
        self.end = self.written[-1].header.next_offset
        self.stable = self.end
        """The last stable offset: a transaction is open from here on, so a read_committed consumer gets nothing behind
        it."""
        self.aborted: list[tuple[int, int]] = []
        self.files: list[bytearray] = []
        self._names: list[int] = []
        self._index: list[list[tuple[int, int]]] = []
        self._places: list[tuple[int, int]] = []
        for at, (header, data) in enumerate(self.written):
            if at % per_segment == 0:
                self.files.append(bytearray())
                self._names.append(header.base_offset)
                self._index.append([])
            self._places.append((len(self.files) - 1, len(self.files[-1])))
            if indexed:
                self._index[-1].append((header.last_offset, len(self.files[-1])))
            self.files[-1] += data

    def flip(self, at: int, bit: int) -> None:
        """Flips one bit of a batch."""
        number, start = self._places[at]
        self.files[number][start + (bit >> 3)] ^= 1 << (bit & 7)

    # -- the broker ----------------------------------------------------------------------------------------------------

    def fetch(self, offset: int, max_bytes: int) -> bytes:
        """Returns the records of a response: a slice of one file, with the first batch complete.

        Raises:
            CannotRead: the broker fails at what it finds.
        """
        number = max((at for at, name in enumerate(self._names) if name <= offset), default=0)
        for file, index in list(zip(self.files, self._index, strict=True))[number:]:
            start = max((place for last, place in index if last <= offset), default=0)
            found = self._search(file, start, offset)
            if found is not None:
                at, size = found
                return bytes(file[at : at + max(max_bytes, size)])
        return b""

    def _search(self, file: bytearray, start: int, offset: int) -> tuple[int, int] | None:
        """Returns the place and the size of the first batch that holds the offset or stands behind it; None: the file
        has none."""
        before: tuple[int, int, int] | None = None
        for at, size, base, last in self._headers(file, start):
            if base == offset:
                return at, size
            if base > offset:
                return before[:2] if before is not None and before[2] >= offset else (at, size)
            before = (at, size, last)
        return before[:2] if before is not None and before[2] >= offset else None

    def _headers(self, file: bytearray, at: int) -> Iterator[tuple[int, int, int, int]]:
        while at + HEADER_SIZE <= len(file):
            base, length = PREFIX.unpack_from(file, at)
            if length < LEAST_LENGTH:
                raise CannotRead(f"record size {length}")
            if at + PREFIX_SIZE + length > len(file):
                return
            header = BatchHeader.read(file, at)
            yield at, PREFIX_SIZE + length, base, header.last_offset
            at += PREFIX_SIZE + length

    # -- as ``relay.locate.rules.Readable`` ---------------------------------------------------------------------------

    async def read(self, offset: int, *, max_bytes: int = 1, committed: bool = False) -> Segment:
        """Does what ``net.logs.reading`` does with the result of ``fetch``."""
        try:
            batches, next_base = verified(memoryview(self.fetch(offset, max_bytes)), offset)
        except CorruptBatch as error:
            raise Damaged("source", str(error)) from error
        if batches and batches[-1][0].next_offset > self.end:
            raise Damaged("source", f"behind the log's end {self.end}")
        decided = [one for one in batches if not committed or one[0].base_offset < self.stable]
        if len(decided) < len(batches):
            next_base = NOT_SEEN
        return Segment(decided, self.aborted, self.end, self.stable, 0, next_base)
