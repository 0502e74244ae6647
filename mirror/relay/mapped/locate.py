"""Locates a partition with ``offsets: mapped``: takes it over, and reads both logs from the checkpoint on.

Read it beside ``relay.locate.resync``, which does the same for exact mode. There, the log end says everything. Here,
others write to the log as well. So a checkpoint says what was copied last. What the flow has written since then is
found by its producer ids, and compared with the source batch by batch.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import Any

from mirror.net.coordinator import Ownership
from mirror.net.errors import Unreachable
from mirror.net.logs.log import PartitionLog, Producer, SourceLog
from mirror.offsetmap.compare.lockstep import LockStep
from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.entries.chunks import MapChunk, Order
from mirror.offsetmap.internal.maps import joined_map
from mirror.offsetmap.internal.memory import Memory
from mirror.reasons import HaltReason
from mirror.records.header import NO_LEADER_EPOCH
from mirror.records.identity import Identity
from mirror.relay.durable.flows import has_map
from mirror.relay.durable.pins import LEVEL, settings_changed
from mirror.relay.durable.skips import DELETED, NEVER_ARRIVED, ON_GAP, UNPROVEN
from mirror.relay.durable.starts import check_kept
from mirror.relay.halts import PartitionHalted, halt
from mirror.relay.holes.gaps import gap_behind
from mirror.relay.locate.holding import batch_holding
from mirror.relay.locate.position import Locator
from mirror.relay.locate.resync import barrier
from mirror.relay.locate.rules import Rest, ResyncRules
from mirror.relay.mapped.beginning import Beginning, ReadingStart, open_tail
from mirror.relay.mapped.copied import Between, CopiedRuns, OpenMap, write_down
from mirror.relay.mapped.fence import look_before
from mirror.relay.mapped.reading import Reading
from mirror.relay.mapped.strays import first_own
from mirror.relay.mapped.takeover import Takeover
from mirror.relay.outcome import END_MOVED, Moved, NotOurs
from mirror.relay.partition.location import Location
from mirror.relay.partition.partition import Partition
from mirror.relay.topics.recreated import made_anew

LOOKS = 5
"""Looks in a row at a partition while the beginning of its copy (``start.from``) is being decided. Usually, the second
look knows it."""


class MappedLocator(Locator):
    """Locates partitions of a flow with ``offsets: mapped``. What it learns of a partition is in ``Queue.copied``."""

    def __init__(self, *, state: Memory, write_soon: Callable[[], None], **rest: Any) -> None:
        """
        Args:
            state: the internal topic.
            write_soon: has everything that is yet to be written to the internal topic written now.
            rest: see ``Locator``.
        """
        super().__init__(**rest)
        self.state = state
        self._write_soon = write_soon
        self.due = self._pins.due
        self.skips = self._pins.skips
        self.settings = self._settings
        self.isolation_level = self._settings.isolation_level

    async def locate(self, partition: Partition, *, takeover: bool, rest: Rest = asyncio.sleep) -> Location:
        """See ``Locator``.

        Raises:
            NotOurs: another worker has taken it over since we did.
            PartitionHalted: as for ``Locator``; also if a flow with another id has copied it before.
        """
        del rest  # the seat is kept while it waits: it holds batches of both logs, which only a few may do at a time
        if takeover:
            # The previous ownership may be another worker's by now. Until the partition is ours again, a halt is about
            # the topics themselves.
            partition.claim.own(None)
        try:
            for _ in range(LOOKS):
                location = await self._look(partition, takeover=takeover)
                if location is not None:
                    return location
            raise Unreachable(f"{partition.name}: where the copy begins changes with each look at the source")
        except PartitionHalted as stop:
            # To a worker that does not know of a new owner, that owner's batches look wrong. Only the owner may judge.
            if not await self.owners.owns(partition):
                raise NotOurs(partition.name) from stop
            raise

    async def _look(self, partition: Partition, *, takeover: bool) -> Location | None:
        """Locates the partition. Returns None if the beginning of the copy was decided or has changed meanwhile: then
        everything has to be looked at again."""
        self._forget_topics(partition)
        here, there = self.logs(partition)
        await self._pins.check_settings(partition, there)
        look = _Look(self, partition, here, there, self.rules(partition))
        if not takeover and partition.queue.copied is not None and not partition.claim.forgotten:
            if not await self.owners.owns(partition):
                raise NotOurs(partition.name)
            self._check_written(partition.queue.copied)
            location = await look.again(partition.queue.copied)
            if location is not None:
                return location
        if not has_map(self.state.ledger, partition.subject):
            await self.flows.check_new(partition)
        return await look.anew()

    def _check_written(self, copied: CopiedRuns) -> None:
        """Checks that not more of the map waits to be written than memory should hold. The map is not written here,
        because ranges that others took, and ranges that were passed over, have to be dealt with first
        (``relay.durable.writer``).

        Raises:
            Unreachable: too much waits.
        """
        if copied.open_map.overflows and not copied.astray:
            self._write_soon()
            raise Unreachable(f"{copied.open_map.subject.name}: {self.state.topic} has yet to take its offset map")

    def _forget_topics(self, partition: Partition) -> None:
        """Forgets the topics if one was recreated and this process knows of nothing that it has copied. The internal
        topic and the destination's log show then whether anything was copied (``relay.mapped.beginning``)."""
        copied = partition.queue.copied
        if partition.counts.batches or (copied is not None and copied.open_map.last is not None):
            return
        if made_anew(partition, self._source, self._destination):
            partition.claim.identify(None, None)
            partition.queue.keep_account(None)
            partition.cursor.forget_source()

    async def check_unmoved(self, partition: Partition) -> None:
        """See ``Locator``. Here, the end may move, but not by a batch of ours."""
        _, there = self.logs(partition)
        if not await self.owners.owns(partition):
            raise NotOurs(partition.name)
        copied = partition.queue.copied
        assert copied is not None, partition.name
        start, end = await asyncio.gather(there.start(), barrier(there, self.log))
        offset = copied.destination
        if start > offset:
            detail = f"{there.name} has deleted what stood behind the last batch acknowledged, from {offset} on"
            raise Moved(END_MOVED, detail)
        if end < offset:
            raise Moved(END_MOVED, f"{there.name} ends at {end}, and has lost copies up to {offset}")
        stray = await first_own(there, copied.own, [Between(max(offset, copied.looked), end)])
        if stray is not None:
            detail = f"{there.name} has a batch of this flow at {stray.base_offset} that was not acknowledged"
            raise Moved(END_MOVED, detail)
        copied.looked = end

    def check_level(self, partition: Partition, there: PartitionLog, before: str) -> None:
        """Checks that copies that no map has yet were made under the current isolation level, or that an operator
        accepts it.

        Args:
            partition: the partition.
            there: the destination's log.
            before: the level under which they were made; empty: not known.

        Raises:
            PartitionHalted: the level has changed.
        """
        now = self._settings.isolation_level
        if before not in ("", now) and not partition.claim.accept_settings:
            raise settings_changed(partition, there, LEVEL, before, now)


class _Look:
    """One look at both logs of a partition."""

    def __init__(
        self, locator: MappedLocator, partition: Partition, here: SourceLog, there: PartitionLog, rules: ResyncRules
    ) -> None:
        self._locator = locator
        self._partition = partition
        self._here = here
        self._there = there
        self._rules = rules
        self._log = locator.log
        self._takeover = Takeover(locator.owners, locator.state, partition, there, rules.owner, locator.log)
        self._reading = Reading(partition, here, there, rules, locator.log)

    async def again(self, copied: CopiedRuns) -> Location | None:
        """Locates the partition after a doubt, if it was ours all the time: reads on from what was acknowledged.
        Returns None if the partition has to be taken over again, because the destination has lost some of that, or has
        a stray batch.

        Raises:
            NotOurs: another worker has fenced us, or has written to the log.
            PartitionHalted: the logs contradict each other, or what was copied.
            NetworkError: cannot be determined now.
        """
        if copied.astray:
            return None
        before = await look_before(self._there, self._log)
        if any(
            state.producer_id == copied.identity.producer_id and state.epoch > copied.identity.epoch
            for state in before.known or ()
        ):
            raise NotOurs(self._rules.name, "has fenced it")
        reading = self._reading
        end = await reading.begin()
        if await self._beginning(copied.own).lost(copied.open_map.last):
            return None
        start = ReadingStart(copied.source, copied.source_epoch, copied.destination, copied.identity)
        if copied.open_map.last is None:
            await self._check_start(self._locator.state.ledger.chunks(self._partition.subject))
        await reading.check_end(copied.source)
        step = reading.follow(start, copied.own, noted=copied.note(), checkpoint=None)
        await reading.advance(step, end)
        identity = self._still_ours(step, copied)
        if self._partition.claim.unsettled or not armed(identity, reading.known) or await self._is_old(step):
            await reading.settle(step)
            self._still_ours(step, copied)
        if (gone := step.gone_to(reading.bounds.end)) > before.end:
            # The leader was asked before these batches were gone, and nothing was fenced. The next look asks again.
            raise Unreachable(f"{self._there.name}: what stood before {gone} has gone while it was looked at")
        await reading.count_gone(step, before, closed=False)
        source_end = await reading.check_range(step)
        assert step.identity is not None
        last = step.map[-1] if len(step.map) else copied.open_map.last
        checked = await reading.check_copied(step, last, copied.own, copied.note())
        copied.found(step.map, step.source_offset, checked.source_epoch, step.identity, step.destination_offset)
        copied.last = checked.copied
        return await self._location(copied, source_end)

    def _still_ours(self, step: LockStep, copied: CopiedRuns) -> Identity:
        """Returns the next identity, after checking that it continues our own batches. If another owner came while both
        logs were read, it would continue that owner's, and that owner's fence does not keep out a worker that uses its
        identity.

        Raises:
            NotOurs: another owner has written to the log.
        """
        identity, ours = step.identity, copied.identity
        assert identity is not None
        if (identity.producer_id, identity.epoch) != (ours.producer_id, ours.epoch):
            raise NotOurs(self._rules.name, f"has written to {self._there.name}")
        return identity

    async def anew(self) -> Location | None:
        """Locates the partition at a takeover: fences it, then goes on from what is written down. The beginning is
        written down before anything is produced, so that whatever is found there later has a checkpoint before it.

        Returns:
            None if the copy is to begin later than the source (``start.from``), and that was decided meanwhile.

        Raises:
            NotOurs: another worker has taken the partition over.
            PartitionHalted: the logs contradict each other, or what was written down.
            NetworkError: cannot be determined or written now.
        """
        partition, state, reading = self._partition, self._locator.state, self._reading
        before, fenced = await self._takeover.fence()
        accounts = self._takeover.accounts
        owner = partition.claim.ownership
        subject = partition.subject
        known = checkpoint = accounts.checkpoint(subject)
        own = {self._rules.owner, *accounts.own(subject), *([owner.producer_id] if owner is not None else ())}
        end = await reading.begin()
        start = await self._beginning(own).find(before, owner)
        if not await self._is_decided(start):
            return None
        if start.of_others:
            checkpoint = None
        remade = checkpoint if start.anew else None
        await reading.check_end(start.source)
        noted = checkpoint.copied if checkpoint is not None else None
        partition.cursor.forget_read()
        step = reading.follow(start, own, noted=noted, checkpoint=known, remaking=remade is not None)
        await reading.advance(step, end)
        level = checkpoint.isolation_level if checkpoint is not None else ""
        if step.copies:
            self._locator.check_level(partition, self._there, level)
        if (
            not fenced
            or partition.claim.unsettled
            or not armed(self._identity(step, owner), reading.known)
            or await self._is_old(step)
        ):
            await reading.settle(step)
        if checkpoint is not None:
            await reading.count_gone(step, before, closed=checkpoint.closed and not step.copies)
        identity = self._identity(step, owner)
        source_end = await reading.check_range(step)
        await self._check_remade(step, start, remade)
        copied, forget = self._account(step, start, identity, frozenset(own | {identity.producer_id}))
        checked = await reading.check_copied(step, copied.open_map.last, copied.own, noted)
        copied.source_epoch, copied.last = checked
        if partition.claim.trusted is not None:
            await self._locator.skips.write(subject, [(*partition.claim.trusted, UNPROVEN)])
        for lost in step.lost:
            await self._locator.skips.write(subject, [(*lost, NEVER_ARRIVED)])
        if checkpoint is None and not step.copies:
            await self._locator.due.overtaken(partition, start.source)
        await write_down(state, [copied])
        if not has_map(accounts, subject):
            # Another flow may have begun at the same moment: each writes its own first entry and looks then.
            await self._locator.flows.check_new(partition, begun=True)
        await self._takeover.confirm()
        given_up = await self._go_over_gap(copied)
        copied.confirmed = True
        # The accounts that it replaces are removed only now, because an account that is not confirmed may not count.
        await write_down(state, [copied], forget=forget)
        partition.queue.keep_account(copied)
        partition.claim.remember_before(None)
        if start.remade:
            detail = f"{start.remade}; nothing of it was copied, so the copy begins again"
            self._log.warning("begun_anew", topic=partition.topic, partition=partition.index, detail=detail)
        if partition.claim.accept_settings and level not in ("", copied.isolation_level):
            self._locator.tell_level(partition, level, copied.source)
        return (await self._location(copied, source_end))._replace(accepted=given_up)

    async def _is_decided(self, start: ReadingStart) -> bool:
        """Decides where the copy begins, if nothing of the partition was ever copied. If the copy begins again in a
        recreated topic, all brokers have to know of that topic.

        Returns:
            False if this look did not begin there: the beginning was decided just now, or by a predecessor before it
            was fenced; or the source has deleted something meanwhile, of which the look knows only a part.
        """
        starts, partition, begins, floor = self._locator.starts, self._partition, self._here.begins, self._here.floor
        if start.remade:
            await self._locator.check_ids(partition)
        if start.fresh and starts.wanted:
            await starts.decide(partition, self._here)
        if (starts.begins(partition), self._here.floor) != (begins, floor):
            return False
        await self._check_start(self._takeover.accounts.chunks(partition.subject))
        return True

    async def _check_start(self, chunks: Sequence[MapChunk]) -> None:
        """Checks, as long as nothing is copied, that the source has not lost its end from before the copy's beginning.

        Raises:
            PartitionHalted: it has.
            NetworkError: cannot be determined now.
        """
        if not any(len(chunk.map) for chunk in chunks):
            starting = self._locator.starts.known(self._partition)
            await check_kept(self._partition, self._here, starting, self._rules.settle_s)

    async def _check_remade(self, step: LockStep, start: ReadingStart, checkpoint: Checkpoint | None) -> None:
        """Checks a map that was lost and is rebuilt from where both logs begin. It has to reach the checkpoint, since
        everything before that was copied. Records that the source has deleted from the checkpoint on are recorded as
        skipped.

        Args:
            step: the lock-step, with everything that was seen.
            start: where it began.
            checkpoint: the checkpoint; None: the map was not lost.

        Raises:
            PartitionHalted: the rebuilt map does not reach the checkpoint.
        """
        if checkpoint is None:
            return
        due, coming = checkpoint.source_offset, await step.next_of_source()
        # Between the last copy and the checkpoint there may be markers and aborted data.
        if coming is not None and max(coming.header.base_offset, step.source_offset) < due:
            raise halt(
                HaltReason.MAP_LOST,
                f"{self._rules.name} was copied up to source offset {due}, and from where both logs begin, the map can "
                f"be rebuilt only up to {coming.header.base_offset}: what is behind that would be there twice",
            )
        if due < start.source:
            lost = due, start.source
            await self._locator.skips.write(self._partition.subject, [(*lost, DELETED)])
            self._partition.claim.overtaken.append(lost)

    async def _go_over_gap(self, copied: CopiedRuns) -> tuple[int, int] | None:
        """Passes over a gap without a cause before the next batch that is copied, if an operator has accepted it, this
        once. The gap is written down as skipped, and with the checkpoint that follows. Returns the gap, or None."""
        partition, source_start = self._partition, self._reading.bounds.source_start
        if not partition.claim.accept_gap or self._rules.terms.compacted or copied.source < source_start:
            return None
        gap = await gap_behind(self._here, copied.source, self._rules.name, self._locator.settings)
        if gap is not None:
            await self._locator.skips.write(partition.subject, [(*gap, ON_GAP)])
            copied.source, copied.source_epoch = gap[1], NO_LEADER_EPOCH
        return gap

    def _beginning(self, own: Collection[int]) -> Beginning:
        return Beginning(
            self._partition,
            self._here,
            self._there,
            self._rules,
            self._locator.state,
            self._log,
            accounts=self._takeover.accounts,
            own=own,
            bounds=self._reading.bounds,
        )

    async def _is_old(self, step: LockStep) -> bool:
        """Returns True if the next batch is so old that brokers may forget it at once, and the fence with it."""
        coming = await step.next_of_source()
        return coming is not None and coming.header.max_timestamp < self._locator.forgets_before_ms()

    # -- what comes of it ----------------------------------------------------------------------------------------------

    def _identity(self, step: LockStep, owner: Ownership | None) -> Identity:
        """Returns the identity of the next batch. It is the fence's; without a fence, it has the computed producer id,
        and continues that id's batches."""
        if owner is not None:
            return Identity(owner.producer_id, owner.epoch, 0)
        computed = self._rules.owner
        if step.identity is not None and step.identity.producer_id == computed and not self._partition.claim.forgotten:
            return step.identity
        epochs = [state.epoch for state in self._reading.known or () if state.producer_id == computed]
        if step.identity is not None and step.identity.producer_id == computed:
            epochs.append(step.identity.epoch)
        return Identity(computed, max(epochs, default=-1) + 1, 0)

    def _account(
        self, step: LockStep, start: ReadingStart, identity: Identity, own: frozenset[int]
    ) -> tuple[CopiedRuns, list[bytes]]:
        """Returns this worker's account of the partition, which begins with what was found, and the keys of the entries
        that it replaces."""
        ledger, subject = self._takeover.accounts, self._partition.subject
        before, chunks = ledger.checkpoints(subject), ledger.chunks(subject)
        kept = ledger.linked(subject, gone_to=self._reading.bounds.log_start) if before and not start.anew else []
        tail = open_tail(kept)
        runs = joined_map(self._locator.state.topic, tail)
        runs.truncate(start.source)
        runs.truncate_destination(step.map[0].destination if len(step.map) else start.destination)
        runs.extend(step.map)
        orders = [one.order for one in before] + [one.order for one in chunks]
        takeover = 1 + max((order.takeover for order in orders), default=0)
        open_map = OpenMap(
            subject,
            writer=uuid.uuid4().hex[:16],
            order=Order(takeover, identity.producer_id, identity.epoch),
            since=min([start.source, *(run.source for run in runs)]),
            start=runs,
            follows=kept[-len(tail) - 1].id if len(kept) > len(tail) else None,
            gone_to=max([self._reading.bounds.log_start, *(chunk.gone_to for chunk in kept)]),
        )
        copied = CopiedRuns(
            open_map=open_map,
            source=step.source_offset,
            source_epoch=step.source_epoch,
            destination=max(step.destination_offset, runs.destination_end),
            identity=identity,
            own=own,
            source_id=self._here.topic.topic_id,
            destination_id=self._there.topic.topic_id,
            marks=self._partition.cursor.marks,
            isolation_level=self._locator.isolation_level,
            unused=self._is_unused(step, start),
        )
        needed = {one.id for one in kept[: len(kept) - len(tail)]}
        rest = [one for one in [*chunks, *ledger.void(subject)] if one.id not in needed]
        forget = [one.key() for one in before] + [one.key() for one in rest]
        halted = self._locator.due.note(self._partition)
        if halted is not None and halted.copied.offset < step.source_offset:
            forget.append(halted.key())
        return copied, list(dict.fromkeys(forget))

    def _is_unused(self, step: LockStep, start: ReadingStart) -> bool:
        """Returns True if nothing was ever copied, neither by what is written down, nor by what was found behind that.
        If copies are gone from the destination, the position has moved, which shows them, too."""
        checkpoint = self._takeover.accounts.checkpoint(self._partition.subject)
        before = checkpoint is None or bool(start.remade) or checkpoint.unused
        return before and not step.copies and step.source_offset == start.source and not self._rules.accept_loss

    async def _location(self, copied: CopiedRuns, source_end: int) -> Location:
        return Location(
            offset=copied.source,
            identity=copied.identity,
            last_epoch=copied.source_epoch,
            destination_leader=self._there.leader,
            source_leader=self._here.leader,
            source_end=source_end,
            log_start=self._reading.bounds.log_start,
            proven=True,
            coordinator_epoch=0,
            source_start=self._reading.bounds.source_start,
            inside=await batch_holding(
                self._here,
                self._rules.terms,
                copied.source,
                source_start=self._reading.bounds.source_start,
                source_end=source_end,
                starting=self._rules.starting,
            ),
            floor=self._here.floor,
            ended_at=self._reading.ended_at,
            settled_at=0.0 if self._reading.settled else time.monotonic() + self._rules.settle_s,
        )


def armed(identity: Identity, known: Sequence[Producer] | None) -> bool:
    """Returns True if the leader remembers what ``identity`` continues (the batch before it, or the fence), so that any
    late repeat is recognised."""
    return any(
        (state.producer_id, state.epoch, state.last_sequence)
        == (identity.producer_id, identity.epoch, identity.sequence - 1)
        for state in known or ()
    )
