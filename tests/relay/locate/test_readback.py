"""Looking at the destination beside the data path, with a destination that only answers what it is told to."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.net.buffers import FramePool
from mirror.net.errors import ConnectionLost
from mirror.net.metadata import Leader
from mirror.offsetmap.runs import Run
from mirror.reasons import HaltReason
from mirror.records.admit import Cause, Terms
from mirror.records.header import BatchHeader
from mirror.records.identity import Identity
from mirror.relay.halts import Halted, halt
from mirror.relay.holes.parking import MOST_BYTES, park
from mirror.relay.locate import readback
from mirror.relay.locate.readback import ReadBack
from mirror.relay.outcome import Doubt, Moved
from mirror.relay.partition import clock
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.partition.queue import Batch, Hole, Queue
from mirror.relay.settings import RelaySettings
from mirror.sandbox import SandboxCluster
from mirror.wire.produce import checksum_of
from tests.fakes.loop import until
from tests.net.stage.real import create, transaction
from tests.records.builders import Record, kafka_batch
from tests.relay.stage.mapping import mapping
from tests.simulation.model.broker import stamped

SENT = kafka_batch([Record(0, 0, None, b"value")])
OTHER = kafka_batch([Record(0, 0, None, b"VALUE")])
LEADER = 4
CLEANED = kafka_batch([Record(0, 0, None, b"value"), Record(2, 0, None, b"value")])
BEHIND = kafka_batch([Record(5, 0, None, b"value")], base_offset=5)


class Lane:
    """Where batches go."""

    stalled = False

    def __init__(self, owner: "Orchestrator") -> None:
        self._owner = owner

    def offer(self, queue: Queue) -> None:
        self._owner.told.append("offer")

    def withhold(self, queue: Queue) -> None:
        """Nobody asks."""

    def detach(self, queue: Queue) -> None:
        self._owner.told.append("detach")


class Orchestrator:
    """What is reported to."""

    check_unmoved: Callable[[Partition], Awaitable[None]]

    settings = RelaySettings(flow="a->b", selects=lambda _: True)

    def __init__(self, found: bytes | None, cut: Exception | None) -> None:
        self.locator: Any = self
        self.found, self.error = found, cut
        self.leader = LEADER
        self.told: list[str] = []
        self.cuts: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    def logs(self, partition: Partition) -> tuple[None, Any]:
        async def batch_at(offset: int) -> tuple[BatchHeader, bytes] | None:
            return (BatchHeader.read(self.found), self.found) if self.found is not None else None

        return None, SimpleNamespace(batch_at=batch_at, leader=Leader(self.leader, 0))

    async def cut(self, partition: Partition, offset: int) -> None:
        if self.error is not None:
            raise self.error
        self.cuts.append(offset)

    def act(self, partition: Partition, outcome: Halted | Doubt) -> None:
        self.told.append(f"halt {outcome.reason}" if isinstance(outcome, Halted) else f"doubt {outcome.cause}")

    def pump_sinks(self) -> None:
        self.told.append("pump")

    def forgets_before_ms(self) -> float:
        return 0.0

    def work(self, partition: Partition, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))


def proofs_of(owner: Orchestrator) -> ReadBack:
    """As much of the relay as they need."""
    relay: Any = owner
    return ReadBack(relay)


NOT_PERMITTED = halt(HaltReason.FILL_NOT_PERMITTED, "DeleteRecords is refused")


async def test_what_is_fetched_again_behind_a_hole_leaves_the_proof_valid() -> None:
    """
    1. The first batch after a takeover is acknowledged and read back. Meanwhile the hole behind it is to be filled, and
       what waits behind that is too much: a part is fetched again.
    2. The position is the same, so the proof holds and the window opens. At another position it means nothing.
    """
    for moves, proven in ((False, True), (True, False)):
        owner = Orchestrator(SENT, None)
        partition = Partition("t", 0)
        partition.phase, partition.queue.acknowledged = Phase.ACTIVE, 1
        partition.queue.freshness.appended(1, 0)
        partition.queue.outbox.append(Hole(b"", Identity(1 << 62, 0, 1), 1, None, Cause.MARKER))
        partition.queue.outbox.append(Batch(SENT[:61], memoryview(bytes(MOST_BYTES + 1)), 1, None))
        proofs_of(owner).read_back(partition, 0, Batch(SENT[:61], memoryview(SENT)[61:], 1, None))
        park(partition, FramePool(budget=1 << 20, frame_size=1 << 16))
        assert partition.cursor.due == 2
        if moves:
            partition.doubt()
        await asyncio.gather(*owner.tasks)
        assert (partition.queue.proven, partition.queue.window) == (proven, 5 if proven else 1)
    assert owner.told == []


@pytest.mark.parametrize(
    ("found", "cut", "told", "proven"),
    [
        (SENT, None, [], True),
        (OTHER, None, ["halt not_a_copy"], False),
        (None, None, ["halt not_a_copy"], False),
        (SENT, NOT_PERMITTED, ["halt fill_not_permitted"], False),
        (SENT, ConnectionLost("the destination is gone"), [f"doubt {ConnectionLost.slug}"], False),
    ],
)
async def test_first_batch_after_a_resync(
    found: bytes | None, cut: Exception | None, told: list[str], proven: bool
) -> None:
    """It is the one that was sent, or the partition halts; what is refused while its start is moved is told, too."""
    owner = Orchestrator(found, cut)
    partition = Partition("t", 0)
    partition.phase, partition.queue.proven, partition.claim.destination_leader = Phase.ACTIVE, False, LEADER
    batch = Batch(SENT[:61], memoryview(SENT)[61:], 1, None)
    assert checksum_of(batch[0]) == BatchHeader.read(SENT).crc
    proofs_of(owner).read_back(partition, 0, batch)
    await asyncio.gather(*owner.tasks)
    assert (owner.told, partition.queue.proven) == (told, proven)
    assert owner.cuts == ([1] if proven else [])


@pytest.mark.parametrize(
    ("found", "compacted", "told"),
    [
        (CLEANED, True, "doubt cleaned"),
        (BEHIND, True, "doubt cleaned"),
        (None, True, "doubt cleaned"),
        (OTHER, True, "halt not_a_copy"),
        (CLEANED, False, "halt not_a_copy"),
        (None, False, "halt not_a_copy"),
    ],
)
async def test_a_log_cleaner_that_was_quicker(found: bytes | None, compacted: bool, told: str) -> None:
    """On a compacted destination topic, a batch that its cleaner has changed says nothing about what was sent: the
    position is sought again, which compares what survives. Where there is no cleaner, it is another batch."""
    owner = Orchestrator(found, None)
    partition = Partition("t", 0)
    partition.phase, partition.terms = Phase.ACTIVE, Terms(compacted_there=compacted)
    partition.claim.destination_leader = LEADER
    proofs_of(owner).read_back(partition, 0, Batch(SENT[:61], memoryview(SENT)[61:], 1, None))
    await asyncio.gather(*owner.tasks)
    assert (owner.told, partition.queue.proven) == ([told], False)


@pytest.mark.parametrize("takes", [True, False])
@pytest.mark.parametrize("sent", [SENT, OTHER])
async def test_the_time_of_the_append(sent: bytes, takes: bool) -> None:
    """The broker has put it into the batch, and computed the checksum anew. It is what was sent if that was the
    checksum before."""
    owner = Orchestrator(stamped(SENT, 9_000), None)
    partition = Partition("t", 0)
    partition.phase, partition.terms = Phase.ACTIVE, Terms(takes_append_times=takes)
    partition.claim.destination_leader = LEADER
    proofs_of(owner).read_back(partition, 0, Batch(sent[:61], memoryview(sent)[61:], 1, None))
    await asyncio.gather(*owner.tasks)
    proven = takes and sent is SENT
    assert (owner.told, partition.queue.proven) == ([] if proven else ["halt not_a_copy"], proven)


@pytest.mark.parametrize(("end", "told"), [(1, "doubt rewritten"), (0, "halt not_a_copy")])
async def test_another_worker_that_wrote_it_anew(end: int, told: str) -> None:
    """A batch that was made here may stand there with other bytes: the position is sought again, which compares its
    records. ``end``: of the last batch that was made here."""
    owner = Orchestrator(OTHER, None)
    partition = Partition("t", 0)
    partition.phase = Phase.ACTIVE
    partition.claim.destination_leader = LEADER
    partition.cursor.rewrote(-5, end, -5)
    proofs_of(owner).read_back(partition, 0, Batch(SENT[:61], memoryview(SENT)[61:], 1, None))
    await asyncio.gather(*owner.tasks)
    assert (owner.told, partition.queue.proven) == ([told], False)


async def test_another_worker_with_another_configuration() -> None:
    """A batch that goes as it is may stand there compressed anew, or as a part of a larger one, by a worker that has
    begun with another `compression.type` or `mode`. If that goes on, it is the destination that changes batches."""
    owner = Orchestrator(OTHER, None)
    partition = Partition("t", 0)
    partition.phase, partition.terms = Phase.ACTIVE, Terms(rewrites=True)
    partition.claim.destination_leader = LEADER
    for _ in range(readback.MOST_OTHERWISE + 1):
        proofs_of(owner).read_back(partition, 0, Batch(SENT[:61], memoryview(SENT)[61:], 1, None))
        await asyncio.gather(*owner.tasks)
        assert partition.claim.unread == 0
    assert owner.told == ["doubt rewritten"] * readback.MOST_OTHERWISE + ["halt not_a_copy"]
    owner.found = SENT
    proofs_of(owner).read_back(partition, 0, Batch(SENT[:61], memoryview(SENT)[61:], 1, None))
    await asyncio.gather(*owner.tasks)
    assert (partition.claim.otherwise, partition.queue.proven) == (0, True)


@pytest.mark.parametrize(("leader", "told"), [(LEADER, "halt not_a_copy"), (LEADER + 1, "doubt leader_changed")])
async def test_read_back_elsewhere(leader: int, told: str) -> None:
    """Another broker than the one that has acknowledged it may be the leader no more: what it lacks proves nothing."""
    owner = Orchestrator(None, None)
    owner.leader = leader
    partition = Partition("t", 0)
    partition.phase, partition.claim.destination_leader = Phase.ACTIVE, LEADER
    proofs_of(owner).read_back(partition, 0, Batch(SENT[:61], memoryview(SENT)[61:], 1, None))
    await asyncio.gather(*owner.tasks)
    assert (owner.told, partition.queue.proven) == ([told], False)


@pytest.mark.parametrize(("slow", "looks"), [(0, 1), (1, 2), (9, readback.SLOW_LOOKS)])
async def test_a_look_whose_answer_is_read_late(slow: int, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. This process is stopped while it looks at the log's end. What the answer says may be over: it looks again.
    2. A broker that always takes longer than a look counts is believed in the end, or nothing would ever be sent.
    """
    owner, partition, now, seen = Orchestrator(None, None), Partition("t", 0), [1_000.0], []
    partition.phase, partition.queue.lane = Phase.ACTIVE, Lane(owner)
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: now[0]))
    fresh_s = owner.settings.fresh_s

    async def check_unmoved(_: Partition) -> None:
        seen.append(now[0])
        now[0] += fresh_s + 1 if len(seen) <= slow else fresh_s / 2

    owner.check_unmoved = check_unmoved
    proofs_of(owner).reconfirm(partition)
    await asyncio.gather(*owner.tasks)
    assert len(seen) == looks
    assert partition.queue.confirmed_at == (seen[-1] if slow < looks else now[0])


@pytest.mark.parametrize("event", ["located anew", "in doubt", "halted"])
async def test_a_slow_look_at_a_position_that_is_no_more(event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The position was found anew, is in doubt, or the partition has halted: nobody waits for another look at it. That
    one would go by what is known of the next position, and change what is known of the partition."""
    owner, partition, now, looks = Orchestrator(None, None), Partition("t", 0), [1_000.0], []
    partition.phase, partition.queue.lane = Phase.ACTIVE, Lane(owner)
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def check_unmoved(_: Partition) -> None:
        looks.append(now[0])
        now[0] += owner.settings.fresh_s + 1
        if event == "in doubt":
            partition.doubt()
        elif event == "halted":
            partition.stop_with(Halted.of(HaltReason.CORRUPT, "as an answer would have it"))
        else:
            partition.positions += 1

    owner.check_unmoved = check_unmoved
    proofs_of(owner).reconfirm(partition)
    await asyncio.gather(*owner.tasks)
    assert (len(looks), owner.told) == (1, [])


async def test_behind_the_first_batch_whose_answer_is_read_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old one: its proof took so long that what the answer said of the log's end does not count any more."""
    owner, partition, now, looked = Orchestrator(SENT, None), Partition("t", 0), [1_000.0], []
    partition.phase, partition.queue.lane = Phase.ACTIVE, Lane(owner)
    partition.claim.destination_leader = LEADER
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(owner, "forgets_before_ms", lambda: 1e15)

    async def check_unmoved(_: Partition) -> None:
        looked.append(now[0])

    owner.check_unmoved = check_unmoved
    queue = partition.queue
    queue.checking, queue.acknowledged = False, 1
    queue.confirm(now[0])
    queue.outbox.append(Batch(SENT[:61], memoryview(SENT)[61:], 1, None))
    now[0] += owner.settings.fresh_s + 1
    proofs_of(owner).read_back(partition, 0, Batch(bytes(8) + SENT[:61], memoryview(SENT)[61:], 1, None))
    await owner.tasks[0]
    await asyncio.gather(*owner.tasks)
    assert queue.proven
    assert looked == [now[0]]
    assert owner.told == ["offer", "pump"]


@pytest.mark.parametrize(
    "answer", [None, Moved("end_moved", "the end has moved"), ConnectionLost("frozen"), NOT_PERMITTED]
)
async def test_a_look_at_the_end_of_an_earlier_position(answer: Exception | None) -> None:
    """
    1. A broker is frozen while the end is looked at; by the time that it answers, the partition was located anew, and
       has batches whose end is to be looked at, too.
    2. The new position has a look of its own, which waits for nothing, and then its turn. What the late answer says
       means nothing for it, and does not end its look.
    """
    owner, partition = Orchestrator(None, None), Partition("t", 0)
    partition.phase, partition.queue.lane = Phase.ACTIVE, Lane(owner)
    loop = asyncio.get_running_loop()
    late, prompt = loop.create_future(), loop.create_future()
    answers: list[asyncio.Future[None]] = [late, prompt]

    async def check_unmoved(_: Partition) -> None:
        await answers.pop(0)

    owner.check_unmoved = check_unmoved
    proofs = proofs_of(owner)
    proofs.reconfirm(partition)
    await asyncio.sleep(0)
    partition.positions += 1
    partition.queue.reconfirming = False  # as ``Queue.start`` does
    partition.queue.outbox.append(Batch(SENT[:61], memoryview(SENT)[61:], 1, None))
    proofs.reconfirm(partition)
    await asyncio.sleep(0)
    if isinstance(answer, Exception):
        late.set_exception(answer)
    else:
        late.set_result(answer)
    await owner.tasks[0]
    assert partition.queue.reconfirming
    assert not owner.told
    prompt.set_result(None)
    await asyncio.gather(*owner.tasks)
    assert owner.told == ["offer", "pump"]
    assert not partition.queue.reconfirming


@pytest.mark.broker
async def test_behind_a_backlog_of_transactions(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """
    1. The source has a backlog of transactions. A marker follows the first batch, and behind it waits far more than is
       copied out of its frame: the rest is fetched again once the hole is filled.
    2. The hole waits until the first batch is read back. Then it is filled, and the window opens.
    """
    create(source_cluster, topic_name)
    for number in range(12):
        values = [Random(f"{number} {index}").randbytes(MOST_BYTES // 20).hex() for index in range(4)]
        transaction(source_cluster, topic_name, values, commit=True, transactional_id=topic_name)
    async with mapping(source_cluster, destination_cluster, topic_name, mapped=False) as flow:
        await flow.copied(topic_name)
        queue = flow.relay.partitions[topic_name, 0].queue
        assert queue.filled == 12
        await until(lambda: queue.proven and queue.window == flow.relay.settings.max_in_flight)


def test_where_a_batch_of_a_mapped_flow_stands_at_the_source() -> None:
    """It was acknowledged at an offset of its own: the map has the source's."""
    batch = Batch(b"", memoryview(b""), 2, None)
    exact: Any = SimpleNamespace(queue=SimpleNamespace(copied=None))
    mapped: Any = SimpleNamespace(
        queue=SimpleNamespace(copied=SimpleNamespace(open_map=SimpleNamespace(last=Run(10, 100, 5))))
    )
    assert readback._source_offset(exact, 103, batch) == 103
    assert readback._source_offset(mapped, 103, batch) == 13
