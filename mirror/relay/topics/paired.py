"""Keeps the flow's topics at both clusters as the last look found them, and logs what an operator has to know about
them."""

from mirror.net.cluster import Cluster
from mirror.offsetmap.internal.memory import Memory
from mirror.relay.assignment import Key
from mirror.relay.events import EventLog
from mirror.relay.settings import RelaySettings
from mirror.relay.topics.copies import KnownCopies
from mirror.relay.topics.describing import Unread
from mirror.relay.topics.gone import GoneTopics
from mirror.relay.topics.limits import Warnings
from mirror.relay.topics.pairing import Pair, pair_topics
from mirror.relay.topics.syncing import ConfigSync


class PairedTopics:
    """The pairs of topics of one flow.

    Attributes:
        pairs: source topic name -> the pair.
        gone: the copied topics that the source no longer has.
        retention_s: source topic name -> how long it keeps records, in seconds, if that is limited and known. It is
            replaced by a new dict after each look that finds a change.
    """

    def __init__(
        self, source: Cluster, destination: Cluster, settings: RelaySettings, state: Memory, log: EventLog
    ) -> None:
        self._source = source
        self._destination = destination
        self._settings = settings
        self._state = state
        self._log = log
        self._sync = ConfigSync(destination, settings, log)
        self._copies = KnownCopies(destination, state)
        self._narrower = Warnings(log, destination.name)
        self._unread = Unread(log, source.name)
        self.pairs: dict[str, Pair] = {}
        self.retention_s: dict[str, float] = {}
        self.gone = GoneTopics(source, destination, settings, state, log)

    @property
    def keys(self) -> list[Key]:
        """All partitions of the flow, including those that other workers copy."""
        return [(name, index) for name, pair in self.pairs.items() for index in sorted(pair.source.leaders)]

    async def look(self) -> None:
        """Pairs the topics as they are now.

        Raises:
            NetworkError: a cluster does not answer.
        """
        pairs = await pair_topics(
            self._source, self._destination, self._settings, self._log, copies=self._copies, sync=self._sync
        )
        self._narrower.tell((pair.destination, pair.narrower) for pair in pairs)
        lacks = self._state.lacks
        self._unread.tell([*(lack for pair in pairs for lack in pair.unread), *([lacks] if lacks else [])])
        before, self.pairs = self.pairs, {pair.source.name: pair for pair in pairs}
        retention_s = {pair.source.name: pair.retention_s for pair in pairs if pair.retention_s is not None}
        if retention_s != self.retention_s:
            self.retention_s = retention_s
        await self.gone.renew(before)
