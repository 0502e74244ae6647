"""The additional state of a partition with ``offsets: mapped``: what was passed over, what landed where, and what of
that is yet to be written down.

In exact mode the destination's log end is the whole checkpoint. Here others write to that log, too, so the position is
what was acknowledged and written down, plus what a look at both logs finds behind that (``relay.mapped.locate``).
"""

import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.entries.chunks import CHUNK_RUNS, ChunkId, MapChunk, Order
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import LastCopied, header_digest
from mirror.offsetmap.fields import id_text
from mirror.offsetmap.internal.memory import Memory
from mirror.offsetmap.runs import OffsetMap, Run
from mirror.records.admit import Cause
from mirror.records.header import NO_LEADER_EPOCH
from mirror.records.identity import Identity

UNWRITTEN_CHUNKS = 64
"""Sealed chunks that may wait to be written down, 24 KB each in memory. With so many, the partition waits, too."""


NOTHING = LastCopied(0)
"""The note of what was copied last, before anything was copied."""


class Jump(NamedTuple):
    """Source offsets from ``start`` to before ``end`` that are not copied: nothing takes their place."""

    start: int
    end: int
    cause: Cause


class Between(NamedTuple):
    """Destination offsets from ``start`` to before ``end``, between batches of ours, that others took while the leader
    may have forgotten who we are. It would also have accepted batches of a former owner then."""

    start: int
    end: int


class LastBatch(Protocol):
    """The last batch of a record set. See ``relay.partition.cursor.Mark``."""

    @property
    def next_offset(self) -> int:
        """The source offset behind it."""

    @property
    def header(self) -> bytes:
        """The batch's header, as the source has it."""


class OpenMap:
    """The map of what one writer has copied into one destination, from its takeover on.

    It grows at its end. ``unwritten`` returns the chunks that differ from what was last ``written``. Only what has to
    be written again is kept: a sealed chunk is forgotten once it is written."""

    def __init__(
        self,
        subject: Subject,
        *,
        writer: str,
        order: Order,
        since: int,
        start: OffsetMap | None = None,
        follows: ChunkId | None = None,
        gone_to: int = 0,
    ) -> None:
        """``start``: runs that are taken over from others' chunks, from source offset ``since`` on. ``follows`` and
        ``gone_to``: see ``MapChunk``."""
        self.subject = subject
        self.writer = writer
        self.order = order
        self.since = since
        self.follows = follows
        self.gone_to = gone_to
        self._open = OffsetMap()
        self._number = 0
        self._sealed: list[MapChunk] = []
        self._changed = True
        for run in start or ():
            self.landed(*run)

    def landed(self, source: int, destination: int, length: int) -> None:
        """Records that ``length`` offsets from ``source`` on are now at ``destination``.

        Raises:
            MapError: they do not lie behind all that landed before.
        """
        self._open.append(source, destination, length)
        self._changed = True
        if len(self._open) > CHUNK_RUNS:
            # The last run may still grow: it begins the next chunk.
            *full, last = self._open
            self._sealed.append(self._chunk(OffsetMap(full), sealed=True))
            self._number += 1
            self._open = OffsetMap([last])

    @property
    def changed(self) -> bool:
        """True if there is something to write."""
        return self._changed or bool(self._sealed)

    @property
    def overflows(self) -> bool:
        """True if more waits to be written than memory should hold."""
        return len(self._sealed) >= UNWRITTEN_CHUNKS

    @property
    def last(self) -> Run | None:
        """The last run, which may still grow."""
        return self._open[-1] if len(self._open) else None

    def unwritten(self) -> list[MapChunk]:
        """Returns the chunks to write, as of now. The last of them is the open one."""
        return [*self._sealed, self._chunk(OffsetMap(self._open), sealed=False)]

    def again(self) -> None:
        """Marks the open chunk as unwritten, because what was written may be gone."""
        self._changed = True

    def written(self, chunks: list[MapChunk]) -> None:
        """Records that these chunks, which ``unwritten`` returned, are written."""
        self._sealed = [chunk for chunk in self._sealed if chunk not in chunks]
        *_, newest = chunks
        self._changed = newest.number != self._number or newest.map != self._open

    def _chunk(self, runs: OffsetMap, *, sealed: bool) -> MapChunk:
        return MapChunk(
            subject=self.subject,
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
class CopiedRuns:
    """The record of what was acknowledged of a partition since it was taken over. It outlives doubts."""

    open_map: OpenMap
    source: int
    """All source offsets below are at the destination, or are not copied."""
    source_epoch: int
    """Leader epoch of the source's batch before ``source``; -1: not known."""
    destination: int
    """All that this flow has written of the partition lies below this destination offset."""
    identity: Identity
    """The identity of the next batch."""
    own: frozenset[int]
    """Producer ids under which the partition was ever written."""
    source_id: bytes | None = None
    destination_id: bytes | None = None
    jumps: deque[Jump] = field(default_factory=deque)
    """Those ahead of ``source``."""
    isolation_level: str = ""
    """The setting under which the partition is copied."""
    unused: bool = False
    """True if nothing had been copied, by anybody, when this account began."""
    confirmed: bool = False
    """True if the partition was still ours after the first checkpoint. Nothing is sent before that is written down."""
    last: LastCopied = NOTHING
    """The note of what was copied last, as of the last look at both logs."""
    marks: Sequence[LastBatch] = ()
    """The partition's marks: record sets that were put on their way since."""
    between: deque[Between] = field(default_factory=deque)
    """Places that were not looked at yet. Nothing that landed behind them is written down before they are."""
    looked: int = 0
    """All of the destination below this offset was looked at, or is among ``between``."""
    astray: bool = False
    """True if the log has a batch of ours that was not acknowledged, or a damaged one: only what is written down can
    be believed."""
    at: tuple[int, int, bool] = (-1, -1, False)
    """``source``, ``destination`` and ``confirmed`` as they were last written down."""

    @property
    def changed(self) -> bool:
        """True if there is something to write down."""
        return self.open_map.changed or self.at != (self.source, self.destination, self.confirmed)

    def passed(self, start: int, end: int) -> None:
        """Records that others have taken these destination offsets while the leader may have forgotten who we are."""
        start = max(start, self.looked)
        if start < end:
            self.between.append(Between(start, end))
            self.looked = end

    def landed(self, destination: int, length: int) -> None:
        """Records that the next batch was acknowledged at this destination offset."""
        self.open_map.landed(self.source, destination, length)
        self.source += length
        self.source_epoch = NO_LEADER_EPOCH  # it was another batch's: the next look asks for it
        self.destination = destination + length
        self.identity = self.identity.after(length)

    def skip(self, start: int, count: int, cause: Cause) -> None:
        """Records that ``count`` source offsets from ``start`` on will not be copied."""
        last = self.jumps[-1] if self.jumps else None
        if last is not None and last.end == start and Cause.ACCEPTED not in (cause, last.cause):
            self.jumps[-1] = Jump(last.start, start + count, last.cause)
        else:
            self.jumps.append(Jump(start, start + count, cause))

    def forget_from(self, offset: int) -> None:
        """Drops the jumps at or behind this source offset: what lies there is fetched, and judged, again."""
        while self.jumps and self.jumps[-1].start >= offset:
            self.jumps.pop()

    def jump(self) -> Jump | None:
        """Passes over the offsets at ``source`` that are not copied, and returns them; None if there are none."""
        if not self.jumps or self.jumps[0].start != self.source:
            return None
        jump = self.jumps.popleft()
        self.source, self.source_epoch = jump.end, NO_LEADER_EPOCH
        return jump

    def found(self, runs: OffsetMap, source: int, source_epoch: int, identity: Identity, destination: int) -> None:
        """Records what landed without an answer, as both logs show. ``source`` and ``destination``: the offsets behind
        all of it."""
        self.unused = self.unused and source == self.source
        for run in runs:
            self.open_map.landed(*run)
        self.destination = max(self.destination, destination)
        self.source, self.source_epoch, self.identity = source, source_epoch, identity
        self.looked = 0
        self.jumps.clear()

    def note(self) -> LastCopied:
        """Returns the note of what was copied last, as of now. All of it was read under the leader epoch of the last
        look, or before."""
        mark = next((mark for mark in reversed(self.marks) if mark.next_offset <= self.source), None)
        if mark is None or mark.next_offset <= self.last.digest_at:
            return self.last._replace(offset=self.source)
        return LastCopied(self.source, self.last.leader_epoch, header_digest(mark.header), mark.next_offset)

    def checkpoint(self, at_ms: int, *, closed: bool = False) -> Checkpoint:
        """Returns the checkpoint as of now. ``at_ms``: the time. ``closed``: nothing will be sent behind it."""
        return Checkpoint(
            subject=self.open_map.subject,
            writer=self.open_map.writer,
            order=self.open_map.order,
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
            unused=self.unused and self.open_map.last is None,
        )

    def again(self) -> None:
        """Has all that is in memory written down once more, because what was written may be gone."""
        self.open_map.again()
        self.at = (-1, -1, False)

    def unwritten(self) -> list[MapChunk]:
        """Returns the chunks of the map to write, as of now."""
        return self.open_map.unwritten() if self.open_map.changed else []

    def written(self, chunks: list[MapChunk], checkpoint: Checkpoint) -> None:
        """Records that these are written, which ``unwritten`` and ``checkpoint`` returned."""
        if chunks:
            self.open_map.written(chunks)
        self.at = (checkpoint.source_offset, checkpoint.destination_offset, checkpoint.confirmed)


class Unwritten(NamedTuple):
    """The state of a partition at one moment, as it is written down."""

    copied: CopiedRuns
    chunks: list[MapChunk]
    checkpoint: Checkpoint

    @classmethod
    def of(cls, copied: CopiedRuns, *, closed: bool = False) -> "Unwritten":
        """Returns the account as of now. ``closed``: nothing will be sent behind it."""
        at_ms = round(time.time() * 1000)
        return cls(copied, copied.unwritten(), copied.checkpoint(at_ms, closed=closed))


async def save(state: Memory, accounts: Sequence[Unwritten], *, forget: Iterable[bytes] = ()) -> None:
    """Writes down checkpoints and maps. ``forget``: keys that are taken away.

    Raises:
        NetworkError: it is not certain that they were written; they will be written again.
    """
    # The map goes before the checkpoint: if only the first part is written, the lock-step finds the rest again.
    entries: list[Entry] = []
    for _, chunks, checkpoint in accounts:
        entries += [*chunks, checkpoint]
    await state.save(entries, forget=forget)
    for copied, chunks, checkpoint in accounts:
        copied.written(chunks, checkpoint)


async def write_down(
    state: Memory, accounts: Iterable[CopiedRuns], *, forget: Iterable[bytes] = (), closed: Collection[CopiedRuns] = ()
) -> None:
    """Saves these partitions as they are now, if they have changed. ``closed``: nothing more will be sent of these;
    they are saved in any case."""
    written = [
        Unwritten.of(copied, closed=copied in closed) for copied in accounts if copied.changed or copied in closed
    ]
    await save(state, written, forget=forget)
