"""Small batches that become larger ones, while everything goes wrong: by some workers and not by others, in rows that
begin and end elsewhere each time, cut where they would be too large, and compared with what the source has there.

All that a consumer of the destination sees, at any moment, is the source's record of that offset, or nothing.
"""

from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from mirror.records.admit import NOT_INSIDE, Terms
from mirror.relay.hot import rebatching
from mirror.relay.hot.putting import SoFar
from mirror.relay.locate import compare, resync
from mirror.relay.partition.cursor import Cursor
from tests.simulation.mutation import Mutation, find
from tests.simulation.seeds import FIRST, runs
from tests.simulation.sweeps.test_pieces import PIECES, Rewriting, play

pytestmark = pytest.mark.long

RUNS = runs(400)
LIMITS = (170, 400, 1_500, 1_500)
"""Of batches, in bytes."""
BELOW = (0, 150, 10_000, 10_000)
"""Sizes below which they become larger ones."""


class Rebatching(Rewriting):
    """A run in which each worker makes larger batches in its own way."""

    def _limit(self) -> int:
        return self.chance.choice(LIMITS)

    def _terms(self, limit: int) -> Terms:
        return replace(super()._terms(limit), rebatches=self.chance.choice(BELOW))


def play_small(seed: int) -> Any:
    """One run. A row ends behind a few hundred bytes or never, and few records are opened at a time, by the seed."""
    with ExitStack() as patches:
        patches.enter_context(patch.object(rebatching, "ENOUGH_BYTES", (300, 100_000)[seed % 2]))
        patches.enter_context(patch.object(rebatching, "AT_A_TIME", (4, 9, 20_000)[seed % 3]))
        return play(seed, Rebatching)


@pytest.mark.parametrize("piece", range(PIECES))
def test_records_keep_their_offsets_in_larger_batches(piece: int) -> None:
    """As ``test_pieces``."""
    seeds = range(FIRST + RUNS * piece // PIECES, FIRST + RUNS * (piece + 1) // PIECES)
    Rewriting.opened.clear()
    ended = Counter(play_small(seed).halted for seed in seeds)
    assert ended[""] >= 0.7 * len(seeds), ended
    assert Rewriting.opened["rebatched"] > 5 * len(seeds)
    assert all(Rewriting.opened[reason] > len(seeds) / 10 for reason in ("sparse_batch", "mid_batch"))


# Mutations: with a rule taken away, some seed shows what it is for.

_put_rebatched = SoFar.put_rebatched


def _noted_as_the_first(self: SoFar, at: int, parts: Any, pieces: Any, version: int) -> None:
    """What is noted of the copy is the first batch of the row."""
    _put_rebatched(self, at - sum(part.size for part in parts[:-1]), parts, pieces, version)


def _only_old(_: Any, header: Any, copy: Any) -> bool:
    return bool(header.is_stand_in)


async def _nowhere(*_: Any, **__: Any) -> int:
    return NOT_INSIDE


WITHIN = 400
MUTATIONS = (
    Mutation(
        "a copy is compared with all that the source has there",
        ((compare.Comparison, "_is_a_part", _only_old),),
        WITHIN,
    ),
    Mutation("the last batch of a row is noted", ((SoFar, "put_rebatched", _noted_as_the_first),), WITHIN),
    Mutation("who reads back may find other borders", ((Cursor, "rewrote", lambda *_: None),), WITHIN),
    Mutation("where a row was cut inside of a batch, it is known", ((resync, "batch_holding", _nowhere),), WITHIN),
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_what_a_rule_is_for(mutation: Mutation) -> None:
    find(mutation, play_small, shown_by=AssertionError)
