"""Topics of the flow that were copied, and that the source has no more: told once, and shown while a copy stands.

A pattern goes on matching whatever is there: a topic that it matched, and that is gone, would be missed by nobody. It
was deleted for good, or by mistake, or may not be described any more; only an operator knows. What was copied stays.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from mirror.net.cluster import Cluster, Topic
from mirror.offsetmap.fields import id_shown
from mirror.offsetmap.topic import Memory
from mirror.relay.locate.resync import Log
from mirror.relay.settings import RelaySettings


class Named(Protocol):
    """A topic as it was found at the source (``relay.topics.pairing.Pair``)."""

    @property
    def source(self) -> Topic:
        """As it was there."""


class GoneTopics:
    """Of one process."""

    def __init__(self, source: Cluster, destination: Cluster, settings: RelaySettings, state: Memory, log: Log) -> None:
        self._source = source
        self._destination = destination
        self._settings = settings
        self._state = state
        self._log = log
        self.shown: list[str] = []
        """Their names at the source, in order, by the last look for topics."""

    async def renew(self, before: Mapping[str, Named]) -> None:
        """After a look for topics.

        Args:
            before: topic -> what the look before this one found.

        Raises:
            NetworkError: the destination does not answer.
        """
        here = self._source.topics
        lost = sorted(name for name in before if name not in here)
        self._tell(before[name].source for name in lost)
        copied = {side.topic for side in self._state.ledger.known if side.destination == self._into(side.topic)}
        self.shown = await self._standing(
            sorted(
                name
                for name in {*self.shown, *lost, *copied} - here.keys()
                # One that is in the configuration by its name is told as an entry that nothing matches.
                if self._settings.selects(name) and name not in self._settings.wanted
            )
        )

    def _into(self, name: str) -> str:
        return self._settings.destination_of(name)

    async def _standing(self, gone: list[str]) -> list[str]:
        """Those of which the destination has a copy."""
        if not gone:
            return []
        await self._destination.refresh({self._into(name) for name in gone})
        return [name for name in gone if self._into(name) in self._destination.topics]

    def _tell(self, topics: Iterable[Topic]) -> None:
        """Topics that the source had at the last look. The group takes their partitions away soon, without a reason."""
        for topic in topics:
            self._log.warning(
                "topic_gone",
                topic=topic.name,
                topic_id=id_shown(topic.topic_id),
                partitions=len(topic.leaders),
                detail=f"cluster {self._source.name} has no topic {topic.name} any more, or it may not be described",
                remedy="none is needed if it was deleted for good: what was copied stays where it is",
            )
