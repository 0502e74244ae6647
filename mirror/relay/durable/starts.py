"""Decides where the copy of a partition begins if it is not to begin where the source does (``start.from``), once, and
keeps that in the internal topic.

From then on, the source's log looks as if it began there (``net.logs.log.SourceLog.begins``), like a log whose earlier
records were deleted (DeleteRecords). With exact offsets, the destination's log begins at the same offset
(``relay.leading``). A batch that holds the offset is copied from that offset on (``relay.hot.deep``).

This is decided only for a partition of which nothing was ever copied. If that is not certain, its copy begins where the
source does: that may copy too much, but never too little.

Two workers may decide at the same time, and a worker that was stopped may write its decision down long afterwards. So
the topic is read before a decision and again after it: of several decisions, the first counts. A decision that came
after the copy had already begun at a lower offset is removed again (``is_late``).
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from mirror.net.admin.groups import Groups
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Refused, StoredInOldFormat
from mirror.net.logs.log import PartitionLog, SourceLog
from mirror.offsetmap.entries.starting import StartingOffset
from mirror.offsetmap.fields import id_text
from mirror.offsetmap.internal.memory import Memory
from mirror.offsetmap.internal.topic import Shared
from mirror.reasons import HaltReason
from mirror.records.filler import is_filler
from mirror.relay.durable.flows import LOOKED_UP_FOR_S
from mirror.relay.events import EventLog
from mirror.relay.halts import halt
from mirror.relay.partition.partition import Partition
from mirror.relay.settings import COMMITTED, EARLIEST, LATEST, RelaySettings
from mirror.wire.errors import ErrorCode

GroupOffsets = Callable[[str], Awaitable[Mapping[tuple[str, int], int]]]
"""Returns the offsets that a group has committed, by topic and partition. Raises NetworkError if they are not known
now."""


class _Committed(NamedTuple):
    """What ``start.group`` has committed, asked once for all partitions."""

    offsets: dict[tuple[str, int], int]
    topics: dict[str, bytes | None]
    """The topics that the source had at that time, with their ids. The answer says nothing about other topics."""
    until: float
    """The answer counts until this time (monotonic clock, in s)."""


class Starts:
    """The starting offsets of a flow's partitions."""

    def __init__(
        self,
        state: Memory,
        *,
        source: Cluster,
        settings: RelaySettings,
        log: EventLog,
        group_offsets: GroupOffsets | None = None,
    ) -> None:
        """``group_offsets``: asks for the commits of ``start.group``. None: its coordinator is found and asked, which
        may make the brokers create ``__consumer_offsets``."""
        self._state = state
        self._source = source
        self._settings = settings
        self._log = log
        self._groups = Groups(source)
        self._group_offsets = group_offsets or self._ask_coordinator
        self._committed: _Committed | None = None
        self._questions = Shared(self._ask_group)
        self._begun_ms: int | None = None

    def begin_now(self) -> None:
        """Takes now as the time at which the flow began, if it was never started. For a plan."""
        self._begun_ms = _now_ms()

    @property
    def wanted(self) -> bool:
        """True if a copy may begin elsewhere than at its source's beginning."""
        return self._settings.start_from != EARLIEST

    def known(self, partition: Partition) -> StartingOffset | None:
        """Returns what was decided for the current source topic; None if nothing was."""
        topic = self._source.topics.get(partition.topic)
        return self._state.ledger.starting(partition.subject, id_text(topic.topic_id) if topic is not None else None)

    def begins(self, partition: Partition) -> int:
        """Returns the offset at which the copy begins, if the source begins before it; 0 if nothing was decided."""
        known = self.known(partition)
        return known.offset if known is not None else 0

    async def decide(self, partition: Partition, here: SourceLog) -> None:
        """Decides where the partition's copy begins, unless that is decided, and writes it down. From then on, ``here``
        begins there. Must be called only if nothing of the partition was ever copied.

        Raises:
            PartitionHalted: start_unknown.
            NetworkError: the source cannot be asked now, or it is not certain that it was written.
        """
        await self._state.load()
        if self.known(partition) is None:
            # A decision to begin where the source does is written as well: the next worker's answer might be another
            # offset.
            found = await self.find(partition, here) or self._from(partition, here, 0, 0)
            await self._state.save([found])
            await self._state.load()
            if found.offset and self.known(partition) == found:
                self._log.info(
                    "copy_begins",
                    topic=partition.topic,
                    partition=partition.index,
                    detail=f"{partition.name} is copied from offset {found.offset} on (start.from: "
                    f"{found.start_from}); what the source has before that is not copied",
                )
        here.begins = self.begins(partition)

    async def is_late(self, partition: Partition, there: PartitionLog, filler: int) -> bool:
        """Returns True if the copy has begun before the decided offset (exact offsets). A worker that had lost the
        partition by then made that decision, so it is removed.

        Args:
            partition: the partition.
            there: the destination's log.
            filler: the producer id of the partition's filler.

        Raises:
            NetworkError: cannot be determined now, or it is not certain that the decision was removed.
        """
        starting, start = self.known(partition), await there.start()
        if starting is None or start >= starting.offset:
            return False
        found = await there.batch_at(start)
        if found is None or found[0].base_offset >= starting.offset or is_filler(found[0], filler):
            return False
        await self._state.save((), forget=[starting.key()])
        return True

    async def find(self, partition: Partition, here: SourceLog) -> StartingOffset | None:
        """Returns where the copy would begin according to the settings; None if where the source begins.

        Raises:
            PartitionHalted: start_unknown.
            NetworkError: the source cannot be asked now.
        """
        chosen = await self._chosen(partition, here)
        start = await here.start()
        if chosen is None or chosen <= start:
            return None
        batch = await _holding(here, chosen, compacted=partition.terms.compacted)
        if not partition.terms.rewrites:
            chosen = batch  # no batch is opened, so this one is copied whole
            if chosen <= start:
                return None
        return self._from(partition, here, chosen, batch)

    def _from(self, partition: Partition, here: SourceLog, offset: int, batch: int) -> StartingOffset:
        return StartingOffset(
            subject=partition.subject,
            writer=uuid.uuid4().hex[:16],
            source_id=id_text(here.topic.topic_id),
            offset=offset,
            batch=batch,
            leader_epoch=here.leader.epoch,
            start_from=self._settings.start_from,
            at_ms=_now_ms(),
        )

    async def _chosen(self, partition: Partition, here: SourceLog) -> int | None:
        """Returns the offset that the settings name; None for the source's first offset."""
        start_from = self._settings.start_from
        if not self.wanted:
            return None
        if start_from == COMMITTED:
            return await self._committed_by(self._settings.start_group, partition, here)
        at_ms = self._flow_began() if start_from == LATEST else self._settings.start_at_ms
        if at_ms is None:
            return None
        end = await here.visible_end()  # first: records behind it came after the question
        try:
            found = await here.first_since(at_ms)
        except Refused as error:
            if error.code != ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                raise
            self._log.warning(
                "copy_begins",
                topic=partition.topic,
                partition=partition.index,
                detail=f"{partition.name} has messages from before Kafka 0.10, which have no timestamps: it is copied "
                f"from the source's first offset on, whatever start.from says ({start_from})",
            )
            return None
        return end if found is None else min(found, end)

    def _flow_began(self) -> int | None:
        """Returns when the flow was first started (ms since 1970), by the clock of the worker that started it. None:
        that is not known, so nothing may be left out."""
        began = [each.at_ms for each in self._state.ledger.flows if each.flow == self._settings.flow]
        return min(began, default=self._begun_ms)

    async def _committed_by(self, group: str, partition: Partition, here: SourceLog) -> int | None:
        known, asked_of = self._committed, (partition.topic, here.topic.topic_id)
        if known is None or time.monotonic() >= known.until or asked_of not in known.topics.items():
            await self._questions.run()
            known = self._committed
        if known is None:
            raise halt(
                HaltReason.START_UNKNOWN,
                f"{partition.name}: group {group} has committed no offset of any topic at {self._source.name}",
            )
        offset = known.offsets.get((partition.topic, partition.index))
        return None if offset is None else min(offset, await here.visible_end())

    async def _ask_group(self) -> None:
        group, topics = self._settings.start_group, {name: each.topic_id for name, each in self._source.topics.items()}
        offsets = dict(await self._group_offsets(group))
        # If the group has no commit, its name may be wrong: the next partition asks again.
        self._committed = _Committed(offsets, topics, time.monotonic() + LOOKED_UP_FOR_S) if offsets else None

    async def _ask_coordinator(self, group: str) -> Mapping[tuple[str, int], int]:
        found = (await self._groups.committed([group]))[group]
        if isinstance(found, NetworkError):
            raise found
        return {key: each.offset for key, each in found.items()}


def _now_ms() -> int:
    return round(time.time() * 1000)


async def check_kept(partition: Partition, here: SourceLog, starting: StartingOffset | None, settle_s: float) -> None:
    """Checks that the source has not lost its end from before the copy's start, as long as nothing is copied. Otherwise
    new records would take the offsets before that start, and would be taken for old ones.

    Args:
        partition: for messages.
        here: the source's log.
        starting: where the copy begins. Nothing is checked if it is None, or begins at 0.
        settle_s: how long a new leader of the source is given to catch up.

    Raises:
        PartitionHalted: source_truncated.
        NetworkError: cannot be determined now.
    """
    if starting is None or not starting.offset:
        return
    told = f"{partition.name} is copied from offset {starting.offset} on (start.from: {starting.start_from}), and "
    if 0 <= here.leader.epoch < starting.leader_epoch:
        raise halt(
            HaltReason.SOURCE_TRUNCATED,
            f"{told}the source's leader epoch {here.leader.epoch} is before {starting.leader_epoch}, in which that was "
            "decided: it is another topic",
        )
    if 0 <= starting.leader_epoch < here.leader.epoch:
        ended = await here.end_of_epoch(starting.leader_epoch)
        if ended is not None and 0 <= ended.offset < starting.offset:
            raise halt(
                HaltReason.SOURCE_TRUNCATED,
                f"{told}leader epoch {starting.leader_epoch} of the source, in which that was decided, ends at "
                f"{ended.offset} now: records with offsets in between may be new ones",
            )
    if await here.true_end() < starting.offset:
        await asyncio.sleep(settle_s)  # the leader may still be catching up
        if (end := await here.true_end()) < starting.offset:
            raise halt(HaltReason.SOURCE_TRUNCATED, f"{told}the source ends at {end} now")


async def _holding(here: SourceLog, offset: int, *, compacted: bool) -> int:
    """Returns the base offset of the batch that holds ``offset``. Returns ``offset`` if a batch begins there, or none
    is there.

    No checksum covers base offsets. So the batch before this one must end where this one begins, unless the source
    begins there, or has a gap before it and is ``compacted``. If it does not, the batch is not cut: ``offset`` is
    returned, and the batch is refused when it is copied.
    """
    try:
        found = await here.batch_at(offset)
        base = offset if found is None else min(offset, found[0].base_offset)
        if base == offset or base <= await here.start():
            return base
        before = await here.batch_at(base - 1)
    except StoredInOldFormat:
        return offset
    stands = before is not None and before[0].next_offset == base
    behind_a_gap = compacted and before is not None and found is not None and before[0] == found[0]
    return base if stands or behind_a_gap else offset
