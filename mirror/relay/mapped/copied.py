"""What a partition of ``offsets: mapped`` has in addition: what was passed over, what landed where, and what of that is
yet to be written down.

In exact mode the destination's log end is the whole checkpoint. Here others write to that log, too, so the position is
what was acknowledged and written down, plus what a look at both logs finds behind that (``relay.mapped.locate``).
"""

import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from mirror.offsetmap.chunks import ChunkId
from mirror.offsetmap.fields import id_text
from mirror.offsetmap.pins import LastCopied, header_digest
from mirror.offsetmap.records import CHUNK_RUNS, Checkpoint, Chunk, Entry, Order, Side
from mirror.offsetmap.runs import OffsetMap, Run
from mirror.offsetmap.topic import Memory
from mirror.records.admit import Cause
from mirror.records.header import NO_LEADER_EPOCH
from mirror.records.identity import Identity

UNWRITTEN_CHUNKS = 64
"""Sealed chunks that may wait to be written down, 24 KB each in memory: then the partition waits, too."""


NOTHING = LastCopied(0)
"""What was copied last, before anything was."""


class Jump(NamedTuple):
    """Source offsets from ``start`` to before ``end`` that are not copied: nothing takes their place."""

    start: int
    end: int
    cause: Cause


class Between(NamedTuple):
    """Destination offsets from ``start`` to before ``end``, between batches of ours, that others took while the leader
    may have forgotten who we are: it took batches of a former owner as well then."""

    start: int
    end: int


class Mark(Protocol):
    """The last batch of a record set. See ``relay.partition.Mark``."""

    @property
    def next_offset(self) -> int:
        """The source offset behind it."""

    @property
    def header(self) -> bytes:
        """As the source has it."""


class Journal:
    """The map of what one writer has copied into one destination, from its takeover on.

    Grows at its end; ``unwritten`` are the chunks that differ from what was last ``written``. Only what has to be
    written again is kept: a sealed chunk is forgotten once it is there."""

    def __init__(
        self,
        side: Side,
        *,
        writer: str,
        order: Order,
        since: int,
        start: OffsetMap | None = None,
        follows: ChunkId | None = None,
        gone_to: int = 0,
    ) -> None:
        """``start``: runs that are taken over from others' chunks, from source offset ``since`` on. ``follows`` and
        ``gone_to``: see ``Chunk``."""
        self.side = side
        self.writer = writer
        self.order = order
        self.since = since
        self.follows = follows
        self.gone_to = gone_to
        self._open = OffsetMap()
        self._number = 0
        self._sealed: list[Chunk] = []
        self._changed = True
        for run in start or ():
            self.landed(*run)

    def landed(self, source: int, destination: int, length: int) -> None:
        """So many offsets from ``source`` on are now at ``destination``.

        Raises:
            MapError: they do not lie behind all that landed before.
        """
        self._open.append(source, destination, length)
        self._changed = True
        if len(self._open) > CHUNK_RUNS:
            # The last run is one that may still grow: it begins the next chunk.
            *full, last = self._open
            self._sealed.append(self._chunk(OffsetMap(full), sealed=True))
            self._number += 1
            self._open = OffsetMap([last])

    @property
    def changed(self) -> bool:
        """Whether there is something to write."""
        return self._changed or bool(self._sealed)

    @property
    def overflows(self) -> bool:
        """More waits to be written than is good for memory."""
        return len(self._sealed) >= UNWRITTEN_CHUNKS

    @property
    def last(self) -> Run | None:
        """The run that grows."""
        return self._open[-1] if len(self._open) else None

    def unwritten(self) -> list[Chunk]:
        """What to write, as of now; the last of them is the open one."""
        return [*self._sealed, self._chunk(OffsetMap(self._open), sealed=False)]

    def again(self) -> None:
        """What was written may be gone."""
        self._changed = True

    def written(self, chunks: list[Chunk]) -> None:
        """These are there: what ``unwritten`` gave."""
        self._sealed = [chunk for chunk in self._sealed if chunk not in chunks]
        *_, newest = chunks
        self._changed = newest.number != self._number or newest.map != self._open

    def _chunk(self, runs: OffsetMap, *, sealed: bool) -> Chunk:
        return Chunk(
            side=self.side,
            writer=self.writer,
            order=self.order,
            number=self._number,
            since=self.since,
            map=runs,
            sealed=sealed,
            follows=self.follows,
            gone_to=self.gone_to,
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Copied:
    """What was acknowledged of a partition since it was taken over. Lives on through doubts."""

    journal: Journal
    source: int
    """All source offsets below are at the destination, or are not copied."""
    source_epoch: int
    """Leader epoch of the source's batch before; -1: not known."""
    destination: int
    """All that this flow has written of the partition lies below, at the destination."""
    identity: Identity
    """Of the next batch."""
    own: frozenset[int]
    """Producer ids under which the partition was ever written."""
    source_id: bytes | None = None
    destination_id: bytes | None = None
    jumps: deque[Jump] = field(default_factory=deque)
    """Ahead of ``source``."""
    isolation_level: str = ""
    """The setting under which the partition is copied."""
    unused: bool = False
    """Nothing had been copied, by anybody, when this account began."""
    confirmed: bool = False
    """It was still ours behind the first checkpoint. Nothing is sent before that is written down."""
    last: LastCopied = NOTHING
    """What was copied last, as of the last look at both logs."""
    marks: Sequence[Mark] = ()
    """The partition's: record sets that were put on their way since."""
    between: deque[Between] = field(default_factory=deque)
    """What was not looked at yet. Nothing that landed behind is written down before."""
    looked: int = 0
    """All of the destination below this offset was looked at, or is among ``between``."""
    astray: bool = False
    """A batch of ours that was not acknowledged stands there, or a damaged one: only what is written down can be
    believed."""
    at: tuple[int, int, bool] = (-1, -1, False)
    """``source``, ``destination`` and ``confirmed`` as they were last written down."""

    @property
    def changed(self) -> bool:
        """Whether there is something to write down."""
        return self.journal.changed or self.at != (self.source, self.destination, self.confirmed)

    def passed(self, start: int, end: int) -> None:
        """Others have taken these destination offsets, while the leader may have forgotten who we are."""
        start = max(start, self.looked)
        if start < end:
            self.between.append(Between(start, end))
            self.looked = end

    def landed(self, destination: int, length: int) -> None:
        """The next batch was acknowledged at this destination offset."""
        self.journal.landed(self.source, destination, length)
        self.source += length
        self.source_epoch = NO_LEADER_EPOCH  # of another batch: the next look asks
        self.destination = destination + length
        self.identity = self.identity.after(length)

    def skip(self, start: int, count: int, cause: Cause) -> None:
        """So many source offsets from ``start`` on will not be copied."""
        last = self.jumps[-1] if self.jumps else None
        if last is not None and last.end == start and Cause.ACCEPTED not in (cause, last.cause):
            self.jumps[-1] = Jump(last.start, start + count, last.cause)
        else:
            self.jumps.append(Jump(start, start + count, cause))

    def forget_from(self, offset: int) -> None:
        """What lies at or behind this source offset is fetched, and judged, again."""
        while self.jumps and self.jumps[-1].start >= offset:
            self.jumps.pop()

    def jump(self) -> Jump | None:
        """What is not copied here, if there is such: ``source`` is then behind it."""
        if not self.jumps or self.jumps[0].start != self.source:
            return None
        jump = self.jumps.popleft()
        self.source, self.source_epoch = jump.end, NO_LEADER_EPOCH
        return jump

    def found(self, runs: OffsetMap, source: int, source_epoch: int, identity: Identity, destination: int) -> None:
        """Landed without an answer, as both logs say; ``source`` and ``destination``: the offsets behind all of it."""
        self.unused = self.unused and source == self.source
        for run in runs:
            self.journal.landed(*run)
        self.destination = max(self.destination, destination)
        self.source, self.source_epoch, self.identity = source, source_epoch, identity
        self.looked = 0
        self.jumps.clear()

    def note(self) -> LastCopied:
        """What was copied last, as of now: all of it was read under the leader epoch of the last look, or before."""
        mark = next((mark for mark in reversed(self.marks) if mark.next_offset <= self.source), None)
        if mark is None or mark.next_offset <= self.last.digest_at:
            return self.last._replace(offset=self.source)
        return LastCopied(self.source, self.last.leader_epoch, header_digest(mark.header), mark.next_offset)

    def checkpoint(self, at_ms: int, *, closed: bool = False) -> Checkpoint:
        """As of now; ``at_ms``: the time; ``closed``: nothing will be sent behind it."""
        return Checkpoint(
            side=self.journal.side,
            writer=self.journal.writer,
            order=self.journal.order,
            source_offset=self.source,
            source_epoch=self.source_epoch,
            destination_offset=self.destination,
            identity=self.identity,
            source_id=id_text(self.source_id),
            destination_id=id_text(self.destination_id),
            at_ms=at_ms,
            own=tuple(sorted(self.own)),
            closed=closed or not self.confirmed,
            confirmed=self.confirmed,
            copied=self.note(),
            isolation_level=self.isolation_level,
            unused=self.unused and self.journal.last is None,
        )

    def again(self) -> None:
        """What was written down may be gone: it is written once more, as far as it is in memory."""
        self.journal.again()
        self.at = (-1, -1, False)

    def unwritten(self) -> list[Chunk]:
        """What to write of the map, as of now."""
        return self.journal.unwritten() if self.journal.changed else []

    def written(self, chunks: list[Chunk], checkpoint: Checkpoint) -> None:
        """These are there: what ``unwritten`` and ``checkpoint`` gave."""
        if chunks:
            self.journal.written(chunks)
        self.at = (checkpoint.source_offset, checkpoint.destination_offset, checkpoint.confirmed)


class Account(NamedTuple):
    """What is written down of a partition: where it was at one moment."""

    copied: Copied
    chunks: list[Chunk]
    checkpoint: Checkpoint

    @classmethod
    def of(cls, copied: Copied, *, closed: bool = False) -> "Account":
        """As of now; ``closed``: nothing will be sent behind it."""
        at_ms = round(time.time() * 1000)
        return cls(copied, copied.unwritten(), copied.checkpoint(at_ms, closed=closed))


async def save(state: Memory, accounts: Sequence[Account], *, forget: Iterable[bytes] = ()) -> None:
    """Writes down checkpoints and maps. ``forget``: keys that are no more.

    Raises:
        NetworkError: not certain that they are there; they will be written again.
    """
    # The map before the checkpoint: should only the first part get there, the lock-step finds the rest again.
    entries: list[Entry] = []
    for _, chunks, checkpoint in accounts:
        entries += [*chunks, checkpoint]
    await state.save(entries, forget=forget)
    for copied, chunks, checkpoint in accounts:
        copied.written(chunks, checkpoint)


async def write_down(
    state: Memory, accounts: Iterable[Copied], *, forget: Iterable[bytes] = (), closed: Collection[Copied] = ()
) -> None:
    """The same for these partitions as they are now, where they have changed. ``closed``: nothing will be sent any more
    of these."""
    written = [Account.of(copied, closed=copied in closed) for copied in accounts if copied.changed or copied in closed]
    await save(state, written, forget=forget)
