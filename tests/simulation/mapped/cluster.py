"""What ``offsets: mapped`` needs beyond ``tests.simulation.model.cluster``: a source with several topics that go into
one of the destination, a coordinator that fences, renews and forgets, and the internal topic.
"""

import asyncio
import random
import struct
from collections.abc import Callable, Iterable
from typing import Any

from mirror.net.coordinator import Ownership
from mirror.net.errors import NetworkError, NotSent, Refused
from mirror.net.metadata import Leader, Topic
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.pins import FlowEntry
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.internal.memory import May
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.wire.errors import ErrorCode
from mirror.wire.fetch import READ_COMMITTED
from mirror.wire.versions import PRODUCE_KEY
from tests.simulation.mapped.source import ELECTIONS, generation, name_in
from tests.simulation.model.broker import Answer, CoordinatorModel, PartitionModel
from tests.simulation.model.cluster import TOPIC, TOPIC_ID, SimulatedCluster, SimulatedCoordinator, SimulatedSource
from tests.simulation.model.connection import _HEADER, SimulatedConnection
from tests.simulation.model.network import Reply
from tests.simulation.model.site import Site

ID_DAYS_MS = 7 * 86_400_000
"""``transactional.id.expiration.ms``."""
TRIES = 6
Row = tuple[bytes, bytes | None]


class SourceSite(Site):
    """A source with a log for each topic, all led by the same broker. A topic's id follows from its leader epoch, since
    fetches of this version do not name it (``source.generation``)."""

    models: dict[str, PartitionModel]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.known_of: dict[str, int] = {}
        """Topic -> the high watermark that its leader shows, while the followers have not told it of a later one."""

    @property
    def topics(self) -> dict[str, Topic]:
        """As the controller knows them."""
        return {
            name: Topic(
                name=name,
                topic_id=name.encode() * 15 + bytes([generation(model)]),
                internal=False,
                leaders={0: Leader(self.leader, model.epoch)},
            )
            for name, model in self.models.items()
        }

    def model_of(self, name: str, epoch: int) -> tuple[PartitionModel, ErrorCode]:
        """The log, and what a request that names its topic's id and this leader epoch is told."""
        model = self.models[name]
        if epoch // ELECTIONS != generation(model):
            return model, ErrorCode.UNKNOWN_TOPIC_ID
        if epoch != model.epoch:
            return model, ErrorCode.FENCED_LEADER_EPOCH
        return model.as_known(self.known_of.get(name)), ErrorCode.NONE

    def learn_all_of(self, name: str) -> None:
        """The leader knows the high watermark."""
        if self.known_of.pop(name, None) is not None:
            self._trace(self.name, "all of {} is shown", name)
            self.grown()


class Blocks(CoordinatorModel):
    """Coordinators move between brokers, each of which gives producer ids out of a block of its own."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self._next_ids = [1000, 2000, 3000]

    def init_producer_id(self, transactional_id: str) -> Ownership:
        """See ``CoordinatorModel``."""
        block = self._chance.randrange(len(self._next_ids))
        self._next_id = self._next_ids[block]
        owner = super().init_producer_id(transactional_id)
        self._next_ids[block] = self._next_id
        return owner


class DestinationSite(Site):
    """One partition, its coordinator, and the internal topic."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.rows: list[Row] = []
        """Of the internal topic."""
        self.used_at: dict[str, int] = {}
        """When each transactional id was last used, ms since 1970."""
        self._pending: dict[str, int] = {}
        """Markers of each transactional id that are not written yet."""
        self._renewed: dict[str, Ownership] = {}
        """What each id's owner had before it renewed it last: that may come again."""
        self.taken_at: dict[tuple[str, str], int] = {}
        """Rows that the internal topic had when a worker took a transactional id."""
        self.ids: dict[int, str] = {}
        """Producer id -> the transactional id that had it."""
        self.fences: dict[int, int] = {}
        """Producer id -> the highest epoch of its markers that are replicated."""
        self.strays: dict[tuple[int, int], str] = {}
        """(base offset, leader epoch) -> source topic of batches that were appended behind their fence."""

    @property
    def topics(self) -> dict[str, Topic]:
        """As the controller knows them."""
        topic_id = TOPIC_ID[:-1] + bytes([TOPIC_ID[-1] + generation(self.model)])
        return {TOPIC: Topic(name=TOPIC, topic_id=topic_id, internal=False, leaders={0: self.leadership})}

    def remake(self) -> None:
        """The topic is deleted, and another made under its name: it knows of no producer, and of no fence."""
        self._trace(self.name, "the topic is deleted and made anew")
        self.model = PartitionModel(leader_epoch=(generation(self.model) + 1) * ELECTIONS)
        self._deposed.clear()
        self.fences.clear()
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.reply(one.answer._replace(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    def forget_ids(self) -> None:
        """The coordinator's sweep."""
        for name, at in list(self.used_at.items()):
            if at < self.now_ms - ID_DAYS_MS and not self._pending.get(name):
                self._trace(self.name, "{} is forgotten", name)
                del self.used_at[name], self.coordinator.owners[name]

    # -- requests to the coordinator ---------------------------------------------------------------------------------

    def init_id(self, who: str, name: str, reply: Reply) -> None:
        """InitProducerId: once the markers of the transaction before are written."""
        if self._pending.get(name):
            self._loop.call_later(0.05, self.init_id, who, name, reply)
            return
        owner = self.coordinator.init_producer_id(name)
        self.taken_at[who, name] = len(self.rows)
        self.used_at[name] = self.now_ms
        self.ids[owner.producer_id] = name
        self._renewed.pop(name, None)
        self.owned(f"{who} {name}", owner)
        reply(owner)

    def produce(self, who: str, node_id: int, batch: bytes, reply: Reply) -> None:
        """See ``Site``. A leader that has forgotten a fence takes what it was to keep out."""
        self.on_replicated()
        header, model, before = BatchHeader.read(batch), self.model, self.model.end
        super().produce(who, node_id, batch, reply)
        if header.producer_epoch >= self.fences.get(header.producer_id, -1):
            return
        at = model.at(before)
        appended = model.batches[at].header if at < len(model.batches) else None
        if appended is None or (appended.base_offset, appended.crc) != (before, header.crc):
            return
        assert header.producer_id in model.swept, f"{who} is fenced, and nothing was forgotten"
        self.strays[before, model.epoch] = name_in(batch[HEADER_SIZE:])
        self._trace(who, "STRAY: this batch has outlived its fence")

    def renew_id(self, name: str, owner: Ownership, reply: Reply) -> None:
        """The same for the owner only (KIP-360); an id that is not known is a new one."""
        known = self.coordinator.owners.get(name)
        if known is not None and known != owner:
            reply(known if self._renewed.get(name) == owner else Answer(ErrorCode.INVALID_PRODUCER_EPOCH))
            return
        self.used_at[name] = self.now_ms
        self._renewed[name] = owner
        reply(self.coordinator.init_producer_id(name))

    def abort_empty(self, name: str, owner: Ownership, reply: Reply) -> None:
        """AddPartitionsToTxn and EndTxn: one marker, written soon, by the coordinator itself."""
        if self.coordinator.owners.get(name) != owner:
            reply(Answer(ErrorCode.INVALID_PRODUCER_EPOCH))
            return
        self._pending[name] = self._pending.get(name, 0) + 1
        self._loop.call_later(self._chance.choice([0.001, 0.02, 1.0]) * self._chance.random(), self._mark, name, owner)
        reply(Answer(ErrorCode.NONE))

    def _mark(self, name: str, owner: Ownership) -> None:
        broker, model = self.brokers[self.leader], self.model

        def answered(answer: Answer) -> None:
            if answer.error:
                self._loop.call_later(0.1, self._mark, name, owner)
            else:
                self._pending[name] -= 1

        if broker.paused or not broker.up:
            answered(Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        error = model.write_marker(*owner, now_ms=self.now_ms)
        self._trace(self.name, "fence {} at {}: {}", tuple(owner), model.end - (not error), ErrorCode(error).name)
        if error == ErrorCode.NOT_ENOUGH_REPLICAS:
            answered(Answer(error))
        elif error:
            self._pending[name] -= 1
        else:
            self._when_replicated(model, model.end, Answer(ErrorCode.NONE), answered)


class MappedCoordinator(SimulatedCoordinator):
    """A ``Coordinator``."""

    @property
    def _site(self) -> DestinationSite:
        site = self._cluster.site
        assert isinstance(site, DestinationSite)
        return site

    async def init_producer_id(self, transactional_id: str) -> Ownership:
        """InitProducerId, repeated when lost."""
        who, site = self._cluster.process.name, self._site
        for tries in range(TRIES):
            try:
                return _granted(await self._ask("init", lambda reply: site.init_id(who, transactional_id, reply)))
            except NetworkError:
                if tries == TRIES - 1:
                    raise
                await asyncio.sleep(0.05)
        raise AssertionError

    async def renew(self, transactional_id: str, owner: Ownership) -> Ownership:
        """InitProducerId with the owner's epoch."""
        site = self._site
        result = await self._ask("renew", lambda reply: site.renew_id(transactional_id, owner, reply))
        return _granted(result)

    async def describe(self, transactional_id: str) -> Ownership | None:
        """DescribeTransactions."""
        found = await self._ask("describe", lambda reply: reply(self._model.describe(transactional_id)))
        assert isinstance(found, Ownership)
        return found

    async def abort_empty(self, transactional_id: str, owner: Ownership, topic: str, index: int) -> None:
        """The fence."""
        site = self._site
        result = await self._ask("abort", lambda reply: site.abort_empty(transactional_id, owner, reply))
        if result.error:
            raise Refused(f"EndTxn of {transactional_id}", result.error)


def _granted(result: Any) -> Ownership:
    if isinstance(result, Answer):
        raise Refused("InitProducerId", result.error)
    assert isinstance(result, Ownership)
    return result


class MappedState:
    """The internal topic as a worker sees it: ``State`` by its methods; a write may land twice."""

    def __init__(self, cluster: Any, flow: str, *, lean: bool = False) -> None:
        self.topic = f"mirror-internal.{flow}"
        self.ledger = Ledger(lean=lean)
        self.lost: Ledger | None = None
        self._cluster = cluster
        self._next = 0
        self._lock = asyncio.Lock()

    async def open(self, **_: Any) -> bool:
        """It is always there."""
        await self.load()
        return True

    async def look(self, *, replication_factor: int = -1) -> None:
        """It loses nothing."""

    async def load(self) -> None:
        """Up to the end of now."""
        async with self._lock:
            for key, value in await self._ask(lambda rows: rows[self._next :]):
                self.ledger.apply(key, value)
                self._next += 1

    async def put(self, entry: Entry) -> None:
        """One entry."""
        await self.save([entry])

    async def save(self, entries: Iterable[Entry], *, forget: Iterable[bytes] = (), may: May | None = None) -> None:
        """All of it or nothing."""
        rows: list[Row] = [(entry.key(), entry.value()) for entry in entries] + [(key, None) for key in forget]
        async with self._lock:
            if may is not None and not may():
                raise NotSent("not any more")
            await self._ask(lambda all_rows: all_rows.extend(rows))
            for key, value in rows:
                self.ledger.apply(key, value)

    async def claim(self, flow: FlowEntry) -> None:
        """Whose it is; tests with several flows share it."""
        if all(one.key() != flow.key() for one in self.ledger.flows):
            await self.put(flow)

    async def _ask(self, act: Callable[[list[Row]], Any]) -> Any:
        site = self._cluster.site
        for tries in range(TRIES):
            nodes = [broker.node_id for broker in site.brokers.values() if broker.up]
            try:
                return await self._cluster.ask(nodes[0], "state", lambda reply: reply(act(site.rows)), lane="state")
            except NetworkError:
                if tries == TRIES - 1:
                    raise
                await asyncio.sleep(0.1)
        raise AssertionError


class MappedLog(SimulatedSource):
    """A log of one of several topics, at either side."""

    def __init__(
        self, cluster: Any, topic: Topic, index: int, leader: Leader, *, converts: bool = False, begins: int = 0
    ) -> None:
        super().__init__(cluster, topic, index, leader, converts=converts, begins=begins)
        self.index = index

    async def _look(self, what: str, look: Callable[[PartitionModel], Any], *, fenced: bool = True) -> Any:
        site = self._site
        if not isinstance(site, SourceSite):
            return await super()._look(what, look, fenced=fenced)
        name, epoch = self.topic.name, self.leader.epoch
        # Batches are fetched by the topic's id, ends asked for by its name.
        by_name = not what.startswith("read")

        def execute(reply: Reply) -> None:
            model, error = site.model_of(name, epoch)
            if by_name and error == ErrorCode.UNKNOWN_TOPIC_ID:
                error = ErrorCode.NONE
            reply(Answer(error) if error else look(model))

        return self._checked(what, await self._cluster.ask(self.leader.node_id, what, execute))


class MappedCluster(SimulatedCluster):
    """One worker's view of either site."""

    async def refresh(self, topics: Any) -> dict[str, int]:
        """The topics of the site. As with ``Cluster``, the later leader epoch counts: an answer may be late."""
        site = self.site
        assert isinstance(site, SourceSite | DestinationSite)
        node_id = self._chance.choice([one.node_id for one in site.brokers.values() if one.up])
        asked_at = asyncio.get_running_loop().time()
        heard = await self.ask(node_id, "metadata", lambda reply: reply(site.topics))
        for name, topic in heard.items():
            known = self.topics.get(name)
            if known is None or known.leaders[0].epoch <= topic.leaders[0].epoch:
                self.topics[name] = topic
        self.refreshed_at = asked_at
        return {}

    async def dial(self, node_id: int, **options: Any) -> SimulatedConnection:
        """A data connection that asks for several topics at once."""
        connection = MappedConnection(self.site, node_id, allocate=options.get("allocate"))
        connection.link = self.link(node_id, on_lost=connection.lost)
        connection.before_write = self.before_write
        await asyncio.sleep(2 * connection.link.delay())
        if connection.closed:
            raise connection.closed
        return connection


_FETCH_HEAD = struct.Struct(">iiiibiii")
_TOPIC = struct.Struct(">h1si")
_ASKED = struct.Struct(">iiqqi")
_FETCHED_HEAD = struct.Struct(">iihii")
_FOUND = struct.Struct(">ihqqqi")


class MappedConnection(SimulatedConnection):
    """Fetches of several topics, a partition each."""

    def _send(self, frame: bytes) -> None:
        api_key, _, correlation_id, client = _HEADER.unpack_from(frame)
        if api_key == PRODUCE_KEY:
            super()._send(frame)
            return
        at = _HEADER.size + client
        _, max_wait_ms, _, _, isolation, _, _, count = _FETCH_HEAD.unpack_from(frame, at)
        at += _FETCH_HEAD.size
        asked: list[tuple[bytes, int, int, int]] = []
        for _ in range(count):
            _, name, partitions = _TOPIC.unpack_from(frame, at)
            assert partitions == 1
            _, epoch, offset, _, most = _ASKED.unpack_from(frame, at + _TOPIC.size)
            asked.append((name, epoch, offset, most))
            at += _TOPIC.size + _ASKED.size
        execute = self._fetch_all(correlation_id, asked, max_wait_ms, committed=isolation == READ_COMMITTED)
        self._request("fetch", correlation_id, execute)

    def _fetch_all(
        self, correlation_id: int, asked: list[tuple[bytes, int, int, int]], max_wait_ms: int, *, committed: bool
    ) -> Callable[[Reply], None]:
        site = self._site
        assert isinstance(site, SourceSite)

        def execute(reply: Reply) -> None:
            def again() -> None:
                found = [
                    _found(*site.model_of(name.decode(), epoch), name, offset, most, committed=committed)
                    for name, epoch, offset, most in asked
                ]
                if any(more for _, more in found) or self._loop.time() >= answer_at:
                    head = _FETCHED_HEAD.pack(correlation_id, 0, 0, 0, len(found))
                    reply(head + b"".join(part for part, _ in found))
                else:
                    site.when_grown(answer_at, again)

            answer_at = self._loop.time() + max_wait_ms / 1000
            again()

        return execute


def _found(
    model: PartitionModel, error: ErrorCode, name: bytes, offset: int, most: int, *, committed: bool
) -> tuple[bytes, bool]:
    """A topic's part of a Fetch response v11, and whether it says anything new."""
    if error or not model.start <= offset <= model.end:
        head = _FOUND.pack(0, error or ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, -1, 0)
        return _TOPIC.pack(1, name, 1) + head + struct.pack(">ii", -1, 0), True
    stored = model.read(offset, most, committed=committed)
    aborted = model.aborted(offset, stored[-1].header.last_offset) if stored and committed else []
    records = b"".join(one.data for one in stored)
    head = _FOUND.pack(0, 0, model.replicated, model.last_stable, model.start, len(aborted))
    transactions = b"".join(struct.pack(">qq", *one) for one in aborted)
    return _TOPIC.pack(1, name, 1) + head + transactions + struct.pack(">ii", -1, len(records)) + records, bool(stored)
