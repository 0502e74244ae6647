"""Where a partition of ``offsets: mapped`` goes on: the fence, the checkpoint, both logs read in lock-step behind it.

Design section 4, "mapped resync". Read it beside ``relay.resync``, which is the same for exact mode. There the log end
says everything; here others write to the log as well, so what was copied last stands in a checkpoint, and what the flow
wrote since then is found by its producer ids and compared with the source, batch by batch.
"""

import asyncio
import time
import uuid
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any

from mirror.net.alignment import Ambiguous, Differs, NeverArrived
from mirror.net.coordinator import Ownership
from mirror.net.lockstep import LockStep
from mirror.net.log import PartitionLog, Producer, SourceLog
from mirror.net.state import Memory
from mirror.records.header import NO_LEADER_EPOCH
from mirror.records.identity import Identity
from mirror.records.state import Entry, Order, joined
from mirror.relay.beginning import SCAN_BYTES, Beginning, Bounds, Start, open_tail
from mirror.relay.fence import Before, NotOurs, fence, fence_others, look_before, note, noted, others
from mirror.relay.halts import PartitionHalted, Trouble, halt
from mirror.relay.journal import Copied, Journal
from mirror.relay.lastcopy import Sides, check_end, check_last
from mirror.relay.partition import Location, Partition
from mirror.relay.position import Locator, transactional_id
from mirror.relay.resync import Rules, barrier


class MappedLocator(Locator):
    """Seeks positions in a flow with ``offsets: mapped``; what it learns of a partition is in ``Partition.copied``."""

    def __init__(self, *, state: Memory, **rest: Any) -> None:
        """The rest: see ``Locator``."""
        super().__init__(**rest)
        self.state = state

    async def locate(self, partition: Partition, *, takeover: bool) -> Location:
        """See ``Locator``.

        Raises:
            NotOurs: somebody else has taken it over since we did.
            PartitionHalted: also where another flow id has copied it before.
        """
        try:
            return await self._look(partition, takeover=takeover)
        except PartitionHalted as stop:
            # What another worker writes meanwhile looks wrong to whoever does not know of it: the verdict is its.
            if not await self.owns(partition):
                raise NotOurs(f"{partition.name}: another worker has taken it over") from stop
            raise

    async def _look(self, partition: Partition, *, takeover: bool) -> Location:
        here, there = self.logs(partition)
        look = _Look(self, partition, here, there, self.rules(partition))
        if not takeover and partition.copied is not None and not partition.forgotten:
            if not await self.owns(partition):
                raise NotOurs(f"{partition.name}: another worker has taken it over")
            location = await look.again(partition.copied)
            if location is not None:
                return location
        if self.state.ledger.checkpoint(partition.side) is None and not partition.accept_unproven:
            await self._flows.check_new(partition)
        return await look.anew()

    async def moved(self, partition: Partition) -> str:
        """See ``Locator``: here the end may move, but not by a batch of ours."""
        _, there = self.logs(partition)
        if not await self.owns(partition):
            return "another worker has taken the partition over"
        copied = partition.copied
        assert copied is not None, partition.name
        start, end = await asyncio.gather(there.start(), barrier(there, self.log))
        offset = copied.destination
        if start > offset:
            return f"{there.name} has deleted what stood behind the last batch acknowledged, from {offset} on"
        while offset < end:
            segment = await there.read(offset, max_bytes=SCAN_BYTES)
            if not segment.batches:
                break
            for header, _ in segment.batches:
                offset = header.next_offset
                if header.producer_id in copied.own and not header.is_control:
                    return f"{there.name} has a batch of this flow at {header.base_offset} that was not acknowledged"
        return ""

    async def own(self, partition: Partition) -> Ownership | None:
        """Takes the partition over by its transactional id; None where that is not to be had."""
        partition.ownership = await self._own(partition)
        return partition.ownership

    async def fence(self, partition: Partition, there: PartitionLog, before: Before) -> Before | None:
        """Fences whoever had the partition's producer id; see ``relay.fence``."""
        if partition.ownership is None:
            return None
        name = transactional_id(self._settings.flow, partition)
        after = await fence(self.coordinator, name, partition.ownership, there, before)
        if after is None:
            partition.ownership = None
        return after


class _Look:
    """One look at both logs of a partition."""

    def __init__(
        self, locator: MappedLocator, partition: Partition, here: SourceLog, there: PartitionLog, rules: Rules
    ) -> None:
        self._locator = locator
        self._partition = partition
        self._here = here
        self._there = there
        self._rules = rules
        self._log = locator.log
        self._bounds = Bounds(0, 0, 0)
        self._known: Sequence[Producer] | None = None

    # -- the two ways --------------------------------------------------------------------------------------------------

    async def again(self, copied: Copied) -> Location | None:
        """After doubt, while the partition is ours all the time: on from what was acknowledged. None: it has to be
        taken over anew, because the destination lost some of that."""
        before = await look_before(self._there, self._log)
        if any(
            state.producer_id == copied.identity.producer_id and state.epoch > copied.identity.epoch
            for state in before.known or ()
        ):
            raise NotOurs(f"{self._rules.name}: another worker has fenced it")
        end = await self._begin()
        if await self._beginning(copied.own).lost(copied.journal.last):
            return None
        start = Start(copied.source, copied.source_epoch, copied.destination, copied.identity)
        await check_end(self._sides, copied.source, self._rules.settle_s)
        step = self._step(start, copied.own)
        await self._advance(step, end)
        identity = step.identity
        assert identity is not None
        if (identity.producer_id, identity.epoch) != (copied.identity.producer_id, copied.identity.epoch):
            raise NotOurs(f"{self._rules.name}: another worker has written to {self._there.name}")
        if self._partition.unsettled or not armed(identity, self._known) or await self._is_old(step):
            await self._settle(step)
        await self._count_gone(step, before, closed=False)
        source_end = await self._check_range(step)
        assert step.identity is not None
        copied.found(step.map, step.source_offset, step.source_epoch, step.identity, step.destination_offset)
        await self._check_last(copied)
        return self._location(copied, source_end)

    async def anew(self) -> Location:
        """At a takeover: fenced, then on from what was written down. Writes down where it begins before anything is
        produced, so that whatever is found there later has a checkpoint before it."""
        partition, state = self._partition, self._locator.state
        before, fenced = await self._fence()
        owner = partition.ownership
        ledger, side = state.ledger, partition.side
        checkpoint = ledger.checkpoint(side)
        own = {self._rules.owner, *ledger.own(side)}
        if owner is not None:
            own.add(owner.producer_id)
        end = await self._begin()
        start = await self._beginning(own).find(before, owner)
        await check_end(self._sides, start.source, self._rules.settle_s)
        step = self._step(start, own)
        await self._advance(step, end)
        if (
            not fenced
            or partition.unsettled
            or not armed(self._identity(step, owner), self._known)
            or await self._is_old(step)
        ):
            await self._settle(step)
        if checkpoint is not None:
            await self._count_gone(step, before, closed=checkpoint.closed and not step.copies)
        identity = self._identity(step, owner)
        source_end = await self._check_range(step)
        copied, forget = self._account(step, start, identity, frozenset(own | {identity.producer_id}))
        await self._check_last(copied)
        for lost in step.lost:
            await state.skip(side, *lost, Trouble.NEVER_ARRIVED.reason)
            self._log.warning(
                "skipped",
                topic=partition.topic,
                partition=partition.index,
                detail=f"offsets {lost[0]} to {lost[1] - 1} of the source never arrived; going on was accepted",
            )
        await write_down(state, [copied], forget=forget)
        await self._confirm()
        partition.copied, partition.before = copied, None
        return self._location(copied, source_end)

    async def _fence(self) -> tuple[Before, bool]:
        """The partition is ours, and what a predecessor may still send is refused; whether that is certain. The
        internal topic is read behind it."""
        locator, partition, there = self._locator, self._partition, self._there
        owner = await locator.own(partition)
        # The fence changes what the leader remembers; a try that failed behind it has asked before.
        before = (await look_before(there, self._log)).after(partition.before)
        if owner is not None:
            before = await noted(locator.state, partition.side, before)
        partition.before = before
        after = await locator.fence(partition, there, before)
        fenced, complete = after is not None, after is not None and after.complete
        before = partition.before = after or before
        await locator.state.load()
        ours = owner.producer_id if owner is not None and fenced else self._rules.owner
        old = others(locator.state.ledger.checkpoints(partition.side), ours)
        if old:
            after = await fence_others(there, before, old, self._log)
            fenced = fenced and after is not None
            complete = complete and after is not None and (after.complete or after is before)
            before = partition.before = after or before
            await locator.state.load()
        if not await locator.owns(partition) or self._is_fenced(owner):
            # Whatever was loaded is another's by now; an account of ours would supersede it.
            raise NotOurs(f"{self._rules.name}: another worker has taken it over")
        before = before._replace(complete=fenced and complete)
        if before.complete:
            await note(locator.state, partition.side, before)
        return before, fenced

    async def _confirm(self) -> None:
        """Behind our account: whoever takes over from here on finds it, and fences our producer id even where the
        coordinator gives another one. Whoever did so before has fenced nothing of ours."""
        if not await self._locator.owns(self._partition):
            raise NotOurs(f"{self._rules.name}: another worker has taken it over")

    def _is_fenced(self, owner: Ownership | None) -> bool:
        """Whether an account tells of a later owner, which brokers before 3.0 do not."""
        accounts = self._locator.state.ledger.checkpoints(self._partition.side)
        known = [Ownership(one.identity.producer_id, one.identity.epoch) for one in accounts]
        return owner is not None and any(one.producer_id == owner.producer_id and one > owner for one in known)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def _begin(self) -> int:
        """Where both logs start, and where the destination's ends for certain. What its leader remembers is asked
        before: an identity older than the log can only lead to a repeat, a newer one to a batch in another's place."""
        self._known = await self._there.producers()
        self._bounds = Bounds(
            *await asyncio.gather(self._here.start(), self._there.start(), barrier(self._there, self._log))
        )
        return self._bounds.end

    def _beginning(self, own: Collection[int]) -> Beginning:
        return Beginning(
            self._partition,
            self._here,
            self._there,
            self._rules,
            self._locator.state,
            self._log,
            own=own,
            bounds=self._bounds,
        )

    def _step(self, start: Start, own: Collection[int]) -> LockStep:
        return LockStep(
            self._here,
            self._there,
            source_offset=start.source,
            destination_offset=start.destination,
            source_epoch=start.source_epoch,
            identity=start.identity,
            own=own,
            committed=self._rules.committed,
            source_start=self._bounds.source_start,
            log_start=self._bounds.log_start,
            accept_gap=self._rules.accept_loss,
        )

    async def _advance(self, step: LockStep, end: int) -> int:
        """Reads on up to ``end``; how many batches of ours."""
        try:
            found = await step.advance(end)
            step.decide()
        except Differs as error:
            raise self._halt(error) from error
        return found

    def _halt(self, error: Differs) -> PartitionHalted:
        trouble = Trouble.NOT_A_COPY
        if isinstance(error, Ambiguous):
            trouble = Trouble.AMBIGUOUS
        elif isinstance(error, NeverArrived):
            trouble = Trouble.NEVER_ARRIVED
        return halt(trouble, f"{self._rules.name}: {error}")

    async def _settle(self, step: LockStep) -> None:
        """Nothing of ours must be on its way: until nothing has come for ``settle.ms``. Others may go on writing."""
        while True:
            await asyncio.sleep(self._rules.settle_s)
            if not await self._advance(step, await barrier(self._there, self._log)):
                return

    async def _count_gone(self, step: LockStep, before: Before, *, closed: bool) -> None:
        """What the destination has deleted may have been ours: nothing visible is not nothing copied. What its leader
        remembered of the producer says how much. Where it does not, there must be nothing that can have been copied.

        Args:
            step: what was seen.
            before: the destination before the fence.
            closed: nothing was sent behind the checkpoint.
        """
        end, identity = self._bounds.end, step.identity
        most = max(step.unseen(end), default=0)
        if identity is None or not most or closed:
            return
        last = before.last_sequence(identity.producer_id, identity.epoch)
        if last is not None and (before.complete or self._bounds.log_start <= before.end):
            if last < 0 and not identity.sequence:
                return
            if last >= 0:
                try:
                    await step.count(last, end)
                    step.decide()
                except Differs as error:
                    raise self._halt(error) from error
                return
        following = await step.next_of_source()
        possible = step.alignment.overtaken or (following is not None and following.length <= most)
        if not possible or self._rules.accept_loss:
            return
        raise halt(
            Trouble.CHECKPOINT_BEHIND,
            f"{self._there.name} has deleted what stood at up to {most} offsets behind what is known to be copied, up "
            f"to source offset {step.source_offset}, and its leader does not remember producer id "
            f"{identity.producer_id}, epoch {identity.epoch}",
        )

    async def _is_old(self, step: LockStep) -> bool:
        """Whether the next batch is one that brokers may forget at once, and the fence with it."""
        coming = await step.next_of_source()
        return coming is not None and coming.header.max_timestamp < self._locator.forgets_before_ms()

    async def _check_range(self, step: LockStep) -> int:
        """The source must still have what is due, and must have had what was copied. Its end."""
        name, alignment = self._rules.name, step.alignment
        if alignment.overtaken and not self._rules.accept_gap:
            passed = f", and {alignment.passed} copies have no original there any more" if alignment.passed else ""
            detail = f"{name}: the source begins at {self._bounds.source_start}, and is copied to {step.source_offset}"
            raise halt(Trouble.RETENTION_OVERTOOK, f"{detail}{passed}")
        await check_end(self._sides, step.source_offset, self._rules.settle_s)
        return await self._here.true_end()

    @property
    def _sides(self) -> Sides:
        return Sides(
            name=self._rules.name,
            here=self._here,
            there=self._there,
            source_start=self._bounds.source_start,
            log_start=self._bounds.log_start,
            compacted=self._rules.terms.compacted,
        )

    async def _check_last(self, copied: Copied) -> None:
        """What was copied last stands at the source still; its leader epoch is asked for with the next fetch."""
        last = copied.journal.last
        epoch = await check_last(self._sides, last, copied.own)
        copied.source_epoch = epoch if last is not None and last.source_end == copied.source else NO_LEADER_EPOCH

    # -- what comes of it ----------------------------------------------------------------------------------------------

    def _identity(self, step: LockStep, owner: Ownership | None) -> Identity:
        """Of the next batch: that of the fence; without one, the computed producer id, continued."""
        if owner is not None:
            return Identity(owner.producer_id, owner.epoch, 0)
        computed = self._rules.owner
        if step.identity is not None and step.identity.producer_id == computed and not self._partition.forgotten:
            return step.identity
        epochs = [state.epoch for state in self._known or () if state.producer_id == computed]
        if step.identity is not None and step.identity.producer_id == computed:
            epochs.append(step.identity.epoch)
        return Identity(computed, max(epochs, default=-1) + 1, 0)

    def _account(
        self, step: LockStep, start: Start, identity: Identity, own: frozenset[int]
    ) -> tuple[Copied, list[bytes]]:
        """This worker's account of the partition, which begins with what was found; keys of what it replaces."""
        ledger, side = self._locator.state.ledger, self._partition.side
        before, chunks = ledger.checkpoints(side), ledger.chunks(side)
        tail = open_tail(chunks)
        runs = joined(tail)
        runs.truncate(start.source)
        runs.truncate_destination(step.map[0].destination if len(step.map) else start.destination)
        runs.extend(step.map)
        orders = [one.order for one in before] + [one.order for one in chunks]
        takeover = 1 + max((order.takeover for order in orders), default=0)
        journal = Journal(
            side,
            writer=uuid.uuid4().hex[:16],
            order=Order(takeover, identity.producer_id, identity.epoch),
            since=min([start.source, *(run.source for run in runs)]),
            start=runs,
        )
        copied = Copied(
            journal=journal,
            source=step.source_offset,
            source_epoch=step.source_epoch,
            destination=max(step.destination_offset, runs.destination_end),
            identity=identity,
            own=own,
            source_id=self._here.topic.topic_id,
            destination_id=self._there.topic.topic_id,
        )
        forget = [one.key() for one in before] + [one.key() for one in tail]
        for chunk, behind in pairwise(chunks):
            if len(behind.map) and behind.map[0].destination <= self._bounds.log_start:
                forget.append(chunk.key())
        return copied, list(dict.fromkeys(forget))

    def _location(self, copied: Copied, source_end: int) -> Location:
        return Location(
            offset=copied.source,
            identity=copied.identity,
            last_epoch=copied.source_epoch,
            destination_leader=self._there.leader,
            source_leader=self._here.leader,
            source_end=source_end,
            log_start=self._bounds.log_start,
            proven=True,
            coordinator_epoch=0,
            source_start=self._bounds.source_start,
            floor=self._here.floor,
        )


def armed(identity: Identity, known: Sequence[Producer] | None) -> bool:
    """Whether the leader remembers what ``identity`` continues, so that a late repeat of anything is recognised: the
    batch before it, or the fence."""
    return any(
        (state.producer_id, state.epoch, state.last_sequence)
        == (identity.producer_id, identity.epoch, identity.sequence - 1)
        for state in known or ()
    )


async def write_down(
    state: Memory, accounts: Iterable[Copied], *, forget: Iterable[bytes] = (), closed: Collection[Copied] = ()
) -> int:
    """Writes the checkpoints and maps of these partitions, as they are now, where they have changed.

    Args:
        state: the internal topic.
        accounts: of the partitions.
        forget: keys that are no more.
        closed: accounts behind which nothing will be sent any more.

    Returns:
        Partitions written.

    Raises:
        NetworkError: not certain that they are there; they will be written again.
    """
    at_ms = round(time.time() * 1000)
    written = [
        (copied, copied.journal.unwritten(), copied.checkpoint(at_ms, closed=copied in closed))
        for copied in accounts
        if copied.changed or copied in closed
    ]
    # The map before the checkpoint: should only the first part get there, the lock-step finds the rest again.
    entries: list[Entry] = []
    for _, chunks, checkpoint in written:
        entries += [*chunks, checkpoint]
    await state.save(entries, forget=forget)
    for copied, chunks, checkpoint in written:
        copied.written(chunks, checkpoint)
    return len(written)
