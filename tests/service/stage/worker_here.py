"""A worker in this process, between two fake clusters.

Its seat in the group is a stand-in that is given every partition: the fakes know no groups.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from mirror.relay.assignment import Committable, Key
from mirror.relay.relay import Relay
from mirror.service.channel import Channel, ChannelLog, Message
from mirror.service.config import Config, load
from mirror.service.config.resolve import handover
from mirror.service.telemetry.rows import PartitionRow
from mirror.service.worker import Worker
from mirror.service.worker_settings import Handover
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.relay.stage.flows import batches
from tests.service.stage.running import config_text

FLOW = "source->destination"


class Seat:
    """A membership without a group: everything is assigned at the start, and commits are remembered."""

    def __init__(self, relay: Relay) -> None:
        assert relay.assignment is not None
        self._relay, self._assignment = relay, relay.assignment
        self.committed: dict[Key, int] = {}
        self.counters: dict[str, float] = {"commits/ok": 0}
        self.joined = False
        self.failed: BaseException | None = None
        self.ended = False
        self.topics: set[str] = set()
        self.on_joined: Callable[[str], None] = lambda _: None
        self.on_unknown_topic: Callable[[], None] = lambda: None

    def start(self, topics: Iterable[str]) -> None:
        self.topics = set(topics)
        self._assignment.assign(self._relay.keys)
        self.joined = True
        self.on_joined("seat-1")

    def subscribe(self, topics: Iterable[str]) -> None:
        self.topics = set(topics)

    def commit(self, positions: Mapping[Key, Committable]) -> None:
        self.counters["commits/ok"] += 1
        self.committed |= {key: found.offset for key, found in positions.items()}

    async def stop(self) -> None:
        await self._assignment.revoke(self._assignment.keys, 0.0)
        self.ended = True


class Here(Worker):
    """A worker that does not end this process when its supervisor is gone."""

    abandoned = False

    def abandon(self) -> None:
        self.abandoned = True
        self.stop()


class Running:
    """A worker that runs as a task, and what it said."""

    def __init__(self, worker: Here, task: "asyncio.Task[int]", channel: Channel) -> None:
        self.worker = worker
        self.task = task
        self.said: list[Message] = []
        self.seats: list[Seat] = []
        self.channel = channel

    def of(self, kind: str) -> list[Message]:
        return [message for message in self.said if message["kind"] == kind]

    def lines(self, event: str) -> list[dict[str, Any]]:
        return [message["fields"] for message in self.of("log") if message["event"] == event]

    async def message(self, kind: str) -> Message:
        await until(lambda: self.of(kind), what=f"{kind}; {self.said}")
        return self.of(kind)[0]

    @property
    def rows(self) -> dict[Key, PartitionRow]:
        """The partitions as told last."""
        rows: dict[Key, PartitionRow] = {}
        for snapshot in self.of("snapshot"):
            rows |= {row.key: row for row in map(PartitionRow.read, snapshot["partitions"])}
            for topic, partition, *_ in snapshot["gone"]:
                rows.pop((topic, partition), None)
        return rows

    async def stop(self) -> int:
        self.channel.send("stop")
        return await self.task


R = TypeVar("R", bound=Running)


def config_for(source: FakeCluster, destination: FakeCluster, folder: Path, **top: object) -> Config:
    path = folder / "mirror.yaml"
    address = [f"127.0.0.1:{cluster.brokers[1].port}" for cluster in (source, destination)]
    path.write_text(config_text(address[0], address[1], ["t", "u"], top=top))
    return load(path)


@asynccontextmanager
async def started(
    make: Callable[[Here, "asyncio.Task[int]", Channel], R],
    take_seat: Callable[[Relay, str], Seat],
    hear: Callable[[R, Message], None] = lambda _, __: None,
) -> AsyncIterator[R]:
    """A worker that runs; stopped at the end if it still does.

    Args:
        make: what is yielded.
        take_seat: makes a flow's seat, by its name.
        hear: called with each message of the worker.
    """
    mine, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()

    def join(relay: Relay, told: Handover, _: ChannelLog) -> Seat:
        return take_seat(relay, told.flow)

    worker = Here(await Channel.open(theirs), join=join)
    channel = await Channel.open(mine)
    found = make(worker, loop.create_task(worker.run()), channel)

    async def listen() -> None:
        while (message := await channel.receive()) is not None:
            found.said.append(message)
            hear(found, message)

    listening = loop.create_task(listen())
    try:
        yield found
    finally:
        if not found.task.done():
            found.task.cancel()
        await asyncio.gather(found.task, return_exceptions=True)
        await listening
        await channel.close()
        loop.set_exception_handler(handler)


@asynccontextmanager
async def running(config: Config, *, join: bool = True) -> AsyncIterator[Running]:
    """The worker, told to join."""
    seats: list[Seat] = []

    def take_seat(relay: Relay, _: str) -> Seat:
        seats.append(Seat(relay))
        return seats[-1]

    async with started(Running, take_seat) as found:
        found.seats = seats
        found.channel.send("handover", settings=handover(config.enabled_flow(), config).of_worker(1, 1).pack())
        if join:
            found.channel.send("join", flow=FLOW)
        yield found


def scene(source: FakeCluster) -> None:
    source.add_topic("t", partitions=2)
    for index in range(2):
        source.store("t", index, *batches(10))
