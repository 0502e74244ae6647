"""Offsets that hold no record at the source are filled with markers at the destination, and all else keeps its own."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from mirror.net.errors import NetworkError
from mirror.net.logs import leader_requests
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.relay.holes import markers
from mirror.relay.holes.markers import CHUNK, MarkerRun, Pace
from mirror.relay.outcome import Moved
from mirror.relay.partition.queue import Hole
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import some_turns, until
from tests.relay.stage.flows import Flow, batch, clusters, mirroring
from tests.simulation.model.broker import marker_batch

ANOTHER = 4_000
"""The producer id of a transactional producer at the source."""


def transactional(source: FakeCluster, rounds: int = 4, *, markers: int = 2) -> None:
    """Topic "t": two records and ``markers`` offsets of markers, again and again; a batch of data at its end."""
    source.add_topic("t")
    for _ in range(rounds):
        source.store("t", 0, batch(source.log("t").end, 2))
        for _ in range(markers):
            source.store("t", 0, marker_batch(source.log("t").end, ANOTHER, 0))
    source.store("t", 0, batch(source.log("t").end, 2))


def assert_filled(flow: Flow) -> None:
    """Data batches have their offsets, and every other offset one marker of ours."""
    source, destination = flow.logs()
    assert destination.end == source.end
    assert len(destination.batches) == len(source.batches)
    for one, other in zip(source.batches, destination.batches, strict=True):
        mine, theirs = BatchHeader.read(one), BatchHeader.read(other)
        assert (theirs.base_offset, theirs.last_offset) == (mine.base_offset, mine.last_offset)
        assert theirs.is_control == mine.is_control
        assert theirs.producer_id != mine.producer_id
        if not mine.is_control:
            assert one[HEADER_SIZE:] == other[HEADER_SIZE:]


async def over(flow: Flow) -> None:
    """All is there and acknowledged."""
    source, destination = flow.logs()
    partition = flow.partition()
    while partition.queue.acknowledged != source.end or destination.end != source.end:
        assert partition.halted is None, partition.halted
        await asyncio.sleep(0.001)
    assert_filled(flow)


async def test_markers_take_the_place_of_markers() -> None:
    async with clusters() as (source, destination):
        transactional(source)
        async with mirroring(source, destination) as flow:
            await over(flow)
            written = sum(len(seen.request.markers) for seen in destination.seen("WriteTxnMarkers"))
            assert written == 8
            assert not flow.log.of("resync")


async def test_a_long_hole_is_filled_in_pieces() -> None:
    async with clusters() as (source, destination):
        transactional(source, 1, markers=2 * CHUNK + 10)
        async with mirroring(source, destination) as flow:
            await over(flow)
            assert [len(seen.request.markers) for seen in destination.seen("WriteTxnMarkers")] == [CHUNK, CHUNK, 10]


FAULTS: dict[str, Callable[[], faults.Fault]] = {
    "no answer": lambda: faults.disconnect(0),
    "no answer, but they come in the end": lambda: faults.late(0.02),
    "an error, and they are there": lambda: faults.doubtful(ErrorCode.REQUEST_TIMED_OUT),
    "an error, and they are not": lambda: faults.refuse(ErrorCode.NOT_ENOUGH_REPLICAS),
    "another coordinator": lambda: faults.refuse(52),
}


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("kind", FAULTS)
async def test_markers_that_are_in_doubt(kind: str, at: int) -> None:
    """Nothing is filled twice, and nothing goes where a marker may still come: the end is looked at, and tells."""
    async with clusters() as (source, destination):
        transactional(source)
        for _ in range(at - 1):
            destination.next("WriteTxnMarkers", faults.Fault())
        fault = destination.next("WriteTxnMarkers", FAULTS[kind]())
        async with mirroring(source, destination, request_timeout_s=5.0) as flow:
            await over(flow)
            assert fault.came.is_set()
            assert kind == "no answer, but they come in the end" or flow.log.of("resync")


@pytest.mark.parametrize("written", [0, 1, 2], ids=["before", "among", "behind"])
async def test_killed_between_data_and_the_markers_behind_it(written: int) -> None:
    """
    1. A worker has copied data. It is killed before the hole behind it is filled, with half of it filled, or with all
       of it, and without an answer to that.
    2. The next one goes on at the destination's log end, with the identity that is due there.
    """
    async with clusters() as (source, destination):
        transactional(source, 1, markers=2 * CHUNK)
        if written:
            destination.next("WriteTxnMarkers", faults.Fault())
        not_done = faults.Fault(error=ErrorCode.NOT_ENOUGH_REPLICAS, gate=asyncio.Event())
        last = destination.next("WriteTxnMarkers", not_done if written < 2 else faults.silence())
        async with mirroring(source, destination):
            await last.came.wait()
            await until(lambda: destination.log("t").end == 2 + written * CHUNK)
        assert destination.log("t").end == 2 + written * CHUNK
        async with mirroring(source, destination) as flow:
            await over(flow)
            assert flow.partition().queue.filled == (2 - written) * CHUNK
        *_, marker, data = map(BatchHeader.read, destination.log("t").batches)
        assert (data.producer_epoch, data.base_sequence) == (marker.producer_epoch + 1, 0)


@pytest.mark.parametrize("rule", [True, False])
async def test_markers_that_wait_behind_others(rule: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. Markers for one partition hang, and those for another wait behind them. Meanwhile another worker fills that hole:
       what was known of the log's end is too old. Nothing is sent, and the end is looked at again.
    2. Otherwise there is a marker too many.
    """
    monkeypatch.setattr(leader_requests, "MARKERS_WAIT_S", 0.05 if rule else 60)
    async with clusters() as (source, destination):
        for topic in ("t", "u"):
            source.add_topic(topic)
            source.store(topic, 0, batch(0, 2), *([marker_batch(2, ANOTHER, 0)] if topic == "t" else []))
        held = destination.next("WriteTxnMarkers", faults.held())
        async with mirroring(source, destination) as flow:
            await held.came.wait()
            waiting = flow.partition("u")
            await until(lambda: waiting.queue.acknowledged == 2)
            source.store("u", 0, marker_batch(2, ANOTHER, 0))
            await until(lambda: waiting.queue.filling)
            await asyncio.sleep(0.1)
            hole = waiting.queue.outbox[0]
            assert isinstance(hole, Hole)
            ours = hole.before.marker
            log = destination.log("u")
            assert log.write_marker(ours.producer_id, ours.epoch, waiting.claim.coordinator_epoch) == 0
            destination.changed()
            held.open()
            if not rule:
                assert await flow.halted("u") == "overfilled"
                return
            source.store("u", 0, batch(3, 2))
            await until(lambda: waiting.queue.acknowledged == 5)
            assert [BatchHeader.read(each).base_offset for each in log.batches] == [0, 2, 3]


async def test_markers_that_are_not_permitted() -> None:
    """It halts, with what is before the hole copied; once they are, an operator lets it go on."""
    async with clusters() as (source, destination):
        transactional(source)
        destination.next("WriteTxnMarkers", faults.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "fill_not_permitted"
            assert destination.log("t").end == 2
            assert not await flow.relay.resume(("t", 0))
            await over(flow)


async def test_a_marker_too_many_halts() -> None:
    """Somebody else's marker in front of ours: what is behind the hole would be displaced, so nothing is sent."""
    async with clusters() as (source, destination):
        transactional(source)
        gate = destination.next("WriteTxnMarkers", faults.held())
        async with mirroring(source, destination) as flow:
            await gate.came.wait()
            destination.log("t").write_marker(ANOTHER, 0, 0)
            gate.open()
            assert await flow.halted() in ("overfilled", "foreign_writer")
            assert all(BatchHeader.read(each).is_control for each in destination.log("t").batches[1:]), (
                "a record at another offset"
            )


async def _unlooked(self: MarkerRun) -> None:
    """Markers are written, and their answers believed."""
    await self._look(self._offset)
    try:
        await self._write(self._until - self._offset)
    except (Moved, NetworkError):
        await self._write(self._until - self._offset)


async def test_without_a_look_at_the_end_it_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule taken away: markers without an answer are written once more."""
    monkeypatch.setattr(MarkerRun, "run", _unlooked)
    with pytest.raises(AssertionError):
        await test_markers_that_are_in_doubt("an error, and they are there", 3)


# At most so many a second.


class Clock:
    """Time that only waiting takes."""

    Lock = asyncio.Lock

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(markers, "time", made)
    monkeypatch.setattr(markers, "asyncio", made)
    return made


async def test_no_more_markers_than_max_fill_per_second(clock: Clock) -> None:
    """All takers together: 5,000 at 1,000 a second, of which the last 500 need not be waited for."""
    pace = Pace(1_000)
    for _ in range(10):
        await pace.take(500)
    assert clock.now == pytest.approx(104.5)


async def test_a_pause_is_not_made_up_for(clock: Clock) -> None:
    pace = Pace(1_000)
    await pace.take(1_000)
    clock.now += 60
    for _ in range(3):
        await pace.take(1_000)
    assert clock.now == pytest.approx(162)


async def test_who_gives_up_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions that are revoked while they wait do not have the next one wait for markers that nobody writes."""
    now = [100.0]
    monkeypatch.setattr(markers, "time", SimpleNamespace(monotonic=lambda: now[0]))
    pace = Pace(1)
    await pace.take(1)
    waiting = [asyncio.create_task(pace.take(1_000)) for _ in range(5)]
    await some_turns()
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    now[0] += 1
    await asyncio.wait_for(pace.take(1), 5)


async def test_the_flow_s_pace_is_the_configuration_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every marker of every partition goes through it."""
    taken: list[tuple[int, int]] = []

    async def take(self: Pace, count: int) -> None:
        taken.append((self._per_second, count))

    monkeypatch.setattr(Pace, "take", take)
    async with clusters() as (source, destination):
        transactional(source)
        async with mirroring(source, destination, max_fill_per_second=77) as flow:
            await over(flow)
    assert taken == [(77, 2)] * 4
