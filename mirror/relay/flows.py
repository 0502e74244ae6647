"""The flows that write to a destination, by what their internal topics say: whose a batch of some mirror's is.

Producer ids of exact mode follow from a flow's id, its source cluster's id, topic and partition. Under another flow id
the mirror does not know its own copies any more, so a batch of such an id is told by the name of its flow.
"""

import asyncio

from kafka.protocol.metadata import MetadataRequest

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.state import PREFIX, State
from mirror.records.filler import filler_id
from mirror.records.identity import MIRROR_BIT, producer_id, same_owner
from mirror.records.pins import Flow
from mirror.relay.halts import Halted, PartitionHalted, Trouble
from mirror.relay.partition import Partition

LOOKED_UP_FOR_S = 60.0
"""What was found holds for so long: many partitions ask at the same time."""


class Flows:
    """Of one destination. ``flow``: the id of the one that asks; ``source_cluster``: its source's."""

    def __init__(self, destination: Cluster, *, flow: str, source_cluster: str) -> None:
        self._destination = destination
        self._flow = flow
        self._source_cluster = source_cluster
        self._looking = asyncio.Lock()
        self._known: list[Flow] = []
        self._until = 0.0

    async def named(self, stop: PartitionHalted, partition: Partition) -> PartitionHalted:
        """The halt, with the flow's name where it is for a batch that another flow's mirror has written."""
        writer = stop.writer
        if writer < 0 or not writer & MIRROR_BIT:
            return stop
        try:
            flow, why = self._writer(writer, partition, await self._flows()), "is not written down at this destination"
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

    async def _flows(self) -> list[Flow]:
        """All that are written down at the destination.

        Raises:
            NetworkError: not to be known now.
        """
        async with self._looking:
            now = asyncio.get_running_loop().time()
            if now >= self._until:
                self._known = await self._look_up()
                self._until = now + LOOKED_UP_FOR_S
        return self._known

    async def _look_up(self) -> list[Flow]:
        answer = await self._destination.call(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        found = []
        for topic in answer.topics:
            if topic.name.startswith(PREFIX):
                state = State(self._destination, self._flow, topic=topic.name, lean=True)
                if await state.open(create=False):
                    found += state.ledger.flows
        return found
