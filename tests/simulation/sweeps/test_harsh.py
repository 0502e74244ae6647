"""See ``harsh``. More seeds: ``python -m tests.simulation.harsh KIND FIRST LAST``."""

from collections import Counter

import pytest

from tests.simulation.harsh import KINDS, play_harsh
from tests.simulation.seeds import FIRST, runs
from tests.simulation.sweeps.test_pieces import Rewriting

pytestmark = pytest.mark.long

RUNS = runs(400, share=1) // 10


@pytest.mark.parametrize("kind", KINDS)
def test_records_keep_their_offsets(kind: str) -> None:
    Rewriting.opened.clear()
    ended = Counter(play_harsh(kind, seed).halted for seed in range(FIRST, FIRST + RUNS))
    assert ended[""] >= 0.3 * RUNS, ended
    assert Rewriting.opened["rebatched"] > RUNS
    assert Rewriting.opened["other_codec"] > RUNS
