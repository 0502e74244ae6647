"""A source that holds messages of magic 0 and 1 among its batches, while everything goes wrong: they are gathered into
batches, in different ways by different workers, cut in pieces, and compared where their source's cleaner has left no
border of them.

All that a consumer of the destination sees, at any moment, is the source's record of that offset, or nothing.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

from mirror.offsetmap.entries import pins
from mirror.records.admit import NOT_INSIDE
from mirror.records.content.opening import Record
from mirror.records.header import HEADER_SIZE, MAGIC_AT, NO_PRODUCER_ID, BatchHeader, Codec
from mirror.relay.durable import notes as durable_notes
from mirror.relay.durable import pins as durable_pins
from mirror.relay.hot import forward
from mirror.relay.locate import compare, evidence, filled, resync
from mirror.relay.locate.cleaned import survivors
from mirror.relay.partition.cursor import Cursor
from tests.legacy.samples import messages_of, wrapper_of
from tests.simulation.checks import Violation
from tests.simulation.mutation import Mutation, find
from tests.simulation.old_messages import old_stored, value_of
from tests.simulation.seeds import FIRST, runs
from tests.simulation.source import Recipe
from tests.simulation.sweeps.test_pieces import PIECES, LargeLog, PassingOver, Rewriting, RichLog, play, records_of

pytestmark = pytest.mark.long

RUNS = runs(400)
CODECS = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


class OldLog(RichLog):
    """Most of what is in no transaction is in an old format: wrappers, with holes where the topic is compacted, and
    messages on their own."""

    def _batch(self, count: int, now_ms: int, producer_id: int, *, records: int | None = None) -> None:
        chance = self._chance
        if records == 0 or producer_id != NO_PRODUCER_ID or chance.random() < 0.2:
            super()._batch(count, now_ms, producer_id, records=records)
            return
        base, stamp, magic = self.model.end, self._stamp(now_ms), chance.choice([0, 1])
        offsets = list(range(base, base + count + chance.randint(0, 3)))
        if self.recipe.gaps and chance.random() < 0.4:
            offsets = sorted(chance.sample(offsets, chance.randint(1, len(offsets))))
        made = [Record(at, stamp + at if magic else -1, b"k%d" % at, self._value(at), ()) for at in offsets]
        codec = chance.choice(CODECS)
        for message in [wrapper_of(magic, codec, made)] if codec else [messages_of(magic, [one]) for one in made]:
            self._store_old(message)

    def _store_old(self, message: bytes) -> None:
        stored, model = old_stored(message), self.model
        model.batches.append(stored)
        model.end = model.replicated = stored.header.next_offset
        self.written[stored.header.base_offset] = stored
        for one in records_of(stored):
            self.records[one.offset] = one

    def clean(self) -> int | None:
        """See ``SourceLog``. Of a wrapper, a cleaner may take any of its records: no border of it stays."""
        model, chance = self.model, self._chance
        wrappers = [
            at
            for at, stored in enumerate(model.batches[:-1])
            if stored.header.is_stand_in and stored.header.record_count > 1
        ]
        if not wrappers or chance.random() < 0.3:
            return super().clean()
        stored = model.batches[at := chance.choice(wrappers)]
        kept = chance.sample(records_of(stored), chance.randint(1, stored.header.record_count - 1))
        keys = {one.offset for one in kept}
        magic, codec = stored.data[16], Codec(stored.header.codec_bits)
        left = [
            Record(one.offset, one.timestamp, b"k%d" % one.offset, value_of(one.content), ())
            for one in records_of(stored)
            if one.offset in keys
        ]
        model.batches[at] = old_stored(wrapper_of(magic, codec, left))
        return stored.header.base_offset


class Converting(Rewriting):
    """A run with such a source."""

    log_type = OldLog
    converts = True


class LargeOldLog(OldLog, LargeLog):
    """Some of its records are too large."""


class PassingOld(PassingOver):
    """A run in which such records are passed over."""

    log_type = LargeOldLog
    converts = True


def play_old(seed: int, kind: type[Rewriting] = Converting) -> Any:
    """One run; two messages on their own go into a batch at most, or many, by the seed."""
    with patch.object(forward, "GATHERED_RECORDS", (2, 3, 10_000)[seed % 3]):
        return play(seed, kind)


@pytest.mark.parametrize("piece", range(PIECES))
def test_old_messages_keep_their_offsets(piece: int) -> None:
    """As ``test_pieces``."""
    seeds = range(FIRST + RUNS * piece // PIECES, FIRST + RUNS * (piece + 1) // PIECES)
    Rewriting.opened.clear()
    ended = Counter(play_old(seed).halted for seed in seeds)
    assert ended[""] >= 0.7 * len(seeds), ended
    assert all(
        Rewriting.opened[reason] > len(seeds) / 4 for reason in ("old_format", "sparse_batch", "too_large", "mid_batch")
    )


def test_old_messages_that_are_too_large_are_passed_over() -> None:
    """All others keep their offsets, and no marker stands in the place of a record that is not written down."""
    PassingOld.passed = 0
    seeds = range(FIRST, FIRST + RUNS // 4)
    complete = sum(not play_old(seed, PassingOld).halted for seed in seeds)
    assert complete >= 0.7 * len(seeds)
    assert PassingOld.passed > 3 * len(seeds)


_mixed = Recipe.mixed


async def _unlooked(*_: object) -> None:
    pass


def _truncated(recipe: Recipe, chance: random.Random) -> Recipe:
    return _mixed(recipe, chance)._replace(
        truncated=0.4, gaps=0.0, cleaner=0.0, cleaner_there=0.0, recreated=0.0, emptied=0.0
    )


@pytest.mark.parametrize("seed", [71058])
def test_what_was_passed_over_is_told_from_what_came_in_its_place(seed: int) -> None:
    """The source loses its end, and goes on with a record that is not too large. No leader epoch says so, nor do other
    batches of the window."""
    alone = (
        patch.object(durable_notes, "check_kept", _unlooked),
        patch.object(resync.Resync, "_prove_window", _unlooked),
    )
    with patch.object(Recipe, "mixed", _truncated), alone[0], alone[1]:
        assert "overfilled" in play_old(seed, PassingOld).halted
        unaware = patch.object(filled.FilledCheck, "_same", lambda _, __, ___, passed: frozenset(passed))
        with unaware, pytest.raises(Violation):
            play_old(seed, PassingOld)


# Mutations: with a rule taken away, some seed shows what it is for.


def _of_all(header: bytes | memoryview) -> str:
    """A digest of all that the header of the batch says that was made of it."""
    return hashlib.blake2b(header[MAGIC_AT:HEADER_SIZE], digest_size=pins.DIGEST_SIZE).hexdigest()


async def _one_by_one(here: Any, base: int, *_: Any, **__: Any) -> Any:
    return await here.batch_at(base)


_is_piece = survivors.is_piece


def _by_borders(copy: BatchHeader, original: BatchHeader) -> bool:
    return _is_piece(copy, original._replace(producer_id=NO_PRODUCER_ID))


_original = compare.Original


def _as_one(header: BatchHeader, batch: bytes, **_: Any) -> compare.Original:
    return _original(header, batch)


async def _nowhere(*_: Any, **__: Any) -> int:
    return NOT_INSIDE


WITHIN = 400
MUTATIONS = (
    Mutation(
        "a note tells the last message, not the batch that was made of it",
        (
            (durable_pins, "header_digest", _of_all),
            (evidence, "header_digest", _of_all),
        ),
        WITHIN,
    ),
    Mutation(
        "the offsets of a copy say which messages it was made of", ((compare, "records_at", _one_by_one),), WITHIN
    ),
    Mutation(
        "what was gathered or compressed anew is compared by its records",
        (
            (survivors, "is_piece", _by_borders),
            (survivors, "_holds_as_much", lambda *_: False),
            (compare, "Original", _as_one),
        ),
        WITHIN,
    ),
    Mutation(
        "who reads back may find another batch of the same messages", ((Cursor, "rewrote", lambda *_: None),), WITHIN
    ),
    Mutation("where the position is inside of a wrapper, it is known", ((resync, "batch_holding", _nowhere),), WITHIN),
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_what_a_rule_is_for(mutation: Mutation) -> None:
    find(mutation, play_old, shown_by=AssertionError)
