"""Fills the offsets before a source's first record at the destination, and deletes them again. This is step 2 of
docs/DESIGN.md#32-locating.

If a source's log begins at offset N > 0, its copy has to begin there, too. Filler (``records.filler``) takes the
offsets up to N in a log that holds nothing else, then the log's start is moved to N. So filler is always a prefix of
the log, and the log alone shows what is left to do, whichever worker began: ``lead`` looks at the log and goes on from
there.

It may be interrupted anywhere, and any worker may repeat it:

* A batch of filler begins and ends at the same offsets, whichever worker sends it, and its sequence is its offset. So
  the broker answers a repeat with the old offset.
* Old records make the broker forget their producer, because it counts from their timestamps. A repeat that is not
  recognised is appended. It is displaced then: its sequence is not its offset. Below N that does no harm, since filler
  has no content, and the batches behind it use the id's next rotation. Above N it takes the offset of a record, and the
  partition halts. That happens only if a worker was stopped, for longer than a settled look, between checking that it
  is the owner and sending its batch.
* Brokers write the start of a log to disk once a minute, so a kill -9 brings filler back. Each start looks for it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from mirror.net.errors import Refused, StoredInOldFormat, Unreachable
from mirror.net.logs.log import Producer
from mirror.reasons import HaltReason
from mirror.records.filler import filler_batch, is_filler, stride
from mirror.records.header import DELETE_HORIZON, LOG_APPEND_TIME, SEQUENCES, BatchHeader, Codec
from mirror.records.identity import ROTATIONS, same_owner
from mirror.relay.events import EventLog
from mirror.relay.halts import PartitionHalted, halt
from mirror.relay.locate.rules import Readable
from mirror.relay.locate.runs import foreign
from mirror.wire.errors import ErrorCode

REFUSED_WHILE_COMPACTED = frozenset({ErrorCode.INVALID_RECORD, ErrorCode.POLICY_VIOLATION})
"""Errors with which a compacted topic refuses null keys, and DeleteRecords."""
APPLIED_TRIES = 100
APPLIED_PAUSE_S = 0.1
"""Pause before a retry. A topic's new config takes a moment to reach the partition's leader."""

Result = TypeVar("Result")


class SourceStart(Protocol):
    """The part of the source's log that is needed here."""

    async def start(self) -> int:
        """Returns the first offset that the log still has."""

    async def batch_at(self, offset: int) -> tuple[BatchHeader, bytes] | None:
        """Returns the batch that holds the offset, or the next one."""


class Suspension(Protocol):
    """Keeps the destination topic's own cleanup away from filler. See ``leading.cleanup.Cleanup``."""

    def suspended(self) -> AbstractAsyncContextManager[None]:
        """Suspends the topic while this is entered: it deletes nothing by itself, and does not compact."""

    async def suspend_again(self) -> bool:
        """Suspends the topic if it compacts. Returns True if it is suspended now."""

    async def finish(self) -> None:
        """Restores a topic that was left suspended."""


class Fillable(Readable, Protocol):
    """The destination's log."""

    async def producers(self) -> list[Producer] | None:
        """Returns the producers that the log's leader remembers; None if it cannot be asked."""

    async def takes_zstd(self) -> bool:
        """Returns True if the log's leader knows the codec."""

    async def produce(self, batch: bytes) -> int:
        """Appends one batch. Returns its base offset."""

    async def delete_before(self, offset: int) -> None:
        """Moves the log's start to ``offset``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """The facts about the flow that leading needs.

    Attributes:
        name: topic-partition, for messages.
        owner: the flow's producer id for this partition's data.
        filler: the flow's producer id for this partition's filler (``records.filler.filler_id``).
        most: largest number of offsets that are filled (``max.leading.filler``).
        most_bytes: the destination topic's ``max.message.bytes``; None: not known.
        copied: True if something of the partition is known to have been copied, so that an empty log has held data.
        held: True if it was copied into this very topic, by its id, so that also a log that ends at 0 has held data.
    """

    name: str
    owner: int
    filler: int
    most: int
    most_bytes: int | None = None
    copied: bool = False
    held: bool = False


@dataclass(slots=True)
class Begun:
    """A fill that this process has begun. While filler with old timestamps is being written, retention may delete it,
    and the log's leader may forget its producer. The empty log that is left looks like one whose data retention has
    deleted; this object tells them apart.

    Attributes:
        until: the source's start when the fill began; -1: none has begun. The flow has no data below it, unless the
            source's start goes back.
    """

    until: int = -1


class _Tail(NamedTuple):
    """The filler at a log's end, by the log or by its leader's memory. ``next_sequence``: the sequence behind that
    filler."""

    producer_id: int
    next_sequence: int


async def lead(
    here: SourceStart,
    there: Fillable,
    rules: Lead,
    begun: Begun,
    *,
    settled: Callable[[], Awaitable[int]],
    owns: Callable[[], Awaitable[bool]],
    cleanup: Suspension,
    log: EventLog,
) -> bool:
    """Makes the destination's log begin where the source's does, if it holds nothing but filler. A log that holds
    anything else is left alone: the resync decides whether it is right.

    It is called at each takeover, before the partition is located, and again as long as this process has copied nothing
    of it, because the source may go on deleting meanwhile. It is not called otherwise, and fills nothing if the topic
    has held copied records: if the destination lost the log of such a partition, the copy would silently begin
    elsewhere.

    Args:
        here: the source's log.
        there: the destination's log.
        rules: facts about the flow.
        begun: the partition's own, kept from one look to the next.
        settled: returns the destination's log end, once it stands still and is replicated (``settle.ms``): a
            predecessor's last batch may not have arrived yet.
        owns: returns True if this worker still owns the partition.
        cleanup: that of the destination topic. It is suspended meanwhile if the topic compacts.
        log: gets an event for what was done.

    Returns:
        True if the log's end was moved.

    Raises:
        PartitionHalted: too many offsets to fill; filler where the source has a record; others wrote among the filler.
        NetworkError: not done, or in doubt: begin again.
    """
    source_start, log_start, end = await asyncio.gather(here.start(), there.start(), there.visible_end())
    filler_first = end > log_start and await _filler_at(there, log_start, rules) is not None
    if filler_first or (end <= log_start and end < source_start):
        end = await settled()
        source_start, log_start = await asyncio.gather(here.start(), there.start())
        if filler_first and end < source_start:
            await check_alone(there, rules, log_start, await _checked_to(there, rules, log_start, end))
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
    there: Fillable, rules: Lead, log_start: int, end: int, *, source_start: int, cleanup: Suspension, log: EventLog
) -> int:
    """Deletes the filler that a log of ``[log_start, end)`` begins with, in case a kill -9 has brought it back.

    Returns:
        The end of the filler, which is the log's start now.

    Raises:
        PartitionHalted: filler where the source has a record; others wrote among the filler.
        NetworkError: not done.
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
    here: SourceStart,
    there: Fillable,
    rules: Lead,
    tail: _Tail,
    end: int,
    source_start: int,
    *,
    owns: Callable[[], Awaitable[bool]],
    cleanup: Suspension,
) -> None:
    """Fills ``[end, source_start)``, and deletes everything before ``source_start``.

    Raises:
        PartitionHalted: too many offsets to fill, or one of the reasons of ``lead``.
        NetworkError: not done, or in doubt.
    """
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
    """Writes filler from the log's end to the source's start."""

    def __init__(
        self,
        there: Fillable,
        rules: Lead,
        cleanup: Suspension,
        owns: Callable[[], Awaitable[bool]],
        timestamp: int,
    ) -> None:
        self._there = there
        self._rules = rules
        self._cleanup = cleanup
        self._owns = owns
        self._timestamp = timestamp

    async def run(self, tail: _Tail, end: int, until: int) -> None:
        """Writes one batch after the other. A base offset other than the expected one is doubt.

        Args:
            tail: the filler to continue from.
            end: the log's end.
            until: the offset to fill up to.
        """
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
            # Compressing the first batch of a size takes a tenth of a second, which is too long for the event loop.
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


async def _insist(cleanup: Suspension, call: Callable[[], Awaitable[Result]]) -> Result:
    """Repeats the call while the topic still compacts, or compacts again because another worker that led a partition of
    it is done."""
    for _ in range(APPLIED_TRIES):
        try:
            return await call()
        except Refused as error:
            if error.code not in REFUSED_WHILE_COMPACTED or not await cleanup.suspend_again():
                raise
        await asyncio.sleep(APPLIED_PAUSE_S)
    return await call()


async def _tail(there: Fillable, rules: Lead, log_start: int, end: int, *, begun: bool) -> _Tail | None:
    """Returns the filler to continue from, in a log that holds nothing else; None if it holds, or has held, anything
    else.

    Args:
        there: the destination's log, which is ``[log_start, end)``.
        rules: facts about the flow.
        log_start: see ``there``.
        end: see ``there``.
        begun: True if this process began the fill, so that an empty log has held nothing else.
    """
    if rules.held:
        return None
    if end == 0:
        return _Tail(rules.filler, 0)
    if end > log_start:
        header = await _filler_at(there, end - 1, rules)
        return None if header is None else _Tail(header.producer_id, (header.last_sequence + 1) % SEQUENCES)
    # The log is empty and ends above 0. If the leader remembers filler and no data, retention has deleted the filler.
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
    """Returns the filler batch that holds ``offset``; None if another batch holds it, or none."""
    found = await there.batch_at(offset)
    return found[0] if found is not None and is_filler(found[0], rules.filler) else None


async def check_alone(there: Fillable, rules: Lead, start: int, end: int) -> None:
    """Checks that nobody else has written among the filler from ``start`` to ``end``, so that only filler is deleted.

    Sequences count offsets. So if the first and the last batch have the same id and stand where their sequences say, so
    do all batches between them.

    Raises:
        PartitionHalted: ``foreign_writer``, if somebody else has written there.
        NetworkError: cannot be determined now.
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
    """Returns where the filler ends, or ``log_start`` if there is none. Filler is a prefix of the log, so this is a
    binary search."""
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


async def _checked_to(there: Fillable, rules: Lead, log_start: int, end: int) -> int:
    """Returns the offset up to which there must be nothing but filler: up to the flow's own data, if that stands behind
    the filler. Then the source has overtaken the copy, which the resync will find."""
    filler_end = await _filler_end(there, rules, log_start, end)
    found = await there.batch_at(filler_end) if filler_end < end else None
    return filler_end if found is not None and same_owner(found[0].producer_id, rules.owner) else end


async def _check_overfilled(there: Fillable, rules: Lead, source_start: int, filler_end: int) -> None:
    """Checks filler above the source's start. If it was not displaced, the source's start has gone back, and all is
    well: the source's brokers, too, write their log start to disk only once a minute.

    Raises:
        PartitionHalted: it was displaced, because its sequence is not its offset.
        NetworkError: cannot be determined now.
    """
    header = await _filler_at(there, filler_end - 1, rules)
    if header is not None and (header.last_sequence + 1) % SEQUENCES != filler_end % SEQUENCES:
        raise _overfilled(rules, source_start, filler_end)


def _overfilled(rules: Lead, source_start: int, filler_end: int) -> PartitionHalted:
    return halt(
        HaltReason.OVERFILLED,
        f"{rules.name}: the source begins at offset {source_start}, and filler at the destination ends at {filler_end}",
    )


async def _timestamp(here: SourceStart, start: int) -> int:
    """Returns the timestamp of the source's first record, so that look-ups by time find that record and not filler. If
    there is no record: the present time."""
    try:
        found = await here.batch_at(start)
    except StoredInOldFormat:
        found = None
    if found is None:
        return round(time.time() * 1000)
    header = found[0]
    return header.max_timestamp if header.attributes & (LOG_APPEND_TIME | DELETE_HORIZON) else header.base_timestamp
