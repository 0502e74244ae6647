"""Copies that begin later than their source (``start.from``), while everything else goes wrong: workers are killed
between the decision and the first write, two of them decide at the same time, the source deletes what is before the
first record that was to be copied.

Each look-up of where to begin is answered with another offset, inside of a batch or between two, so that whatever is
not decided once shows.
"""

import asyncio
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

import pytest

from mirror.offsetmap.entries.entry import read_entry
from mirror.offsetmap.entries.starting import StartingOffset
from mirror.records.content.raw import PlacedRecord
from mirror.records.filler import filler_id, is_filler
from mirror.relay.durable import starts
from mirror.relay.durable.starts import Starts
from mirror.relay.leading import filler
from mirror.relay.locate import holding, position, resync
from mirror.relay.settings import EARLIEST
from tests.simulation import events, worker
from tests.simulation.__main__ import main
from tests.simulation.checks import Violation
from tests.simulation.model.broker import PartitionModel, Stored
from tests.simulation.model.site import TOPIC, Unknown
from tests.simulation.mutation import Mutation, find
from tests.simulation.run import Outcome
from tests.simulation.seeds import FIRST, runs
from tests.simulation.source import SourceLog
from tests.simulation.sweeps.test_pieces import PieceCopy, Rewriting, RichLog, play

pytestmark = pytest.mark.long

RUNS = runs(400)
PIECES = 2
STRIDE = 5
"""Offsets in a batch of filler."""


class StartingCopy(PieceCopy):
    """Of a partition whose copy may begin later than its source."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.retained = 0
        """The source has deleted what is before, while nothing was copied."""
        self._cut: list[tuple[int, int]] = []
        """Leader epoch since an unclean election of the source, and where that has cut the log."""
        self._decided: dict[bytes, StartingOffset] = {}
        self._decided_upto = 0
        self._filler = filler_id(flow="sim", cluster_id="source-id", topic=TOPIC, partition=self.index)
        self.led_to = 0
        """The end of what was filled."""

    @property
    def starting(self) -> StartingOffset | None:
        """The decision that counts: the first one of the topic of now that was not taken back."""
        rows = self.there.remembered
        for key, value in rows[self._decided_upto :]:
            entry = read_entry(key, value) if value is not None else None
            if isinstance(entry, StartingOffset) and entry.subject == self._side:
                self._decided.setdefault(key, entry)
            elif value is None:
                self._decided.pop(key, None)
        self._decided_upto = len(rows)
        topic_id = self.here.partitions[0].topic_id
        now = topic_id.hex() if topic_id is not None else ""
        return next((each for each in self._decided.values() if each.source_id == now), None)

    @property
    def begins(self) -> int:
        """Where the copy begins, as long as the source has deleted nothing of it."""
        return self.starting.offset if self.starting is not None else 0

    @property
    def has_data(self) -> bool:
        """Whether anything but filler was ever appended."""
        return bool(self.seen) or any(not is_filler(one.header, self._filler) for one in self.there.model.batches)

    def begin_anew(self, source: SourceLog) -> None:
        """See ``Copy``."""
        super().begin_anew(source)
        self.retained = 0
        self._cut.clear()

    def lose_end(self, former: SourceLog) -> None:
        """See ``Copy``."""
        super().lose_end(former)
        self._cut.append((self.source.model.epoch, self.source.cut_at))

    def take(self, stored: Stored) -> None:
        """See ``Copy``. Filler is only where nothing of the copy can be."""
        if not is_filler(stored.header, self._filler):
            super().take(stored)
            return
        self._taken += stored.header.last_offset_delta + 1
        self.led_to = max(self.led_to, stored.header.next_offset)
        if self.starting is None and not (self._decided or self.retained or self.recreated):
            raise Violation("filler, and nothing says where the copy begins")

    def _unknown_comes(self, unknown: Unknown) -> str:
        """See ``Copy``. Also the first batch of a worker that is not the owner any more, and was to begin elsewhere."""
        stray = super()._unknown_comes(unknown)
        if not stray and not self._is_owner(unknown.who) and unknown.base_offset:
            return "nothing shows that this batch is of another beginning"
        return stray

    def excuses(self, reason: str, at_s: float) -> bool:
        """Also what the source has deleted, and a source that ends before the copy begins."""
        if reason == "retention_overtook":
            # An empty log that was filled in part may as well have held records.
            return self.retained > 0 or self.emptied
        if reason == "source_truncated" and self.starting is not None and self._is_cut_before():
            return True
        if reason == "other_flow":
            self.look_at_new()
            return bool(self.strays)
        if reason == "overfilled" and self._cut:
            # Of what the source has lost, only holes were filled by then; it may have lost more since.
            return True
        return super().excuses(reason, at_s)

    def _is_cut_before(self) -> bool:
        starting = self.starting
        return starting is not None and any(
            epoch > starting.leader_epoch and at < starting.offset for epoch, at in self._cut
        )

    def _expected(self, one: PlacedRecord) -> bool:
        return one.offset >= max(self.begins, self.retained)

    def compare(self) -> None:
        """See ``Copy``. The destination's log begins where the copy does."""
        super().compare()
        if self._is_cut_before():
            raise Violation("the source has lost its end from before the copy's beginning, and nobody sees it")
        if self.seen and min(self.seen) < self.begins:
            raise Violation(f"offset {min(self.seen)} was copied, and the copy begins at {self.begins}")
        start = self.there.model.start
        if any(start <= one.header.base_offset < self.begins for one in self.there.model.batches):
            raise Violation(f"the destination begins at {start}, and the copy at {self.begins}")
        if not self.emptied and start > max(self.begins, self.retained):
            raise Violation(f"the destination begins at {start}, and the copy at {self.begins}")


class StartingLog(RichLog):
    """Its beginning may be gone."""

    def cuts(self) -> list[int]:
        """See ``SourceLog``."""
        return [at for at in super().cuts() if at >= self.model.start]


class Starting(Rewriting):
    """A run in which most workers are told to begin later than the source."""

    copy_type = StartingCopy
    log_type = StartingLog
    partitions: list[StartingCopy]  # type: ignore[assignment]
    later: ClassVar[int] = 0
    """Copies of all runs that begin later than their source."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.earliest = self.chance.choice([0.0, 0.0, 0.3])
        """Share of the workers that are told nothing: the setting was changed."""
        self.retention = self.chance.choice([0.0, 0.0, 0.5])
        for copy in self.partitions:
            copy.here.first_since = self._first_since
            # Filler that goes on when such a broker has forgotten its producer is refused for ever.
            copy.there.model.tells_unknown = False

    async def play(self) -> None:
        """See ``Run``."""
        await super().play()
        type(self).later += sum(copy.begins > 0 for copy in self.partitions)

    def _first_since(self, model: PartitionModel) -> int:
        """Anything."""
        return self.chance.choice([-1, model.start, *(self.chance.randint(model.start, model.end) for _ in range(4))])

    def hire(self) -> None:
        """See ``Run``."""
        told = EARLIEST if self.chance.random() < self.earliest else "some time"
        with patch.object(worker, "settings", lambda: replace(usual(), start_from=told, start_at_ms=1)):
            super().hire()

    async def _things_happen(self) -> None:
        """See ``Run``."""
        await super()._things_happen()
        if self.chance.random() < self.retention:
            self._retain()

    async def _calm_down(self) -> None:
        """See ``Run``. Filler that a kill -9 has brought back is there until somebody looks."""
        await super()._calm_down()
        for one in self.alive:
            one.kill()
        self.hire()

    def _retain(self) -> None:
        """The source deletes batches, as long as nothing was copied."""
        copy = self.chance.choice(self.partitions)
        model = copy.source.model
        bases = [one.header.base_offset for one in model.batches if model.start < one.header.base_offset]
        bases = [base for base in bases if base <= model.last_stable]
        if bases and not copy.has_data and self.here.topic_id is not None:
            copy.retained = self.chance.choice(bases)
            model.delete_before(copy.retained)
            self.trace("source", "partition {} begins at {}", copy.index, model.start)


usual, clean = worker.settings, events.clean_destination
assert usual().start_from == EARLIEST


class _Asyncio(SimpleNamespace):
    """What filling sees of the module ``asyncio``: there are no threads here."""

    gather = staticmethod(asyncio.gather)
    sleep = staticmethod(asyncio.sleep)

    @staticmethod
    async def to_thread(call: Any, *arguments: Any, **named: Any) -> Any:
        return call(*arguments, **named)


def clean_destination(run: Any) -> None:
    """Its cleaner comes when the filler is gone for good: while that stands in the log, nothing is cleaned there."""
    if all(copy.there.model._start_on_disk >= copy.led_to for copy in run.partitions):
        clean(run)


def play_starting(seed: int) -> Outcome:
    """One run."""
    with ExitStack() as patches:
        patches.enter_context(patch.object(filler, "asyncio", _Asyncio))
        patches.enter_context(patch.object(filler, "stride", lambda *_: STRIDE))
        patches.enter_context(patch.object(events, "clean_destination", clean_destination))
        return play(seed, Starting)


@pytest.mark.parametrize("piece", range(PIECES))
def test_copies_begin_where_it_was_decided(piece: int) -> None:
    """As ``test_pieces``; from the offset on that was decided first, and nothing before it."""
    seeds = range(FIRST + RUNS * piece // PIECES, FIRST + RUNS * (piece + 1) // PIECES)
    Starting.later = 0
    ended = Counter(play_starting(seed).halted for seed in seeds)
    assert ended[""] >= 0.7 * len(seeds), ended
    assert Starting.later > len(seeds) / 4


# Mutations: with a rule taken away, some seed shows what it is for.


async def _last_counts(self: Starts, partition: Any, here: Any) -> None:
    """Everybody begins where its own look-up says."""
    if (found := await self.find(partition, here)) is not None:
        here.begins = found.offset
        await self._state.save([found])


async def _not_written(self: Starts, partition: Any, here: Any) -> None:
    """Whoever decides keeps it for itself."""
    if self.known(partition) is None and (found := await self.find(partition, here)) is not None:
        self._state.ledger.put(found)
    here.begins = self.begins(partition)


async def _never_late(*_: Any) -> bool:
    return False


async def _not_asked(*_: Any) -> None:
    """Whatever the source has lost."""


_holding = holding.batch_holding


async def _of_any_start(*arguments: Any, starting: Any = None, **named: Any) -> int:
    return await _holding(*arguments, **named)


async def _from_its_beginning(log: Any, offset: int, *, compacted: bool) -> int:
    """No batch is known to hold it."""
    return offset


WITHIN = 600
MUTATIONS = (
    Mutation("the first decision counts", ((Starts, "decide", _last_counts),), WITHIN),
    Mutation("it is written down", ((Starts, "decide", _not_written),), WITHIN),
    Mutation("a decision may come too late", ((Starts, "is_late", _never_late),), WITHIN),
    Mutation("what the source has lost before it", ((position, "check_kept", _not_asked),), WITHIN),
    Mutation("the batch that holds it was looked at", ((resync, "batch_holding", _of_any_start),), WITHIN),
    Mutation("that batch is written down", ((starts, "_holding", _from_its_beginning),), WITHIN),
)
"""Not shown by seeds, but in ``tests/relay/durable/test_starts.py``: others may have decided while a worker looked; and
it is written down, too, that a copy begins with its source."""


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_what_a_rule_is_for(mutation: Mutation) -> None:
    find(mutation, play_starting, shown_by=AssertionError)


if __name__ == "__main__":
    sys.exit(main(play_starting))
