"""Totals over all workers of one supervisor are what was copied, whoever has a partition and however it is lost:
real relays as workers, their snapshots in a fleet."""

import json
import random

import pytest

from mirror.relay.assignment import Assignment, Key
from mirror.service.telemetry import accounts
from mirror.service.telemetry.accounts import Totals
from mirror.service.telemetry.fleet import Fleet
from mirror.service.telemetry.snapshot import Snapshots
from mirror.service.telemetry.usage.gc_stats import Pauses
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import some_turns, until
from tests.relay.stage.flows import Flow, batches, clusters, mirroring

PARTITIONS = 3
KEYS: list[Key] = [("t", index) for index in range(PARTITIONS)]
ROUNDS = 6


class Worker:
    """A relay, and what it tells the fleet of itself."""

    def __init__(self, number: int, flow: Flow, fleet: Fleet) -> None:
        self.relay, self._number, self._fleet = flow.relay, number, fleet
        self._snapshots = Snapshots(Pauses())
        fleet.started(number, number)

    @property
    def assignment(self) -> Assignment:
        assert self.relay.assignment is not None
        return self.relay.assignment

    def tell(self) -> None:
        """Through JSON, as over its channel."""
        snapshot = self._snapshots.take(self.relay, {}, joined=1)
        seen = {"clusters": {}, "unassigned": 0, "silent": [], "unreached": {}}
        self._fleet.heard(self._number, json.loads(json.dumps(snapshot | seen)))


async def shared_between_two(seed: int) -> tuple[int, int]:
    """
    Records come all the time; some requests are done and answered with an error, or never. Partitions go to and fro:
    revoked and drained, revoked without time to drain, or lost. Workers tell of it now and then.

    Returns: records at the destination in the end, and what the fleet says.
    """
    chance = random.Random(seed)
    ends = dict.fromkeys(KEYS, 0)

    def write(source: FakeCluster) -> None:
        for key in KEYS:
            source.store(*key, *batches(chance.randrange(1, 12), first=ends[key]))
            ends[key] = source.log(*key).end

    async with clusters() as (source, destination):
        source.add_topic("t", partitions=PARTITIONS)
        fleet = Fleet("source->destination")
        async with (
            mirroring(source, destination, assigned=True) as one,
            mirroring(source, destination, assigned=True) as other,
        ):
            workers = [Worker(1, one, fleet), Worker(2, other, fleet)]
            for _ in range(ROUNDS):
                owner = chance.choice(workers)
                owner.assignment.assign(KEYS)
                write(source)
                if chance.random() < 0.6:
                    destination.next("Produce", faults.doubtful(ErrorCode.REQUEST_TIMED_OUT))
                if chance.random() < 0.3:
                    destination.next("Produce", faults.disconnect())
                if chance.random() < 0.7:
                    await until(lambda: any(each.queue.acknowledged > 0 for each in owner.relay.partitions.values()))  # noqa: B023
                await some_turns(chance.randrange(30))
                if chance.random() < 0.5:
                    owner.tell()
                if chance.random() < 0.5:
                    owner.assignment.lose(KEYS)
                else:
                    await owner.assignment.revoke(KEYS, chance.choice([0.0, 30.0]))
                if chance.random() < 0.7:
                    chance.choice(workers).tell()
            last = chance.choice(workers)
            last.assignment.assign(KEYS)
            write(source)
            await until(lambda: all(last.relay.partitions[key].queue.acknowledged == ends[key] for key in KEYS))
            for worker in workers:
                worker.tell()
            return sum(ends.values()), sum(totals.records for totals in fleet.totals().values())


@pytest.mark.parametrize("seed", range(12))
async def test_shared_between_two(seed: int) -> None:
    copied, counted = await shared_between_two(seed)
    assert counted == copied


async def test_mutation_each_owner_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what landed between two owners, records are missing from the totals."""
    monkeypatch.setattr(accounts, "_between", lambda *_: Totals())
    missed = [copied - counted for copied, counted in [await shared_between_two(seed) for seed in range(12)]]
    assert max(missed) > 0
