"""One worker: the product's own relay, from the fetched record set to the acknowledged batch, on simulated clusters.

Of the product, everything runs that decides: ``Relay``, ``Fetcher``, ``forward``, ``Lane``, ``Partition``,
``Locator``, ``Resync``, ``Filling``. Simulated are sockets, clusters and clocks: ``net.cluster.Cluster``,
``net.connection.Connection``, ``net.log.PartitionLog``, ``net.coordinator.Coordinator``.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast
from unittest.mock import patch

from mirror.net import backoff
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.records.admit import Terms
from mirror.relay import cleanup, position, verdicts
from mirror.relay.partition import Partition, Phase
from mirror.relay.plain import InnerLoop
from mirror.relay.relay import Relay
from mirror.relay.settings import RelaySettings
from mirror.relay.topics import Pair
from tests.simulation.clock import VirtualLoop
from tests.simulation.cluster import TOPIC, SimulatedCluster, SimulatedCoordinator, SimulatedLog, SimulatedState
from tests.simulation.connection import PRODUCE_VERSION
from tests.simulation.network import Trace
from tests.simulation.source import DAY_MS, START_MS

SETTLE_S = 0.3


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


@contextmanager
def simulated() -> Iterator[None]:
    """The product's relay takes the simulated clocks, logs and coordinators for the real ones."""
    with ExitStack() as patches:
        patches.enter_context(patch.object(position, "PartitionLog", SimulatedLog))
        patches.enter_context(patch.object(position, "SourceLog", SimulatedLog))
        patches.enter_context(patch.object(position, "Coordinator", SimulatedCoordinator))
        patches.enter_context(patch.object(cleanup, "describe_topics", _no_configs))
        patches.enter_context(patch.object(verdicts.Verdicts, "_describe", _not_described))
        for name, module in list(sys.modules.items()):
            if name.startswith("mirror.relay.") and hasattr(module, "time"):
                patches.enter_context(patch.object(module, "time", _Time))
            if (name.startswith("mirror.relay.") or module is backoff) and hasattr(module, "random"):
                patches.enter_context(patch.object(module, "random", _Random))
        yield


async def _not_described(*_: object) -> None:
    """Every verdict stands."""


async def _no_configs(*_: object) -> dict[str, object]:
    """Topics have no configs here."""
    return {}


def settings() -> RelaySettings:
    """Of the flow; short fetches, so that a run has several."""
    return RelaySettings(
        flow="sim",
        selects=lambda name: True,
        fetch_max_bytes=4096,
        max_partition_fetch_bytes=500,
        fetch_max_wait_ms=5_000,
        buffer_memory=1 << 20,
        request_timeout_ms=10_000,
        settle_ms=round(SETTLE_S * 1000),
        backoff_ms=10,
        backoff_max_ms=500,
    )


class _Log:
    """The product's log lines, in the trace."""

    def __init__(self, name: str, trace: Trace) -> None:
        self._name = name
        self._trace = trace
        self.located_at = 0.0

    def info(self, event: str, **fields: object) -> None:
        told = {key: value for key, value in fields.items() if key not in ("topic", "partition", "remedy")}
        self._trace(self._name, "{} {}", event, told or "")
        if event == "located":
            self.located_at = _loop().time()

    warning = info


class Worker:
    """A process with a relay in it. ``start`` it, then break it."""

    def __init__(
        self, name: str, here: SimulatedCluster, there: SimulatedCluster, trace: Trace, *, compacted: bool
    ) -> None:
        self.process = here.process
        self.name = name
        self.here, self.there = here, there
        self.log = _Log(name, trace)
        self.relay = Relay(cast(Cluster, here), cast(Cluster, there), settings(), self.log, state=SimulatedState(there))
        self._trace = trace
        self._terms = Terms(compacted=compacted)
        self._starting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """As ``Relay.start`` does, without its topics."""
        self._trace(self.name, "starts")
        self._starting = asyncio.get_running_loop().create_task(self._start())

    async def _start(self) -> None:
        one: Any = self.relay
        one.failed = asyncio.get_running_loop().create_future()
        one._produce_version = PRODUCE_VERSION
        one.inner_loop = InnerLoop(PRODUCE_VERSION)
        one._remembers_ms = DAY_MS - 15 * 60_000
        wait = backoff.Backoff(least_ms=10, most_ms=500)
        for cluster in (self.here, self.there):
            while not cluster.topics:
                try:
                    await cluster.refresh([TOPIC])
                except NetworkError:
                    await asyncio.sleep(wait.next_s())
        one.pairs = {
            TOPIC: Pair(source=self.here.topics[TOPIC], destination=TOPIC, terms=self._terms, partitions_there=1)
        }
        one.adopt((TOPIC, 0))

    @property
    def partition(self) -> Partition | None:
        """Its only one, once it has begun."""
        return self.relay.partitions.get((TOPIC, 0))

    @property
    def copying(self) -> bool:
        """Whether it has found its position."""
        return self.partition is not None and self.partition.phase is Phase.ACTIVE

    @property
    def sending(self) -> bool:
        """Whether it has something to send, or something under way."""
        partition = self.partition
        return partition is not None and bool(partition.outbox or partition.in_flight or partition.filling)

    @property
    def halted(self) -> str:
        """The reason, if its partition has halted."""
        partition = self.partition
        return partition.halted.reason if partition is not None and partition.halted is not None else ""

    def check(self) -> None:
        """Raises what a task of the relay died of."""
        for failed in (self.relay.failed, self._starting):
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
