"""How far a copy has to come, at least, before damage on the source's disk."""

from types import SimpleNamespace
from typing import Any

import pytest

from chaos.scenarios.disk import sure_before


def batch(base: int, end: int) -> Any:
    return SimpleNamespace(header=SimpleNamespace(base_offset=base, next_offset=end))


@pytest.mark.parametrize(
    ("spans", "victim", "least"),
    [
        ([(0, 3), (3, 6), (6, 9)], 2, 6),
        ([(0, 3), (3, 6), (6, 9)], 0, 0),
        ([(0, 3), (5, 6), (6, 9)], 2, 3),
        ([(0, 3), (5, 6), (6, 9)], 1, 3),
        ([(0, 3), (5, 6), (6, 9)], 0, 0),
        ([(4, 5), (5, 6)], 1, 0),
        ([(0, 1), (4, 5), (7, 8), (8, 9)], 3, 5),
    ],
)
def test_up_to_the_damage_or_the_last_gap_before_it(spans: list[tuple[int, int]], victim: int, least: int) -> None:
    found = [batch(*span) for span in spans]
    assert sure_before(found, found[victim]) == least
