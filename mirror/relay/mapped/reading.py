"""Reads both logs of a partition side by side (``offsets: mapped``). The partition halts if they contradict each other,
or contradict what is written down of the copy.

``offsetmap.compare`` (lockstep, alignment) finds which copy is of which original, and ``relay.mapped.lastcopy`` what
that means for the source. This module decides what follows for the partition.
"""

import asyncio
import math
from collections.abc import Collection, Sequence

from mirror.net.logs.log import PartitionLog, Producer, SourceLog
from mirror.offsetmap.compare.alignment import Ambiguous, Differs, NeverArrived
from mirror.offsetmap.compare.lockstep import LockStep
from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.entries.pins import LastCopied
from mirror.offsetmap.runs import Run
from mirror.reasons import HaltReason
from mirror.records.header import NO_LEADER_EPOCH
from mirror.relay.durable.notes import ask, ask_kept, committed_note
from mirror.relay.durable.pins import COMMITTED
from mirror.relay.events import EventLog
from mirror.relay.halts import PartitionHalted, halt, overtaken
from mirror.relay.locate.evidence import Unseen
from mirror.relay.locate.resync import barrier
from mirror.relay.locate.rules import ResyncRules
from mirror.relay.mapped.beginning import ReadBounds, ReadingStart
from mirror.relay.mapped.fence import Before
from mirror.relay.mapped.lastcopy import Checked, Sides, check_copied, check_end, check_read, check_seen, differs
from mirror.relay.partition.clock import since_boot
from mirror.relay.partition.partition import Partition


class Reading:
    """One reading of both logs. Call ``begin``, then ``follow``, then ``advance`` up to the end that ``begin``
    returned."""

    def __init__(
        self, partition: Partition, here: SourceLog, there: PartitionLog, rules: ResyncRules, log: EventLog
    ) -> None:
        self._partition = partition
        self._here = here
        self._there = there
        self._rules = rules
        self._log = log
        self.bounds = ReadBounds(0, 0, 0)
        self.known: Sequence[Producer] | None = None
        """The producers that the destination's leader remembers; None: it cannot tell."""
        self.settled = False
        """True if nothing of ours that was sent before can still arrive."""
        self.ended_at = math.inf
        """See ``Location``."""
        self._noted: LastCopied | None = None
        self._remaking = False
        """True if the map was lost, and is rebuilt from both logs."""

    async def begin(self) -> int:
        """Asks where both logs start, and where the destination's log ends for certain. Returns that end.

        The leader is asked for producers first: an identity older than the log can only lead to a repeat; a newer one
        could lead to a batch in another one's place.
        """
        self.known = await self._there.producers()
        self.ended_at = since_boot()  # before the end is asked for: see ``Queue.confirm``
        self.bounds = ReadBounds(
            *await asyncio.gather(self._here.start(), self._there.start(), barrier(self._there, self._log))
        )
        return self.bounds.end

    def follow(
        self,
        start: ReadingStart,
        own: Collection[int],
        *,
        noted: LastCopied | None,
        checkpoint: Checkpoint | None,
        remaking: bool = False,
    ) -> LockStep:
        """Returns the lock-step from ``start`` on.

        Args:
            start: where to begin.
            own: producer ids under which the partition was ever written.
            noted: the note of the copy; None: there is none.
            checkpoint: the checkpoint that counts; None: there is none, or it is not needed.
            remaking: True if the map was lost, and is rebuilt from both logs.
        """
        self._noted, self._remaking = noted, remaking
        known_epoch = max(start.source_epoch, noted.leader_epoch if noted is not None else NO_LEADER_EPOCH)
        return LockStep(
            self._here,
            self._there,
            source_offset=start.source,
            destination_offset=start.destination,
            source_epoch=start.source_epoch,
            identity=start.identity,
            own=own,
            # Copies behind a checkpoint were made under its isolation level, even if another one counts by now.
            committed=checkpoint.isolation_level == COMMITTED
            if checkpoint is not None and checkpoint.isolation_level
            else self._rules.committed,
            source_start=self.bounds.source_start,
            log_start=self.bounds.log_start,
            accept_gap=self._rules.accept_loss,
            known_epoch=known_epoch if self._rules.terms.compacted else NO_LEADER_EPOCH,
            opening=self._rules.opening,
            may_be_cut=self._rules.terms.rewrites,
            append_times=self._rules.terms.takes_append_times,
        )

    async def advance(self, step: LockStep, end: int) -> int:
        """Reads on up to ``end``. Returns the number of batches of ours that were found.

        Raises:
            PartitionHalted: a copy is not of the source's next batch.
            NetworkError: cannot be determined now.
        """
        try:
            found = await step.advance(end)
            step.decide()
        except Differs as error:
            raise await self._halt(step, error) from error
        await check_seen(self._here, step.alignment)
        return found

    async def _halt(self, step: LockStep, error: Differs) -> PartitionHalted:
        """Returns the halt for copies that are not of the source's next batches."""
        await check_seen(self._here, step.alignment)
        if isinstance(error, Ambiguous):
            return halt(HaltReason.AMBIGUOUS, f"{self._rules.name}: {error}")
        if isinstance(error, NeverArrived):
            return halt(HaltReason.NEVER_ARRIVED, f"{self._rules.name}: {error}")
        if self._remaking:
            return halt(
                HaltReason.MAP_LOST,
                f"{self._rules.name}: the map cannot be rebuilt, because the two logs no longer begin at the same "
                f"record: {error}",
            )
        return await differs(self._sides, step.alignment, error, self._noted)

    async def settle(self, step: LockStep) -> None:
        """Waits until nothing of ours has arrived for ``settle.ms``: then nothing of ours can still arrive. Others may
        go on writing.

        Raises:
            PartitionHalted: a copy is not of the source's next batch.
            NetworkError: cannot be determined now.
        """
        while True:
            await asyncio.sleep(self._rules.settle_s)
            self.ended_at = since_boot()
            if not await self.advance(step, await barrier(self._there, self._log)):
                self.settled = True
                return

    async def count_gone(self, step: LockStep, before: Before, *, closed: bool) -> None:
        """Counts copies that the destination has deleted: even if none is visible, something may have been copied. The
        leader's memory of the producer shows how much. Without it, there must be nothing that can have been copied.

        Args:
            step: the lock-step, with everything that was seen.
            before: what is known of the producers before the fence.
            closed: True if nothing was sent behind the checkpoint.

        Raises:
            PartitionHalted: something may have been copied (``checkpoint_behind``), or the count does not fit the
                source.
            NetworkError: cannot be determined now.
        """
        end, identity = self.bounds.end, step.identity
        most = max(step.unseen(end), default=0)
        if identity is None or not most or closed:
            return
        last = before.last_sequence(identity.producer_id, identity.epoch)
        final = before.final == (identity.producer_id, identity.epoch)
        if last is not None and (before.complete or final or step.gone_to(end) <= before.end):
            if last < 0 and not identity.sequence:
                return
            if last >= 0:
                try:
                    await step.count(last, end)
                    step.decide()
                except Differs as error:
                    raise await self._halt(step, error) from error
                await check_seen(self._here, step.alignment)
                return
        following = await step.next_of_source()
        if following is None:
            await check_read(self._here, step.alignment)
        possible = step.alignment.overtaken or (
            # A piece of the next batch can be of a single offset.
            following is not None and (following.length <= most or self._rules.terms.rewrites)
        )
        if not possible or self._rules.accept_loss:
            return
        raise halt(
            HaltReason.CHECKPOINT_BEHIND,
            f"{self._there.name} has deleted what stood at up to {most} offsets behind what is known to be copied, up "
            f"to source offset {step.source_offset}, and its leader does not remember producer id "
            f"{identity.producer_id}, epoch {identity.epoch}",
        )

    async def check_end(self, upto: int) -> None:
        """Checks that the source does not end before ``upto``: everything below it is copied, or passed over."""
        await check_end(self._sides, upto, self._rules.settle_s)

    async def check_range(self, step: LockStep) -> int:
        """Checks that the source still has what is due, and does not end before what was copied. Returns the source's
        end.

        Raises:
            PartitionHalted: it does not have it, or ends before that.
            NetworkError: cannot be determined now.
        """
        name, alignment = self._rules.name, step.alignment
        if alignment.overtaken and not self._rules.accept_gap:
            more = f"; {alignment.passed} copies have no original there any more" if alignment.passed else ""
            raise overtaken(name, step.source_offset, self.bounds.source_start, self._here.floor, more)
        await self.check_end(step.source_offset)
        return await self._here.true_end()

    @property
    def _sides(self) -> Sides:
        return Sides(
            name=self._rules.name,
            here=self._here,
            there=self._there,
            source_start=self.bounds.source_start,
            log_start=self.bounds.log_start,
            compacted=self._rules.terms.compacted,
            opening=self._rules.opening,
            append_times=self._rules.terms.takes_append_times,
        )

    async def check_copied(
        self, step: LockStep, last: Run | None, own: Collection[int], noted: LastCopied | None
    ) -> Checked:
        """Checks that the source still has what was copied; see ``lastcopy.check_copied``. The next fetch sends the
        leader epoch in the result.

        Args:
            step: the lock-step, with everything that was seen.
            last: the last run of the map; None: nothing is known to be copied.
            own: the flow's own producer ids.
            noted: the note of the copy; None: there is none.
        """
        self._partition.claim.trust(None)
        partition, upto = self._partition, step.source_offset
        unshown = step.alignment.unshown
        checked = await check_copied(self._sides, last, upto, own, noted, self._vouch, unshown=unshown)
        if noted is not None and partition.claim.trusted is None:
            # A batch that compares as equal may have been sent again after an unclean election, behind other records.
            unseen = Unseen("", upto, self.bounds.source_start, self.bounds.log_start, data=True)
            await ask_kept(partition, self._here, unseen, [noted])
        if partition.claim.trusted is not None:
            # The earlier notes of the copy do not apply from now on.
            partition.cursor.marks.clear()
            return Checked(checked.source_epoch, LastCopied(upto, checked.copied.leader_epoch))
        return checked

    async def _vouch(self, unseen: Unseen, noted: LastCopied | None) -> int:
        """Checks the source against the checkpoint's note. If the checkpoint has none, because an older version wrote
        it, the group's note is used."""
        partition = self._partition
        notes = [noted] if noted is not None else committed_note(partition)
        return await ask(partition, self._here, unseen, notes, pinned=True)
