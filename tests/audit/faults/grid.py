"""Many copies at once: written by real clients, laid out in the files of real brokers, audited in one run for each way
to keep offsets."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from mirror.audit import job
from mirror.audit.model.findings import Finding
from mirror.audit.model.places import Side
from mirror.audit.model.request import AuditRequest
from mirror.net.cluster import Cluster
from mirror.net.options import ClusterOptions
from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.entries.chunks import MapChunk, Order
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import Pin
from mirror.offsetmap.fields import id_text
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.offsetmap.runs import OffsetMap
from mirror.records.identity import Identity
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import addresses, await_leaders, endpoint
from tests.audit.faults import copies, old
from tests.audit.faults.copies import OWNER, Copy
from tests.audit.faults.kinds import Shape, Told
from tests.audit.faults.segments import flip, lay, placed
from tests.audit.prepare.test_moving import READING, At

FLOW = "source->destination"
TIMEOUT_S = 60
Pair = Mapping[Side, SandboxCluster]
MAPPED = (Shape.MAPPED, Shape.COMPACTED_MAPPED, Shape.OLD_MAPPED)
KEYED = (Shape.COMPACTED, Shape.COMPACTED_MAPPED)
ADOPTED = (Shape.ADOPTED, Shape.COMPACTED_ADOPTED)
COMPACTED = (*KEYED, Shape.COMPACTED_ADOPTED)
OLD = (Shape.OLD, Shape.OLD_MAPPED)


class Seen(NamedTuple):
    """What an audit said of a topic: its findings, which of its notes name it, and what was written anew."""

    findings: list[Finding]
    notes: list[str]
    reencoded: list[Finding]

    @property
    def told(self) -> list[Told]:
        """Without the words, in order."""
        return in_order(Told(found.kind, found.source, found.destination) for found in self.findings)


def in_order(told: Iterable[Told]) -> list[Told]:
    """By kind, then by place."""
    return sorted(told, key=lambda one: (one.kind.value, one.source or (-1, -1), one.destination or (-1, -1)))


def there(topic: str, *, mapped: bool) -> str:
    """Its name at the destination."""
    return f"{topic}-there" if mapped else topic


@dataclass
class Grid:
    """Copies on two clusters of a broker each; ``write``, spoil them, ``lay``, ``audit``."""

    pair: Pair
    length: int = 1
    """How many times over clients write."""
    copies: dict[str, Copy] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)

    def write(self, topics: Mapping[str, Shape]) -> None:
        """What clients write to each topic, and a true copy. May be called again, with other topics."""
        self.shapes |= topics
        for side, cluster in self.pair.items():
            names = {
                there(name, mapped=side is Side.DESTINATION and shape in MAPPED): shape
                for name, shape in topics.items()
            }
            create_all(cluster, names, old.VERSIONS if side is Side.SOURCE else ())
        source = self.pair[Side.SOURCE]
        of = {shape: [name for name, its in topics.items() if its is shape] for shape in Shape}
        for _ in range(self.length):
            copies.write_plain(source, [*of[Shape.PLAIN], *of[Shape.MAPPED]])
            copies.write_transactions(source, [name for shape in (Shape.TRANSACTIONAL, *ADOPTED) for name in of[shape]])
            copies.write_keyed(source, [name for shape in KEYED for name in of[shape]])
        if of_old := [*of[Shape.OLD], *of[Shape.OLD_MAPPED]]:
            old.write(source, of_old)
        for topic, shape in topics.items():
            if shape in OLD:
                copy = old.written(source, topic, by_entry=shape is Shape.OLD_MAPPED)
            else:
                copy = copies.written(source, topic)
            self.copies[topic] = copy
            copy.mapped = shape in MAPPED
            if shape in ADOPTED:
                copy.adopt()
                continue
            due = copies.is_due if shape is Shape.TRANSACTIONAL else _always
            copy.destination = (copies.among_others if copy.mapped else copies.exact)(copy.source, due)
            copy.map()

    def lay(self) -> None:
        """The maps and pins are written, both brokers stop, and start with the logs as they are now."""
        asyncio.run(_write_pins(self.pair, [one for one in self.copies.values() if one.adopted]))
        asyncio.run(_write_maps(self.pair[Side.DESTINATION], [one for one in self.copies.values() if one.mapped]))
        for side, cluster in self.pair.items():
            (broker,) = cluster.brokers
            # What is in an old format stays as the broker has written it.
            if laid := [copy for copy in self.copies.values() if side is Side.DESTINATION or not copy.stored]:
                broker.stop()
                for copy in laid:
                    log = copy.source if side is Side.SOURCE else copy.destination
                    lay(broker, self._name(copy, side), log, copy.starts[side])
                broker.start()
                await_leaders(cluster, [TopicPartition(self._name(copy, side), 0) for copy in self.copies.values()])
            for copy in self.copies.values():
                log = copy.source if side is Side.SOURCE else copy.destination
                before = [0]
                for batch in placed(log):
                    before.append(before[-1] + len(batch))
                for _, of, byte, mask in (one for one in copy.flips if one[0] is side):
                    index = of if side is Side.SOURCE else copy.index(of)
                    at = copy.stored if side is Side.SOURCE and copy.stored else before
                    flip(broker, self._name(copy, side), at[index] + byte, mask)
            self._delete(side, {copy.topic: copy.trimmed for copy in self.copies.values()})

    def audit(self, spark: SparkSession, among: Collection[str] | None = None) -> dict[str, Seen]:
        """What is said of each topic. ``among``: of these only."""
        seen: dict[str, Seen] = {}
        for mapped in (False, True):
            chosen = self.copies if among is None else among
            topics = tuple(name for name, copy in self.copies.items() if copy.mapped is mapped and name in chosen)
            if not topics:
                continue
            request = AuditRequest(
                flow=FLOW,
                source=endpoint(self.pair[Side.SOURCE], "source"),
                destination=endpoint(self.pair[Side.DESTINATION], "destination"),
                topics=topics,
                catch_up_s=0,
                offsets="mapped" if mapped else "exact",
                rename=(lambda name: there(name, mapped=True)) if mapped else None,
            )
            result = job.run(request, spark=spark, progress=At(READING, self._meanwhile))
            for topic in topics:
                notes = [note for note in result.notes if topic in note]
                found, anew = (
                    [one for one in some if one.topic == topic] for some in (result.findings, result.reencoded)
                )
                seen[topic] = Seen(found, notes, anew)
        return seen

    def _meanwhile(self) -> None:
        for side in Side:
            self._delete(side, {copy.topic: copy.meanwhile for copy in self.copies.values()})

    def _delete(self, side: Side, wanted: Mapping[str, Sequence[tuple[Side, int]]]) -> None:
        """DeleteRecords."""
        offsets = [
            TopicPartition(self._name(self.copies[topic], side), 0, offset)
            for topic, each in wanted.items()
            for its, offset in each
            if its is side
        ]
        if offsets:
            admin = AdminClient({"bootstrap.servers": self.pair[side].bootstrap_servers})
            for future in admin.delete_records(offsets).values():
                future.result(TIMEOUT_S)

    def _name(self, copy: Copy, side: Side) -> str:
        return there(copy.topic, mapped=copy.mapped and side is Side.DESTINATION)


def _always(_index: int) -> bool:
    return True


def create_all(cluster: SandboxCluster, topics: Mapping[str, Shape], old_versions: Sequence[str] = ()) -> None:
    """One partition each. Cleaners find nothing to do: a log that has one segment is not cleaned. ``old_versions``: of
    the formats of those of old shapes, in turn."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    wanted = []
    for at, (name, shape) in enumerate(topics.items()):
        config = {"cleanup.policy": "compact" if shape in COMPACTED else "delete"}
        if shape in OLD and old_versions:
            config["message.format.version"] = old_versions[at % len(old_versions)]
        wanted.append(NewTopic(name, 1, 1, config=config))
    for future in admin.create_topics(wanted).values():
        future.result(TIMEOUT_S)
    await_leaders(cluster, [TopicPartition(name, 0) for name in topics])


async def _write_pins(pair: Pair, adopted: Sequence[Copy]) -> None:
    """In the flow's internal topic."""
    if not adopted:
        return
    names = [copy.topic for copy in adopted]
    ids: dict[Side, dict[str, str | None]] = {}
    for side, cluster in pair.items():
        async with await Cluster.open(side.value, ClusterOptions(bootstrap=addresses(cluster))) as opened:
            await opened.refresh(names)
            ids[side] = {name: id_text(opened.topics[name].topic_id) for name in names}
            if side is Side.DESTINATION:
                state = InternalTopic(opened, FLOW)
                await state.open()
                await state.save(
                    [
                        Pin(
                            subject=Subject(copy.topic, 0, copy.topic), source_id=ids[Side.SOURCE][copy.topic],
                            destination_id=ids[side][copy.topic], adopted=copy.adopted,
                            adopted_epoch=copy.adopted_epoch,
                        )
                        for copy in adopted
                    ]
                )  # fmt: skip


async def _write_maps(cluster: SandboxCluster, mapped: Sequence[Copy]) -> None:
    """In the flow's internal topic."""
    if not mapped:
        return
    async with await Cluster.open("destination", ClusterOptions(bootstrap=addresses(cluster))) as opened:
        state = InternalTopic(opened, FLOW)
        await state.open()
        order = Order(1, OWNER, 0)
        for copy in mapped:
            side = Subject(copy.topic, 0, there(copy.topic, mapped=True))
            offsets = OffsetMap()
            for run in copy.runs:
                offsets.append(*run)
            await state.save(
                [
                    Checkpoint(
                        subject=side, writer="w", order=order, source_offset=offsets.source_end, source_epoch=-1,
                        destination_offset=offsets.destination_end, identity=Identity(OWNER, 0, offsets.source_end),
                    ),
                    MapChunk(subject=side, writer="w", order=order, number=0, since=0, map=offsets),
                ]
            )  # fmt: skip
