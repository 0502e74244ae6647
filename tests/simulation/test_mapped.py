"""``offsets: mapped`` in the simulation: hundreds of runs, and rules taken away one by one.

``SIM_MAPPED_RUNS`` asks for more of them, ``SIM_SEED`` for the first one.
``python -m tests.simulation.mapped_run SEED`` prints a run.
"""

import os
from collections import Counter

import pytest

from tests.simulation.mapped_run import play

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
