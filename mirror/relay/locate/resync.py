"""Finds where a partition goes on, from its two logs. Read it beside docs/DESIGN.md#32-locating.

In exact mode the destination's log end *is* the next source offset to copy. This module adds the certainty that nothing
is still on its way to that log (``barrier``, ``settle``), that its batches are ours and equal the source's
(``relay.locate.runs``, ``relay.locate.compare``), and the identity that continues it (``locate.rules.continued``).

It knows no sockets: ``here`` and ``there`` are ``net.logs.log.PartitionLog``, or a model of one in tests/simulation.
"""

import asyncio
import math
from typing import NamedTuple

from mirror.net.errors import Refused, UnderReplicated, Unreachable
from mirror.net.logs.log import Producer, Segment
from mirror.reasons import HaltReason
from mirror.records.admit import NOT_INSIDE, Fill, Rewrite, Terms, admit
from mirror.records.identity import Identity
from mirror.records.transactions import Aborted
from mirror.relay.events import EventLog
from mirror.relay.halts import PartitionHalted, halt, overtaken
from mirror.relay.locate.compare import Comparison, Proof
from mirror.relay.locate.evidence import Unseen
from mirror.relay.locate.filled import FilledCheck
from mirror.relay.locate.holding import batch_holding
from mirror.relay.locate.rules import (
    Readable,
    Rest,
    ResyncRules,
    SourceLogStart,
    Writable,
    armed,
    continued,
    coordinator_epoch,
)
from mirror.relay.locate.runs import check_run
from mirror.relay.locate.tails import Tail
from mirror.relay.partition.clock import since_boot
from mirror.wire.errors import ErrorCode

OF_THE_DESTINATION = frozenset({HaltReason.NOT_A_COPY.slug, HaltReason.OVERFILLED.slug})
"""Verdicts on the destination's last batches that an earlier batch may have caused."""
POLL_S = 0.1
"""Pause between two looks at a log end that is not replicated yet."""
LOOKS = 20
"""Looks at an end that is not replicated yet, before the partition gives its seat back: about two seconds. Seats are
limited (``relay.locate.seeking``)."""
MOST_SETTLES = 10
"""Times that ``settle_s`` is waited for an end to stand still, before the partition gives its seat back."""
EMPTIED = (
    ". The destination's log ends at 0: if it was lost there, delete the topic there and resume, and everything that "
    "the source still has is copied again"
)
"""More about records that the source has deleted, where a copy of earlier ones is not there any more."""


class ResyncResult(NamedTuple):
    """The result of a resync: the offset at which the partition goes on, and what was found on the way."""

    offset: int
    """The destination's log end: the next source offset to copy."""
    identity: Identity
    """The identity of the next data batch."""
    coordinator_epoch: int
    """The coordinator epoch of the next markers: above any that the destination's leader remembers of ours."""
    last_epoch: int
    """Leader epoch of the source batch before ``offset``; -1: not known."""
    source_start: int
    source_end: int
    log_start: int
    proven: bool
    """True if the batch before ``offset`` was compared on both sides."""
    holes_from: int
    """From here up to ``offset``, the destination has only markers."""
    fill_to: int = -1
    """If above ``offset``, the offsets up to here are filled: ``offset`` lies inside a source batch."""
    accepted: tuple[int, int] | None = None
    """First and next offset of the range where markers take, or will take, the place of records, by a decision that was
    made now; None: there is none."""
    inside: int = NOT_INSIDE
    """Base offset of the source batch that is known to hold ``offset``, if that is not its first offset; otherwise
    ``NOT_INSIDE``."""
    settled: bool = True
    """True if nothing that was sent before can still arrive. Otherwise the leader recognises it as a repeat, as long as
    it remembers the producer."""
    ended_at: float = math.inf
    """When the destination's end was asked for; see ``Location``."""


async def barrier(there: Readable, log: EventLog) -> int:
    """Returns the log end once every in-sync replica has it: then no record can vanish, and none is hidden.

    Raises:
        UnderReplicated: they do not have it after ``LOOKS`` looks.
        NetworkError: the broker does not answer, or no longer leads the partition.
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
    """Returns the log end once two barriers, at least ``settle_s`` apart, have the same end: then it will not move any
    more.

    Args:
        there: the log.
        settle_s: how long the end must stand still.
        log: for events.
        rest: waits that long, or longer.

    Raises:
        Unreachable: the end moved after each of ``MOST_SETTLES`` waits.
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


class Resync:
    """One look at both logs of a partition. ``run`` may be called once."""

    def __init__(self, here: SourceLogStart, there: Writable, rules: ResyncRules, log: EventLog) -> None:
        self._here = here
        self._there = there
        self._rules = rules
        self._log = log
        self._comparison = Comparison(here, there, rules)
        self._filled = FilledCheck(here, there, rules)

    async def run(self, *, settle: bool) -> ResyncResult:
        """Returns the position, proven as far as possible.

        Args:
            settle: True if a predecessor's bytes, or our own markers, may still arrive: then it waits until the end
                stands still.

        Raises:
            PartitionHalted: it cannot go on, and another look will not help.
            NetworkError: cannot be determined now; try again.
        """
        here, there, rules = self._here, self._there, self._rules
        source_start, log_start, source_end = await asyncio.gather(here.start(), there.start(), here.true_end())
        # Ask the leader for its producers before the end that counts, never after. A sequence from before that end is
        # at worst a repeat, which is recognised. A sequence from after it would be taken for that of the batch at that
        # end.
        known = await there.producers()
        # The end is known as of when it was asked for: this process may be stopped before it reads the answer.
        ended_at, end = since_boot(), await barrier(there, self._log)
        tail: Tail | None = None
        if not settle:
            tail = await self._comparison.tail(log_start, end, whole=True)
            settle = not armed(tail, known, rules) or await self._is_late_wrong(source_start, end)
        if settle:
            tail = None  # its batches are not kept while the end has to stand still; see ``Rest``
            known, end, ended_at = await self._stand_still(log_start, end)
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
        """Compares the last data batch, and checks the source against the notes of what was copied.

        Raises:
            PartitionHalted: the batch is not the source's, or the source has lost it, or has lost other records that
                were copied.
            NetworkError: cannot be determined now.
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
        """Compares the batches before the last one, too, as many as may have been in flight together. Late batches of a
        predecessor may hold records of an end that the source has lost since, with right batches behind them: the
        owner's own batches at these offsets had the same sequences, and were taken for repeats.

        Raises:
            PartitionHalted: one of them is not the source's.
            NetworkError: cannot be determined now.
        """
        look = tail
        for _ in range(self._rules.window - 1):
            if look.data is None or look.data[0].base_offset <= max(log_start, source_start):
                return
            try:
                look = await self._comparison.tail(log_start, look.data[0].base_offset)
            except PartitionHalted as stop:
                if stop.halted.reason == HaltReason.FOREIGN_WRITER.slug:
                    return  # it is older than the flow: ``check_run`` has shown that nobody else's stands between ours
                raise
            if look.data is not None and look.data[0].base_offset >= source_start:
                alone = Tail(look.data, None, look.data[0].next_offset)
                await self._comparison.prove(alone, log_start, source_start, source_end, end)

    async def _stand_still(self, log_start: int, end: int) -> tuple[list[Producer] | None, int, float]:
        """Waits for two equal ends ``settle.ms`` apart: then the end will not move any more. Returns the producers that
        the leader remembered before that, the end, and when the end was asked for (``since_boot``).

        Raises:
            PartitionHalted: somebody else writes to the log.
            NetworkError: the end does not stand still, or cannot be determined now.
        """
        for _ in range(MOST_SETTLES):
            known = await self._there.producers()
            await self._rules.rest(self._rules.settle_s)
            asked_at, again = since_boot(), await barrier(self._there, self._log)
            if again == end:
                return known, end, asked_at
            end = again
        await self._comparison.tail(log_start, end, whole=True)  # halts if it is somebody else who keeps writing
        raise _unsettled(self._there, end)

    # -- the destination ---------------------------------------------------------------------------------------------

    async def _check_run(self, tail: Tail, log_start: int) -> None:
        """Checks that nobody else has written between our batches, even if the last one equals the source's."""
        if tail.data is not None and not self._rules.strict and not self._rules.is_adopted(tail.data[0]):
            await check_run(self._there, tail.data[0], log_start, self._rules)

    async def _check_decided(self, log_start: int, end: int) -> None:
        """Checks that no transaction is open in what was adopted. None was open then. If the destination has lost the
        marker of one since, its producer does not know that, and read_committed consumers would wait there for ever.

        Raises:
            PartitionHalted: not_a_copy: a transaction is open.
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
        """Checks by the notes whether the source has lost its last batch. Called if the last batch is not the source's,
        or if only an earlier one could be compared.

        Raises:
            PartitionHalted: source_truncated.
            NetworkError: cannot be determined now.
        """
        if self._rules.vouch is None:
            return
        try:
            await self._rules.vouch(Unseen(why, end, source_start, log_start, data=True, differs=differs))
        except PartitionHalted as stop:
            if stop.halted.reason == HaltReason.SOURCE_TRUNCATED.slug:
                raise

    async def _blame(self, tail: Tail, log_start: int, source_start: int) -> None:
        """Looks for an earlier cause if the last batch is ours and does not fit the source. Somebody else may have
        written before it, or a marker may stand before it in the place of a record: a whole window of ours may have
        landed behind that.

        Raises:
            PartitionHalted: such a cause was found.
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
        """Returns True if a late arrival could do harm at the next offset: a hole is due, or a batch so old that the
        destination may have forgotten it by the time that a repeat arrives."""
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
        # A batch that begins before the end may have come back with another leader. The rest of it is filled.
        return old or first.base_offset < end or not _is_record(segment, end, self._rules.terms)

    async def _check_range(self, tail: Tail, log_start: int, source_start: int, source_end: int, end: int) -> int:
        """Checks that the source still has the records that are due, and does not end before the copy. Returns the
        source's end, which is read again if the source seems to end before the copy.

        Raises:
            PartitionHalted: the source does not have them, or ends before the copy.
            NetworkError: cannot be determined now.
        """
        name = self._rules.name
        if source_end < end:
            # Once, it may be a leader that is still catching up. Twice, the source does not have these records.
            await asyncio.sleep(self._rules.settle_s)
            source_end = await self._here.true_end()
        if source_end < end:
            raise await self._comparison.beyond(tail, log_start, source_start, source_end, end)
        if source_start > max(end, self._rules.gaps_to) and not self._rules.accept_gap:
            raise overtaken(name, end, source_start, self._here.floor, EMPTIED if not end else "")
        return source_end


def _is_record(segment: Segment, due: int, terms: Terms) -> bool:
    """Returns True if the first batch of the segment goes to the destination at ``due``, rather than markers, as far as
    its header shows. If records may be passed over, a batch that is rewritten does not count: its first record may be
    passed over."""
    header, _ = segment.batches[0]
    aborted = Aborted(segment.aborted).drops(header)
    verdict = admit(header, due, terms, aborted=aborted)
    return not isinstance(verdict, Fill) and not (terms.passes_over is not None and isinstance(verdict, Rewrite))
