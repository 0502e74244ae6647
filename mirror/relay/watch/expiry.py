"""Asks how long the destination's brokers remember producers, at the start and regularly after that.

``producer.id.expiration.ms`` can be changed while brokers run (KIP-854). With an outdated value, the mirror may rely on
a producer that the leader has forgotten. If several batches are in flight then, one may land in another's place. This
can happen between such a change and the next question. So operators may raise the value at any time, but should lower
it only while nothing is copied.
"""

import asyncio
import time

from mirror.net.cluster import Cluster
from mirror.net.rights import CLUSTER, DESCRIBE_CONFIGS, Right
from mirror.relay.events import EventLog
from mirror.relay.topics.describing import describe_brokers

PRODUCER_EXPIRATION = "producer.id.expiration.ms"
PRODUCER_EXPIRATION_MS = 86_400_000
TRANSACTIONAL_EXPIRATION = "transactional.id.expiration.ms"
TRANSACTIONAL_EXPIRATION_MS = 604_800_000
EXPIRATION_MARGIN_MS = 15 * 60_000
"""Largest difference between the clocks of the brokers, of the mirror and of the producers that set the timestamps."""
ASK_EVERY_S = 30.0


class ProducerExpiry:
    """Knows how long the brokers of one cluster remember producers. ``ms``: the least time, minus a margin."""

    def __init__(self, cluster: Cluster, log: EventLog) -> None:
        self.ms = 0.0
        self._cluster = cluster
        self._log = log
        self._expiration_ms: int | None = None
        self._told_assumed = False

    def forgets_before_ms(self) -> float:
        """Returns a time in ms since 1970. Brokers may have forgotten a producer if the newest record of its last batch
        is older."""
        return time.time() * 1000 - self.ms

    async def ask(self) -> None:
        """Asks all brokers. The least value counts. If no broker gives one, the value known before counts, or else
        Kafka's default."""
        answers = await describe_brokers(self._cluster, [PRODUCER_EXPIRATION, TRANSACTIONAL_EXPIRATION])
        told = min((_least(values) for values in answers if values), default=None)
        known, before = told is not None, self._expiration_ms
        if told is None:
            told = before if before is not None else PRODUCER_EXPIRATION_MS
        if known:
            self._told_assumed = False
        elif (answers or before is None) and not self._told_assumed:  # no answers at all: the cluster is away
            self._told_assumed = True
            self._log.warning(
                "producer_memory_assumed",
                detail=f"no broker of cluster {self._cluster.name} tells {PRODUCER_EXPIRATION}: {told} ms are assumed. "
                "If it is less, a batch may take another's place when one is refused",
                remedy=Right(DESCRIBE_CONFIGS, CLUSTER, "", self._cluster.name).grant,
            )
        if before is not None and told != before:
            self._log.warning(
                "producer_memory_changed",
                detail=f"{PRODUCER_EXPIRATION} of cluster {self._cluster.name} is {told} ms now, and was {before} ms",
            )
        if known:
            self._expiration_ms = told
        self.ms = max(told - EXPIRATION_MARGIN_MS, told / 2)

    async def keep(self) -> None:
        """Asks regularly, until cancelled."""
        while True:
            await asyncio.sleep(ASK_EVERY_S)
            await self.ask()


async def transactional_memory_ms(cluster: Cluster) -> float:
    """Returns how long the coordinators remember an unused transactional id, in ms: the least
    ``transactional.id.expiration.ms``, or Kafka's default if no broker gives it."""
    told = await describe_brokers(cluster, [TRANSACTIONAL_EXPIRATION])
    return min((int(value) for values in told for value in values.values()), default=TRANSACTIONAL_EXPIRATION_MS)


def _least(values: dict[str, str]) -> int:
    """Returns how long a broker remembers producers, in ms. Before KIP-854, brokers forget them when they forget
    transactional ids. That is later than today's default for producers, unless it was set lower; so the smaller of the
    two counts."""
    own = values.get(PRODUCER_EXPIRATION)
    return int(own) if own is not None else min(int(values[TRANSACTIONAL_EXPIRATION]), PRODUCER_EXPIRATION_MS)
