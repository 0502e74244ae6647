"""``offsets: mapped`` with copies that begin later than their source (``start.from``), while everything goes wrong.
Each look-up of where to begin is answered with another offset, inside of a batch or between two.
"""

import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, ClassVar
from unittest.mock import patch

import pytest

from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.entries.entry import read_entry
from mirror.offsetmap.entries.starting import StartingOffset
from mirror.offsetmap.internal.ledger import Ledger
from mirror.records.admit import NOT_INSIDE
from mirror.relay.hot import deep
from mirror.relay.mapped import locate
from mirror.relay.settings import EARLIEST
from tests.simulation.__main__ import main
from tests.simulation.checks import Violation
from tests.simulation.mapped import run, worker
from tests.simulation.mapped.checks import side_of
from tests.simulation.mapped.cluster import Row
from tests.simulation.mapped.source import Source, Taste, generation
from tests.simulation.mapped.test_pieces import Rewriting, RichCauses, RichCopies, RichSource
from tests.simulation.model.broker import PartitionModel, Stored
from tests.simulation.mutation import Mutation, find
from tests.simulation.run import Outcome
from tests.simulation.seeds import FIRST, mapped_runs
from tests.simulation.worker import settings

pytestmark = pytest.mark.long

RUNS = mapped_runs(200)


class StartingSource(RichSource):
    """Remembers where unclean elections have cut it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.ends: list[tuple[int, int]] = []
        """Leader epoch since, and where the log ended."""

    def truncate(self, copied_to: int) -> PartitionModel:
        """See ``Source``."""
        before = self.model
        model = super().truncate(copied_to)
        if model is not before:
            self.ends.append((model.epoch, model.end))
        return model

    def is_cut_before(self, starting: StartingOffset | None) -> bool:
        """Whether it has lost its end from before a copy's beginning, since that was decided."""
        return starting is not None and any(
            starting.leader_epoch < epoch <= self.origin.epoch and end < starting.offset for epoch, end in self.ends
        )


def decided(rows: list[Row], source: Source) -> StartingOffset | None:
    """The decision that counts: the first one on the topic that is copied, unless the copy had begun before that offset
    by then."""
    source_id = (source.name.encode() * 15 + bytes([generation(source.origin)])).hex()
    found: StartingOffset | None = None
    least = sys.maxsize
    for key, value in rows:
        entry = read_entry(key, value) if value is not None else None
        if not isinstance(entry, StartingOffset | Checkpoint) or entry.subject != side_of(source.name):
            continue
        if entry.source_id != source_id:
            continue
        if isinstance(entry, Checkpoint):
            least = min(least, entry.source_offset)
        elif found is None and least == sys.maxsize:
            found = entry
    return found if found is not None and found.offset <= least else None


class StartingCopies(RichCopies):
    """Of sources whose first records may be left out."""

    def starting(self, name: str) -> StartingOffset | None:
        """See ``decided``."""
        return decided(self._site.rows, self._sources[name])

    def _begins(self, name: str) -> int:
        source, starting = self._sources[name], self.starting(name)
        assert isinstance(source, StartingSource)
        return starting.offset if starting is not None and not source.is_cut_before(starting) else 0

    def upto(self, name: str) -> int:
        """See ``Copies``."""
        return super().upto(name) or self._begins(name)

    def _may_lack(self, name: str, original: Stored) -> bool:
        return super()._may_lack(name, original) or (
            not self.own[name] and original.header.base_offset < self._begins(name)
        )

    def is_whole(self, name: str) -> bool:
        """See ``Copies``."""
        own, originals, starting = self.own[name], self._sources[name].copied(), self.starting(name)
        if own and starting is not None and originals[own[0].at].header.base_offset < starting.offset:
            first = originals[own[0].at].header.base_offset
            raise Violation(f"offset {first} was copied, and the copy begins at {starting.offset}")
        return super().is_whole(name)


class StartingCauses(RichCauses):
    """Also a source that has lost its end from before the copy's beginning."""

    def _by(self, name: str, reason: str, known: Ledger) -> str:
        source = self._sources[name]
        assert isinstance(source, StartingSource)
        cut = reason == "source_truncated" and source.is_cut_before(decided(self._site.rows, source))
        return super()._by(name, reason, known) or ("the source ends before the copy begins" if cut else "")


class Starting(Rewriting):
    """A run in which most workers are told to begin later than the source."""

    source_type = StartingSource
    copies_type = StartingCopies
    causes_type = StartingCauses
    later: ClassVar[int] = 0
    """Copies of all runs that begin later than their source."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.earliest = self.chance.choice([0.0, 0.0, 0.3])
        """Share of the workers that are told nothing: the setting was changed."""
        self.here.first_since = self._first_since

    def _first_since(self, model: PartitionModel) -> int:
        """Anything."""
        return self.chance.choice([-1, model.start, *(self.chance.randint(model.start, model.end) for _ in range(4))])

    def hire(self) -> None:
        """See ``MappedRun``."""
        told = EARLIEST if self.chance.random() < self.earliest else "some time"
        with patch.object(worker, "settings", lambda: replace(usual(), start_from=told, start_at_ms=1)):
            super().hire()

    async def play(self) -> None:
        """See ``MappedRun``."""
        await super().play()
        found = (decided(self.there.rows, source) for source in self.sources.values())
        type(self).later += sum(each is not None and each.offset > 0 for each in found)


usual = settings
_draw = Taste.draw
KINDS: tuple[dict[str, Any], ...] = (
    {"truncated": 0.0, "cleaned_here": 0.0},
    {"truncated": 0.0, "cleaned_here": 0.0, "recreated": 0.0, "deleted_here": 0.3},
    {"truncated": 0.2, "cleaned_here": 0.0, "deleted_here": 0.0, "recreated": 0.0},
)


def play_starting(seed: int) -> Outcome:
    """One run, of one of the kinds."""
    changes = {"equal": False, "remade": 0.0, "cleaned_there": 0.0} | KINDS[seed % len(KINDS)]
    with ExitStack() as patches:
        patches.enter_context(patch.object(Taste, "draw", lambda chance: _draw(chance)._replace(**changes)))
        patches.enter_context(patch.object(deep, "MOST_PIECES", 2))
        return run.play(seed, Starting)


def test_copies_begin_where_it_was_decided() -> None:
    """As ``test_pieces``; from the offset on that was decided first, and nothing before it."""
    Starting.later = 0
    ends = Counter(play_starting(seed).halted for seed in range(FIRST, FIRST + RUNS))
    assert ends[""] >= 0.4 * RUNS, ends
    assert Starting.later > RUNS / 4


# Mutations: with a rule taken away, some seed shows what it is for.


async def _goes_on(self: Any, start: Any) -> bool:
    """From where the look began, whatever was decided meanwhile."""
    if start.fresh:
        await self._locator.starts.decide(self._partition, self._here)
    return True


async def _not_asked(*_: Any) -> None:
    """Whatever the source has lost."""


async def _nowhere(*_: Any, **__: Any) -> int:
    return NOT_INSIDE


MUTATIONS = (
    Mutation("what was decided meanwhile counts", ((locate._Look, "_is_decided", _goes_on),), 150),
    Mutation("what the source has lost before it", ((locate, "check_kept", _not_asked),), 300),
    Mutation("the batch that holds it was looked at", ((locate, "batch_holding", _nowhere),), 60),
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_without_the_rule_something_is_found(mutation: Mutation) -> None:
    find(mutation, play_starting)


if __name__ == "__main__":
    sys.exit(main(play_starting))
