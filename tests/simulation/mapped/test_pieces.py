"""``offsets: mapped`` with batches that go in pieces: some have holes inside, many are over what the destination takes,
and each worker has another limit. All that ``test_mapped`` checks of batches is checked of records.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar
from unittest.mock import patch

import pytest

from mirror.offsetmap.compare import alignment, pieces
from mirror.offsetmap.compare.alignment import Alignment
from mirror.offsetmap.compare.pieces import PiecePlace, Rows
from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.internal.ledger import Ledger
from mirror.records.admit import NOT_INSIDE, Terms
from mirror.records.content.raw import RawRecord, placed_records
from mirror.records.header import HEADER_SIZE, PREFIX_SIZE, BatchHeader
from mirror.relay.hot import deep, putting
from mirror.relay.mapped import locate as mapped
from tests.records.builders import Record, sealed
from tests.simulation.mapped.checks import Causes, Copies, Gone
from tests.simulation.mapped.run import MappedRun, play
from tests.simulation.mapped.source import Source, Taste
from tests.simulation.model.broker import PartitionModel, Stored
from tests.simulation.mutation import Mutation, find
from tests.simulation.seeds import FIRST, mapped_runs
from tests.simulation.source import batch_with

pytestmark = pytest.mark.long

RUNS = mapped_runs(100)
LIMITS = (150, 220, 1000)
"""Of batches, in bytes; each worker draws one. A single record always fits."""


def records_of(stored: Stored) -> list[Stored]:
    """A batch for each record: of where it stands, who wrote it, and what consumers see of it."""
    header = stored.header
    return [
        Stored(
            header._replace(
                base_offset=one.offset, last_offset_delta=0, record_count=1, attributes=0,
                base_sequence=header.base_sequence + one.offset - header.base_offset,
            ),
            b"%*d" % (HEADER_SIZE, one.timestamp) + one.content,
        )
        for one in (placed_records(header, stored.payload) if header.record_count else ())
    ]  # fmt: skip


def is_record(stored: Stored) -> bool:
    """Whether it is one of these."""
    return not stored.data[:HEADER_SIZE].strip(b" 0123456789")


class RichSource(Source):
    """Its batches have real records, some with holes between them; its cleaner takes records from inside."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._records: dict[bytes, list[Stored]] = {}

    def _batch(self, count: int, now_ms: int, producer_id: int, *, records: int | None = None) -> None:
        chance, base, stamp = self._chance, self.model.end, self._stamp(now_ms)
        count += chance.randint(0, 2)
        offsets = list(range(count))
        if count > 1 and chance.random() < 0.4:
            offsets = sorted(chance.sample(offsets, chance.randint(1, count - 1)))
        made = [Record(at, stamp + at, b"k", self._words(base + at, 1) * 3) for at in offsets]
        self._store(batch_with(made, count, base=base, epoch=self.model.epoch, producer_id=producer_id))

    def _copied(self, log: PartitionModel, kept: list[Stored]) -> list[Stored]:
        """See ``Source``: a batch for each record."""
        return [one for stored in super()._copied(log, kept) for one in self._apart(stored)]

    def _apart(self, stored: Stored) -> list[Stored]:
        if stored.data not in self._records:
            self._records[stored.data] = records_of(stored)
        return self._records[stored.data]

    def clean(self) -> None:
        """The cleaner takes records of a batch, or all of it."""
        model = self.model
        decided = [at for at, stored in enumerate(model.batches) if stored.header.next_offset <= model.last_stable]
        candidates = [at for at in decided[:-2] if model.batches[at].header.record_count > 0]
        candidates = [at for at in candidates if not model.batches[at].header.is_control]
        if not candidates:
            return
        at = self._chance.choice(candidates)
        stored = model.batches.pop(at)
        header, records = stored.header, list(placed_records(stored.header, stored.payload))
        taken = set(self._chance.sample(range(len(records)), self._chance.randint(1, len(records))))
        self.cleaned.update(records[each].offset for each in taken)
        left = [one for each, one in enumerate(records) if each not in taken]
        if left:
            base, first = header.base_offset, header.base_timestamp
            plain = b"".join(
                RawRecord(one.offset - base, one.timestamp - first, 0, one.content).stored(
                    one.offset - base, one.timestamp - first
                )
                for one in left
            )
            fresh = header._replace(record_count=len(left), length=HEADER_SIZE - PREFIX_SIZE + len(plain))
            data = sealed(fresh.pack() + plain)
            model.batches.insert(at, Stored(BatchHeader.read(data), data))
        self.taken_since = True
        self.trace("source", "the cleaner takes {} of {} at {}", sorted(taken), self.name, header.base_offset)


class RichCopies(Copies):
    """Compared record by record."""

    def _take(self, name: str, copy: Stored) -> None:
        if is_record(copy):
            super()._take(name, copy)
            return
        place = copy.header.base_offset, copy.header.leader_epoch
        for one in records_of(copy):
            if place in self._site.strays:
                self._site.strays[one.header.base_offset, place[1]] = self._site.strays[place]
            super()._take(name, one)


class RichGone(Gone):
    """Asked of records."""

    def has(self, stored: Stored) -> bool:
        """See ``Gone``."""
        base = stored.header.base_offset
        return super().has(stored) or any(
            one.header.base_offset <= base <= one.header.last_offset for one in self.cleaned
        )


class RichCauses(Causes):
    """Of batches in pieces."""

    def _by(self, name: str, reason: str, known: Ledger) -> str:
        """See ``Causes``. Behind a batch with holes nobody can say whether the source's cleaner has taken what was
        copied, or an election."""
        cause = super()._by(name, reason, known)
        unlike = reason in ("not_a_copy", "unproven")
        lost = unlike and self._sources[name].lost_copies and self._has_holes(name)
        return cause or ("copies were lost, behind a batch with holes" if lost else "")

    def _has_holes(self, name: str) -> bool:
        return any(
            stored.header.record_count < stored.header.last_offset_delta + 1
            for stored in self._sources[name].model.batches
        )

    def _ambiguous(self, name: str, checkpoint: Checkpoint) -> str:
        """See ``Causes``. Also where copies are gone from the destination, and only their number is known: a batch that
        has holes now may have been copied as a whole, before the source's cleaner came."""
        known = super()._ambiguous(name, checkpoint)
        gone = self._has_holes(name) and self._gone.behind(checkpoint.destination_offset)
        return known or ("copies are gone, of batches with holes" if gone else "")


class Rewriting(MappedRun):
    """A run with such sources."""

    source_type = RichSource
    copies_type = RichCopies
    gone_type = RichGone
    causes_type = RichCauses
    opened: ClassVar[Counter[str]] = Counter()
    """Batches that were opened in all runs, by reason."""

    async def play(self) -> None:
        """See ``MappedRun``."""
        await super().play()
        for worker in self.workers:
            self.opened.update(worker.relay.rewriter.opened)

    def terms(self) -> Terms:
        """See ``MappedRun``."""
        return Terms(compacted=True, rewrites=True, max_batch_size=self.chance.choice(LIMITS))


_draw = Taste.draw
USUAL: dict[str, Any] = {"equal": False, "recreated": 0.0, "remade": 0.0, "truncated": 0.0, "cleaned_there": 0.0}
UNCLEANED = USUAL | {"cleaned_here": 0.0}


def played(seed: int, **changes: Any) -> str:
    """Why it halted; see ``run.play``."""
    taste = patch.object(Taste, "draw", lambda chance: _draw(chance)._replace(**USUAL | changes))
    with taste, patch.object(deep, "MOST_PIECES", 2):
        return play(seed, Rewriting).halted


def test_records_are_there_once_through_every_cut() -> None:
    """As ``test_mapped``: the copy becomes complete, unless something was played that has to halt it."""
    Rewriting.opened.clear()
    ends = Counter(played(seed, cleaned_here=0.0) for seed in range(FIRST, FIRST + RUNS))
    assert ends[""] >= 0.7 * RUNS, ends
    assert all(Rewriting.opened[reason] > RUNS / 4 for reason in ("sparse_batch", "too_large", "mid_batch"))


def test_a_source_that_loses_its_end() -> None:
    """The same, with unclean elections at the source: what it has lost is copied, and the partition halts."""
    changes = {"cleaned_here": 0.0, "deleted_here": 0.0, "truncated": 0.1}
    ends = Counter(played(seed, **changes) for seed in range(FIRST, FIRST + RUNS // 2))
    assert ends[""] >= 0.4 * (RUNS // 2), ends


def test_cleaners_take_records_from_inside() -> None:
    """The same, while the source's cleaner takes records of batches that were copied in pieces, or as a whole."""
    ends = Counter(played(seed, cleaned_here=0.3) for seed in range(FIRST, FIRST + RUNS // 2))
    assert ends[""] >= 0.6 * (RUNS // 2), ends


@pytest.mark.parametrize("seed", [2906, 3122, 3345, 3521])
def test_copies_of_a_lost_end_that_fit_into_holes(seed: int) -> None:
    """Once, these went on behind copies that the source had lost, or halted and nobody knew why."""
    assert "unproven" in played(seed, cleaned_here=0.0, deleted_here=0.0, truncated=0.1)


# -- rules taken away ------------------------------------------------------------------------------------------------


async def _no_piece(*_: Any) -> None:
    """Batches are copied whole or not at all."""


async def _nowhere(*_: Any, **__: Any) -> int:
    return NOT_INSIDE


_spots = pieces.spots


def _from_its_beginning(original: Rows, length: int, _: int, *copy: Any) -> Iterator[PiecePlace]:
    """Whatever was copied of it before."""
    return _spots(original, length, 0, *copy)


async def _only_whole(*_: Any) -> list[Any]:
    """Of what is gone, no batch was in pieces."""
    return []


def _joined(self: putting.SoFar, end: int) -> None:
    """Offsets without a record are not noted."""
    self.next_due = max(self.next_due, end)


MUTATIONS = (
    Mutation("a copy may be a piece", ((Alignment, "_match_pieces", _no_piece),), 60),
    Mutation("the next piece is behind the one before", ((alignment, "spots", _from_its_beginning),), 60),
    Mutation("what is gone may have been pieces", ((Alignment, "_skip_pieces", _only_whole),), 60),
    Mutation("the source shows which batch holds the position", ((mapped, "batch_holding", _nowhere),), 60),
    Mutation("what stands between pieces is passed over", ((putting.SoFar, "_leave_out", _joined),), 60),
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_without_the_rule_something_is_found(mutation: Mutation) -> None:
    find(mutation, lambda seed: played(seed, cleaned_here=0.0, deleted_there=0.1))
