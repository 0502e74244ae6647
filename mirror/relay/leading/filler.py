"""The offsets before a source's first record: filled at the destination, and deleted again. They are step 2 of
docs/DESIGN.md#a-partitions-life.

A source whose log begins at offset N > 0 has its copy begin there, too. Filler (``records.filler``) takes the offsets
up to N in a log that holds nothing else, then the log's start is moved to N. So filler is always a prefix of the log,
and what is left to do can be seen in the log alone, whoever was here before: ``lead`` looks, and goes on from there.

It may be interrupted anywhere, and repeated by anybody:

* A batch of filler begins and ends at the same offsets whoever sends it, and its sequence is its offset, so the broker
  answers a repeat with the old offset.
* Old records make the broker forget who wrote them (it counts from their timestamps). A repeat that is not recognised
  is appended: displaced, its sequence is not its offset. Below N that costs nothing, since filler is filler; what
  follows goes on under the id's next rotation. Above N it is in the way of a record, and the partition halts. For that,
  a worker must have been stopped, for longer than a settled look, between its word that it is the owner and its batch.
* The start of a log is written down once a minute by brokers, so a kill -9 brings filler back: each start looks.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from mirror.net.errors import Refused, Unreachable
from mirror.net.log import Producer
from mirror.reasons import HaltReason
from mirror.records.filler import filler_batch, is_filler, stride
from mirror.records.header import DELETE_HORIZON, LOG_APPEND_TIME, SEQUENCES, BatchHeader, Codec
from mirror.records.identity import ROTATIONS, same_owner
from mirror.relay.halts import PartitionHalted, halt
from mirror.relay.leading.cleanup import Cleanup
from mirror.relay.locate.resync import Log, Readable
from mirror.relay.locate.runs import foreign
from mirror.wire.errors import ErrorCode

REFUSED_WHILE_COMPACTED = frozenset({ErrorCode.INVALID_RECORD, ErrorCode.POLICY_VIOLATION})
"""What null keys and DeleteRecords get from a compacted topic."""
APPLIED_TRIES = 100
APPLIED_PAUSE_S = 0.1
"""A topic's new config reaches the partition's leader in a moment."""

Result = TypeVar("Result")


class Beginning(Protocol):
    """The source's log, as far as it matters here."""

    async def start(self) -> int:
        """The first offset that it still has."""

    async def batch_at(self, offset: int) -> tuple[BatchHeader, bytes] | None:
        """The batch that holds it, or the next."""


class Fillable(Readable, Protocol):
    """The destination's log."""

    async def producers(self) -> list[Producer] | None:
        """What its leader remembers of producers; None if it cannot be asked."""

    async def takes_zstd(self) -> bool:
        """Whether its leader knows the codec."""

    async def produce(self, batch: bytes) -> int:
        """Appends one batch; its base offset."""

    async def delete_before(self, offset: int) -> None:
        """Moves the log's start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """What leading has to know of the flow.

    Attributes:
        name: topic-partition, for messages.
        owner: the flow's producer id for this partition's data.
        filler: the one for its filler (``records.filler.filler_id``).
        most: offsets that are filled at the most (``max.leading.filler``).
        most_bytes: the destination topic's ``max.message.bytes``; None: not known.
        copied: whether something of the partition is known to have been copied, so that an empty log has held data.
    """

    name: str
    owner: int
    filler: int
    most: int
    most_bytes: int | None = None
    copied: bool = False


@dataclass(slots=True)
class Begun:
    """A fill that this process has begun. Retention may take filler of old records while it is written, and the log's
    leader forget who wrote it; what is left then, an empty log, looks like one whose data retention took.

    Attributes:
        until: where the source began then. Nothing of the flow's below it is data, unless the source's start goes back.
    """

    until: int = -1


class _Tail(NamedTuple):
    """The filler that ends a log, or what its leader remembers of it. ``next_sequence``: behind it."""

    producer_id: int
    next_sequence: int


async def lead(
    here: Beginning,
    there: Fillable,
    rules: Lead,
    begun: Begun,
    *,
    settled: Callable[[], Awaitable[int]],
    owns: Callable[[], Awaitable[bool]],
    cleanup: Cleanup,
    log: Log,
) -> bool:
    """Makes the destination's log begin where the source's does, if that is all it lacks. A log that holds something
    else than filler is left alone: whether that is right, the resync says.

    For partitions that this process begins with, before their position is sought, and again as long as it has copied
    nothing: the source may go on deleting meanwhile. One of which it has copied a record, and whose log the destination
    has lost since, would begin elsewhere without a word.

    Args:
        here: the source's log.
        there: the destination's.
        rules: see there.
        begun: the partition's own, kept from one look to the next.
        settled: the destination's log end, once it stands still and is replicated (``settle.ms``): a predecessor's last
            batch may be on its way.
        owns: whether the partition is still this worker's.
        cleanup: of the destination topic, which is suspended meanwhile if it compacts.
        log: told what was done.

    Returns:
        Whether the log's end was moved.

    Raises:
        PartitionHalted: too many offsets to fill; filler where the source has a record.
        NetworkError: not done now, or in doubt: begin again.
    """
    source_start, log_start, end = await asyncio.gather(here.start(), there.start(), there.visible_end())
    filler_first = end > log_start and await _filler_at(there, log_start, rules) is not None
    if filler_first or (end <= log_start and end < source_start):
        end = await settled()
        source_start, log_start = await asyncio.gather(here.start(), there.start())
        if filler_first and end < source_start:
            await check_alone(there, rules, log_start, end)
        if end >= source_start:
            await trim(there, rules, log_start, end, source_start=source_start, cleanup=cleanup, log=log)
            return False
        tail = await _tail(there, rules, log_start, end, begun=end <= begun.until <= source_start)
        if tail is not None:
            if await there.true_end() != end:
                raise Unreachable(f"{there.name} ended at {end} and has moved since; looking again")
            begun.until = source_start
            await _fill(here, there, rules, tail, end, source_start, owns=owns, cleanup=cleanup)
            log.info("leading_offsets_filled", detail=f"{there.name}: from {end} to {source_start}")
            return True
    await cleanup.finish()
    return False


async def trim(
    there: Fillable, rules: Lead, log_start: int, end: int, *, source_start: int, cleanup: Cleanup, log: Log
) -> int:
    """Deletes the filler that a log of ``[log_start, end)`` begins with, if a kill -9 brought it back.

    Returns:
        The log's start now.

    Raises:
        PartitionHalted: filler where the source has a record.
        NetworkError: not done now.
    """
    filler_end = await _filler_end(there, rules, log_start, end)
    await check_alone(there, rules, log_start, filler_end)
    if filler_end > source_start:
        await _check_overfilled(there, rules, source_start, filler_end)
    if filler_end > log_start:
        async with cleanup.suspended():
            await _insist(cleanup, partial(there.delete_before, filler_end))
        log.info("leading_offsets_trimmed", detail=f"{there.name}: from {log_start} to {filler_end}")
    return filler_end


async def _fill(
    here: Beginning,
    there: Fillable,
    rules: Lead,
    tail: _Tail,
    end: int,
    source_start: int,
    *,
    owns: Callable[[], Awaitable[bool]],
    cleanup: Cleanup,
) -> None:
    """Fills ``[end, source_start)``, and deletes everything before ``source_start``."""
    if source_start - end > rules.most:
        raise halt(
            HaltReason.LEADING_OFFSETS,
            f"{rules.name} begins at offset {source_start} at the source; {source_start - end} offsets before it "
            f"are to be filled, and max.leading.filler is {rules.most}",
        )
    timestamp = await _timestamp(here, source_start)
    async with cleanup.suspended():
        await _Filling(there, rules, cleanup, owns, timestamp).run(tail, end, source_start)
        await _insist(cleanup, partial(there.delete_before, source_start))


class _Filling:
    """One walk from the log's end to the source's start."""

    def __init__(
        self,
        there: Fillable,
        rules: Lead,
        cleanup: Cleanup,
        owns: Callable[[], Awaitable[bool]],
        timestamp: int,
    ) -> None:
        self._there = there
        self._rules = rules
        self._cleanup = cleanup
        self._owns = owns
        self._timestamp = timestamp

    async def run(self, tail: _Tail, end: int, until: int) -> None:
        """A batch after the other, each where it has to be; anything else is doubt."""
        codec = Codec.ZSTD if await self._there.takes_zstd() else Codec.GZIP
        step = await asyncio.to_thread(stride, self._rules.most_bytes, codec)
        producer = tail.producer_id
        if tail.next_sequence != end % SEQUENCES:
            rotation = (producer + 1) % ROTATIONS
            producer = producer & ~(ROTATIONS - 1) | rotation
        while end < until:
            if not await self._owns():
                raise Unreachable(f"{self._rules.name}: another worker has taken the partition over, and fills it")
            upto = min(until, (end // step + 1) * step)
            # Compressing the first batch of a size takes a tenth of a second: not in the event loop.
            batch = await asyncio.to_thread(
                filler_batch,
                producer=producer,
                offset=end,
                count=upto - end,
                timestamp=self._timestamp,
                codec=codec,
            )
            base = await _insist(self._cleanup, partial(self._there.produce, batch))
            if base > end and base + upto - end > until:
                await check_alone(self._there, self._rules, await self._there.start(), base + upto - end)
                raise _overfilled(self._rules, until, base + upto - end)
            if base != end:
                raise Unreachable(f"{self._there.name}: filler for offset {end} was given {base}; looking again")
            end = upto


async def _insist(cleanup: Cleanup, call: Callable[[], Awaitable[Result]]) -> Result:
    """Again while the topic still compacts, or does so again: another worker that led a partition of it was done."""
    for _ in range(APPLIED_TRIES):
        try:
            return await call()
        except Refused as error:
            if error.code not in REFUSED_WHILE_COMPACTED or not await cleanup.suspend_again():
                raise
        await asyncio.sleep(APPLIED_PAUSE_S)
    return await call()


async def _tail(there: Fillable, rules: Lead, log_start: int, end: int, *, begun: bool) -> _Tail | None:
    """What filler goes on from, in a log that holds nothing else; None if it holds, or held, something else. ``begun``:
    by this process, so that it held nothing else if it is empty."""
    if end == 0:
        return _Tail(rules.filler, 0)
    if end > log_start:
        header = await _filler_at(there, end - 1, rules)
        return None if header is None else _Tail(header.producer_id, (header.last_sequence + 1) % SEQUENCES)
    # An empty log that ends above 0: if the leader remembers filler and no data, retention took the filler.
    if rules.copied and not begun:
        return None
    known = await there.producers() or []
    if any(same_owner(state.producer_id, rules.owner) for state in known):
        return None
    ours = [state for state in known if same_owner(state.producer_id, rules.filler)]
    if ours:
        newest = max(ours)
        return _Tail(newest.producer_id, (newest.last_sequence + 1) % SEQUENCES)
    return _Tail(rules.filler, end % SEQUENCES) if begun else None


async def _filler_at(there: Fillable, offset: int, rules: Lead) -> BatchHeader | None:
    """The filler batch that holds ``offset``; None if something else does."""
    found = await there.batch_at(offset)
    return found[0] if found is not None and is_filler(found[0], rules.filler) else None


async def check_alone(there: Fillable, rules: Lead, start: int, end: int) -> None:
    """Nobody else has written among the filler from ``start`` to ``end``: what is deleted is filler. Sequences count
    offsets, so if the first and the last batch are of one id and stand where their sequences say, so do all between.

    Raises:
        PartitionHalted: foreign_writer if somebody has.
        NetworkError: not to be known now.
    """
    if start >= end:
        return
    first, last = await asyncio.gather(_filler_at(there, start, rules), _filler_at(there, end - 1, rules))
    straight = [each for each in (first, last) if each and each.base_sequence == each.base_offset % SEQUENCES]
    if len(straight) == 2 and straight[0].producer_id == straight[1].producer_id:
        return
    while start < end:
        found = await there.batch_at(start)
        if found is None:
            raise Unreachable(f"{there.name}: nothing is to be read at offset {start} now")
        header = found[0]
        if header.base_offset >= end:
            return
        if not is_filler(header, rules.filler):
            raise foreign(
                header, rules.name, f"others have written offsets {header.base_offset} to {header.last_offset}, before "
                "the source's first record, where only filler belongs"
            )  # fmt: skip
        start = header.next_offset


async def _filler_end(there: Fillable, rules: Lead, log_start: int, end: int) -> int:
    """Where filler ends: it is a prefix of the log, so by halves. ``log_start`` if there is none."""
    if end > log_start and await _filler_at(there, end - 1, rules) is not None:
        return end
    least, most = log_start, end
    at = log_start
    while least < most:
        header = await _filler_at(there, at, rules)
        if header is not None:
            least = header.next_offset
        else:
            most = at
        at = (least + most) // 2
    return least


async def _check_overfilled(there: Fillable, rules: Lead, source_start: int, filler_end: int) -> None:
    """Filler reaches above the source's start. That is well if the source's start went back: its brokers write it down
    once a minute, too. A batch that was displaced is where nobody meant it to be."""
    header = await _filler_at(there, filler_end - 1, rules)
    if header is not None and (header.last_sequence + 1) % SEQUENCES != filler_end % SEQUENCES:
        raise _overfilled(rules, source_start, filler_end)


def _overfilled(rules: Lead, source_start: int, filler_end: int) -> PartitionHalted:
    return halt(
        HaltReason.OVERFILLED,
        f"{rules.name}: the source begins at offset {source_start}, and filler at the destination ends at {filler_end}",
    )


async def _timestamp(here: Beginning, start: int) -> int:
    """That of the source's first record, so that look-ups by time find it and not filler; now, if there is none."""
    try:
        found = await here.batch_at(start)
    except Refused as error:
        if error.code != ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
            raise
        found = None
    if found is None:
        return round(time.time() * 1000)
    header = found[0]
    return header.max_timestamp if header.attributes & (LOG_APPEND_TIME | DELETE_HORIZON) else header.base_timestamp
