"""Finds where to start reading both logs at a takeover (``offsets: mapped``).

That is the checkpoint; or the last point of the map that the destination still has; or the beginning, if nothing shows
that anything was copied, or the topics are others by now.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from mirror.net.coordinator import Ownership
from mirror.net.logs.log import PartitionLog, SourceLog
from mirror.offsetmap.compare.lockstep import is_fence, lost_from
from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.entries.chunks import MapChunk
from mirror.offsetmap.fields import id_shown, id_text, same_ids
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.internal.maps import joined_map
from mirror.offsetmap.internal.memory import Memory
from mirror.offsetmap.runs import MapError, OffsetMap, Run
from mirror.reasons import HaltReason
from mirror.records.identity import Identity
from mirror.relay.durable.pins import MAPPED
from mirror.relay.events import EventLog
from mirror.relay.halts import halt
from mirror.relay.locate.rules import ResyncRules
from mirror.relay.locate.tails import SCAN_BYTES
from mirror.relay.mapped.copied import Between
from mirror.relay.mapped.fence import Before
from mirror.relay.mapped.strays import first_own
from mirror.relay.partition.partition import Partition


class ReadingStart(NamedTuple):
    """The offsets from which both logs are read. Everything before them was copied."""

    source: int
    source_epoch: int
    """Leader epoch of the source's batch before ``source``; -1: not known."""
    destination: int
    identity: Identity | None
    """The identity of our first batch from there on; None: not known."""
    anew: bool = False
    """True if the previous map does not count any more: a new one begins here."""
    of_others: bool = False
    """True if the checkpoint is of other topics, so that nothing in it applies."""
    fresh: bool = False
    """True if there is no trace of anything that was copied."""
    remade: str = ""
    """For messages: the topics that were recreated before anything was copied, so that there is nothing to go on from.
    Otherwise empty."""


class ReadBounds(NamedTuple):
    """The start of the source's log, and the start and the certain end of the destination's log."""

    source_start: int
    log_start: int
    end: int


class Beginning:
    """Finds the start for one partition, behind the fence."""

    def __init__(
        self,
        partition: Partition,
        here: SourceLog,
        there: PartitionLog,
        rules: ResyncRules,
        state: Memory,
        log: EventLog,
        *,
        accounts: Ledger,
        own: Collection[int],
        bounds: ReadBounds,
    ) -> None:
        """
        Args:
            partition: the partition.
            here: the source's log.
            there: the destination's log.
            rules: facts about the flow.
            state: the internal topic.
            log: gets events.
            accounts: all accounts of the partition, as of when it was certainly ours.
            own: producer ids under which the partition was ever written.
            bounds: the bounds of both logs.
        """
        self._partition = partition
        self._here = here
        self._there = there
        self._rules = rules
        self._state = state
        self._log = log
        self._accounts = accounts
        self._own = own
        self._bounds = bounds

    async def find(self, before: Before, owner: Ownership | None) -> ReadingStart:
        """Returns where to begin.

        Args:
            before: what is known of the producers before the fence.
            owner: what the coordinator granted; None: nothing.

        Raises:
            PartitionHalted: a topic was recreated, a part of the map is missing, or there is a trace of copies and no
                checkpoint.
            NetworkError: a log cannot be read.
        """
        checkpoint = self._accounts.checkpoint(self._partition.subject)
        if checkpoint is None:
            fresh = await self._check_unwritten(before, owner)
            return ReadingStart(self._bounds.source_start, -1, self._bounds.end, None, fresh=fresh)
        return await self._start_from(checkpoint, before)

    async def _start_from(self, checkpoint: Checkpoint, before: Before) -> ReadingStart:
        """Returns the checkpoint's position. If the destination has lost what came before it: the last point of the map
        that the destination still has."""
        end = self._bounds.end
        others = {
            log: f"{side} topic of {self._rules.name}: id {id_shown(_id_of(log))}, at the last checkpoint "
            f"{id_shown(pinned)}"
            for side, pinned, log in (
                ("source", checkpoint.source_id, self._here),
                ("destination", checkpoint.destination_id, self._there),
            )
            if None not in (pinned, _id_of(log)) and pinned != _id_of(log)
        }
        if others:
            return await self._start_anew(others, checkpoint, before)
        try:
            chunks = self._accounts.linked(self._partition.subject, gone_to=self._bounds.log_start)
        except MapError as error:
            if self._rules.accept_loss:
                # Reading both logs gives the same result, and takes longer.
                return ReadingStart(self._bounds.source_start, -1, self._bounds.log_start, None, anew=True)
            detail = f"{self._state.topic} lacks a part of the offset map of {self._rules.name}: {error}"
            raise halt(HaltReason.MAP_LOST, detail) from error
        runs = joined_map(self._state.topic, open_tail(chunks))
        runs.truncate(checkpoint.source_offset)
        last = runs[-1] if len(runs) else None
        if not await self.lost(last):
            return ReadingStart(
                checkpoint.source_offset,
                checkpoint.source_epoch,
                min(checkpoint.destination_offset, end),
                checkpoint.identity,
            )
        start = await self._before_loss(runs, chunks)
        self._log.warning(
            "destination_lost",
            topic=self._partition.topic,
            partition=self._partition.index,
            detail=f"{self._there.name} ends at {end} or has others' batches where ours were acknowledged up to "
            f"{checkpoint.destination_offset}; source offsets from {start.source} on are compared and copied again",
        )
        return start

    async def _is_unused(self, checkpoint: Checkpoint, before: Before) -> bool:
        """Returns True if nothing was copied, neither before the checkpoint nor behind it, so that there is nothing to
        protect."""
        committed = self._partition.claim.committed
        if not checkpoint.unused or (committed is not None and committed.digest):
            return False
        topic_id = _id_of(self._there)
        same = topic_id is None or checkpoint.destination_id in (None, topic_id)
        if same and not checkpoint.closed and await self._is_gone_behind(checkpoint):
            return False  # it may have been ours
        return not await self._traces(before, checkpoint.destination_offset if same else 0)

    async def _is_gone_behind(self, checkpoint: Checkpoint) -> bool:
        """Returns True if the destination has deleted or cleaned away anything behind the checkpoint, before the fence
        that keeps out the checkpoint's writer."""
        at = checkpoint.destination_offset
        if self._bounds.log_start > at:
            return True
        while at < self._bounds.end:
            segment = await self._there.read(at, max_bytes=SCAN_BYTES)
            for header, _ in segment.batches:
                if header.base_offset > at:
                    return True
                if is_fence(header, checkpoint.identity):
                    return False
                at = header.next_offset
            if not segment.batches:
                return True
        return False

    async def _start_anew(
        self, others: Mapping[PartitionLog, str], checkpoint: Checkpoint, before: Before
    ) -> ReadingStart:
        """Returns a start from which everything that the source has is copied, behind what the destination has.

        For that, an operator must have resumed the partition, which accepts the current topics; or nothing was copied
        before. If a new destination topic has batches of ours already, they were sent before anybody noticed the
        change. They would be there twice, which resuming alone does not accept.

        Args:
            others: the logs whose topics are not the checkpoint's, each with the detail for messages.
            checkpoint: the checkpoint.
            before: what is known of the producers before the fence.

        Raises:
            PartitionHalted: nobody has accepted the topics, or batches of ours in the new destination topic.
            NetworkError: a log cannot be read.
        """
        told = "; ".join(others.values())
        start = ReadingStart(self._bounds.source_start, -1, self._bounds.end, None, anew=True, of_others=True)
        if self._rules.accept_loss:
            return start
        pin = self._partition.claim.pin
        now = _id_of(self._here), _id_of(self._there)
        if pin is None or pin.offsets != MAPPED or not same_ids((pin.source_id, pin.destination_id), now):
            if await self._is_unused(checkpoint, before):
                return start._replace(remade=told)
            raise halt(HaltReason.RECREATED, told)
        places = [Between(self._bounds.log_start, self._bounds.end)] if self._there in others else []
        first = await first_own(self._there, self._own, places)
        if first is not None:
            begun = f"{self._there.name} has batches of this flow already, from offset {first.base_offset} on"
            raise halt(HaltReason.RECREATED_BEGUN, f"{told}; {begun}")
        return start

    async def lost(self, last: Run | None) -> bool:
        """Returns True if the destination has lost the last acknowledged batch. ``last``: the map's last run."""
        return last is not None and await lost_from(self._there, last.destination_end, self._own, self._bounds.end)

    async def _before_loss(self, runs: OffsetMap, chunks: Sequence[MapChunk]) -> ReadingStart:
        """Returns the last point of the map that the destination still has. If it has none: the map's beginning at the
        source, and the start of the destination's log."""
        own, log_start, end = self._own, self._bounds.log_start, self._bounds.end
        known = [*runs, *(chunk.map[0] for chunk in chunks if chunk.sealed and len(chunk.map))]
        for run in sorted(known, reverse=True):
            gone = max(0, log_start - run.destination)
            if gone < run.length and not await lost_from(self._there, run.destination + gone + 1, own, end):
                return ReadingStart(run.source + gone, -1, run.destination + gone, None)
        return ReadingStart(min(chunk.since for chunk in chunks), -1, log_start, None)

    async def _check_unwritten(self, before: Before, owner: Ownership | None) -> bool:
        """Checks that there is no trace of copies, since there is no checkpoint. Batches of ours are a trace, in the
        log or in the leader's memory. So is the group's note of the last batch copied, if anything was ever written to
        the destination. If nobody has had the transactional id before, the log need not be read.

        Returns:
            True if there is no trace. False: an operator has accepted that there is one, or the destination that had
            the copy is gone.

        Raises:
            PartitionHalted: there is a trace (``checkpoint_lost``).
            NetworkError: the log cannot be read.
        """
        start = self._bounds.log_start if owner is None or owner.epoch > 0 else self._bounds.end
        traces = await self._traces(before, start)
        committed = self._partition.claim.committed
        noted = committed is not None and bool(committed.digest) and not self._is_copied_elsewhere()
        if committed is not None and noted and before.end:
            traces.append(
                f"{before.end} offsets, and the group at the source has offset {committed.offset} with the digest of "
                "a batch that was copied"
            )
        if traces:
            detail = f"{self._there.name} has {traces[0]}; {self._state.topic} has no checkpoint of it"
            if not self._rules.accept_loss:
                raise halt(HaltReason.CHECKPOINT_LOST, detail)
            self._log.warning(
                "begun_anew",
                topic=self._partition.topic,
                partition=self._partition.index,
                detail=f"{detail}; going on was accepted: all that the source has is copied, be it there or not",
            )
        return not traces and not noted

    async def _traces(self, before: Before, at: int) -> list[str]:
        """Returns the traces of batches of ours, as texts for messages: in the memory of the destination's leader, or
        in its log from ``at`` on."""
        ours = [each.producer_id for each in before.known or () if each.last_sequence >= 0]
        ours = [each for each in ours if each in self._own]
        at = max(at, self._bounds.log_start)
        while at < self._bounds.end and not ours:
            segment = await self._there.read(at, max_bytes=SCAN_BYTES)
            if not segment.batches:
                break
            at = segment.batches[-1][0].next_offset
            ours += [
                header.producer_id
                for header, _ in segment.batches
                if header.producer_id in self._own and not header.is_control
            ]
        return [f"batches of producer id {each}, which is this flow's" for each in ours]

    def _is_copied_elsewhere(self) -> bool:
        """Returns True if the flow has an account of this source partition in another destination topic. The group's
        note may then be about that copy (``topic.rename`` was changed)."""
        subject = self._partition.subject
        return any(
            (other.topic, other.partition) == (subject.topic, subject.partition)
            and other.destination != subject.destination
            for other in self._state.ledger.subjects
        )


def _id_of(log: PartitionLog) -> str | None:
    """Returns the id of the log's topic, as the internal topic has it; None: it has none."""
    return id_text(log.topic.topic_id)


def open_tail(chunks: Sequence[MapChunk]) -> list[MapChunk]:
    """Returns the chunks behind the last sealed one, in order."""
    sealed = max((at for at, chunk in enumerate(chunks) if chunk.sealed), default=-1)
    return list(chunks[sealed + 1 :])
