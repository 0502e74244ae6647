"""The flows that write to a destination, by what their internal topics say: whose a batch of some mirror's is.

Producer ids of exact mode follow from a flow's id, its source cluster's id, topic and partition. Under another flow id
the mirror does not know its own copies any more, so a batch of such an id is told by the name of its flow.
"""

import asyncio
from typing import NamedTuple

from kafka.protocol.metadata import MetadataRequest

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Refused
from mirror.net.state import PREFIX, State, StateUnusable, state_topic
from mirror.records.filler import filler_id
from mirror.records.identity import MIRROR_BIT, producer_id, same_owner
from mirror.records.pins import Flow
from mirror.records.state import Ledger, Side
from mirror.relay.halts import Halted, PartitionHalted, Trouble
from mirror.relay.partition import Partition

LOOKED_UP_FOR_S = 60.0
"""What was found holds for so long: many partitions ask at the same time."""


class _Topic(NamedTuple):
    """What an internal topic says."""

    name: str
    flows: list[Flow]
    copies: dict[Side, str | None]
    """What it has checkpoints of (``offsets: mapped``), and the source topic's id then."""


class Flows:
    """Of one destination. ``flow``: the id of the one that asks; ``source_cluster``: its source's."""

    def __init__(self, destination: Cluster, *, flow: str, source_cluster: str) -> None:
        self._destination = destination
        self._flow = flow
        self._source_cluster = source_cluster
        self._looking = asyncio.Lock()
        self._known: list[_Topic] = []
        self._until = 0.0

    async def named(self, stop: PartitionHalted, partition: Partition) -> PartitionHalted:
        """The halt, with the flow's name where it is for a batch that another flow's mirror has written."""
        writer = stop.writer
        if writer < 0 or not writer & MIRROR_BIT:
            return stop
        try:
            flows = [flow for topic in await self._topics() for flow in topic.flows]
            flow, why = self._writer(writer, partition, flows), "is not written down at this destination"
        except NetworkError as error:
            flow, why = None, f"cannot be looked up: {error}"
        if flow is None:
            whose = f"of a mirror whose flow id {why}"
            remedy = Trouble.OTHER_FLOW.remedy.format(id="the names that it had, such as old-source->destination")
        elif flow.flow == self._flow:
            whose = f"of this flow, copied from cluster {flow.source_cluster}; the source is {self._source_cluster}"
            remedy = Trouble.RECREATED.remedy
        else:
            whose = f'of flow "{flow.flow}", copied from cluster {flow.source_cluster}'
            remedy = Trouble.OTHER_FLOW.remedy.format(id=f'"{flow.flow}"')
        return PartitionHalted(Halted(Trouble.OTHER_FLOW.reason, f"{stop.halted.detail}, {whose}", remedy))

    async def check_new(self, partition: Partition) -> None:
        """No other flow of ours has copied this source topic into this destination topic (``offsets: mapped``): its
        batches carry ids that brokers allocate, so nothing in the log tells them from others'.

        Raises:
            PartitionHalted: one has.
            NetworkError: not to be known now.
        """
        source_id = partition.source_id.hex() if partition.source_id else None
        for topic in await self._topics():
            if topic.name == state_topic(self._flow) or partition.side not in topic.copies:
                continue
            copied_id = topic.copies[partition.side]
            if copied_id and source_id:
                same = copied_id == source_id
            else:
                same = any(flow.source_cluster == self._source_cluster for flow in topic.flows)
            if same:
                names = sorted(flow.flow for flow in topic.flows) or [topic.name.removeprefix(PREFIX)]
                detail = f'{partition.name} was copied into {partition.destination} by flow "{names[0]}" ({topic.name})'
                remedy = Trouble.OTHER_FLOW.remedy.format(id=f'"{names[0]}"')
                raise PartitionHalted(Halted(Trouble.OTHER_FLOW.reason, detail, remedy))

    @staticmethod
    def _writer(writer: int, partition: Partition, flows: list[Flow]) -> Flow | None:
        for flow in flows:
            for compute in (producer_id, filler_id):
                owner = compute(
                    flow=flow.flow, cluster_id=flow.source_cluster, topic=partition.topic, partition=partition.index
                )
                if same_owner(owner, writer):
                    return flow
        return None

    async def _topics(self) -> list[_Topic]:
        """What all internal topics of the destination say.

        Raises:
            NetworkError: not to be known now.
        """
        async with self._looking:
            now = asyncio.get_running_loop().time()
            if now >= self._until:
                self._known = await self._look_up()
                self._until = now + LOOKED_UP_FOR_S
        return self._known

    async def _look_up(self) -> list[_Topic]:
        answer = await self._destination.call(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        found = []
        for topic in answer.topics:
            if topic.name.startswith(PREFIX):
                state = State(self._destination, self._flow, topic=topic.name, lean=True)
                try:
                    if await state.open(create=False):
                        found.append(_Topic(topic.name, state.ledger.flows, _copies(state.ledger)))
                except (Refused, StateUnusable):
                    continue  # not ours to read, or nothing that a mirror has written
        return found


def _copies(ledger: Ledger) -> dict[Side, str | None]:
    found = {side: ledger.checkpoint(side) for side in ledger.sides}
    return {side: checkpoint.source_id for side, checkpoint in found.items() if checkpoint is not None}
