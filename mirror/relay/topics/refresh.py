"""When a flow looks for its topics: regularly, soon after an assignment that it does not know, and at once if asked."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from mirror.net.backoff import Backoff
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.relay.events import EventLog
from mirror.relay.settings import RelaySettings


class Finder(Protocol):
    """The relay, as far as looking for topics needs it."""

    source: Cluster
    settings: RelaySettings
    log: EventLog

    @property
    def draining(self) -> bool:
        """True once the relay stops: there is nothing to look for any more."""

    @property
    def has_unknown(self) -> bool:
        """True if partitions are assigned that the last look did not find."""

    async def find_topics(self) -> int:
        """Looks for topics once; returns how many there are."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Runs a task that ends with the relay."""


class TopicRefresh:
    """Has a relay look for its topics.

    Attributes:
        unmatched: entries of ``topics`` that no topic of the source matched at the last look; None: there was none yet.
    """

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._soon: asyncio.Task[None] | None = None
        self._told: set[str] = set()
        self.unmatched: list[str] | None = None

    def tell_unknown(self) -> None:
        """Logs entries that no topic matches, each once. A topic may be created later, so this is not an error."""
        settings, source = self._finder.settings, self._finder.source
        every_s = settings.refresh_topics_interval_ms / 1000
        self.unmatched = [entry for entry, matches in settings.wanted.items() if not any(map(matches, source.topics))]
        for entry in self.unmatched:
            if entry not in self._told:
                self._told.add(entry)
                self._finder.log.warning(
                    "topic_unknown",
                    pattern=entry,
                    detail=f"cluster {source.name} has no topic that {entry} matches",
                    remedy="check its spelling, and that the mirror may Describe it; it is mirrored once it is there "
                    f"(looked for every {every_s:g} s, refresh.topics.interval.ms)",
                )

    def soon(self) -> None:
        """Looks again until every assigned partition is known: another worker saw a new topic first."""
        if self._soon is None and not self._finder.draining:
            self._soon = self._finder.spawn(self._until_known())

    def now(self) -> None:
        """Looks at once: topics seem to have changed since the last look."""
        if not self._finder.draining:
            self._finder.spawn(self._look())

    async def keep(self) -> None:
        """Looks every ``refresh.topics.interval.ms``."""
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
