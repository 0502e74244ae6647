"""A simulated cluster as a worker sees it: ``net.cluster.Cluster``, ``net.logs.log.PartitionLog`` and
``net.coordinator.Coordinator`` by their methods, over the network of ``tests.simulation.model.network``.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from mirror.net.coordinator import Ownership
from mirror.net.errors import ConnectionLost, NetworkError, NotSent, Refused, RequestTimedOut, Unreachable
from mirror.net.health.histogram import RequestDurations
from mirror.net.logs.log import EpochEnd, Marker, Producer, Segment
from mirror.net.logs.reading import verified
from mirror.net.metadata import Leader, Topic
from mirror.net.options import ConnectionOptions
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.internal.batches import KeyValue
from mirror.offsetmap.internal.memory import May
from mirror.records.admit import Terms
from mirror.records.header import BatchHeader
from mirror.wire.errors import ErrorCode
from mirror.wire.fetch import Node
from tests.fakes.state import MemoryState
from tests.simulation.model.broker import Answer, PartitionModel
from tests.simulation.model.connection import FETCH_BY_ID, SimulatedConnection
from tests.simulation.model.network import Link, Process, Reply, Weather
from tests.simulation.model.site import TOPIC as TOPIC
from tests.simulation.model.site import TOPIC_ID as TOPIC_ID
from tests.simulation.model.site import Site

REQUEST_TIMEOUT_S = 12.0
COORDINATOR_NODE = 1
STATE_NODE = 2


class _Channel:
    """A control connection: calls that wait for their answers; when it is lost, all of them fail."""

    def __init__(self, cluster: "SimulatedCluster", node_id: int) -> None:
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._name = f"{cluster.name} broker {node_id}"
        self._waiting: list[asyncio.Future[Any]] = []
        self.link = cluster.link(node_id, on_lost=self._lost)

    def _lost(self) -> None:
        self.close(ConnectionLost(f"{self._name}: cut"))

    def close(self, error: NetworkError) -> None:
        self.closed = True
        self.link.close()
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    async def call(self, what: str, execute: Callable[[Reply], None]) -> Any:
        process = self.link.process
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(future)
        timer = self._loop.call_later(REQUEST_TIMEOUT_S, process.through, self._timed_out)

        def answered(result: Any) -> None:
            if not future.done():
                self._waiting.remove(future)
                future.set_result(result)

        self.link.send(what, execute, answered)
        try:
            return await future
        finally:
            timer.cancel()

    def _timed_out(self) -> None:
        self.close(RequestTimedOut(f"{self._name}: no answer"))


class SimulatedCluster:
    """One worker's view of a ``Site``. Has of ``Cluster`` what the relay uses."""

    def __init__(self, site: Site, process: Process, chance: random.Random, weather: Weather) -> None:
        self.name = site.name
        self.cluster_id = f"{site.name}-id"
        self.site = site
        self.process = process
        self.nodes = {node_id: Node(node_id, "simulated", node_id) for node_id in site.brokers}
        self.topics: dict[str, Topic] = {}
        self.denied: set[str] = set()
        self.terms = Terms()
        """Of its topics: what their configs say on both sides."""
        self.refreshed_at = -1.0
        self.options = SimpleNamespace(connection=ConnectionOptions(client_id="sim"), backoff_ms=5, backoff_max_ms=200)
        self.durations = RequestDurations()
        self.links: list[Link] = []
        self.before_write: Callable[[str], None] = lambda what: None
        """Called when the worker has decided to write "markers" or "data", and they are not on their way yet."""
        self._chance = chance
        self._weather = weather
        self._channels: dict[tuple[int, str], _Channel] = {}

    async def check_denied(self, topics: Iterable[str]) -> None:
        """Everything may be described."""

    # -- connections -------------------------------------------------------------------------------------------------

    def link(self, node_id: int, *, on_lost: Callable[[], None]) -> Link:
        """A new connection to a broker.

        Raises:
            Unreachable: it is down.
        """
        broker = self.site.brokers[node_id]
        if not broker.up:
            raise Unreachable(f"{self.name} broker {node_id} is down")
        loop = asyncio.get_running_loop()
        link = Link(self.process, broker, loop, self._chance, self._weather, on_lost=on_lost)
        self.links = [one for one in self.links if one.abandoned_at is None]
        self.links.append(link)
        return link

    async def ask(self, node_id: int, what: str, execute: Callable[[Reply], None], *, lane: str = "read") -> Any:
        """One request on a control connection. ``lane``: reads and writes have each their own.

        Raises:
            NetworkError: no answer.
        """
        key = (node_id, lane)
        channel = self._channels.get(key)
        if channel is None or channel.closed:
            channel = self._channels[key] = _Channel(self, node_id)
        return await channel.call(what, execute)

    async def ask_anywhere(self, preferred: int, what: str, execute: Callable[[Reply], None], *, lane: str) -> Any:
        """The same at a broker of choice, or at another if that is down."""
        nodes = [broker.node_id for broker in self.site.brokers.values() if broker.up]
        return await self.ask(preferred if preferred in nodes else nodes[0], what, execute, lane=lane)

    async def dial(self, node_id: int, **options: Any) -> SimulatedConnection:
        """A data connection."""
        connection = SimulatedConnection(self.site, node_id, allocate=options.get("allocate"))
        connection.link = self.link(node_id, on_lost=connection.lost)
        connection.before_write = self.before_write
        await asyncio.sleep(2 * connection.link.delay())
        if connection.closed:
            raise connection.closed
        return connection

    # -- metadata ----------------------------------------------------------------------------------------------------

    async def refresh(self, topics: Any) -> dict[str, int]:
        """Asks any broker who leads."""
        node_id = self._chance.choice([one.node_id for one in self.site.brokers.values() if one.up])
        asked_at = asyncio.get_running_loop().time()
        self.topics = await self.ask(node_id, "metadata", lambda reply: reply(self.site.topics))
        self.refreshed_at = asked_at
        return {}

    async def ids_of(self, topic: str, *, patience_s: float) -> tuple[set[bytes], int]:
        """What one broker tells: none is behind in this, and none needed besides."""
        await self.refresh([topic])
        known = self.topics.get(topic)
        return ({known.topic_id} if known is not None and known.topic_id is not None else set()), 0

    def refreshed_of(self, topic: str) -> float:
        """Each refresh is of all topics."""
        return self.refreshed_at

    def failed(self, api: str, error: str) -> None:
        """Counted by nobody."""

    def leader(self, topic: str, partition: int) -> Leader | None:
        """As last heard."""
        known = self.topics.get(topic)
        leader = known.leaders.get(partition) if known else None
        return leader if leader and leader.node_id in self.nodes else None

    def hint(self, *_: Any) -> bool:
        """Hints (KIP-951) are not simulated."""
        return False


class SimulatedLog:
    """A ``PartitionLog``."""

    def __init__(self, cluster: Any, topic: Topic, index: int, leader: Leader, *, converts: bool = False) -> None:
        assert isinstance(cluster, SimulatedCluster)
        self._converts = converts
        self.topic = topic
        self.name = f"{topic.name}-{index} at {cluster.name}"
        self._cluster = cluster
        self._site = cluster.site.partitions[index]
        self._topic_id = topic.topic_id
        self._by_id = cluster.site.fetch_version == FETCH_BY_ID
        self.leader = leader

    async def _look(self, what: str, look: Callable[[PartitionModel], Any], *, fenced: bool = True) -> Any:
        ask = self._site.look if fenced else self._site.look_unfenced
        result = await self._cluster.ask(self.leader.node_id, what, lambda reply: ask(self.leader, look, reply))
        return self._checked(what, result)

    def _checked(self, what: str, result: Any) -> Any:
        if isinstance(result, Answer) and result.error:
            raise Refused(f"{self.name}: {what}", result.error)
        return result

    async def start(self) -> int:
        """ListOffsets EARLIEST."""
        return int(await self._look("start", lambda model: model.start))

    async def true_end(self) -> int:
        """ListOffsets LATEST as a replica."""
        return int(await self._look("true end", lambda model: model.end))

    async def visible_end(self) -> int:
        """ListOffsets LATEST."""

        def look(model: PartitionModel) -> int | Answer:
            return Answer(ErrorCode.OFFSET_NOT_AVAILABLE) if model.visible_end is None else model.visible_end

        return int(await self._look("visible end", look))

    async def read(self, offset: int, *, max_bytes: int = 1, committed: bool = False) -> Segment:
        """Fetch."""

        def look(model: PartitionModel) -> Segment | Answer:
            if self._by_id and self._topic_id != self._cluster.site.topic_id:
                return Answer(ErrorCode.UNKNOWN_TOPIC_ID)
            if not model.start <= offset <= model.end:
                return Answer(ErrorCode.OFFSET_OUT_OF_RANGE)
            stored = model.read(offset, max_bytes, committed=committed)
            aborted = model.aborted(offset, stored[-1].header.last_offset) if committed and stored else []
            batches = [(one.header, memoryview(one.data)) for one in stored]
            if self._converts and any(one.header.is_stand_in for one in stored):
                batches, _ = verified(memoryview(b"".join(one.data for one in stored)), offset, converts=True)
            return Segment(
                batches,
                aborted,
                model.replicated,
                model.last_stable,
                model.start,
            )

        segment = await self._look(f"read at {offset}", look)
        assert isinstance(segment, Segment)
        return segment

    async def batch_at(self, offset: int) -> tuple[BatchHeader, bytes] | None:
        """The one batch there."""
        segment = await self.read(offset)
        return (segment.batches[0][0], bytes(segment.batches[0][1])) if segment.batches else None

    async def producers(self) -> list[Producer] | None:
        """DescribeProducers; brokers that are so old do not have it."""
        if self._site.model.tells_unknown:
            return None

        def look(model: PartitionModel) -> list[Producer]:
            return [
                Producer(key, state.epoch, state.last_sequence, state.coordinator_epoch)
                for key, state in model.producers.items()
            ]

        return list(await self._look("producers", look, fenced=False))

    async def end_of_epoch(self, epoch: int) -> EpochEnd | None:
        """OffsetForLeaderEpoch."""

        found = await self._look(f"end of epoch {epoch}", lambda model: EpochEnd(*model.end_of_epoch(epoch)))
        assert isinstance(found, EpochEnd)
        return found

    async def write_markers(self, marker: Marker, count: int) -> None:
        """WriteTxnMarkers."""
        self._cluster.before_write("markers")
        who, node_id = self._cluster.process.name, self.leader.node_id
        result = await self._cluster.ask(
            node_id,
            "markers",
            lambda reply: self._site.write_markers(who, node_id, marker, count, reply),
            lane="write",
        )
        self._checked("markers", result)

    async def delete_before(self, offset: int) -> None:
        """DeleteRecords."""
        who, node_id = self._cluster.process.name, self.leader.node_id
        result = await self._cluster.ask(
            node_id,
            "delete",
            lambda reply: self._site.delete_before(who, node_id, offset, reply),
            lane="write",
        )
        self._checked("delete", result)

    async def takes_zstd(self) -> bool:
        """It is not asked in how many bytes."""
        return False

    async def produce(self, batch: bytes) -> int:
        """Produce, off the data path."""
        who, node_id = self._cluster.process.name, self.leader.node_id
        result = await self._cluster.ask(
            node_id, "produce", lambda reply: self._site.produce(who, node_id, batch, reply), lane="write"
        )
        return int(self._checked("produce", result).base_offset)


class SimulatedSource(SimulatedLog):
    """A ``SourceLog``. It begins with a whole batch, unless its copy is to begin later."""

    floor = 0

    def __init__(self, *arguments: Any, begins: int = 0, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.begins = begins

    async def start(self) -> int:
        """ListOffsets EARLIEST, or where the copy begins."""
        self.floor = max(await super().start(), self.begins)
        return self.floor

    async def read(self, offset: int, *, max_bytes: int = 1, committed: bool = False) -> Segment:
        """Fetch."""
        return await super().read(max(offset, self.floor), max_bytes=max_bytes, committed=committed)

    async def first_since(self, at_ms: int) -> int | None:
        """ListOffsets with a time: whatever the run draws, each time anew."""
        found = int(await self._look("first since", self._site.first_since))
        return found if found >= 0 else None


class SimulatedState(MemoryState):
    """A ``State`` of the internal topic, which is at another broker than the partition. What is written may be there
    though its answer was lost."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster.site.remembered)
        self._cluster = cluster
        self._loading = asyncio.Lock()

    async def load(self) -> None:
        """Fetch."""
        async with self._loading:
            rows = await self._ask("load", lambda reply: reply(list(self.rows[self._next :])))
            for key, value in rows:
                self.ledger.apply(key, value)
            self._next += len(rows)

    async def save(self, entries: Iterable[Entry], *, forget: Iterable[bytes] = (), may: May | None = None) -> None:
        """Produce."""
        if may is not None and not may():
            raise NotSent("not any more")
        rows: list[KeyValue] = [*((one.key(), one.value()) for one in entries), *((key, None) for key in forget)]

        def execute(reply: Reply) -> None:
            self._cluster.site.remember(rows)
            reply(None)

        await self._ask("save", execute)
        for key, value in rows:
            self.ledger.apply(key, value)

    async def _ask(self, what: str, execute: Callable[[Reply], None]) -> Any:
        return await self._cluster.ask_anywhere(STATE_NODE, what, execute, lane="state")


class SimulatedCoordinator:
    """A ``Coordinator``; it is always at the same broker, and what it has decided stays decided."""

    def __init__(self, cluster: Any) -> None:
        assert isinstance(cluster, SimulatedCluster)
        self._cluster = cluster
        self._model = cluster.site.coordinator

    async def init_producer_id(self, transactional_id: str) -> Ownership:
        """InitProducerId; repeated when lost, as the real one is."""
        who, site = self._cluster.process.name, self._partition(transactional_id)

        def execute(reply: Reply) -> None:
            owner = self._model.init_producer_id(transactional_id)
            site.owned(who, owner)
            reply(owner)

        for _ in range(20):
            try:
                owner: Ownership = await self._ask("init", execute)
                return owner
            except NetworkError:
                await asyncio.sleep(0.05)
        raise Unreachable(f"{self._cluster.name}: the coordinator does not answer")

    async def describe(self, transactional_id: str) -> Ownership | None:
        """DescribeTransactions; brokers that are so old do not have it."""
        if self._cluster.site.model.tells_unknown:
            return None
        who, site = self._cluster.process.name, self._partition(transactional_id)

        def execute(reply: Reply) -> None:
            site.asked(who)
            reply(self._model.describe(transactional_id))

        owner: Ownership | None = await self._ask("describe", execute)
        return owner

    async def abort_empty(self, transactional_id: str, owner: Ownership, topic: str, index: int) -> None:
        """No run of the simulation fills by transactions: they promise less than what is asserted of it."""
        raise AssertionError(f"fill: transaction, of {topic}-{index}")

    def _partition(self, transactional_id: str) -> Site:
        """The id ends with the partition's index."""
        return self._cluster.site.partitions[int(transactional_id.rpartition(".")[2])]

    async def _ask(self, what: str, execute: Callable[[Reply], None]) -> Any:
        return await self._cluster.ask_anywhere(COORDINATOR_NODE, what, execute, lane="coordinator")
