"""Copied topics of the flow that the source does not have any more: logged once, and shown while the copy exists.

A pattern goes on to match other topics, so nobody would notice that one of its topics is gone. The topic was deleted
for good, or by mistake, or may not be described any more: only an operator knows. The copy stays.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from mirror.net.cluster import Cluster
from mirror.net.metadata import Topic, not_described
from mirror.net.rights import DESCRIBE, TOPIC, Right
from mirror.offsetmap.fields import id_shown
from mirror.offsetmap.internal.memory import Memory
from mirror.relay.events import EventLog
from mirror.relay.settings import RelaySettings


class Named(Protocol):
    """A topic that was found at the source (``relay.topics.pairing.Pair``)."""

    @property
    def source(self) -> Topic:
        """The source topic, as it was then."""


class GoneTopics:
    """The gone topics of the flow, as one process sees them."""

    def __init__(
        self, source: Cluster, destination: Cluster, settings: RelaySettings, state: Memory, log: EventLog
    ) -> None:
        self._source = source
        self._destination = destination
        self._settings = settings
        self._state = state
        self._log = log
        self.shown: list[str] = []
        """Their names at the source, sorted, as of the last look for topics."""
        self._to_tell: dict[str, Topic] = {}
        """Name -> a topic of an earlier look that the source does not have any more, until that is logged."""

    async def renew(self, before: Mapping[str, Named]) -> None:
        """Updates ``shown`` after a look for topics, and logs topics that are gone since the look before it.

        Args:
            before: topic name -> the pair that the look before this one found.

        Raises:
            NetworkError: a cluster does not answer. What was not logged is at the next look.
        """
        here = self._source.topics
        lost = {name: before[name].source for name in sorted(before) if name not in here}
        self._to_tell = {name: topic for name, topic in (self._to_tell | lost).items() if name not in here}
        if self._to_tell:
            # A list of all topics leaves out those that may not be described; asked by name, brokers say so.
            await self._source.check_denied(sorted(self._to_tell))
            self._tell(self._to_tell.values())
            self._to_tell = {}
        copied = {
            subject.topic for subject in self._state.ledger.known if subject.destination == self._into(subject.topic)
        }
        self.shown = await self._standing(
            sorted(
                name
                for name in {*self.shown, *lost, *copied} - here.keys()
                # A topic that the configuration has by name is reported as an entry that nothing matches.
                if self._settings.selects(name) and name not in self._settings.wanted
            )
        )

    def _into(self, name: str) -> str:
        return self._settings.destination_of(name)

    async def _standing(self, gone: list[str]) -> list[str]:
        """Returns the topics of which the destination has a copy."""
        if not gone:
            return []
        await self._destination.refresh({self._into(name) for name in gone})
        return [name for name in gone if self._into(name) in self._destination.topics]

    def _tell(self, topics: Iterable[Topic]) -> None:
        """Logs topics that the source had at the look before. The group soon revokes their partitions, without a
        reason."""
        for topic in topics:
            if topic.name in self._source.denied:
                error = not_described(self._source.name, topic.name)
                right = Right(DESCRIBE, TOPIC, topic.name, self._source.name)
                self._log.warning(
                    "topic_hidden",
                    topic=topic.name,
                    topic_id=id_shown(topic.topic_id),
                    partitions=len(topic.leaders),
                    detail=f"nothing of it is copied: {error}",
                    remedy=f"{right.grant} (Read includes it); it goes on at the next look for topics",
                )
                continue
            self._log.warning(
                "topic_gone",
                topic=topic.name,
                topic_id=id_shown(topic.topic_id),
                partitions=len(topic.leaders),
                detail=f"cluster {self._source.name} has no topic {topic.name} any more",
                remedy="none is needed if it was deleted for good: what was copied stays where it is",
            )
