"""Finds where a partition goes on, from its two logs. Read it beside docs/DESIGN.md#32-locating.

In exact mode the destination's log end *is* the next source offset to copy. This module adds the certainty that nothing
is still on its way to that log (``barrier``, ``settle``), that its batches are ours and equal the source's
(``relay.locate.runs``, ``relay.locate.compare``), and the identity that continues it (``continued``).

It knows no sockets: ``here`` and ``there`` are ``net.logs.log.PartitionLog``, or a model of one in tests/simulation.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from mirror.net.errors import Refused, UnderReplicated, Unreachable
from mirror.net.logs.log import Marker, Producer, Segment
from mirror.offsetmap.entries.starting import StartingOffset
from mirror.reasons import HaltReason
from mirror.records.admit import NOT_INSIDE, Fill, Rewrite, Terms, admit
from mirror.records.header import BatchHeader
from mirror.records.identity import Identity, same_owner
from mirror.records.transactions import Aborted
from mirror.relay.events import EventLog
from mirror.relay.halts import PartitionHalted, halt, overtaken
from mirror.relay.locate.compare import Comparison, Proof
from mirror.relay.locate.evidence import Unseen
from mirror.relay.locate.filled import FilledCheck
from mirror.relay.locate.holding import batch_holding
from mirror.relay.locate.runs import check_run
from mirror.relay.locate.tails import Tail
from mirror.wire.errors import ErrorCode

OF_THE_DESTINATION = frozenset({HaltReason.NOT_A_COPY.slug, HaltReason.OVERFILLED.slug})
"""Verdicts on the destination's last batches whose cause may be a batch that stands before them."""
POLL_S = 0.1
"""Pause between two looks at a log end that is not replicated yet."""
LOOKS = 20
"""Looks at such an end before the partition gives its seat back: about two seconds. Seats are limited
(``relay.locate.seeking``)."""
MOST_SETTLES = 10
"""Waits of ``settle_s`` for an end to stand still before the partition gives its seat back."""


Rest = Callable[[float], Awaitable[object]]
"""Waits for so many seconds, or longer. Nothing large may be held meanwhile: thousands of partitions rest at a time."""


class Readable(Protocol):
    """A partition's log, for reading. See ``net.logs.log.PartitionLog``."""

    @property
    def name(self) -> str:
        """topic-partition at cluster."""

    async def start(self) -> int:
        """Returns the first offset that the log still has."""

    async def true_end(self) -> int:
        """Returns the leader's log end."""

    async def visible_end(self) -> int:
        """Returns the leader's high watermark."""

    async def read(self, offset: int, *, max_bytes: int = 1, committed: bool = False) -> Segment:
        """Returns whole batches, starting with the one that holds ``offset``."""

    async def batch_at(self, offset: int) -> tuple[BatchHeader, bytes] | None:
        """Returns the one batch that holds ``offset``, or the next one."""


class Writable(Readable, Protocol):
    """The destination's log."""

    async def producers(self) -> list[Producer] | None:
        """Returns the producers that its leader remembers; None if it cannot be asked."""

    async def write_markers(self, marker: Marker, count: int) -> None:
        """Appends that many markers. An answer does not prove that they were appended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResyncRules:
    """The facts about the flow that a resync needs.

    Attributes:
        name: topic-partition, for messages.
        owner: the flow's producer id for this partition, rotation 0.
        filler: the producer id for its leading filler.
        settle_s: longer than bytes of a dead predecessor can still arrive.
        rest: how that time is waited.
        committed: the source is read as a read_committed consumer reads it.
        window: batches that a predecessor may have had under way.
        terms: of the topic.
        accept_gap: go on without records that retention took before they were copied (``on.gap``).
        accept_loss: an operator has accepted, this once, what ``on.gap`` does not cover: records that were
            filled; a copy whose account is lost, or can be read in several ways (``offsets: mapped``).
        gaps_to: the same, for records before this offset: it was accepted before, and is written down.
        aborted_to: aborted data before this offset was filled, although the source is not read as committed now.
        adopted: batches before this offset were there before the flow, and are the source's all the same
            (``Pin.adopted``).
        adopted_epoch: of the destination's leader then: batches of a later one were not there; -1: not known.
        next_epoch: the broker has forgotten our producer id (error 59), so that it takes only a new epoch.
        unread: base offset of a batch that was acknowledged, and may not be there as it was sent; -1: there is none.
        strict: the copy carries the source's producer fields, so that they must be equal, too.
        led_to: this process has filled the offsets before the source's first record up to here; -1: it has not.
        pinned: the source is, by its id, the topic that was copied before.
        opening: held while batches are opened to be compared, one pair of a process at a time.
        vouch: checks that this is the source that was copied, where nothing can be compared
            (``relay.locate.evidence``).
        kept: checks that no leader of the source has lost what was copied, where the last batches compare as equal.
        passed: returns what is written down of records that were passed over (``oversize.record``): offset -> leader
            epoch of the source's record there, or the digest of an old message.
        coordinator_epoch: the least for markers: above any that a previous owner used, although that owner may have
            seen the same log.
        starting: where the copy begins, if it begins later than the source.
        forgets_before_ms: the destination may have forgotten a batch whose newest record is older (ms since 1970).
    """

    name: str
    owner: int
    filler: int
    settle_s: float
    rest: Rest = asyncio.sleep
    committed: bool = True
    window: int = 5
    terms: Terms = field(default_factory=Terms)
    accept_gap: bool = False
    accept_loss: bool = False
    next_epoch: bool = False
    unread: int = -1
    strict: bool = False
    gaps_to: int = 0
    aborted_to: int = 0
    adopted: int = 0
    adopted_epoch: int = -1
    coordinator_epoch: int = 0
    starting: StartingOffset | None = None
    forgets_before_ms: float = 0.0
    led_to: int = -1
    pinned: bool = False
    opening: asyncio.Lock = field(default_factory=asyncio.Lock, compare=False)
    vouch: Callable[[Unseen], Awaitable[int]] | None = field(default=None, compare=False)
    kept: Callable[[Unseen], Awaitable[None]] | None = field(default=None, compare=False)
    passed: Callable[[], Awaitable[Mapping[int, int | str]]] | None = field(default=None, compare=False)

    def is_own(self, header: BatchHeader) -> bool:
        """Returns True if the batch is the flow's data, in any rotation, or was adopted by it."""
        return same_owner(header.producer_id, self.owner) or self.is_adopted(header)

    def is_adopted(self, header: BatchHeader) -> bool:
        """Returns True if the batch was there before the flow, and is in its place. If the destination has lost its end
        since, whatever stands in that place now is of a later leader."""
        return header.last_offset < self.adopted and (
            self.adopted_epoch < 0 or header.leader_epoch <= self.adopted_epoch
        )


class ResyncResult(NamedTuple):
    """The result of a resync: the offset at which the partition goes on, and what was learned on the way."""

    offset: int
    """The destination's log end: the next source offset to copy."""
    identity: Identity
    """The identity of the next data batch."""
    coordinator_epoch: int
    """The one of the next markers: above any that the destination's leader remembers of ours."""
    last_epoch: int
    """Leader epoch of the source batch before ``offset``; -1: not known."""
    source_start: int
    source_end: int
    log_start: int
    proven: bool
    """True if the batch before ``offset`` was compared on both sides."""
    holes_from: int
    """From here up to ``offset`` there are only markers."""
    fill_to: int = -1
    """If ``offset`` lies inside a source batch, the end up to which its rest is filled; otherwise not above it."""
    accepted: tuple[int, int] | None = None
    """The range of offsets (first, end) where markers stand, or will stand, in the place of records, by a decision that
    was made now."""
    inside: int = NOT_INSIDE
    """Base offset of the source batch that is known to hold ``offset``, where that is not its first offset."""
    settled: bool = True
    """True if nothing that was sent before can still arrive. Otherwise the leader recognises it as a repeat, as long as
    it remembers the producer."""
    ended_at: float = math.inf
    """See ``Location``."""


async def barrier(there: Readable, log: EventLog) -> int:
    """Returns the log end once every in-sync replica has it: then no record can vanish, and none is hidden.

    Raises:
        UnderReplicated: they do not have it after ``LOOKS`` looks.
        NetworkError: no answer, or the leader is no longer the leader.
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


async def standing_still(there: Readable, settle_s: float, log: EventLog, rest: Rest = asyncio.sleep) -> int:
    """Returns the barrier once two of them, ``settle_s`` apart, are equal: then the end will not move.

    ``rest``: waits that long, or longer.

    Raises:
        Unreachable: it moves again and again.
        NetworkError: as ``barrier``.
    """
    end = await barrier(there, log)
    for _ in range(MOST_SETTLES):
        await rest(settle_s)
        again = await barrier(there, log)
        if again == end:
            return end
        end = again
    raise _unsettled(there, end)


def _unsettled(there: Readable, end: int) -> Unreachable:
    return Unreachable(f"{there.name} ends at {end} now, and does not stand still: somebody writes to it")


class SourceLogStart(Readable, Protocol):
    """The source's log. ``floor``: its log start offset, as of the last ``start``; a batch may hold it."""

    floor: int


class Resync:
    """One look at both logs of a partition. ``run`` once."""

    def __init__(self, here: SourceLogStart, there: Writable, rules: ResyncRules, log: EventLog) -> None:
        self._here = here
        self._there = there
        self._rules = rules
        self._log = log
        self._comparison = Comparison(here, there, rules)
        self._filled = FilledCheck(here, there, rules)

    async def run(self, *, settle: bool) -> ResyncResult:
        """Returns the position, proven as far as it can be.

        Args:
            settle: somebody else's bytes, or our own markers, may still arrive: wait until the end stands still.

        Raises:
            PartitionHalted: it cannot go on, and looking again will not help.
            NetworkError: cannot be determined now; try again.
        """
        here, there, rules = self._here, self._there, self._rules
        source_start, log_start, source_end = await asyncio.gather(here.start(), there.start(), here.true_end())
        # Ask the leader for its producers before the end that counts, never after. A sequence from before that end is
        # at worst a repeat, which is recognised. One from after it would be taken for the batch at that end.
        known = await there.producers()
        end, ended_at = await barrier(there, self._log), time.monotonic()
        tail: Tail | None = None
        if not settle:
            tail = await self._comparison.tail(log_start, end, whole=True)
            settle = not armed(tail, known, rules) or await self._is_late_wrong(source_start, end)
        if settle:
            tail = None  # its batches are not kept while the end has to stand still: see ``Rest``
            known, end = await self._stand_still(log_start, end)
            ended_at = time.monotonic()
        if tail is None:
            tail = await self._comparison.tail(log_start, end, whole=True)
        await self._check_run(tail, log_start)
        await self._check_decided(log_start, end)
        try:
            source_end = await self._check_range(tail, log_start, source_start, source_end, end)
            proof = await self._prove(tail, log_start, source_start, source_end, end)
            holes = tail if proof.upto is None else tail._replace(holes_from=proof.upto)
            await self._prove_window(tail, log_start, source_start, source_end, end)
            if tail.data is not None and rules.unread in range(log_start, tail.data[0].base_offset):
                bounds = log_start, source_start, source_end, end
                if not await self._comparison.prove_unread(rules.unread, *bounds):
                    holes = holes._replace(holes_from=min(holes.holes_from, rules.unread))
            filled = await self._filled.check(holes, source_start, end)
        except PartitionHalted as stop:
            if stop.halted.reason == HaltReason.NOT_A_COPY.slug:
                await self._check_lost(stop.halted.detail, log_start, source_start, end, differs=True)
            if stop.halted.reason in OF_THE_DESTINATION:
                await self._blame(tail, log_start, source_start)
            raise
        if not proof.proven:
            detail = f"{rules.name}: {proof.why}, so nothing before offset {end} can be compared"
            self._log.warning("prefix_unproven", detail=detail)
        return ResyncResult(
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
            inside=await batch_holding(
                self._here,
                self._rules.terms,
                end,
                source_start=source_start,
                source_end=source_end,
                starting=rules.starting,
            ),
            settled=settle,
            ended_at=ended_at,
        )

    async def _prove(self, tail: Tail, log_start: int, source_start: int, source_end: int, end: int) -> Proof:
        """Compares the last batch. Whether it can be compared or not, checks the source against the notes of the copy.

        Raises:
            PartitionHalted: it is not the source's; the source has lost it, or other records that were copied.
        """
        rules = self._rules
        proof = await self._comparison.prove(tail, log_start, source_start, source_end, end)
        seen = tail.data is not None
        unseen = Unseen(proof.why, end, source_start, log_start, data=seen, cleaned=proof.cleaned)
        if not proof.proven:
            return proof._replace(epoch=await rules.vouch(unseen)) if rules.vouch is not None else proof
        if rules.kept is not None:
            await rules.kept(unseen)
        if proof.why:
            await self._check_lost(proof.why, log_start, source_start, end)
        return proof

    async def _prove_window(self, tail: Tail, log_start: int, source_start: int, source_end: int, end: int) -> None:
        """Compares the batches before the last one, too, as many as may have been under way together. Behind late
        batches of an end that the source has lost, right ones may have landed: an owner's batch at such an offset has
        the same sequence, and was taken for a repeat.

        Raises:
            PartitionHalted: one is not the source's.
        """
        look = tail
        for _ in range(self._rules.window - 1):
            if look.data is None or look.data[0].base_offset <= max(log_start, source_start):
                return
            try:
                look = await self._comparison.tail(log_start, look.data[0].base_offset)
            except PartitionHalted as stop:
                if stop.halted.reason == HaltReason.FOREIGN_WRITER.slug:
                    return  # from before the flow: ``check_run`` has seen that nobody else is in between
                raise
            if look.data is not None and look.data[0].base_offset >= source_start:
                alone = Tail(look.data, None, look.data[0].next_offset)
                await self._comparison.prove(alone, log_start, source_start, source_end, end)

    async def _stand_still(self, log_start: int, end: int) -> tuple[list[Producer] | None, int]:
        """Waits for two equal ends ``settle.ms`` apart: then the end will not move. Returns the producers that the
        leader remembered before, and the end."""
        for _ in range(MOST_SETTLES):
            known = await self._there.producers()
            await self._rules.rest(self._rules.settle_s)
            again = await barrier(self._there, self._log)
            if again == end:
                return known, end
            end = again
        await self._comparison.tail(log_start, end, whole=True)  # halts if it is somebody else who writes all the time
        raise _unsettled(self._there, end)

    # -- the destination ---------------------------------------------------------------------------------------------

    async def _check_run(self, tail: Tail, log_start: int) -> None:
        """Checks that nobody else has written between our batches, even if the last one equals the source's."""
        if tail.data is not None and not self._rules.strict and not self._rules.is_adopted(tail.data[0]):
            await check_run(self._there, tail.data[0], log_start, self._rules)

    async def _check_decided(self, log_start: int, end: int) -> None:
        """Checks that no transaction is open in what was adopted: none was. If the destination has lost its marker, its
        producer does not know, and consumers that read what is committed would wait there for ever.

        Raises:
            PartitionHalted: one is.
        """
        upto = min(self._rules.adopted, end)
        if upto <= log_start:
            return
        segment = await self._there.read(upto - 1)
        if 0 <= segment.last_stable_offset < min(upto, segment.high_watermark):
            raise halt(
                HaltReason.NOT_A_COPY,
                f"{self._rules.name}: a transaction is open at the destination from offset "
                f"{segment.last_stable_offset} on, where it was decided before the flow; its marker was lost",
            )

    async def _check_lost(
        self, why: str, log_start: int, source_start: int, end: int, *, differs: bool = False
    ) -> None:
        """Checks by the notes whether the source has lost the last batch. For a batch that is not the source's, or in
        whose place the source has nothing.

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
        """Looks for the cause if the last batch is ours and does not fit the source. Somebody else may have written
        before it, or a marker may stand there in the place of a record: a whole window of ours may have landed behind.
        """
        for _ in range(self._rules.window):
            if tail.data is None:
                return
            base = tail.data[0].base_offset
            tail = await self._comparison.tail(log_start, base)
            if tail.holes_from < base:
                await self._filled.check(tail, source_start, base, blame=True)

    # -- the source --------------------------------------------------------------------------------------------------

    async def _is_late_wrong(self, source_start: int, end: int) -> bool:
        """Returns True if a late arrival would do harm to what is due next: a hole, or a batch so old that the
        destination may have forgotten it by the time that it arrives again."""
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
        # A batch that begins before the end may have come back with another leader. Its rest is filled.
        return old or first.base_offset < end or not _is_record(segment, end, self._rules.terms)

    async def _check_range(self, tail: Tail, log_start: int, source_start: int, source_end: int, end: int) -> int:
        """Checks that the source still has the records that are due, and does not end before the copy. Returns its end,
        read again if it seemed to."""
        name = self._rules.name
        if source_end < end:
            # Once may be a leader that is still catching up. Twice is a source that does not have these records.
            await asyncio.sleep(self._rules.settle_s)
            source_end = await self._here.true_end()
        if source_end < end:
            raise await self._comparison.beyond(tail, log_start, source_start, source_end, end)
        if source_start > max(end, self._rules.gaps_to) and not self._rules.accept_gap:
            raise overtaken(name, end, source_start, self._here.floor)
        return source_end


def ours(known: Sequence[Producer] | None, owner: int) -> list[Producer]:
    """Returns those of the producers that a leader remembers that are this partition's own, in any rotation."""
    return [state for state in known or () if same_owner(state.producer_id, owner)]


def coordinator_epoch(known: Sequence[Producer] | None, rules: ResyncRules) -> int:
    """Returns the coordinator epoch of the next markers. From then on, late markers of another look at the log, or of
    another owner, are refused. 0 if the leader cannot be asked: it would for ever refuse a lower one than it has."""
    if known is None:
        return 0
    return max(
        1 + max((state.coordinator_epoch for state in ours(known, rules.owner)), default=-1), rules.coordinator_epoch
    )


def armed(tail: Tail, known: Sequence[Producer] | None, rules: ResyncRules) -> bool:
    """Returns True if the leader remembers the very batch that we continue from: then any late repeat is recognised.
    Behind one that was adopted it knows nothing of ours, and takes any sequence."""
    last = tail.marker or (tail.data[0] if tail.data else None)
    if last is None or known is None or not (rules.strict or same_owner(last.producer_id, rules.owner)):
        return False
    return any(
        (state.producer_id, state.epoch) == (last.producer_id, last.producer_epoch)
        and (last.is_control or state.last_sequence == last.last_sequence)
        for state in known
    )


def continued(tail: Tail, known: Sequence[Producer] | None, rules: ResyncRules, end: int) -> Identity:
    """Returns the identity of the next data batch.

    After data (P, e, last): (P, e, last + 1). After markers (P, odd e): (P, e + 1, 0), or (P + 1, 0, 0) past the last
    epoch. A marker with an older identity than the data's does not count. With nothing left in the log, it follows from
    what the broker remembers; if that is nothing, it begins at (owner, 0, 0).
    """
    if tail.marker is not None:
        identity = _identity(tail.marker).behind_markers()
    elif tail.data is not None and same_owner(tail.data[0].producer_id, rules.owner):
        last = _identity(tail.data[0])
        # Markers of somebody else behind our data take their offsets all the same.
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
    """Returns True if the first batch of the segment goes to the destination at ``due``, rather than markers, as far as
    its header shows: its first record may be one that is passed over."""
    header, _ = segment.batches[0]
    aborted = Aborted(segment.aborted).drops(header)
    verdict = admit(header, due, terms, aborted=aborted)
    return not isinstance(verdict, Fill) and not (terms.passes_over is not None and isinstance(verdict, Rewrite))
