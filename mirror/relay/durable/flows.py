"""Finds the flows that write to a destination, from their internal topics: which flow has written a batch, and which
other flow copies a partition.

In exact mode, producer ids are computed from the flow's id, its source's cluster id, topic and partition. Under another
flow id, the mirror no longer recognises its own copies. So if a batch with such a producer id halts a partition, the
halt names the flow.

Two flow ids may begin with one partition at the same moment (an alias was renamed while the old mirror still runs).
Each flow writes down what it copies before its first batch, and looks for the other's entry *after* that. So at least
one of them sees the other.
"""

import asyncio
import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from mirror.net.admin.names import topic_codes
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import DIGEST_SIZE, AcceptedLoop, FlowEntry, Note, Pin
from mirror.offsetmap.fields import id_text, ids_differ, same_ids
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.internal.memory import PREFIX, UNREADABLE, Memory, passes, state_topic
from mirror.offsetmap.internal.topic import InternalTopic, Shared
from mirror.reasons import GAPS, HaltReason
from mirror.records.filler import filler_id
from mirror.records.identity import MIRROR_BIT, producer_id, same_owner
from mirror.relay.halts import Halted, PartitionHalted
from mirror.relay.partition.partition import Partition
from mirror.relay.topics.describing import PATIENCE_S

LOOKED_UP_FOR_S = 60.0
"""Seconds for which the result of a look is reused, because many partitions ask at the same time."""


class _Topic(NamedTuple):
    """Another flow's internal topic, and its content."""

    name: str
    ledger: Ledger


class Flows:
    """Knows the flows of one destination.

    Args:
        destination: the destination cluster.
        flow: the id of this flow.
        source_cluster: the cluster id of its source.
        state: its internal topic.
        mapped: True if it copies with ``offsets: mapped``.
    """

    def __init__(
        self, destination: Cluster, *, flow: str, source_cluster: str, state: Memory, mapped: bool = False
    ) -> None:
        self._destination = destination
        self._flow = flow
        self._source_cluster = source_cluster
        self._state = state
        self._mapped = mapped
        self._there: dict[str, InternalTopic] = {}
        self._looking = asyncio.Lock()
        self._looks = Shared(self._renew)
        self._known: list[_Topic] = []
        self._until = 0.0

    async def named(self, stop: PartitionHalted, partition: Partition) -> PartitionHalted:
        """Returns the halt, with the flow's name added to its detail if a batch of a mirror caused it. If that flow
        cannot be found, the detail says why."""
        writer = stop.writer
        if writer < 0 or not writer & MIRROR_BIT:
            return stop
        try:
            topics = await self._known_topics()
            ledgers = [self._state.ledger, *(topic.ledger for topic in topics)]
            flows = [flow for ledger in ledgers for flow in ledger.flows]
            flow, why = self._writer(writer, partition, flows), "is not written down at this destination"
        except NetworkError as error:
            flow, why = None, f"cannot be looked up: {error}"
        reason = HaltReason.FLOWS_MIXED if stop.misplaced else HaltReason.OTHER_FLOW
        if flow is None:
            whose = f"of a mirror whose flow id {why}"
            remedy = reason.told.format(id="the names that it had, such as old-source->destination")
        elif flow.flow == self._flow:
            whose = f"of this flow, copied from cluster {flow.source_cluster}; the source is {self._source_cluster}"
            remedy = HaltReason.RECREATED.told
        else:
            whose = f'of flow "{flow.flow}", copied from cluster {flow.source_cluster}'
            remedy = reason.told.format(id=f'"{flow.flow}"')
        return PartitionHalted(Halted(HaltReason.OTHER_FLOW.slug, f"{stop.halted.detail}, {whose}", remedy))

    async def check_new(self, partition: Partition, *, begun: bool = False) -> None:
        """Checks that no other flow copies this partition into the same destination partition. In exact mode, both
        flows would write at the same offsets. With ``offsets: mapped``, every record would be there twice, and producer
        ids that brokers allocate do not show whose a batch is.

        Args:
            partition: a partition of which this flow has copied nothing yet. If an operator accepts the other flow,
                that is written down.
            begun: True if this flow has already written down that it copies the partition: then the internal topics are
                read now. Otherwise they are read only to confirm what an earlier look has found.

        Raises:
            PartitionHalted: another flow copies it.
            NetworkError: cannot be determined now.
        """
        others = await self._known_topics(anew=begun)
        if not begun and any(self._digest(topic, partition) for topic in others):
            others = await self._known_topics(anew=True)
        for topic in others:
            digest = self._digest(topic, partition)
            if digest and not partition.claim.accept_unproven:
                raise PartitionHalted(self._halted(topic, partition))
            if digest:
                await self._state.save([AcceptedLoop(subject=partition.subject, by=_by(topic), digest=digest)])

    def _digest(self, topic: _Topic, partition: Partition) -> str:
        """Returns the result of ``_trace``; empty also if an operator has accepted exactly that."""
        digest = self._trace(topic.ledger, partition)
        accepted = self._state.ledger.accepted_loop(partition.subject, _by(topic))
        return "" if accepted is not None and accepted.digest == digest else digest

    def _halted(self, topic: _Topic, partition: Partition) -> Halted:
        names = sorted(flow.flow for flow in topic.ledger.flows) or [topic.name.removeprefix(PREFIX)]
        entries = topic.ledger.pin(partition.subject), topic.ledger.checkpoint(partition.subject)
        did = "was" if has_copied(topic.ledger, partition.subject) else "is, from now on,"
        detail = f'{partition.name} {did} copied into {partition.destination} by flow "{names[0]}" ({topic.name})'
        if entries == (None, None) or self._exact_trace(
            topic.ledger, partition, id_text(partition.claim.destination_id)
        ):
            where = f"{partition.destination}-{partition.index}"
            detail = (
                f'flow "{names[0]}" ({topic.name}) copies into {where} with offsets: exact, and this flow would append'
            )
        reason = HaltReason.OTHER_FLOW_TOO
        return Halted(reason.slug, detail, reason.told.format(id=f'"{names[0]}"'))

    def _trace(self, ledger: Ledger, partition: Partition) -> str:
        """Returns the digest of what another flow has written down about the partition; empty if there is nothing that
        counts."""
        subject = partition.subject
        source_id, destination_id = id_text(partition.claim.source_id), id_text(partition.claim.destination_id)
        halted = ledger.halt(subject)
        if (
            halted is not None
            and halted.reason not in GAPS
            and same_ids((halted.source_id, halted.destination_id), (source_id, destination_id))
            and not has_copied(ledger, subject)
        ):
            return ""  # when it is resumed, it checks for other flows itself
        for entry in (ledger.pin(subject), ledger.checkpoint(subject)):
            if entry is None:
                continue
            same_log = None not in (entry.destination_id, destination_id)
            if same_log and entry.destination_id != destination_id:
                continue  # it belongs to a destination topic that no longer exists
            if entry.source_id and source_id:
                same = entry.source_id == source_id
            else:
                same = any(flow.source_cluster == self._source_cluster for flow in ledger.flows)
            if same or (same_log and not self._mapped):
                return digest_of([ledger.pin(subject), ledger.checkpoint(subject), *ledger.notes(subject)])
        return self._exact_trace(ledger, partition, destination_id)

    def _exact_trace(self, ledger: Ledger, partition: Partition, destination_id: str | None) -> str:
        """Returns the digest of what a flow with ``offsets: exact`` has written down about the destination partition,
        whatever it copies into it. A flow that appends there ends that exact copy. Empty: there is nothing, or this
        flow is exact itself."""
        subject = _exact_subject(partition)
        pin, halted = ledger.pin(subject), ledger.halt(subject)
        if not self._mapped or pin is None or pin.offsets != "exact" or ledger.checkpoint(subject) is not None:
            return ""
        if destination_id is None or ids_differ(pin.destination_id, destination_id):
            return ""
        if halted is not None and halted.reason not in GAPS and not has_copied(ledger, subject):
            return ""
        return digest_of([pin, *ledger.notes(subject)])

    @staticmethod
    def _writer(writer: int, partition: Partition, flows: list[FlowEntry]) -> FlowEntry | None:
        for flow in flows:
            for compute in (producer_id, filler_id):
                owner = compute(
                    flow=flow.flow, cluster_id=flow.source_cluster, topic=partition.topic, partition=partition.index
                )
                if same_owner(owner, writer):
                    return flow
        return None

    async def _known_topics(self, *, anew: bool = False) -> list[_Topic]:
        """Returns all other internal topics of the destination: from a look in the last ``LOOKED_UP_FOR_S`` or, with
        ``anew``, from a new one.

        Raises:
            NetworkError: cannot be determined now.
        """
        if anew:
            await self._looks.run()
        else:
            async with self._looking:
                if asyncio.get_running_loop().time() >= self._until:
                    await self._looks.run()
        return self._known

    async def _renew(self) -> None:
        self._known = await self._look_up()
        self._until = asyncio.get_running_loop().time() + LOOKED_UP_FOR_S

    async def _look_up(self) -> list[_Topic]:
        found = await self._destination.ask_all(self._names, patience_s=PATIENCE_S)
        names = {name for told in found for name in told} - {state_topic(self._flow)}
        for name in self._there.keys() - names:
            del self._there[name]
        return [topic for name in sorted(names) if (topic := await self._read(name)) is not None]

    async def _names(self, node_id: int) -> list[str]:
        """Returns the internal topics that this broker knows of. A topic that was just created is known at least to its
        leader."""
        codes = await topic_codes(self._destination, node_id=node_id)
        return [name for name in codes if name.startswith(PREFIX)]

    async def _read(self, name: str) -> _Topic | None:
        """Reads what is new in one of the internal topics. Returns None if we may not read it, or if no mirror has
        written to it."""
        state = self._there.get(name) or InternalTopic(self._destination, self._flow, topic=name, lean=True)
        try:
            if name in self._there:
                await state.load()
            elif not await state.open(create=False):
                return None
        except UNREADABLE as error:
            if passes(error):
                raise
            self._there.pop(name, None)
            return None
        self._there[name] = state
        return _Topic(name, state.ledger)


def _exact_subject(partition: Partition) -> Subject:
    """Returns the subject of the same destination partition in a flow with ``offsets: exact``, where topics keep their
    names."""
    return Subject(partition.destination, partition.index, partition.destination)


def has_map(ledger: Ledger, subject: Subject) -> bool:
    """Returns True if some of the partition was copied with ``offsets: mapped``, according to this internal topic."""
    return any(len(chunk.map) for chunk in ledger.chunks(subject))


def has_copied(ledger: Ledger, subject: Subject) -> bool:
    """Returns True if some of the partition was copied in either mode, according to this internal topic."""
    pin = ledger.pin(subject)
    return has_map(ledger, subject) or bool(ledger.notes(subject)) or (pin is not None and pin.copied is not None)


def digest_of(entries: Iterable[Pin | Checkpoint | Note | None]) -> str:
    """Returns the digest of what a flow has written down. It changes whenever the flow has copied more. It does not
    change if the flow only writes the same again, as a paused flow does when it is stopped."""
    digest = hashlib.blake2b(digest_size=DIGEST_SIZE)
    for entry in entries:
        digest.update(replace(entry, at_ms=0).value() if entry is not None else b"")
    return digest.hexdigest()


def digest_of_text(text: str) -> str:
    """Returns the digest of a text, in hexadecimal."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=DIGEST_SIZE).hexdigest()


def _by(topic: _Topic) -> str:
    return f"{topic.name} at the destination"
