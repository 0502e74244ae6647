"""A destination topic that puts the time of the append into batches, or does not, as its config changes, while
everything goes wrong.

Consumers of the destination see the source's records, as in ``test_simulation``. Brokers forget producers by the times
that stand in their logs: old records are remembered, and what seems to be of the future is forgotten after a day.
"""

from collections import Counter
from typing import ClassVar
from unittest.mock import patch

import pytest

from mirror.records import stamped
from mirror.records.admit import Terms
from mirror.records.header import LOG_APPEND_TIME, BatchHeader
from mirror.relay.hot import freshness
from mirror.relay.locate.cleaned import survivors
from mirror.relay.locate.readback import SentBatch
from tests.simulation import run
from tests.simulation.model.clock import VirtualLoop
from tests.simulation.model.cluster import SimulatedCluster
from tests.simulation.model.network import Process
from tests.simulation.mutation import Mutation, find
from tests.simulation.run import Outcome, Run
from tests.simulation.seeds import FIRST, runs
from tests.simulation.worker import Worker

pytestmark = pytest.mark.long

RUNS = runs(400)
PIECES = 2


def other_times(run: Run) -> None:
    """The topic's config changes."""
    stamps = not run.there.stamps
    for site in run.there.partitions:
        site.stamps = stamps
    run.trace("dest", "the topic has {}", "LogAppendTime" if stamps else "CreateTime")


class Stamping(Run):
    """A run with such a destination."""

    events = ([*run.EVENTS[0], other_times], [*run.EVENTS[1], 12])
    marks: ClassVar[Counter[bool]] = Counter()
    """Batches of data at the destination at the end of all runs: whether they are marked."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        super().__init__(seed, loop)
        stamps = self.chance.random() < 0.7
        for site in self.there.partitions:
            site.stamps = stamps

    async def play(self) -> None:
        """See ``Run``."""
        with patch.object(freshness, "now_ms", lambda: self.there.now_ms):
            await super().play()
        for site in self.there.partitions:
            headers = [stored.header for stored in site.model.batches if not stored.header.is_control]
            self.marks.update(bool(header.attributes & LOG_APPEND_TIME) for header in headers)

    def hire(self) -> None:
        """See ``Run``."""
        self._named += 1
        process = Process(f"worker-{self._named}")
        here = SimulatedCluster(self.here, process, self.chance, self.weather)
        there = SimulatedCluster(self.there, process, self.chance, self.weather)
        terms = Terms(
            compacted=self.recipe.gaps > 0, compacted_there=self.recipe.cleaner_there > 0, takes_append_times=True
        )
        worker = Worker(process.name, here, there, self.trace, terms=terms, buffer_memory=self.recipe.buffer_memory)
        there.before_write = lambda what: self._before_write(what, worker)
        self.workers.append(worker)
        worker.start()


def play(seed: int) -> Outcome:
    """One run; see ``run.play``."""
    return run.play(seed, Stamping)


@pytest.mark.parametrize("piece", range(PIECES))
def test_records_keep_their_offsets(piece: int) -> None:
    """As ``test_simulation``."""
    seeds = range(FIRST + RUNS * piece // PIECES, FIRST + RUNS * (piece + 1) // PIECES)
    Stamping.marks.clear()
    ended = Counter(play(seed).halted for seed in seeds)
    assert ended[""] >= 0.7 * len(seeds), ended
    assert min(Stamping.marks[True], Stamping.marks[False]) > len(seeds)


# Mutations: with a rule taken away, some seed shows what it is for.


def _with_its_time(header: BatchHeader, _: int) -> BatchHeader:
    return stamped.unstamped(header, header.max_timestamp)


MUTATIONS = [
    Mutation("a copy is compared as it was sent", ((survivors, "as_sent", lambda copy, _: copy),), 60),
    Mutation("the broker has replaced its max timestamp", ((survivors, "unstamped", _with_its_time),), 60),
    Mutation(
        "what is read back is compared as it was sent",
        (
            (
                SentBatch,
                "is_there",
                lambda self, found, **_: (found.base_offset, found.crc) == (self.base_offset, self.crc),
            ),
        ),
        60,
    ),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_what_a_rule_is_for(mutation: Mutation) -> None:
    find(mutation, play)
