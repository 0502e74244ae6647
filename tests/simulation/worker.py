"""One worker: the product's own relay, from the fetched record set to the acknowledged batch, on simulated clusters.

Of the product, everything runs that decides: ``Relay``, ``Fetcher``, ``forward``, ``Lane``, ``Partition``,
``Locator``, ``Resync``, ``HoleFilling``, ``MarkerRun``. Simulated are sockets, clusters and clocks:
``net.cluster.Cluster``, ``net.connection.Connection``, ``net.logs.log.PartitionLog``, ``net.coordinator.Coordinator``.
"""

import asyncio
import itertools
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, cast
from unittest.mock import patch

from mirror.net import backoff
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.metadata import Leader
from mirror.reasons import is_durable
from mirror.records import identity
from mirror.records.admit import Terms
from mirror.relay.durable import due, flows, loops, writer
from mirror.relay.holes import parking
from mirror.relay.leading import cleanup
from mirror.relay.locate import owners, position
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.relay import Relay
from mirror.relay.settings import RelaySettings
from mirror.relay.topics import paired, verdicts
from mirror.relay.topics.pairing import Pair
from mirror.relay.watch import idle
from tests.simulation.model.clock import VirtualLoop
from tests.simulation.model.cluster import (
    SimulatedCluster,
    SimulatedCoordinator,
    SimulatedLog,
    SimulatedSource,
    SimulatedState,
)
from tests.simulation.model.connection import PRODUCE_VERSION
from tests.simulation.model.network import Trace
from tests.simulation.model.site import TOPIC
from tests.simulation.source import DAY_MS, START_MS

SETTLE_S = 0.3
LOOK_EVERY_S = 2.0
"""For topics."""
NOTE_EVERY_S = 1.0
"""What was copied last is written down so often."""


def _loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


class _Time:
    """What the product sees of the module ``time``."""

    @staticmethod
    def monotonic() -> float:
        return _loop().time()

    @staticmethod
    def time() -> float:
        return START_MS / 1000 + _loop().time() + _loop().skipped_s


class _Random:
    """What the product sees of the module ``random``: jitter, drawn from the run's seed."""

    @staticmethod
    def uniform(least: float, most: float) -> float:
        return _loop().chance.uniform(least, most)


class _Ids:
    """What the product sees of the module ``uuid``: notes are sorted by their writers' ids, too."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def uuid4(self) -> uuid.UUID:
        # The first digits are what the product takes.
        return uuid.UUID(int=next(self._numbers) << 64)


@contextmanager
def simulated() -> Iterator[None]:
    """The product's relay takes the simulated clocks, logs and coordinators for the real ones."""
    with ExitStack() as patches:
        patches.enter_context(patch.object(position, "PartitionLog", SimulatedLog))
        patches.enter_context(patch.object(due, "PartitionLog", SimulatedLog))
        patches.enter_context(patch.object(position, "SourceLog", SimulatedSource))
        patches.enter_context(patch.object(owners, "Coordinator", SimulatedCoordinator))
        patches.enter_context(patch.object(cleanup, "describe_topics", _no_configs))
        patches.enter_context(patch.object(verdicts.Verdicts, "_describe", _not_described))
        patches.enter_context(patch.object(loops.Loops, "_look_up", _no_others))
        patches.enter_context(patch.object(flows.Flows, "_look_up", _no_others))
        patches.enter_context(patch.object(paired, "pair_topics", _paired))
        patches.enter_context(patch.object(idle, "leader_requests", _Questions))
        patches.enter_context(patch.object(writer, "NOTE_EVERY_S", NOTE_EVERY_S))
        # A run sets these as its recipe says; what they were is what stands here when it ends, however it ends.
        patches.enter_context(patch.object(identity, "MAX_EPOCH", identity.MAX_EPOCH))
        patches.enter_context(patch.object(parking, "MOST_BYTES", parking.MOST_BYTES))
        ids = _Ids()
        for name, module in list(sys.modules.items()):
            if name.startswith("mirror.relay.") and hasattr(module, "uuid"):
                patches.enter_context(patch.object(module, "uuid", ids))
            if name.startswith("mirror.relay.") and hasattr(module, "time"):
                patches.enter_context(patch.object(module, "time", _Time))
            if (name.startswith("mirror.relay.") or module is backoff) and hasattr(module, "random"):
                patches.enter_context(patch.object(module, "random", _Random))
        yield


async def _not_described(*_: object) -> None:
    """Every verdict stands."""


async def _no_others(_: object) -> list[object]:
    """There is one flow, and one internal topic."""
    return []


async def _no_configs(*_: object) -> dict[str, object]:
    """Topics have no configs here."""
    return {}


class _Questions:
    """What the product sees of ``net.logs.leader_requests``: one is asked at a time."""

    @staticmethod
    async def list_offset(cluster: Any, topic: str, index: int, leader: Leader, *_: int, **__: int) -> int:
        """The log's true end."""
        return await SimulatedLog(cluster, cluster.topics[topic], index, leader).true_end()


async def _paired(source: Any, destination: Any, _: RelaySettings, log: Any, **__: Any) -> list[Pair]:
    """The topics of now; their configs never change."""
    await source.refresh(None)
    await destination.refresh(None)
    return [
        Pair(source=topic, destination=name, terms=source.terms, partitions_there=len(destination.topics[name].leaders))
        for name, topic in source.topics.items()
    ]


LINGER_MS = 0
"""``linger.ms``: all responses here are small, so it would come before each fetch."""


def settings() -> RelaySettings:
    """Of the flow; short fetches, so that a run has several."""
    return RelaySettings(
        flow="sim",
        selects=lambda name: True,
        fetch_max_bytes=4096,
        max_partition_fetch_bytes=500,
        fetch_max_wait_ms=5_000,
        linger_ms=LINGER_MS,
        buffer_memory=1 << 20,
        request_timeout_ms=10_000,
        settle_ms=round(SETTLE_S * 1000),
        backoff_ms=10,
        backoff_max_ms=500,
        refresh_topics_interval_ms=round(LOOK_EVERY_S * 1000),
    )


class _Log:
    """The product's log lines, in the trace."""

    def __init__(self, name: str, trace: Trace, here: SimulatedCluster) -> None:
        self._name = name
        self._trace = trace
        self._here = here
        self.located_at: dict[object, float] = {}
        """Partition -> when its position was found last."""
        self.halted_at: dict[object, float] = {}
        self.halted_of: dict[object, bytes | None] = {}
        """Partition -> the id of the source's topic, as the worker knew it when the partition halted last."""
        self.begun_anew_at: dict[object, float] = {}
        """Partition -> when its copy was begun anew, since the topics are others and nothing had been copied."""

    def info(self, event: str, **fields: object) -> None:
        told = {key: value for key, value in fields.items() if key not in ("topic", "partition", "remedy")}
        partition = fields.get("partition")
        who = f"{self._name}/{partition}" if partition else self._name
        self._trace(who, "{} {}", event, told or "")
        if event == "located":
            self.located_at[partition] = _loop().time()
        elif event == "halted":
            self.halted_at[partition] = _loop().time()
            known = self._here.topics.get(TOPIC)
            self.halted_of[partition] = known.topic_id if known is not None else None
        elif event == "begun_anew":
            self.begun_anew_at[partition] = _loop().time()

    warning = info


class Worker:
    """A process with a relay in it. ``start`` it, then break it."""

    def __init__(
        self,
        name: str,
        here: SimulatedCluster,
        there: SimulatedCluster,
        trace: Trace,
        *,
        terms: Terms,
        buffer_memory: int,
    ) -> None:
        self.process = here.process
        self.name = name
        self.here, self.there = here, there
        here.terms = terms
        self.log = _Log(name, trace, here)
        usual = replace(settings(), buffer_memory=buffer_memory)
        self.relay = Relay(cast(Cluster, here), cast(Cluster, there), usual, self.log, state=SimulatedState(there))
        self.began = _loop().time()
        self._trace = trace
        self._starting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """As ``Relay.start`` does, but for what brokers are asked about themselves."""
        self._trace(self.name, "starts")
        self._starting = asyncio.get_running_loop().create_task(self._start())

    async def _start(self) -> None:
        one: Any = self.relay
        one.tasks.open()
        one.brokers.use(PRODUCE_VERSION)
        one.expiry.ms = DAY_MS - 15 * 60_000
        wait = backoff.Backoff(least_ms=10, most_ms=500)
        while not one.pairs:
            try:
                await one.durable.open()
                await one.find_topics()
            except NetworkError:
                await asyncio.sleep(wait.next_s())
            if not one.pairs:
                await asyncio.sleep(wait.next_s())
        one.spawn(one.refresh.keep())
        one.spawn(one.durable.keep())
        one.spawn(idle.Idle(one).keep())

    @property
    def partitions(self) -> list[Partition]:
        """All of them, once it has begun."""
        return list(self.relay.partitions.values())

    @property
    def copying(self) -> bool:
        """Whether it has found a position."""
        return any(partition.phase is Phase.ACTIVE for partition in self.partitions)

    @property
    def settled(self) -> bool:
        """Whether it has found all positions."""
        return bool(self.partitions) and all(partition.phase is Phase.ACTIVE for partition in self.partitions)

    @property
    def sending(self) -> bool:
        """Whether it has something to send, or something under way."""
        return any(each.queue.outbox or each.queue.in_flight or each.queue.filling for each in self.partitions)

    @property
    def lags(self) -> bool:
        """Whether it has something to copy yet."""
        return any(partition.lag for partition in self.partitions if partition.phase is Phase.ACTIVE)

    @property
    def halted(self) -> str:
        """The reasons, if partitions have halted."""
        reasons = {partition.halted.reason for partition in self.partitions if partition.halted is not None}
        return " ".join(sorted(reasons))

    def halt_of(self, index: int) -> str:
        """The reason, if this partition has halted and will not go on by itself."""
        for partition in self.partitions:
            if partition.index == index and partition.halted is not None and is_durable(partition.halted.reason):
                return partition.halted.reason
        return ""

    def is_superseded(self, index: int) -> bool:
        """Whether the coordinator names another worker as this partition's owner. In a group, such a worker has lost
        the partition, and gets it anew if that one dies."""
        site, owners = self.there.site, self.relay.locator.owners
        return not site.model.tells_unknown and any(
            site.coordinator.describe(owners.name_of(partition)) != partition.claim.ownership
            for partition in self.partitions
            if partition.index == index
        )

    def check(self) -> None:
        """Raises what a task of the relay died of."""
        for failed in (self.relay.tasks.failed, self._starting):
            if failed is not None and failed.done() and not failed.cancelled() and failed.exception() is not None:
                failed.result()

    def kill(self) -> None:
        """kill -9."""
        self._trace(self.name, "is killed")
        self.process.kill()
        for link in [*self.here.links, *self.there.links]:
            link.close()

    def pause(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after a while."""
        if self.process.paused or self.process.dead:
            return
        self._trace(self.name, "is stopped for {:.3f} s", seconds)
        self.process.paused = True
        asyncio.get_running_loop().call_later(seconds, self.resume)

    def resume(self) -> None:
        """SIGCONT."""
        if self.process.paused and not self.process.dead:
            self._trace(self.name, "goes on")
            self.process.resume()
