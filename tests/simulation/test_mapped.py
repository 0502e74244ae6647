"""``offsets: mapped`` in the simulation: hundreds of runs, and rules taken away one by one.

``SIM_MAPPED_RUNS`` asks for more of them, ``SIM_SEED`` for the first one.
``python -m tests.simulation.mapped_run SEED`` prints a run.
"""

import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from mirror.records.state import Ledger
from mirror.relay import mapped
from mirror.relay.fence import Before
from mirror.relay.mapped import MappedLocator
from tests.simulation.mapped_run import Taste, play
from tests.simulation.run import Violation

pytestmark = pytest.mark.long

RUNS = int(os.environ.get("SIM_MAPPED_RUNS", "200"))
FIRST = int(os.environ.get("SIM_SEED", "1"))


def test_every_record_is_there_once_whatever_goes_wrong() -> None:
    """
    1. Two sources, with transactions or compacted, grow while workers copy them into a log that others write to.
    2. Everything goes wrong that does in exact mode; both sides delete and clean, days pass, ids are forgotten.
    3. The copies of each source are its batches, in order, each once; the map says where they are.
    4. In the end all of them, or a halt that was played.
    """
    ends = Counter(play(seed).halted for seed in range(FIRST, FIRST + RUNS))
    assert ends[""] >= 0.6 * RUNS, ends


def test_a_seed_is_the_same_run_every_time() -> None:
    assert [play(seed) for seed in range(40, 46)] == [play(seed) for seed in range(40, 46)]


# -- rules taken away ------------------------------------------------------------------------------------------------


class Mutation(NamedTuple):
    """What is replaced by what; ``within``: so many seeds must show it."""

    rule: str
    patches: tuple[tuple[Any, str, Any], ...]
    within: int
    first: int = 1


async def _unreplicated(there: Any, log: Any) -> Before:
    end = await there.true_end()
    return Before(end, await there.producers())


async def _not_fenced(self: Any, partition: Any, there: Any, before: Before) -> Before:
    return before


async def _ours(self: Any, partition: Any) -> bool:
    return True


def _ours_not(self: Any, owner: Any) -> bool:
    return False


async def _uncounted(self: Any, step: Any, before: Before, *, closed: bool) -> None:
    """Nothing visible is nothing copied."""


async def _unconfirmed(self: Any) -> None:
    """Nobody is asked behind the checkpoint."""


def _deleting(chance: random.Random, draw: Callable[[random.Random], Taste] = Taste.draw) -> Taste:
    """A destination that is purged all the time."""
    return draw(chance)._replace(deleted_there=0.6)


def _first_only(self: Ledger, side: Any) -> set[int]:
    """The last checkpoint's id, as far as it says."""
    checkpoint = self.checkpoint(side)
    return {checkpoint.identity.producer_id} if checkpoint is not None else set()


MUTATIONS = (
    Mutation("every producer id is known", ((Ledger, "own", _first_only),), 400),
    Mutation("the fence", ((MappedLocator, "fence", _not_fenced),), 400),
    Mutation(
        "what the leader remembers is replicated",
        ((mapped, "look_before", _unreplicated), (Taste, "draw", _deleting)),
        400,
    ),
    Mutation("what is gone is counted", ((mapped._Look, "_count_gone", _uncounted),), 100),
    Mutation("who owns is asked behind the checkpoint", ((mapped._Look, "_confirm", _unconfirmed),), 400),
    Mutation(
        "accounts are the owner's", ((MappedLocator, "owns", _ours), (mapped._Look, "_is_fenced", _ours_not)), 800
    ),
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_without_the_rule_something_is_found(mutation: Mutation) -> None:
    with ExitStack() as stack:
        for owner, name, replacement in mutation.patches:
            stack.enter_context(patch.object(owner, name, replacement))
        for seed in range(mutation.first, mutation.first + mutation.within):
            try:
                play(seed)
            except Violation:
                return
    pytest.fail(f"no violation in {mutation.within} runs from {mutation.first} on without the rule: {mutation.rule}")
