"""One worker of a flow with ``offsets: mapped``: two source topics that go into one of the destination."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any, cast
from unittest.mock import patch

from mirror.net import backoff
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.records.admit import Terms
from mirror.relay.durable import due, writer
from mirror.relay.locate import owners, position
from mirror.relay.mapped import copied
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.relay import Relay
from mirror.relay.topics.pairing import Pair
from tests.simulation.mapped.cluster import MappedCoordinator, MappedLog, MappedState
from tests.simulation.model.cluster import TOPIC, SimulatedCluster
from tests.simulation.model.connection import PRODUCE_VERSION
from tests.simulation.model.network import Trace
from tests.simulation.source import DAY_MS
from tests.simulation.worker import Worker, _Log, settings, simulated

CHECKPOINT_S = 2.0
CHUNK_RUNS = 6
"""Runs in a chunk: maps of several chunks are usual."""


@contextmanager
def mapped() -> Iterator[None]:
    """As ``simulated``, with what mapped mode needs."""
    with simulated(), ExitStack() as patches:
        patches.enter_context(patch.object(position, "PartitionLog", MappedLog))
        patches.enter_context(patch.object(due, "PartitionLog", MappedLog))
        patches.enter_context(patch.object(position, "SourceLog", MappedLog))
        patches.enter_context(patch.object(owners, "Coordinator", MappedCoordinator))
        patches.enter_context(patch.object(writer, "InternalTopic", MappedState))
        patches.enter_context(patch.object(copied, "CHUNK_RUNS", CHUNK_RUNS))
        yield


class _Lines(_Log):
    """The product's log lines, in the trace; ``on_halt`` is told of each partition that has just been found to halt:
    its source topic and the reason."""

    def __init__(self, name: str, trace: Trace, here: SimulatedCluster) -> None:
        super().__init__(name, trace, here)
        self.on_halt: Callable[[str, str], None] = lambda topic, reason: None

    def warning(self, event: str, **fields: object) -> None:
        """One line."""
        self.info(event, **fields)
        if event == "halted" and "since_ms" not in fields:
            self.on_halt(str(fields["topic"]), str(fields["reason"]))


class MappedWorker(Worker):
    """A process with a relay in it."""

    def __init__(
        self,
        name: str,
        here: SimulatedCluster,
        there: SimulatedCluster,
        trace: Trace,
        *,
        terms: Terms,
        looks_at_ids: bool,
    ) -> None:
        self.process = here.process
        self.name = name
        self.here, self.there = here, there
        self.log: _Lines = _Lines(name, trace, here)
        usual = replace(
            settings(), mapped=True, destination_of=lambda _: TOPIC, checkpoint_interval_ms=round(CHECKPOINT_S * 1000)
        )
        self.relay = Relay(cast(Cluster, here), cast(Cluster, there), usual, self.log)
        self._trace = trace
        self._terms = terms
        self._looks_at_ids = looks_at_ids
        self._starting: asyncio.Task[None] | None = None

    async def _start(self) -> None:
        one: Any = self.relay
        one.tasks.open()
        one.brokers.use(PRODUCE_VERSION)
        one.expiry.ms = DAY_MS - 15 * 60_000
        wait = backoff.Backoff(least_ms=10, most_ms=500)
        opened = False
        while not (self.here.topics and self.there.topics and opened):
            try:
                await self.here.refresh(None)
                await self.there.refresh(None)
                await one.durable.open()
                opened = True
            except (NetworkError, IndexError):
                await asyncio.sleep(wait.next_s())
        one.topics.pairs = {
            name: Pair(source=topic, destination=TOPIC, terms=self._terms, partitions_there=1)
            for name, topic in self.here.topics.items()
        }
        for name in one.pairs:
            one.adopt((name, 0))
        one.spawn(one.durable.keep())
        if self._looks_at_ids:
            one.spawn(one._recreated.keep())

    @property
    def partitions(self) -> list[Partition]:
        """Both, once it has begun."""
        return list(self.relay.partitions.values())

    @property
    def copying(self) -> bool:
        """Whether it has found a position."""
        return any(partition.phase is Phase.ACTIVE for partition in self.partitions)

    @property
    def settled(self) -> bool:
        """Whether nothing is sought."""
        phases = {partition.phase for partition in self.partitions}
        return bool(phases) and phases <= {Phase.ACTIVE, Phase.HALTED}

    @property
    def sending(self) -> bool:
        """Whether it has something to send, or something under way."""
        return any(bool(partition.queue.outbox or partition.queue.in_flight) for partition in self.partitions)

    @property
    def lags(self) -> bool:
        """Whether it has something to copy yet."""
        return any(partition.lag for partition in self.partitions if partition.phase is Phase.ACTIVE)

    @property
    def halted(self) -> str:
        """The reasons, if partitions have halted."""
        reasons = {partition.halted.reason for partition in self.partitions if partition.halted is not None}
        return " ".join(sorted(reasons))

    async def renew(self) -> None:
        """What it does several times in a week."""
        for partition in self.partitions:
            with suppress(NetworkError):
                await cast(Any, self.relay)._renewal.renew(partition)

    async def stop(self) -> None:
        """An orderly stop."""
        await self.relay.drain()
        self.kill()
