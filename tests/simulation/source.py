"""What the source holds in one run, drawn from a seed: records in and out of transactions, markers, gaps."""

import copy
import random
from collections.abc import Iterable
from typing import NamedTuple

from mirror.net.buffers import OVERHEAD
from mirror.records.header import HEADER_SIZE, NO_PRODUCER_ID, TRANSACTIONAL, BatchHeader
from mirror.records.identity import MAX_EPOCH
from tests.records.builders import Record, kafka_batch, raw_batch, sealed
from tests.simulation.model.broker import ABORT, COMMIT, PartitionModel, Stored, marker_batch

START_MS = 1_800_000_000_000
"""What the clock says when a run begins."""
DAY_MS = 86_400_000
PRODUCERS = (11, 12)
LEAST_MEMORY = OVERHEAD + 4096 + 1000
"""One fetch, and little more: partitions wait for each other's frames."""


class Recipe(NamedTuple):
    """What kind of source it is. Shares are per batch."""

    batches: int = 24
    transactional: float = 0.4
    aborted: float = 0.4
    """Share of the transactions that are aborted."""
    gaps: float = 0.0
    """Offsets that compaction took, and batches that it emptied."""
    old: float = 0.0
    """Share of the batches that are two days old: the destination forgets their producer at its next sweep."""
    cleaner: float = 0.0
    """How likely it is, at each event, that compaction takes a batch that was written long ago."""
    cleaner_there: float = 0.0
    """The same of the destination's compaction."""
    max_epoch: int = MAX_EPOCH
    """The flow's producer ids rotate behind it: every few holes, where it is low."""
    idle: float = 0.0
    """How likely it is, at each event, that nothing is written for days."""
    parked_bytes: int = 1 << 17
    """What is kept of what waits behind a hole."""
    partitions: int = 1
    recreated: float = 0.0
    """How likely it is, at each event, that the topic is deleted and made anew, with other records."""
    by_id: bool = False
    """Whether topics are fetched by their ids (Kafka 3.1)."""
    lagging: float = 0.0
    """How likely it is, at each event, that a partition's new leader shows less than the one before, for a while."""
    emptied: float = 0.0
    """How likely it is, at each event, that a partition's records at the destination expire."""
    buffer_memory: int = 1 << 20
    truncated: float = 0.0
    """How likely it is, at each event, that a partition loses the end of its log and goes on with other records."""

    @classmethod
    def draw(cls, chance: random.Random) -> "Recipe":
        """Any of them."""
        return cls(
            batches=chance.randint(4, 32),
            transactional=chance.choice([0.0, 0.5, 0.9]),
            aborted=chance.choice([0.2, 0.5, 1.0]),
            gaps=chance.choice([0.0, 0.0, 0.1, 0.3]),
            old=float(chance.random() < 0.25),
        )

    def mixed(self, chance: random.Random) -> "Recipe":
        """The same with more that goes on in years, in exact mode."""
        mixed = self._replace(
            old=chance.choice([0.0, 0.0, 0.0, 0.3, 1.0]),
            cleaner=chance.choice([0.0, 0.1, 0.3]) if self.gaps else 0.0,
            cleaner_there=chance.choice([0.0, 0.1, 0.3]) if self.gaps else 0.0,
            max_epoch=chance.choice([MAX_EPOCH, MAX_EPOCH, 0, 2, 6]),
            idle=chance.choice([0.0, 0.1, 0.3]),
            parked_bytes=chance.choice([1 << 17, 1 << 17, 100]),
            partitions=chance.choice([1, 1, 2, 3]),
            recreated=chance.choice([0.0, 0.0, 0.0, 0.2]),
            by_id=chance.random() < 0.7,
            emptied=chance.choice([0.0, 0.0, 0.0, 0.1]),
            buffer_memory=chance.choice([1 << 20, LEAST_MEMORY]),
            lagging=chance.choice([0.0, 0.0, 0.1, 0.3]),
            truncated=chance.choice([0.0, 0.0, 0.0, 0.1]),
        )
        if not mixed.truncated:
            return mixed
        # What a log has no more is a cleaner's doing, or the election's: where nothing was noted, nobody can say which.
        return mixed._replace(gaps=0.0, cleaner=0.0, cleaner_there=0.0, recreated=0.0)


def batch_with(records: list[Record], count: int, *, base: int, epoch: int, producer_id: int) -> bytes:
    """A batch that takes ``count`` offsets and has these real records: of a transaction, if it has a producer id."""
    transactional = producer_id != NO_PRODUCER_ID
    batch = kafka_batch(records, base_offset=base, leader_epoch=epoch)
    header = BatchHeader.read(batch)._replace(
        attributes=TRANSACTIONAL if transactional else 0,
        last_offset_delta=count - 1,
        producer_id=producer_id,
        producer_epoch=0 if transactional else -1,
        base_sequence=base if transactional else -1,
    )
    return sealed(header.pack() + batch[HEADER_SIZE:])


class SourceLog:
    """Grows batch by batch into a ``PartitionModel``."""

    def __init__(self, recipe: Recipe, chance: random.Random, *, name: str = "") -> None:
        """``name``: told by its records, so that no two logs have the same."""
        self.recipe = recipe
        self._name = name
        self.model = PartitionModel()
        self.written: dict[int, Stored] = {}
        """Base offset -> every batch that there ever was; of a log that has lost its end, since then."""
        self.cut_at = -1
        """From here on it has other records than the log that it was before it lost its end; -1: it has not lost it."""
        self._chance = chance
        self._open: dict[int, int] = {}
        """Producer id -> batches that its transaction has."""
        self._left = recipe.batches

    @property
    def finished(self) -> bool:
        """Nothing more will come."""
        return not self._left and not self._open

    def grow(self, now_ms: int) -> None:
        """One batch more, of whatever kind."""
        chance, recipe = self._chance, self.recipe
        if self._open and (not self._left or chance.random() < 0.4):
            self._end(chance.choice(list(self._open)), now_ms)
            return
        self._left -= 1
        draw = chance.random()
        if draw < recipe.gaps:
            self._gap(now_ms)
            return
        producer_id = chance.choice(PRODUCERS) if chance.random() < recipe.transactional else NO_PRODUCER_ID
        if producer_id != NO_PRODUCER_ID:
            self._open[producer_id] = self._open.get(producer_id, 0) + 1
        self._batch(chance.randint(1, 4), now_ms, producer_id)

    def _batch(self, count: int, now_ms: int, producer_id: int, *, records: int | None = None) -> None:
        base = self.model.end
        transactional = producer_id != NO_PRODUCER_ID
        stamp = self._stamp(now_ms)
        batch = raw_batch(
            self._words(base, count) if records is None else b"",
            base_offset=base,
            leader_epoch=self.model.epoch,
            attributes=TRANSACTIONAL if transactional else 0,
            last_offset_delta=count - 1,
            base_timestamp=stamp,
            max_timestamp=stamp,
            producer_id=producer_id,
            producer_epoch=0 if transactional else -1,
            base_sequence=base if transactional else -1,
            record_count=count if records is None else records,
        )
        self._store(batch)

    def _stamp(self, now_ms: int) -> int:
        """What its records say when they are from."""
        return now_ms - (2 * DAY_MS if self._chance.random() < self.recipe.old else 0)

    def _words(self, base: int, count: int) -> bytes:
        """What its records say: no two batches the same."""
        return b"%srecords %d to %d;" % (self._name.encode(), base, base + count - 1)

    def _store(self, batch: bytes) -> None:
        self.model.store(batch)
        stored = self.model.batches[-1]
        self.written[stored.header.base_offset] = stored

    def clean(self) -> int | None:
        """Compaction takes a batch, any but the last one, of offsets that are decided. Where it began."""
        model = self.model
        candidates = [
            at
            for at, stored in enumerate(model.batches[:-1])
            if not stored.header.is_control
            and stored.header.record_count
            and stored.header.next_offset <= model.last_stable
        ]
        if not candidates:
            return None
        at = self._chance.choice(candidates)
        base = model.batches[at].header.base_offset
        del model.batches[at]
        return base

    def cuts(self) -> list[int]:
        """Where it may end after an unclean election: with any batch behind which no transaction was decided that had
        begun by then."""
        open_now: dict[int, int] = {}
        cuts: list[int] = []
        end = 0
        for stored in self.model.batches:
            header = stored.header
            if open_now.items() <= self.model._open.items():
                cuts.append(end)
            end = header.next_offset
            if header.is_control:
                open_now.pop(header.producer_id, None)
            elif header.is_transactional:
                open_now.setdefault(header.producer_id, header.base_offset)
        return cuts

    def before_it_is_cut(self) -> "SourceLog":
        """A log as this one is now. It will not change any more."""
        former = copy.copy(self)
        former.model = copy.copy(self.model)
        former.model.batches = list(self.model.batches)
        return former

    def cut(self) -> None:
        """The log has lost its end. There is more to come, with other words."""
        end = self.cut_at = self.model.end
        self.written = {base: stored for base, stored in self.written.items() if base < end}
        self._open = dict.fromkeys(self.model._open, 1)
        self._left += self._chance.choice([0, 4, 12])
        self._name = f"{self._name}later, "

    def _gap(self, now_ms: int) -> None:
        """Compaction left nothing there, or an empty batch to keep the offsets; the next batch is an ordinary one."""
        count = self._chance.randint(1, 5)
        if self._chance.random() < 0.3:
            self._batch(count, now_ms, NO_PRODUCER_ID, records=0)
        else:
            self.model.end += count
            self._batch(1, now_ms, NO_PRODUCER_ID)

    def _end(self, producer_id: int, now_ms: int) -> None:
        del self._open[producer_id]
        kind = ABORT if self._chance.random() < self.recipe.aborted else COMMIT
        epoch = self.model.epoch
        self._store(marker_batch(self.model.end, producer_id, 0, kind=kind, leader_epoch=epoch, timestamp=now_ms))

    # -- what a copy of it must be -------------------------------------------------------------------------------------

    def visible(self, batches: Iterable[Stored] | None = None) -> dict[int, tuple[int, bytes]]:
        """Base offset -> (offsets, payload) of each batch that a read_committed consumer gets, of those of now, or of
        ``batches``."""
        model = self.model
        found: dict[int, tuple[int, bytes]] = {}
        for stored in model.batches if batches is None else batches:
            header = stored.header
            if header.base_offset >= model.last_stable:
                break
            if header.is_control or not header.record_count:
                continue
            if header.is_transactional and model.is_aborted(header):
                continue
            found[header.base_offset] = (header.last_offset_delta + 1, stored.payload)
        return found
