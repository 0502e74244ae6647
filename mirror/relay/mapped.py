"""Where a partition of ``offsets: mapped`` goes on: the fence, the checkpoint, both logs read in lock-step behind it.

Design section 4, "mapped resync". Read it beside ``relay.resync``, which is the same for exact mode. There the log end
says everything; here others write to the log as well, so what was copied last stands in a checkpoint, and what the flow
wrote since then is found by its producer ids and compared with the source, batch by batch.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from mirror.net.coordinator import Ownership
from mirror.net.errors import NetworkError, Refused, Unreachable
from mirror.net.lockstep import Differs, LockStep, lost_from
from mirror.net.log import PartitionLog, Producer, SourceLog
from mirror.net.state import State
from mirror.records.identity import Identity
from mirror.records.mapping import OffsetMap, Run
from mirror.records.state import Checkpoint, Chunk, Entry, Order, joined
from mirror.relay.fill import NOT_PERMITTED
from mirror.relay.halts import Trouble, halt
from mirror.relay.journal import Copied, Journal
from mirror.relay.partition import Location, Partition
from mirror.relay.position import Locator, transactional_id
from mirror.relay.resync import POLL_S, READ_BYTES, Rules, barrier

MARKER_WAIT_S = 30.0
"""The coordinator writes the fence's marker soon after it has answered; longer than a leader takes to be replaced."""
SCAN_BYTES = 4 << 20
"""Read at once where only headers are looked at."""


class NotOurs(NetworkError):
    """Another worker has taken the partition over: it is left to it for a while."""

    slug = "not_owner"


class Start(NamedTuple):
    """From where both logs are read: what lies before was copied."""

    source: int
    source_epoch: int
    destination: int
    identity: Identity | None
    """Of the first batch of ours from there on, if that is known."""


class MappedLocator(Locator):
    """Seeks positions in a flow with ``offsets: mapped``; what it learns of a partition is in ``Partition.copied``."""

    def __init__(self, *, state: State, forgets_before_ms: Callable[[], float], **rest: Any) -> None:
        """``forgets_before_ms``: see ``relay.source.SourceOwner``; the rest: see ``Locator``."""
        super().__init__(**rest)
        self.state = state
        self.forgets_before_ms = forgets_before_ms

    async def locate(self, partition: Partition, *, takeover: bool) -> Location:
        """See ``Locator``.

        Raises:
            NotOurs: somebody else has taken it over since we did.
        """
        here, there = self.logs(partition)
        look = _Look(self, partition, here, there, self.rules(partition))
        if not takeover and partition.copied is not None and not partition.forgotten:
            if not await self.owns(partition):
                raise NotOurs(f"{partition.name}: another worker has taken it over")
            location = await look.again(partition.copied)
            if location is not None:
                return location
        owner = partition.ownership = await self._fence(partition, there)
        return await look.anew(owner)

    async def moved(self, partition: Partition) -> str:
        """See ``Locator``: here the end may move, but not by a batch of ours."""
        _, there = self.logs(partition)
        if not await self.owns(partition):
            return "another worker has taken the partition over"
        copied = partition.copied
        assert copied is not None, partition.name
        offset, end = copied.destination, await barrier(there, self.log)
        while offset < end:
            segment = await there.read(offset, max_bytes=SCAN_BYTES)
            if not segment.batches:
                break
            for header, _ in segment.batches:
                offset = header.next_offset
                if header.producer_id in copied.own and not header.is_control:
                    return f"{there.name} has a batch of this flow at {header.base_offset} that was not acknowledged"
        return ""

    # -- the fence -----------------------------------------------------------------------------------------------------

    async def _fence(self, partition: Partition, there: PartitionLog) -> Ownership | None:
        """Takes the partition over, and has a marker written under the new epoch: from then on the destination's
        leader refuses whatever a predecessor may still send. None where transactional ids are not to be had."""
        owner = await self._own(partition)
        if owner is None:
            return None
        before = await there.true_end()
        name = transactional_id(self._settings.flow, partition)
        try:
            await self.coordinator.abort_empty(name, owner, there.topic.name, there.index)
        except Refused as error:
            if error.code in NOT_PERMITTED:
                return None
            raise
        await _until_marked(there, owner, before)
        return owner


async def _until_marked(there: PartitionLog, owner: Ownership, offset: int) -> None:
    """Waits until the owner's marker stands in the log, replicated, at ``offset`` or behind."""
    give_up_at = time.monotonic() + MARKER_WAIT_S
    while time.monotonic() < give_up_at:
        segment = await there.read(offset, max_bytes=READ_BYTES)
        for header, _ in segment.batches:
            if header.is_control and (header.producer_id, header.producer_epoch) == owner:
                return
            offset = header.next_offset
        if not segment.batches:
            await asyncio.sleep(POLL_S)
    raise Unreachable(f"{there.name}: the marker of producer id {owner.producer_id}, epoch {owner.epoch} did not come")


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
        self._source_start = self._log_start = 0
        self._known: Sequence[Producer] | None = None

    # -- the two ways --------------------------------------------------------------------------------------------------

    async def again(self, copied: Copied) -> Location | None:
        """After doubt, while the partition is ours all the time: on from what was acknowledged. None: it has to be
        taken over anew, because the destination lost some of that."""
        end = await self._begin()
        if await self._lost(copied.journal.last, copied.own, end):
            return None
        start = Start(copied.source, copied.source_epoch, copied.destination, copied.identity)
        step = self._step(start, copied.own)
        await self._advance(step, end)
        identity = step.identity
        assert identity is not None
        if (identity.producer_id, identity.epoch) != (copied.identity.producer_id, copied.identity.epoch):
            raise NotOurs(f"{self._rules.name}: another worker has written to {self._there.name}")
        if self._partition.unsettled or not armed(identity, self._known) or await self._is_old(step):
            await self._settle(step)
        source_end = await self._check_range(step)
        assert step.identity is not None
        copied.found(step.map, step.source_offset, step.source_epoch, step.identity)
        return self._location(copied, source_end)

    async def anew(self, owner: Ownership | None) -> Location:
        """At a takeover, behind the fence: on from what was written down. Writes down where it begins before anything
        is produced, so that whatever is found there later has a checkpoint before it."""
        await self._locator.state.load()
        ledger, side = self._locator.state.ledger, self._partition.side
        checkpoint = ledger.checkpoint(side)
        own = {self._rules.owner, *(known.identity.producer_id for known in ledger.checkpoints(side))}
        fenced = owner is not None and (checkpoint is None or owner.producer_id in own)
        if owner is not None:
            own.add(owner.producer_id)
        end = await self._begin()
        chunks = ledger.chunks(side)
        if checkpoint is None:
            await self._check_unwritten(own, owner, end)
            start = Start(self._source_start, -1, end, None)
        else:
            start = await self._start_from(checkpoint, chunks, own, end)
        step = self._step(start, own)
        await self._advance(step, end)
        if (
            not fenced
            or self._partition.unsettled
            or not armed(self._identity(step, owner), self._known)
            or await self._is_old(step)
        ):
            await self._settle(step)
        identity = self._identity(step, owner)
        source_end = await self._check_range(step)
        copied, forget = self._account(step, start, identity, chunks, frozenset(own | {identity.producer_id}))
        await write_down(self._locator.state, [copied], forget=forget)
        self._partition.copied = copied
        return self._location(copied, source_end)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def _begin(self) -> int:
        """Where both logs start, and where the destination's ends for certain. What its leader remembers is asked
        before: an identity older than the log can only lead to a repeat, a newer one to a batch in another's place."""
        self._known = await self._there.producers()
        self._source_start, self._log_start, end = await asyncio.gather(
            self._here.start(), self._there.start(), barrier(self._there, self._log)
        )
        return end

    def _step(self, start: Start, own: Collection[int]) -> LockStep:
        return LockStep(
            self._here,
            self._there,
            source_offset=start.source,
            destination_offset=max(start.destination, self._log_start),
            source_epoch=start.source_epoch,
            identity=start.identity,
            own=own,
            committed=self._rules.committed,
            source_start=self._source_start,
        )

    async def _advance(self, step: LockStep, end: int) -> int:
        try:
            return await step.advance(end)
        except Differs as error:
            raise halt(Trouble.NOT_A_COPY, f"{self._rules.name}: {error}") from error

    async def _settle(self, step: LockStep) -> None:
        """Nothing of ours must be on its way: until nothing has come for ``settle.ms``. Others may go on writing."""
        while True:
            await asyncio.sleep(self._rules.settle_s)
            if not await self._advance(step, await barrier(self._there, self._log)):
                return

    async def _is_old(self, step: LockStep) -> bool:
        """Whether the next batch is one that brokers may forget at once, and the fence with it."""
        coming = await step.next_of_source()
        return coming is not None and coming.header.max_timestamp < self._locator.forgets_before_ms()

    async def _lost(self, last: Run | None, own: Collection[int], end: int) -> bool:
        """Whether the destination has lost what was acknowledged last."""
        return last is not None and await lost_from(self._there, last.destination_end, own, end)

    async def _check_range(self, step: LockStep) -> int:
        """The source must still have what is due, and must have had what was copied. Its end."""
        name = self._rules.name
        if step.overtaken and not self._rules.accept_gap:
            passed = f", and {step.passed} copies have no original there any more" if step.passed else ""
            detail = f"{name}: the source begins at {self._source_start}, behind what was copied last{passed}"
            raise halt(Trouble.RETENTION_OVERTOOK, detail)
        source_end = await self._here.true_end()
        if source_end < step.source_offset:
            # Once may be a leader that is still catching up; twice is a source that never had these records.
            await asyncio.sleep(self._rules.settle_s)
            source_end = await self._here.true_end()
            if source_end < step.source_offset:
                detail = f"{name}: copied up to offset {step.source_offset}, and the source ends at {source_end}"
                raise halt(Trouble.NOT_A_COPY, detail)
        return source_end

    # -- from where ----------------------------------------------------------------------------------------------------

    async def _start_from(
        self, checkpoint: Checkpoint, chunks: Sequence[Chunk], own: Collection[int], end: int
    ) -> Start:
        """The checkpoint; where the destination lost what came before it, the last point of the map that it still
        has."""
        for pinned, log, side in (
            (checkpoint.source_id, self._here, "source"),
            (checkpoint.destination_id, self._there, "destination"),
        ):
            topic_id = log.topic.topic_id.hex() if log.topic.topic_id else None
            if pinned and topic_id and pinned != topic_id:
                if self._rules.accept_gap:
                    return Start(self._source_start, -1, end, None)
                detail = f"{side} topic of {self._rules.name}: id {topic_id}, at the last checkpoint {pinned}"
                raise halt(Trouble.RECREATED, detail)
        runs = joined(_open_tail(chunks))
        runs.truncate(checkpoint.source_offset)
        last = runs[-1] if len(runs) else None
        if not await self._lost(last, own, end):
            return Start(
                checkpoint.source_offset,
                checkpoint.source_epoch,
                min(checkpoint.destination_offset, end),
                checkpoint.identity,
            )
        start = await self._before_loss(runs, chunks, own, end)
        self._log.warning(
            "destination_lost",
            topic=self._partition.topic,
            partition=self._partition.index,
            detail=f"{self._there.name} ends at {end} or has others' batches where ours were acknowledged up to "
            f"{checkpoint.destination_offset}; source offsets from {start.source} on are compared and copied again",
        )
        return start

    async def _before_loss(self, runs: OffsetMap, chunks: Sequence[Chunk], own: Collection[int], end: int) -> Start:
        known = [*runs, *(chunk.map[0] for chunk in chunks if chunk.sealed and len(chunk.map))]
        for run in sorted(known, reverse=True):
            gone = max(0, self._log_start - run.destination)
            if gone < run.length and not await lost_from(self._there, run.destination + gone + 1, own, end):
                return Start(run.source + gone, -1, run.destination + gone, None)
        return Start(min(chunk.since for chunk in chunks), -1, self._log_start, None)

    async def _check_unwritten(self, own: Collection[int], owner: Ownership | None, end: int) -> None:
        """There is no checkpoint: then there must be nothing of ours. A transactional id that nobody has had before
        proves it; else all of the log is looked at."""
        ours = [state for state in self._known or () if state.producer_id in own and state.last_sequence >= 0]
        at = self._log_start if owner is None or owner.epoch > 0 else end
        while at < end and not ours:
            segment = await self._there.read(at, max_bytes=SCAN_BYTES)
            if not segment.batches:
                break
            for header, _ in segment.batches:
                at = header.next_offset
                if header.producer_id in own and not header.is_control:
                    ours.append(Producer(header.producer_id, header.producer_epoch, header.last_sequence))
                    break
        if ours:
            detail = f"{self._there.name} has batches of producer id {ours[0].producer_id}, which is this flow's"
            raise halt(Trouble.CHECKPOINT_LOST, f"{detail}; {self._locator.state.topic} has no checkpoint of it")

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
        self, step: LockStep, start: Start, identity: Identity, chunks: Sequence[Chunk], own: frozenset[int]
    ) -> tuple[Copied, list[bytes]]:
        """This worker's account of the partition, which begins with what was found; keys of what it replaces."""
        ledger, side = self._locator.state.ledger, self._partition.side
        before = ledger.checkpoints(side)
        tail = _open_tail(chunks)
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
            destination=max(start.destination, runs.destination_end),
            identity=identity,
            own=own,
            source_id=self._here.topic.topic_id,
            destination_id=self._there.topic.topic_id,
        )
        forget = [one.key() for one in before] + [one.key() for one in tail]
        for chunk, behind in pairwise(chunks):
            if len(behind.map) and behind.map[0].destination <= self._log_start:
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
            log_start=self._log_start,
            proven=True,
            coordinator_epoch=0,
            source_start=self._source_start,
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


def _open_tail(chunks: Sequence[Chunk]) -> list[Chunk]:
    """The chunks behind the last sealed one, in order."""
    sealed = max((at for at, chunk in enumerate(chunks) if chunk.sealed), default=-1)
    return list(chunks[sealed + 1 :])


async def write_down(state: State, accounts: Iterable[Copied], *, forget: Iterable[bytes] = ()) -> int:
    """Writes the checkpoints and maps of these partitions, as they are now, where they have changed.

    Returns:
        Partitions written.

    Raises:
        NetworkError: not certain that they are there; they will be written again.
    """
    at_ms = round(time.time() * 1000)
    written = [(copied, copied.journal.unwritten(), copied.checkpoint(at_ms)) for copied in accounts if copied.changed]
    # The map before the checkpoint: should only the first part get there, the lock-step finds the rest again.
    entries: list[Entry] = []
    for _, chunks, checkpoint in written:
        entries += [*chunks, checkpoint]
    await state.save(entries, forget=forget)
    for copied, chunks, checkpoint in written:
        copied.written(chunks, checkpoint)
    return len(written)
