"""How fast the writers of a stage write."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos.play.sides import Pair
from chaos.play.stage import Stage
from chaos.scenario import SCENARIOS

PAIR = cast("Pair", SimpleNamespace(source=None, destination=None))


@pytest.mark.parametrize(
    ("rate", "settings", "rates"),
    [
        (10.0, {}, 10.0),
        (10.0, {"quick": True}, 3.5),
        (10.0, {"pace": 0.5}, 5.0),
        (10.0, {"quick": True, "pace": 0.5}, 5.0),
        (5.0, {"quick": True, "pace": 0.5}, 5.0),  # it only has to go on
        (100.0, {"pace": 0.5}, 100.0),  # the scenario waits for a number of records
    ],
)
def test_pace(rate: float, settings: dict[str, Any], rates: float) -> None:
    scenario = replace(SCENARIOS["worker-kill"], rate=rate)
    with Stage(scenario, PAIR, prefix="paced", **settings) as stage:
        assert scenario.rate * stage.pace == rates
