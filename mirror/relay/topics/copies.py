"""Determines which destination topics are known to be copies. Only these get new partitions and changed configs."""

import asyncio
from collections.abc import Mapping

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.logs.leader_requests import LATEST, list_offset
from mirror.net.metadata import Topic
from mirror.offsetmap.fields import id_text
from mirror.offsetmap.internal.memory import Memory


class KnownCopies:
    """Looks in the flow's internal topic and in the destination's logs for what is known of the destination topics."""

    def __init__(self, destination: Cluster, state: Memory) -> None:
        """``state``: the flow's internal topic."""
        self._destination = destination
        self._state = state

    def is_copy(self, topic: Topic, there: Topic) -> bool:
        """Returns True if the destination topic ``there`` is known to be the copy of ``topic``, so that its configs may
        be changed. In another topic, a shorter retention, for example, would delete somebody else's records."""
        ids = id_text(topic.topic_id), id_text(there.topic_id)
        return self._state.ledger.is_copy(topic.name, there.name, topic.leaders, *ids)

    async def strange(self, wanted: Mapping[str, Topic]) -> dict[str, str]:
        """Returns the topics to which no partitions may be added, with the reason. More partitions would send the keys
        of other producers elsewhere, and cannot be removed again.

        A topic may grow if each of its partitions is known to be a copy, or has never held a record.

        Args:
            wanted: name at the destination -> the source topic, which has more partitions.

        Raises:
            NetworkError: the internal topic cannot be read now.
        """
        if not wanted:
            return {}
        await self._state.load()  # other workers locate partitions, too, and write that down
        found = await asyncio.gather(
            *(self._strange(topic, self._destination.topics[name]) for name, topic in wanted.items())
        )
        return {name: why for name, why in zip(wanted, found, strict=True) if why}

    async def _strange(self, topic: Topic, there: Topic) -> str:
        ids = id_text(topic.topic_id), id_text(there.topic_id)
        unknown = [
            index
            for index in sorted(there.leaders)
            if not self._state.ledger.is_copy(topic.name, there.name, [index], *ids)
        ]
        try:
            ends = await asyncio.gather(
                *(list_offset(self._destination, there.name, index, there.leaders[index], LATEST) for index in unknown)
            )
        except NetworkError as error:
            return f"whether {there.name} at {self._destination.name} is a copy is not known now: {error}"
        for index, end in zip(unknown, ends, strict=True):
            if end:
                return (
                    f"{there.name}-{index} at {self._destination.name} ends at offset {end}, and is not known to be "
                    f"this flow's copy of {topic.name}-{index}"
                )
        return ""
