"""Where a partition goes on: by two logs. Read it beside docs/DESIGN.md#a-partitions-life.

In exact mode the destination's log end *is* the next source offset to copy. What this module adds is the certainty
that nothing is still on its way to that log (``barrier``, ``settle``), that what stands there is ours and equal to the
source (``relay.locate.runs``, ``relay.locate.compare``), and the identity that continues it (``continued``).

It knows no sockets: ``here`` and ``there`` are ``net.log.PartitionLog``, or a model of one in tests/simulation.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from mirror.net.errors import Refused, UnderReplicated, Unreachable
from mirror.net.log import Marker, Producer, Segment
from mirror.reasons import HaltReason
from mirror.records.admit import Fill, Terms, admit
from mirror.records.header import BatchHeader
from mirror.records.identity import Identity, same_owner
from mirror.records.transactions import Aborted
from mirror.relay.halts import PartitionHalted, overtaken
from mirror.relay.locate.compare import Comparison
from mirror.relay.locate.evidence import Unseen
from mirror.relay.locate.runs import check_run
from mirror.relay.locate.tails import Tail
from mirror.wire.errors import ErrorCode

OF_THE_DESTINATION = frozenset({HaltReason.NOT_A_COPY.slug, HaltReason.OVERFILLED.slug})
"""What the destination's last batches are may have its cause in what stands before them."""
POLL_S = 0.1
"""Between two looks at a log end that is not replicated yet."""
LOOKS = 20
"""Looks at it before the partition waits elsewhere: about two seconds. Whoever seeks a position has a seat, of which
there are only so many (``relay.locate.seeking``)."""
MOST_SETTLES = 10
"""Times that an end is waited for to stand still, before the partition waits elsewhere."""


class Log(Protocol):
    """What is needed of a logger; structlog's fits."""

    def info(self, event: str, **fields: object) -> object:
        """Something happened."""

    def warning(self, event: str, **fields: object) -> object:
        """Something needs a look."""


class Readable(Protocol):
    """A partition's log, to look at. See ``net.log.PartitionLog``."""

    @property
    def name(self) -> str:
        """topic-partition at cluster."""

    async def start(self) -> int:
        """The first offset that it still has."""

    async def true_end(self) -> int:
        """The leader's log end."""

    async def visible_end(self) -> int:
        """Its high watermark."""

    async def read(self, offset: int, *, max_bytes: int = 1, committed: bool = False) -> Segment:
        """Whole batches from the one that holds ``offset``."""

    async def batch_at(self, offset: int) -> tuple[BatchHeader, bytes] | None:
        """The one batch that holds it, or the next."""


class Writable(Readable, Protocol):
    """The destination's."""

    async def producers(self) -> list[Producer] | None:
        """What its leader remembers of producers; None if it cannot be asked."""

    async def write_markers(self, marker: Marker, count: int) -> None:
        """Appends that many markers, most likely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a resync has to know of the flow.

    Attributes:
        name: topic-partition, for messages.
        owner: the flow's producer id for this partition, rotation 0.
        filler: the one for its leading filler.
        settle_s: longer than bytes of a dead predecessor can still arrive.
        committed: whether the source is read as a read_committed consumer does.
        window: batches that a predecessor may have had under way.
        terms: of the topic.
        accept_gap: whether records that retention took before they were copied are gone without (``on.gap``).
        accept_loss: whether an operator has accepted, this once, what ``on.gap`` does not cover: records that were
            filled; a copy whose account is lost, or can be read in several ways (``offsets: mapped``).
        gaps_to: the same, for records before this offset: it was accepted before, and is written down.
        aborted_to: aborted data before this offset was filled, although the source is not read as committed now.
        next_epoch: whether the broker has forgotten our producer id (error 59), so that it takes only a new epoch.
        strict: whether the copy carries the source's producer fields, so that they must be equal, too.
        led_to: up to here this process has filled the offsets before the source's first record; -1: it has not.
        pinned: whether the source is, by its id, the topic that was copied before.
        opening: held while batches are opened to be compared, one pair of a process at a time.
        vouch: what says that this is the source that was copied, where nothing can be compared
            (``relay.locate.evidence``).
        coordinator_epoch: of markers at least: above any of an owner before, although it may have seen the same log.
        forgets_before_ms: the destination may have forgotten a batch whose newest record is older (ms since 1970).
    """

    name: str
    owner: int
    filler: int
    settle_s: float
    committed: bool = True
    window: int = 5
    terms: Terms = field(default_factory=Terms)
    accept_gap: bool = False
    accept_loss: bool = False
    next_epoch: bool = False
    strict: bool = False
    gaps_to: int = 0
    aborted_to: int = 0
    coordinator_epoch: int = 0
    forgets_before_ms: float = 0.0
    led_to: int = -1
    pinned: bool = False
    opening: asyncio.Lock = field(default_factory=asyncio.Lock, compare=False)
    vouch: Callable[[Unseen], Awaitable[int]] | None = field(default=None, compare=False)

    def is_own(self, header: BatchHeader) -> bool:
        """Whether the batch is the flow's data, of whatever rotation."""
        return same_owner(header.producer_id, self.owner)


class Found(NamedTuple):
    """Where the partition goes on."""

    offset: int
    """The destination's log end: the next source offset to copy."""
    identity: Identity
    """Of the next data batch."""
    coordinator_epoch: int
    """Of the next markers: more than any that the destination's leader remembers of ours."""
    last_epoch: int
    """Leader epoch of the source batch before ``offset``; -1: not known."""
    source_start: int
    source_end: int
    log_start: int
    proven: bool
    """Whether the batch before ``offset`` was compared on both sides."""
    holes_from: int
    """From here up to ``offset``, nothing but markers."""
    fill_to: int = -1
    """What is left of the source's batch that ``offset`` lies inside of is filled up to here; else not above it."""
    accepted: tuple[int, int] | None = None
    """From where up to where markers stand, or are to stand, in the place of records, by a decision of now."""
    settled: bool = True
    """Whether nothing that was sent before can arrive any more. Else the leader knows it for a repeat, as long as it
    remembers the producer."""


async def barrier(there: Readable, log: Log) -> int:
    """The log end, once every replica in sync has it: nothing above can vanish, nothing is hidden.

    Raises:
        UnderReplicated: they do not have it after ``LOOKS`` looks.
        NetworkError: no answer, or the leader is none any more.
    """
    behind = ""
    for look in range(LOOKS):
        end, visible = await asyncio.gather(there.true_end(), _visible(there))
        if end == visible:
            return end
        behind = f"{there.name} ends at {end} and is replicated to {visible}"
        if not look:
            log.info("under_replicated", detail=behind)
        await asyncio.sleep(POLL_S)
    raise UnderReplicated(behind)


async def _visible(there: Readable) -> int:
    try:
        return await there.visible_end()
    except Refused as error:
        if error.code != ErrorCode.OFFSET_NOT_AVAILABLE:
            raise
        return -1


async def standing_still(there: Readable, settle_s: float, log: Log) -> int:
    """The barrier, once two of them ``settle_s`` apart are equal: then the end will not move.

    Raises:
        Unreachable: it moves again and again.
        NetworkError: as ``barrier``.
    """
    end = await barrier(there, log)
    for _ in range(MOST_SETTLES):
        await asyncio.sleep(settle_s)
        again = await barrier(there, log)
        if again == end:
            return end
        end = again
    raise _unsettled(there, end)


def _unsettled(there: Readable, end: int) -> Unreachable:
    return Unreachable(f"{there.name} ends at {end} now, and does not stand still: somebody writes to it")


class Origin(Readable, Protocol):
    """The source's log. ``floor``: its log start offset, as of the last ``start``; a batch may hold it."""

    floor: int


class Resync:
    """One look at both logs of a partition. ``run`` once."""

    def __init__(self, here: Origin, there: Writable, rules: Rules, log: Log) -> None:
        self._here = here
        self._there = there
        self._rules = rules
        self._log = log
        self._comparison = Comparison(here, there, rules)

    async def run(self, *, settle: bool) -> Found:
        """The position, proven as far as it can be.

        Args:
            settle: somebody else's bytes, or our own markers, may still arrive: wait until the end stands still.

        Raises:
            PartitionHalted: it cannot go on, and looking again will not help.
            NetworkError: not to be known now; try again.
        """
        here, there, rules = self._here, self._there, self._rules
        source_start, log_start, source_end = await asyncio.gather(here.start(), there.start(), here.true_end())
        # What the leader remembers is asked before the end that counts, never after: a sequence from before that end is
        # at worst a repeat, which is recognised; one from after it would be taken for the batch at that end.
        known = await there.producers()
        end = await barrier(there, self._log)
        tail = await self._comparison.tail(log_start, end, whole=True)
        settle = settle or not armed(tail, known) or await self._is_late_wrong(source_start, end)
        if settle:
            known, end, tail = await self._stand_still(log_start, end, tail)
        await self._check_run(tail, log_start)
        try:
            source_end = await self._check_range(tail, log_start, source_start, source_end, end)
            proof = await self._comparison.prove(tail, log_start, source_start, source_end, end)
            if not proof.proven and rules.vouch is not None:
                seen = tail.data is not None
                unseen = Unseen(proof.why, end, source_start, log_start, data=seen, cleaned=proof.cleaned)
                proof = proof._replace(epoch=await rules.vouch(unseen))
            if proof.proven and proof.why:
                await self._check_lost(proof.why, log_start, source_start, end)
            holes = tail if proof.upto is None else tail._replace(holes_from=proof.upto)
            filled = await self._comparison.check_holes(holes, source_start, end)
        except PartitionHalted as stop:
            if stop.halted.reason == HaltReason.NOT_A_COPY.slug:
                await self._check_lost(stop.halted.detail, log_start, source_start, end, differs=True)
            if stop.halted.reason in OF_THE_DESTINATION:
                await self._blame(tail, log_start, source_start)
            raise
        if not proof.proven:
            detail = f"{rules.name}: {proof.why}, so nothing before offset {end} can be compared"
            self._log.warning("prefix_unproven", detail=detail)
        return Found(
            offset=end,
            identity=continued(tail, known, rules, end),
            coordinator_epoch=coordinator_epoch(known, rules),
            last_epoch=proof.epoch,
            source_start=source_start,
            source_end=source_end,
            log_start=log_start,
            proven=proof.proven,
            holes_from=tail.holes_from,
            fill_to=filled.until,
            accepted=(end, source_start) if source_start > max(end, rules.gaps_to) else filled.accepted,
            settled=settle,
        )

    async def _stand_still(self, log_start: int, end: int, tail: Tail) -> tuple[list[Producer] | None, int, Tail]:
        """Waits for two equal ends ``settle.ms`` apart: then the end will not move."""
        for _ in range(MOST_SETTLES):
            known = await self._there.producers()
            await asyncio.sleep(self._rules.settle_s)
            again = await barrier(self._there, self._log)
            if again == end:
                return known, end, tail
            end, tail = again, await self._comparison.tail(log_start, again, whole=True)
        raise _unsettled(self._there, end)

    # -- the destination ---------------------------------------------------------------------------------------------

    async def _check_run(self, tail: Tail, log_start: int) -> None:
        """Nobody else has written between our batches, also if the last one equals the source's."""
        if tail.data is not None and not self._rules.strict:
            await check_run(self._there, tail.data[0], log_start, self._rules)

    async def _check_lost(
        self, why: str, log_start: int, source_start: int, end: int, *, differs: bool = False
    ) -> None:
        """The last batch is not the source's, or the source has nothing in its place: by what was written down, it may
        have lost it.

        Raises:
            PartitionHalted: source_truncated.
        """
        if self._rules.vouch is None:
            return
        try:
            await self._rules.vouch(Unseen(why, end, source_start, log_start, data=True, differs=differs))
        except PartitionHalted as stop:
            if stop.halted.reason == HaltReason.SOURCE_TRUNCATED.slug:
                raise

    async def _blame(self, tail: Tail, log_start: int, source_start: int) -> None:
        """The last batch is ours, and does not fit the source. If somebody else has written just before it, or a marker
        stands there in the place of a record, that is why: a whole window of ours may have landed behind."""
        for _ in range(self._rules.window):
            if tail.data is None:
                return
            base = tail.data[0].base_offset
            tail = await self._comparison.tail(log_start, base)
            if tail.holes_from < base:
                await self._comparison.check_holes(tail, source_start, base, blame=True)

    # -- the source --------------------------------------------------------------------------------------------------

    async def _is_late_wrong(self, source_start: int, end: int) -> bool:
        """Whether nothing may be on its way to what comes next: a hole, or a batch so old that the destination may have
        forgotten it by the time that it comes again."""
        if end < max(source_start, self._rules.gaps_to):
            return True
        try:
            segment = await self._here.read(end, committed=self._rules.committed)
        except Refused as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return False
        if not segment.batches:
            return False
        first = segment.batches[0][0]
        old = first.max_timestamp < self._rules.forgets_before_ms
        # A batch that begins before the end may have come back with another leader, and is filled.
        return old or first.base_offset < end or not _is_record(segment, end, self._rules.terms)

    async def _check_range(self, tail: Tail, log_start: int, source_start: int, source_end: int, end: int) -> int:
        """The source must still have what is due, and must have had what was copied. Its end, looked at again."""
        name = self._rules.name
        if source_end < end:
            # Once may be a leader that is still catching up; twice is a source that does not have these records.
            await asyncio.sleep(self._rules.settle_s)
            source_end = await self._here.true_end()
        if source_end < end:
            raise await self._comparison.beyond(tail, log_start, source_start, source_end, end)
        if source_start > max(end, self._rules.gaps_to) and not self._rules.accept_gap:
            raise overtaken(name, end, source_start, self._here.floor)
        return source_end


def ours(known: Sequence[Producer] | None, owner: int) -> list[Producer]:
    """Of the producers that a leader remembers, this partition's own, whatever their rotation."""
    return [state for state in known or () if same_owner(state.producer_id, owner)]


def coordinator_epoch(known: Sequence[Producer] | None, rules: Rules) -> int:
    """Of the next markers: late ones of another look at the log, or of another owner, are refused from then on. 0 where
    the leader cannot be asked: it would refuse a lower one than it has for ever."""
    if known is None:
        return 0
    return max(
        1 + max((state.coordinator_epoch for state in ours(known, rules.owner)), default=-1), rules.coordinator_epoch
    )


def armed(tail: Tail, known: Sequence[Producer] | None) -> bool:
    """The leader remembers the very batch that we continue from, so that a late repeat of anything is recognised."""
    last = tail.marker or (tail.data[0] if tail.data else None)
    if last is None or known is None:
        return False
    return any(
        (state.producer_id, state.epoch) == (last.producer_id, last.producer_epoch)
        and (last.is_control or state.last_sequence == last.last_sequence)
        for state in known
    )


def continued(tail: Tail, known: Sequence[Producer] | None, rules: Rules, end: int) -> Identity:
    """The identity of the next data batch.

    After data (P, e, last): (P, e, last + 1). After markers (P, odd e): (P, e + 1, 0), or (P + 1, 0, 0) past the last
    epoch; a marker of an identity before the data's does not count. With nothing left in the log, what the broker
    remembers; else afresh.
    """
    if tail.marker is not None:
        identity = _identity(tail.marker).behind_markers()
    elif tail.data is not None and same_owner(tail.data[0].producer_id, rules.owner):
        last = _identity(tail.data[0])
        # Markers of somebody else behind our data fill their offsets all the same.
        identity = last.after(1) if tail.holes_from == end else last.behind_markers()
    else:
        states = ours(known, rules.owner)
        if not states:
            return Identity(rules.owner, 0, 0)
        newest = max(states, key=lambda state: (state.producer_id, state.epoch))
        last = Identity(newest.producer_id, newest.epoch, max(newest.last_sequence, 0))
        identity = last.behind_markers() if newest.epoch & 1 else last.after(newest.last_sequence >= 0)
    return identity.behind_markers() if rules.next_epoch else identity


def _identity(header: BatchHeader) -> Identity:
    return Identity(header.producer_id, header.producer_epoch, 0 if header.is_control else header.last_sequence)


def _is_record(segment: Segment, due: int, terms: Terms) -> bool:
    """Whether the first batch of the segment goes to the destination at ``due``, rather than markers."""
    header, _ = segment.batches[0]
    aborted = Aborted(segment.aborted).drops(header)
    return not isinstance(admit(header, due, terms, aborted=aborted), Fill)
