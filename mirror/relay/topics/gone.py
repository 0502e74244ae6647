"""Copied topics of the flow that the source no longer has: logged once, and shown while the copy exists.

A pattern goes on matching other topics, so nobody would notice that one of its topics is gone. The topic was deleted
for good, or by mistake, or may no longer be described: only an operator knows which. The copy stays.
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
        """The source topic, as it was at that time."""


class GoneTopics:
    """Knows the gone topics of the flow, as seen by one process."""

    def __init__(
        self, source: Cluster, destination: Cluster, settings: RelaySettings, state: Memory, log: EventLog
    ) -> None:
        self._source = source
        self._destination = destination
        self._settings = settings
        self._state = state
        self._log = log
        self.shown: list[str] = []
        """The names of the gone topics at the source, sorted, as of the last look for topics."""
        self._to_tell: dict[str, Topic] = {}
        """Name -> a topic of an earlier look that the source no longer has, until that is logged."""

    async def renew(self, before: Mapping[str, Named]) -> None:
        """Updates ``shown`` after a look for topics, and logs topics that are gone since the previous look.

        Args:
            before: topic name -> the pair that the previous look found.

        Raises:
            NetworkError: a cluster does not answer. What was not logged is logged at the next look.
        """
        here = self._source.topics
        lost = {name: before[name].source for name in sorted(before) if name not in here}
        self._to_tell = {name: topic for name, topic in (self._to_tell | lost).items() if name not in here}
        if self._to_tell:
            # A list of all topics omits those that may not be described. If asked by name, brokers say so.
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
                # A topic that the configuration names is reported as an entry that nothing matches.
                if self._settings.selects(name) and name not in self._settings.wanted
            )
        )

    def _into(self, name: str) -> str:
        return self._settings.destination_of(name)

    async def _standing(self, gone: list[str]) -> list[str]:
        """Returns those of the topics that have a copy at the destination."""
        if not gone:
            return []
        await self._destination.refresh({self._into(name) for name in gone})
        return [name for name in gone if self._into(name) in self._destination.topics]

    def _tell(self, topics: Iterable[Topic]) -> None:
        """Logs topics that the source had at the previous look. The group will revoke their partitions soon, without a
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
