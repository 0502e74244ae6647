"""Runs in which one thing goes wrong much more often than it ever does, in flows whose workers all rewrite batches in
another way: their limits, codecs and modes differ.

``python -m tests.simulation.harsh KIND SEED``: one run with its trace; ``KIND FIRST LAST``: these runs. The kinds are
those of ``KINDS``.
"""

import random
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from unittest.mock import patch

from mirror.records.admit import Terms
from mirror.records.header import Codec
from mirror.records.identity import MAX_EPOCH
from mirror.relay.hot import rebatching
from tests.simulation.__main__ import main
from tests.simulation.run import Outcome
from tests.simulation.source import LEAST_MEMORY, Recipe
from tests.simulation.sweeps.test_pieces import play
from tests.simulation.sweeps.test_rebatching import Rebatching


def any_of_it(recipe: Recipe, chance: random.Random) -> Recipe:
    """Nearly all of it at once."""
    gaps = recipe.gaps > 0
    return recipe._replace(
        batches=chance.choice([12, 40, 80]),
        transactional=chance.choice([0.0, 0.0, 0.3]),
        old=chance.choice([0.0, 0.0, 0.3]),
        cleaner=chance.choice([0.3, 0.8]) if gaps else 0.0,
        cleaner_there=chance.choice([0.0, 0.3, 0.8]) if gaps else 0.0,
        max_epoch=chance.choice([MAX_EPOCH, 0, 2]),
        idle=chance.choice([0.0, 0.0, 0.1]),
        partitions=chance.choice([1, 1, 2]),
        recreated=chance.choice([0.0, 0.0, 0.3]),
        by_id=chance.random() < 0.7,
        emptied=chance.choice([0.0, 0.0, 0.2]),
        buffer_memory=chance.choice([1 << 20, LEAST_MEMORY]),
        lagging=chance.choice([0.0, 0.2, 0.5]),
    )


def cut(recipe: Recipe, chance: random.Random) -> Recipe:
    """The source loses the end of its log again and again."""
    mixed = any_of_it(recipe, chance)._replace(gaps=0.0, cleaner=0.0, cleaner_there=0.0, recreated=0.0)
    return mixed._replace(truncated=chance.choice([0.1, 0.3, 0.6]))


def cleaned(recipe: Recipe, chance: random.Random) -> Recipe:
    """Log cleaners are at work all the time."""
    mixed = any_of_it(recipe._replace(gaps=chance.choice([0.05, 0.1, 0.3])), chance)
    return mixed._replace(cleaner=0.9, cleaner_there=chance.choice([0.0, 0.9]))


KINDS: dict[str, Callable[[Recipe, random.Random], Recipe]] = {"any": any_of_it, "cut": cut, "cleaned": cleaned}


class Harsh(Rebatching):
    """A run in which each worker has a configuration of its own."""

    def _limit(self) -> int:
        return self.chance.choice((300, 500, 1_500))  # no single record is larger, however often its log was cut

    def _terms(self, limit: int) -> Terms:
        return replace(super()._terms(limit), codec=self.chance.choice((None, Codec.NONE, Codec.GZIP, Codec.LZ4)))


def play_harsh(kind: str, seed: int) -> Outcome:
    """One run of a kind. Raises as ``run.play``."""
    with ExitStack() as patches:
        patches.enter_context(patch.object(Recipe, "mixed", KINDS[kind]))
        patches.enter_context(patch.object(rebatching, "ENOUGH_BYTES", (300, 100_000, 900)[seed % 3]))
        patches.enter_context(patch.object(rebatching, "AT_A_TIME", (4, 9, 20_000)[seed // 3 % 3]))
        return play(seed, Harsh)


if __name__ == "__main__":
    sys.exit(main(partial(play_harsh, sys.argv.pop(1))))
