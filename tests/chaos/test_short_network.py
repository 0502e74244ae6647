"""The short form of `make chaos` with the fault proxies between: a few scenarios on single brokers."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

import chaos.scenarios  # noqa: F401 - registers them
from chaos.play.sides import Pair
from chaos.play.stage import Stage
from chaos.producers.topics import HOLES
from chaos.scenario import SCENARIOS, Shape
from chaos.suite.clusters import Clusters

pytestmark = pytest.mark.broker
_numbers = count(1)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """Two clusters of one broker each, and a proxy before each."""
    with Clusters() as clusters:
        yield clusters.pair(Shape(brokers=1, proxied=True))


@pytest.mark.parametrize(("name", "repetitions"), [("net-unanswered", 2), ("net-late-marker", 1), ("net-errors", 3)])
def test_scenario(pair: Pair, name: str, repetitions: int) -> None:
    one = replace(SCENARIOS[name], topics=HOLES)
    with Stage(one, pair, prefix=f"short-net-{next(_numbers)}", repetitions=repetitions) as stage:
        outcome = stage.play()
    assert outcome.problems == []
    assert outcome.repetitions == repetitions
    assert outcome.compared.identical
    assert outcome.compared.records > 50


def test_an_extra_marker(pair: Pair) -> None:
    """It halts its own partition, and the other goes on."""
    with Stage(SCENARIOS["data-overfilled"], pair, prefix=f"short-net-{next(_numbers)}") as stage:
        outcome = stage.play()
    assert outcome.problems == []
    assert outcome.halted == ["overfilled"]
