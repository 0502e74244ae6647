"""Seats: few partitions read logs at the same time, and any number waits for an end to stand still."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mirror.net.errors import StoredInOldFormat
from mirror.net.metadata import Leader
from mirror.reasons import HaltReason
from mirror.relay.halts import halt
from mirror.relay.locate import position, seeking
from mirror.relay.locate.position import Locator
from mirror.relay.locate.rules import Rest
from mirror.relay.locate.seeking import LocatingSeat
from mirror.relay.outcome import NotOurs
from mirror.relay.partition.location import Location
from mirror.relay.partition.partition import Partition
from tests.fakes.loop import some_turns, until
from tests.relay.stage.flows import batch as batch_of
from tests.relay.stage.flows import clusters, mirroring

SEATS, PARTITIONS = 2, 12


class Counted:
    """How many rest at the same time, at the most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rest: Callable[[LocatingSeat, float], Awaitable[None]]) -> None:
        self.resting = self.most_resting = 0
        monkeypatch.setattr(seeking, "AT_ONCE", SEATS)
        monkeypatch.setattr(LocatingSeat, "rest", self._counted(rest))

    def _counted(
        self, rest: Callable[[LocatingSeat, float], Awaitable[None]]
    ) -> Callable[[LocatingSeat, float], Awaitable[None]]:
        async def counting(seat: LocatingSeat, seconds: float) -> None:
            self.resting += 1
            self.most_resting = max(self.most_resting, self.resting)
            try:
                await rest(seat, seconds)
            finally:
                self.resting -= 1

        return counting


async def located() -> None:
    """All partitions of a topic that nobody has copied yet."""
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=PARTITIONS)
        for index in range(PARTITIONS):
            source.store("t", index, batch_of(0))
        async with mirroring(source, destination, settle_ms=2_000) as flow:
            await flow.copied()


async def test_all_wait_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch, LocatingSeat.rest)
    await located()
    assert counted.most_resting == PARTITIONS


async def test_in_their_seats_they_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutation: each keeps its seat while it waits, and the others wait for that."""
    counted = Counted(monkeypatch, lambda _, seconds: asyncio.sleep(seconds))
    await located()
    assert counted.most_resting <= SEATS


async def test_after_its_rest_it_has_a_seat_again() -> None:
    """It waits for one, if others have them all meanwhile."""
    seats, rested = asyncio.Semaphore(1), asyncio.Event()

    async def resting() -> None:
        async with LocatingSeat(seats) as seat:
            await seat.rest(0)
            assert seats.locked()
            rested.set()

    async with seats:
        task = asyncio.create_task(resting())
        await some_turns()
        assert not rested.is_set()
    await task
    assert rested.is_set()
    assert not seats.locked()


async def test_a_seat_is_given_back_once() -> None:
    """Also if it is cancelled while it rests, or while it waits for a seat again."""
    seats = asyncio.Semaphore(1)

    async def resting() -> None:
        async with LocatingSeat(seats) as seat:
            await seat.rest(0)
            await seat.rest(60)

    task = asyncio.create_task(resting())
    await asyncio.sleep(0.01)
    assert not seats.locked()
    async with seats:
        other = asyncio.create_task(resting())
        await asyncio.sleep(0.01)
        for each in (task, other):
            each.cancel()
        await asyncio.gather(task, other, return_exceptions=True)
        assert seats.locked()
    assert not seats.locked()
    await seats.acquire()
    assert seats.locked()


@pytest.mark.parametrize(("cluster", "reason"), [("source", "old_format"), ("destination", "foreign_writer")])
def test_an_old_format_that_is_not_converted_halts(cluster: str, reason: str) -> None:
    """It was taken for something that passes, and looked at for ever. At the destination, others have written it."""
    error = StoredInOldFormat(cluster, "t-0 at 5", "magic 0 or 1")
    halted = seeking._halted_by(error, "source")
    assert halted.reason == reason
    assert "t-0 at 5" in halted.detail


async def test_an_owner_that_is_not_known_is_no_reason_to_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that has forgotten an id just after it gave it (no Apache Kafka does) is asked again with growing
    pauses: each try takes the partition over."""
    tries = 0

    async def locate(_: Locator, partition: Partition, *, takeover: bool, rest: Rest) -> Location:
        nonlocal tries
        tries += 1
        partition.claim.described(unowned=True)
        raise NotOurs(partition.name)

    monkeypatch.setattr(Locator, "locate", locate)
    async with clusters() as (source, destination):
        source.add_topic("t")
        async with mirroring(source, destination, backoff_ms=3_600_000, backoff_max_ms=3_600_000):
            await until(lambda: tries)
            await some_turns(100)
            assert tries == 1


async def test_a_verdict_on_metadata_that_keep_changing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is behind for days names another leader than the others do, and each look is at another one. What
    is found never counts: it is told, and looked for again after pauses that grow."""
    looks = 0

    async def locate(*_: Any, **__: Any) -> Location:
        nonlocal looks
        looks += 1
        raise halt(HaltReason.FOREIGN_WRITER, "as this look would have it")

    monkeypatch.setattr(Locator, "locate", locate)
    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t")
        async with mirroring(source, destination) as flow:
            named = iter(range(1, 1_000_000))
            monkeypatch.setattr(flow.relay.source, "leader", lambda *_: Leader(1, next(named)))
            await until(lambda: [line for line in flow.log.lines if line[:2] == ("warning", "position_unknown")])
            assert looks <= seeking.WARN_AFTER_TRIES + 2
            assert "as this look would have it" in flow.log.of("position_unknown")[-1]["detail"]
            assert flow.partition().halted is None


async def test_brokers_that_say_no_id_take_no_seats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic was made anew before anything was copied, and a broker is waited for that does not say which id it has:
    all partitions of the topic wait for that at the same time, and the seats are for others."""
    asked, gate = 0, asyncio.Event()

    async def check_ids(*_: Any) -> None:
        nonlocal asked
        asked += 1
        await gate.wait()

    monkeypatch.setattr(seeking, "AT_ONCE", SEATS)
    monkeypatch.setattr(position, "ASKING_S", 0.01)
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=PARTITIONS)
        async with mirroring(source, destination) as flow:
            await until(lambda: flow.relay.states == {"active": PARTITIONS})
        source.add_topic("t", partitions=PARTITIONS)
        monkeypatch.setattr(Locator, "check_ids", check_ids)
        async with mirroring(source, destination) as flow:
            await until(lambda: asked == PARTITIONS)
            gate.set()
            await until(lambda: flow.relay.states == {"active": PARTITIONS})
            assert len(flow.log.of("begun_anew")) == PARTITIONS
