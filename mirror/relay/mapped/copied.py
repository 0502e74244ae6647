"""The additional state of a partition with ``offsets: mapped``: offsets that were passed over, where batches landed,
and what of that is yet to be written to the internal topic.

In exact mode, the destination's log end is the whole checkpoint. Here, others write to that log, too. So the position
is what was acknowledged and written down, plus what a look at both logs finds behind that (``relay.mapped.locate``).
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
"""Sealed chunks that may wait to be written, 24 KB each in memory. With so many, the partition waits, too."""


NOTHING = LastCopied(0)
"""The note of what was copied last, before anything was copied."""


class Jump(NamedTuple):
    """Source offsets from ``start`` to before ``end`` that are not copied: nothing takes their place at the
    destination."""

    start: int
    end: int
    cause: Cause


class Between(NamedTuple):
    """Destination offsets from ``start`` to before ``end``, between batches of ours, that others took while the leader
    may have forgotten who owns the partition. In that time, it would also have accepted batches of a former owner."""

    start: int
    end: int


class LastBatch(Protocol):
    """The last batch of a record set. See ``relay.partition.cursor.Mark``."""

    @property
    def next_offset(self) -> int:
        """The source offset behind the batch."""

    @property
    def header(self) -> bytes:
        """The batch's header, as the source has it."""


class OpenMap:
    """The map of what one writer has copied into one destination topic, since its takeover.

    It grows at its end. ``unwritten`` returns the chunks that differ from what was last ``written``. Only chunks that
    have to be written again are kept: a sealed chunk is forgotten once it is written.
    """

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
        """
        Args:
            subject: the partition.
            writer: identifies this account.
            order: tells which of several accounts is the latest.
            since: the source offset from which this account counts, instead of earlier ones.
            start: runs that are taken over from others' chunks, from ``since`` on.
            follows: see ``MapChunk``.
            gone_to: see ``MapChunk``.
        """
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
        """Adds ``length`` offsets, from ``source`` on, that are now at ``destination``.

        Raises:
            MapError: they do not lie behind everything that landed before.
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
        """The last run, which may still grow; None: there is none."""
        return self._open[-1] if len(self._open) else None

    def unwritten(self) -> list[MapChunk]:
        """Returns the chunks to write, as of now. The last of them is the open one."""
        return [*self._sealed, self._chunk(OffsetMap(self._open), sealed=False)]

    def again(self) -> None:
        """Marks the open chunk as unwritten, because what was written may be gone."""
        self._changed = True

    def written(self, chunks: list[MapChunk]) -> None:
        """Notes that these chunks, which ``unwritten`` returned, are written."""
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
    """The account of what was acknowledged of a partition since it was taken over. It outlives doubts."""

    open_map: OpenMap
    source: int
    """All source offsets below it are at the destination, or are not copied."""
    source_epoch: int
    """Leader epoch of the source's batch before ``source``; -1: not known."""
    destination: int
    """Everything that this flow has written of the partition lies below this destination offset."""
    identity: Identity
    """The identity of the next batch."""
    own: frozenset[int]
    """Producer ids under which the partition was ever written."""
    source_id: bytes | None = None
    destination_id: bytes | None = None
    jumps: deque[Jump] = field(default_factory=deque)
    """The jumps at or behind ``source``, in order."""
    isolation_level: str = ""
    """The isolation level under which the partition is copied."""
    unused: bool = False
    """True if nothing had been copied, by any worker, when this account began."""
    confirmed: bool = False
    """True if the partition was still ours after the first checkpoint. Nothing is sent before that is written down."""
    last: LastCopied = NOTHING
    """The note of what was copied last, as of the last look at both logs."""
    marks: Sequence[LastBatch] = ()
    """The partition's marks: record sets that were put into the queue since that look."""
    between: deque[Between] = field(default_factory=deque)
    """Ranges that were not searched for strays yet. Nothing that landed behind them is written down before that."""
    looked: int = 0
    """All of the destination below this offset was searched for strays, or is in ``between``."""
    astray: bool = False
    """True if the log has a batch of ours that was not acknowledged, or a damaged one. Then only what is written down
    can be believed."""
    at: tuple[int, int, bool] = (-1, -1, False)
    """``source``, ``destination`` and ``confirmed`` as they were last written."""

    @property
    def changed(self) -> bool:
        """True if there is something to write."""
        return self.open_map.changed or self.at != (self.source, self.destination, self.confirmed)

    def passed(self, start: int, end: int) -> None:
        """Notes that others have taken these destination offsets while the leader may have forgotten who owns the
        partition."""
        start = max(start, self.looked)
        if start < end:
            self.between.append(Between(start, end))
            self.looked = end

    def landed(self, destination: int, length: int) -> None:
        """Books the next batch as acknowledged at this destination offset. ``length``: the number of its offsets."""
        self.open_map.landed(self.source, destination, length)
        self.source += length
        self.source_epoch = NO_LEADER_EPOCH  # the known epoch was that of an earlier batch; the next look asks again
        self.destination = destination + length
        self.identity = self.identity.after(length)

    def skip(self, start: int, count: int, cause: Cause) -> None:
        """Notes that ``count`` source offsets from ``start`` on will not be copied."""
        last = self.jumps[-1] if self.jumps else None
        if last is not None and last.end == start and Cause.ACCEPTED not in (cause, last.cause):
            self.jumps[-1] = Jump(last.start, start + count, last.cause)
        else:
            self.jumps.append(Jump(start, start + count, cause))

    def forget_from(self, offset: int) -> None:
        """Drops the jumps at or behind this source offset, because everything from there on is fetched and judged
        again."""
        while self.jumps and self.jumps[-1].start >= offset:
            self.jumps.pop()

    def jump(self) -> Jump | None:
        """Moves ``source`` over the offsets there that are not copied, and returns them; None if there are none."""
        if not self.jumps or self.jumps[0].start != self.source:
            return None
        jump = self.jumps.popleft()
        self.source, self.source_epoch = jump.end, NO_LEADER_EPOCH
        return jump

    def found(self, runs: OffsetMap, source: int, source_epoch: int, identity: Identity, destination: int) -> None:
        """Adds what landed without a response, as both logs show.

        Args:
            runs: where it landed.
            source: the source offset behind all of it.
            source_epoch: leader epoch of the source's batch before that.
            identity: the identity of the next batch.
            destination: the destination offset behind all of it.
        """
        self.unused = self.unused and source == self.source
        for run in runs:
            self.open_map.landed(*run)
        self.destination = max(self.destination, destination)
        self.source, self.source_epoch, self.identity = source, source_epoch, identity
        self.looked = 0
        self.jumps.clear()

    def note(self) -> LastCopied:
        """Returns the current note of what was copied last. Everything was read under the leader epoch of the last
        look, or before that look."""
        mark = next((mark for mark in reversed(self.marks) if mark.next_offset <= self.source), None)
        if mark is None or mark.next_offset <= self.last.digest_at:
            return self.last._replace(offset=self.source)
        return LastCopied(self.source, self.last.leader_epoch, header_digest(mark.header), mark.next_offset)

    def checkpoint(self, at_ms: int, *, closed: bool = False) -> Checkpoint:
        """Returns the current checkpoint.

        Args:
            at_ms: the present time, in ms since 1970.
            closed: True if nothing will be sent behind it.
        """
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
        """Has everything in memory written once more, because what was written may be gone."""
        self.open_map.again()
        self.at = (-1, -1, False)

    def unwritten(self) -> list[MapChunk]:
        """Returns the chunks of the map to write, as of now."""
        return self.open_map.unwritten() if self.open_map.changed else []

    def written(self, chunks: list[MapChunk], checkpoint: Checkpoint) -> None:
        """Notes that these are written, which ``unwritten`` and ``checkpoint`` returned."""
        if chunks:
            self.open_map.written(chunks)
        self.at = (checkpoint.source_offset, checkpoint.destination_offset, checkpoint.confirmed)


class Unwritten(NamedTuple):
    """The account of a partition at one moment, as it is written."""

    copied: CopiedRuns
    chunks: list[MapChunk]
    checkpoint: Checkpoint

    @classmethod
    def of(cls, copied: CopiedRuns, *, closed: bool = False) -> "Unwritten":
        """Returns the account as of now. ``closed``: nothing will be sent behind it."""
        at_ms = round(time.time() * 1000)
        return cls(copied, copied.unwritten(), copied.checkpoint(at_ms, closed=closed))


async def save(state: Memory, accounts: Sequence[Unwritten], *, forget: Iterable[bytes] = ()) -> None:
    """Writes checkpoints and maps to the internal topic.

    Args:
        state: the internal topic.
        accounts: the accounts to write.
        forget: keys to remove.

    Raises:
        NetworkError: it is not certain that they were written. They will be written again.
    """
    # Maps go before checkpoints: if only the first part is written, the lock-step finds the rest again.
    entries: list[Entry] = []
    for _, chunks, checkpoint in accounts:
        entries += [*chunks, checkpoint]
    await state.save(entries, forget=forget)
    for copied, chunks, checkpoint in accounts:
        copied.written(chunks, checkpoint)


async def write_down(
    state: Memory, accounts: Iterable[CopiedRuns], *, forget: Iterable[bytes] = (), closed: Collection[CopiedRuns] = ()
) -> None:
    """Saves these accounts as they are now, as far as they have changed.

    Args:
        state: the internal topic.
        accounts: the accounts.
        forget: keys to remove.
        closed: accounts behind which nothing more will be sent. They are saved in any case.

    Raises:
        NetworkError: it is not certain that they were written.
    """
    written = [
        Unwritten.of(copied, closed=copied in closed) for copied in accounts if copied.changed or copied in closed
    ]
    await save(state, written, forget=forget)
