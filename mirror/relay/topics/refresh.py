"""Decides when a flow looks for its topics: regularly, soon after an assignment of unknown partitions, and at once if
asked."""

import asyncio
import re
from collections.abc import Coroutine
from typing import Any, Protocol

from mirror.net.backoff import Backoff
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.metadata import not_described
from mirror.net.rights import DESCRIBE, TOPIC, Right
from mirror.relay.events import EventLog
from mirror.relay.settings import RelaySettings

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""An entry of ``topics`` that may be a topic's name."""


class Finder(Protocol):
    """The part of the relay that this module needs."""

    source: Cluster
    settings: RelaySettings
    log: EventLog

    @property
    def draining(self) -> bool:
        """True once the relay stops: then there is nothing to look for any more."""

    @property
    def has_unknown(self) -> bool:
        """True if partitions are assigned that the last look did not find."""

    async def find_topics(self) -> int:
        """Looks for topics once, and returns how many there are."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Runs a task that ends with the relay."""


class TopicRefresh:
    """Makes a relay look for its topics.

    Attributes:
        unmatched: entries of ``topics`` that no topic of the source matched at the last look; None: there was no look
            yet.
    """

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._soon: asyncio.Task[None] | None = None
        self._told: set[str] = set()
        self.unmatched: list[str] | None = None

    async def tell_unknown(self) -> None:
        """Logs entries that no topic matches, each once. This is not an error: a topic may be created later.

        Raises:
            NetworkError: the source does not answer.
        """
        settings, source = self._finder.settings, self._finder.source
        every_s = settings.refresh_topics_interval_ms / 1000
        self.unmatched = [entry for entry, matches in settings.wanted.items() if not any(map(matches, source.topics))]
        self._told &= set(self.unmatched)
        new = [entry for entry in self.unmatched if entry not in self._told]
        # A list of all topics omits those that may not be described. If asked by name, brokers say so.
        names = [entry for entry in new if _NAME.fullmatch(entry)]
        if names:
            await source.check_denied(names)
        for entry in new:
            self._told.add(entry)
            detail = f"cluster {source.name} has no topic that {entry} matches"
            remedy = (
                "check its spelling, and that the mirror may Describe it; it is mirrored once it is there "
                f"(looked for every {every_s:g} s, refresh.topics.interval.ms)"
            )
            if entry in source.denied:
                detail = str(not_described(source.name, entry))
                remedy = f"{Right(DESCRIBE, TOPIC, entry, source.name).grant} (Read includes it)"
            self._finder.log.warning("topic_unknown", pattern=entry, detail=detail, remedy=remedy)

    def soon(self) -> None:
        """Looks again until every assigned partition is known: another worker has seen a new topic first."""
        if self._soon is None and not self._finder.draining:
            self._soon = self._finder.spawn(self._until_known())

    def now(self) -> None:
        """Looks at once, because topics seem to have changed since the last look."""
        if not self._finder.draining:
            self._finder.spawn(self._look())

    async def keep(self) -> None:
        """Looks every ``refresh.topics.interval.ms``, until the relay stops."""
        while not self._finder.draining:
            await asyncio.sleep(self._finder.settings.refresh_topics_interval_ms / 1000)
            await self._look()

    async def _until_known(self) -> None:
        settings = self._finder.settings
        backoff = Backoff(least_ms=settings.backoff_ms, most_ms=settings.backoff_max_ms)
        try:
            while self._finder.has_unknown and not self._finder.draining:
                await asyncio.sleep(backoff.next_s())
                await self._look()
        finally:
            self._soon = None

    async def _look(self) -> None:
        try:
            await self._finder.find_topics()
        except NetworkError as error:
            self._finder.log.warning("topics_not_refreshed", detail=str(error))
