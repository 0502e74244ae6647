"""Prepares a flow that copies back to the former source of a cutover. It writes down that the batches which are there
already are in their places. So the flow goes on behind them, instead of refusing them as those of a foreign writer.

``mirror cutover --reverse`` does this once both logs are known to be the same up to there. It writes the same entries
as a mirror: pins, and the acceptance of the flow that has copied in the other direction, up to what that has copied. If
that flow copies anything more, the loop is found as always (docs/DESIGN.md#59-loops).
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from mirror.net.admin.names import topic_codes
from mirror.net.cluster import Cluster
from mirror.net.errors import StoredInOldFormat
from mirror.net.logs.log import PartitionLog
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import AcceptedLoop, FlowEntry, LastCopied, Pin, header_digest
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.internal.memory import PREFIX, UNREADABLE, passes, state_topic
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.records.identity import producer_id, same_owner
from mirror.relay.durable.loops import trace
from mirror.service.offsets.ends import Key, PartitionEnds
from mirror.service.offsets.translate import NotTranslated, Translator
from mirror.service.texts import some

MOST_IDS = 99


class NotAdopted(Exception):
    """The flow back cannot be prepared; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """The entries to write into the internal topic of the flow back.

    Attributes:
        flow_id: id of the flow back.
        pins, loops: the entries.
        begun: partitions (topic-partition) of which that flow has copied something already. No pin is written for them.
    """

    flow_id: str
    pins: list[Pin]
    loops: list[AcceptedLoop]
    begun: list[str]


class Adopting:
    """Prepares one flow that leads back.

    Args:
        translator: the open, lazy translator of the flow back. Its source is the cluster that has the copies.
        isolation_level: ``isolation.level`` of the flow back.
        identity: ``identity`` of the flow back.
    """

    def __init__(self, translator: Translator, *, isolation_level: str, identity: str) -> None:
        self._source = translator.source
        self._destination = translator.destination
        self._translator = translator
        self._isolation_level = isolation_level
        self._identity = identity

    async def begun(self, name: str, rows: Iterable[PartitionEnds]) -> dict[Key, str]:
        """Returns the partitions of which the flow back has copied something already -> the flow id of their batches.

        These are the partitions whose first batch behind the certified end was written by the flow back. So its entries
        may be written again if its internal topic was lost. Whether the batches behind the first one are its own as
        well, the flow itself finds out when it locates the partition.

        Args:
            name: name of the flow back.
            rows: the partitions as they were certified.

        Raises:
            NetworkError: a log cannot be read.
        """
        found = {}
        for row in rows:
            try:
                there = await self._translator.log(self._destination, row.topic, row.partition)
            except NotTranslated:
                continue  # the partition is gone: check_logs() tells that
            if not await there.start() <= row.source_end < await there.true_end():
                continue
            first = await there.batch_at(row.source_end)
            if first is None or first[0].base_offset != row.source_end:
                continue
            for flow_id in _ids(name):
                owner = producer_id(
                    flow=flow_id, cluster_id=self._source.cluster_id, topic=row.into, partition=row.partition
                )
                if same_owner(first[0].producer_id, owner):
                    found[row.key] = flow_id
        return found

    async def plan(self, name: str, rows: Iterable[PartitionEnds], begun: Mapping[Key, str]) -> Adoption:
        """Returns the entries to write.

        Args:
            name: name of the flow back, which is also the first flow id that is tried. Ids with a number follow.
            rows: the partitions as they were certified, as the flow in the other direction has them.
            begun: the partitions that ``begun`` has returned.

        Raises:
            NotAdopted: no flow id is free; the id found is not the one under which partitions were begun; or a side has
                lost what was certified, and has something else in its place.
            NetworkError: a cluster does not answer.
        """
        rows = list(rows)
        wanted = [pin for row in rows if (pin := await self._pin(row)) is not None]
        subjects = [Subject(row.topic, row.partition, row.into) for row in rows]
        loops = await self._loops({subject: row.source_end for subject, row in zip(subjects, rows, strict=True)})
        for flow_id in _ids(name):
            ledger = await self._ledger(flow_id)
            if ledger is None:
                _check_same(flow_id, begun)
                return Adoption(flow_id=flow_id, pins=wanted, loops=loops, begun=[])
            if any(flow.flow != flow_id for flow in ledger.flows):
                continue  # of a flow with another id that makes the same topic name
            known = [pin for subject in subjects if (pin := ledger.pin(subject)) is not None]
            same = {pin.subject: pin for pin in wanted}
            if all(_is_same(pin, same.get(pin.subject)) for pin in known):
                _check_same(flow_id, begun)
                noted = {pin.subject for pin in known if ledger.notes(pin.subject)}
                return Adoption(
                    flow_id=flow_id,
                    pins=[pin for pin in wanted if pin.subject not in noted],
                    loops=loops,
                    begun=[f"{subject.topic}-{subject.partition}" for subject in sorted(noted)],
                )
        raise NotAdopted(
            f"{MOST_IDS} flows named {name} have copied to {self._destination.name} before: delete "
            f"internal topics {PREFIX}* there of flows that will not run again"
        )

    async def write(self, adoption: Adoption) -> None:
        """Writes the entries into the internal topic. May be repeated.

        Raises:
            NetworkError: it is not certain that all entries were written.
        """
        state = InternalTopic(self._destination, adoption.flow_id, lean=True)
        await state.open()
        await state.claim(
            FlowEntry(
                flow=adoption.flow_id,
                source_cluster=self._source.cluster_id,
                destination_cluster=self._destination.cluster_id,
                at_ms=_now_ms(),
            )
        )
        # In this order: whenever the flow finds a pin, the acceptance of the other flow is there as well.
        await state.save(adoption.loops)
        await state.save(adoption.pins)

    async def _ledger(self, flow_id: str) -> Ledger | None:
        """Returns what the internal topic of a flow id holds; None: there is no such topic."""
        state = InternalTopic(self._destination, "", topic=state_topic(flow_id), lean=True)
        return state.ledger if await state.open(create=False) else None

    async def _pin(self, row: PartitionEnds) -> Pin | None:
        """Returns the pin of a partition; None if nothing was ever written to the partition."""
        if not row.source_end:
            return None
        here = await self._translator.log(self._source, row.into, row.partition)
        there = await self._translator.log(self._destination, row.topic, row.partition)
        await _last(there, row.source_end, row.source_epoch)
        return Pin(
            subject=Subject(row.into, row.partition, row.topic),
            source_id=row.destination_id,
            destination_id=row.source_id,
            source_cluster=self._source.cluster_id,
            copied=await _last(here, row.source_end, row.destination_epoch),
            offsets="exact",
            isolation_level=self._isolation_level,
            identity=self._identity,
            adopted=row.source_end,
            adopted_epoch=row.source_epoch,
            at_ms=_now_ms(),
        )

    async def _loops(self, ends: Mapping[Subject, int]) -> list[AcceptedLoop]:
        """Returns acceptances of all flows that have copied these partitions in the other direction.

        Args:
            ends: partition, as those flows have it -> the certified end, up to which their copying is accepted.
        """
        names = [name for name in await topic_codes(self._source) if name.startswith(PREFIX)]
        found = []
        for name in sorted(names):
            state = InternalTopic(self._source, "", topic=name, lean=True)
            try:
                if not await state.open(create=False):
                    continue
            except UNREADABLE as error:
                if passes(error):
                    raise
                # Another flow's topic that cannot be read. If that flow closes a loop after all, the flow back halts.
                continue
            for flow in state.ledger.flows:
                if not _leads(flow, self._destination, self._source):
                    continue
                found += [
                    AcceptedLoop(
                        subject=Subject(subject.destination, subject.partition, subject.topic),
                        by=state_topic(flow.flow),
                        digest=digest,
                    )
                    for subject, end in ends.items()
                    if (digest := trace(state.ledger, flow, subject, upto=end))
                ]
        return found


def _ids(name: str) -> list[str]:
    return [name, *(f"{name}.{number}" for number in range(2, MOST_IDS + 1))]


def _check_same(flow_id: str, begun: Mapping[Key, str]) -> None:
    other = {f"{topic}-{partition}": each for (topic, partition), each in begun.items() if each != flow_id}
    if other:
        raise NotAdopted(
            f"{some(sorted(other))} was copied back by flow {min(other.values())}, and what is to be written down is "
            f"of flow {flow_id}: docs/OPERATING.md says what to do then (Moving over)"
        )


def _leads(flow: FlowEntry, source: Cluster, destination: Cluster) -> bool:
    return flow.source_cluster == source.cluster_id and flow.destination_cluster in ("", destination.cluster_id)


def _is_same(known: Pin, wanted: Pin | None) -> bool:
    """Returns True if a pin equals the one that is to be written, except for what was copied since and for the time.
    ``wanted``: None: no pin is to be written, so the result is False."""
    return wanted is not None and replace(known, copied=None, at_ms=0) == replace(wanted, copied=None, at_ms=0)


async def _last(log: PartitionLog, end: int, epoch: int) -> LastCopied:
    """Returns the note of the last batch before ``end`` in a log.

    Args:
        log: the log of either side.
        end: the certified end.
        epoch: leader epoch of this side when it was certified; -1: not known.

    Raises:
        NotAdopted: the batch is of a later leader epoch, so the log has lost its certified end; or the log has batches
            in an old format.
        NetworkError: the log cannot be read now.
    """
    try:
        found = await log.batch_at(end - 1) if await log.start() < end else None
    except StoredInOldFormat as error:
        raise NotAdopted(
            f"{error}: there is no way back into such a log. Mirror back with a flow of its own into new topics"
        ) from error
    if found is None or found[0].base_offset >= end:
        return LastCopied(end, epoch)
    header, batch = found
    if 0 <= epoch < header.leader_epoch:
        raise NotAdopted(
            f"{log.name}: the batch at offset {header.base_offset} was written since the cutover, by a leader of epoch "
            f"{header.leader_epoch} (then {epoch}): it has lost what was certified there; docs/OPERATING.md says what "
            "to do then (Moving over)"
        )
    known = epoch if epoch >= 0 else header.leader_epoch
    if header.is_control or header.next_offset != end:
        return LastCopied(end, known)
    return LastCopied(end, known, header_digest(batch), end)


def _now_ms() -> int:
    return round(time.time() * 1000)
