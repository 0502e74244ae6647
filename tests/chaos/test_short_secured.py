"""The short form of `make chaos` over mutual TLS and SCRAM, with the rights that docs/GUIDE.md lists.

Only the mirror comes that way. The harness, the producers and the consumers come to the listener without security, and
may do everything.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

import chaos.scenarios  # noqa: F401 - registers them
from chaos.play.sides import Pair
from chaos.play.stage import Stage
from chaos.producers.topics import USUAL
from chaos.scenario import SCENARIOS
from chaos.suite.clusters import PROPERTIES
from tests import secured
from tests.service.stage.rights import AUTHORIZER, GROUP, Principals, Right, listed

pytestmark = pytest.mark.broker
PREFIX = "short-secured"
FLOW_ID = "short"
_numbers = count(1)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> secured.Files:
    return secured.made(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def pair(files: secured.Files) -> Iterator[Pair]:
    """Two clusters of one broker each, which may be killed."""
    more = {**PROPERTIES, **AUTHORIZER, **secured.BOTH}
    with (
        secured.cluster(files, name="source", more=more) as source,
        secured.cluster(files, name="destination", more=more) as destination,
    ):
        principals = Principals({"source": source, "destination": destination})
        principals.grant(secured.USER, {_of_the_stages(right) for right in listed()})
        yield Pair(source, destination, listener=secured.SASL_TLS)


def _of_the_stages(right: Right) -> Right:
    """The right to all topics of the stages, and to their groups: each has others."""
    right = right.of(topic=f"{PREFIX}*", flow=FLOW_ID)
    return replace(right, name=f"mirror-{PREFIX}*") if right.kind == GROUP else right


@pytest.mark.parametrize("name", ["worker-kill", "two-start-on-nothing", "destination-leader-kill"])
def test_scenario(pair: Pair, files: secured.Files, name: str) -> None:
    scenario = SCENARIOS[name]
    scenario = replace(
        scenario, topics=USUAL, flow={**scenario.flow, "flow.id": FLOW_ID},
        cluster={**scenario.cluster, **secured.keys(files)},
    )  # fmt: skip
    with Stage(scenario, pair, prefix=f"{PREFIX}-{next(_numbers)}") as stage:
        outcome = stage.play()
    assert outcome.problems == []
    assert outcome.repetitions == 1
    assert outcome.compared.identical
    assert outcome.compared.records > 50
    assert outcome.recovered_s
