"""P37: the topic for dead letters, as it would be found."""

from pathlib import Path
from typing import Any

import pytest

from mirror.foretold import Line
from mirror.records.admit import Terms
from mirror.sandbox import SandboxCluster
from mirror.service.plan.checks.deadletters import of_flow, of_topic
from mirror.service.plan.model import DeadLetterFacts, Level
from tests.service.plan.facts import flow, topic
from tests.service.plan.planning import plan
from tests.service.runs.rewriting.test_append_times import set_config
from tests.service.stage.kafka_side import create_topic, produce
from tests.service.stage.running import config_text


def letters(**known: Any) -> Any:
    return flow(dead_letters=DeadLetterFacts(name="letters", **known))


def test_without_dead_letters_nothing_is_said() -> None:
    assert not list(of_flow(flow()))
    assert not list(of_topic(flow(), topic(terms=Terms(max_batch_size=100))))


@pytest.mark.parametrize(
    ("known", "level", "said"),
    [
        ({"exists": False}, Level.WARNS, "letters at destination does not exist"),
        ({"exists": False, "hidden": True}, Level.UNKNOWN, "the principal may not describe it"),
        ({"rights": frozenset({"Read"})}, Level.WARNS, "the principal lacks Write"),
    ],
)
def test_what_would_halt(known: dict[str, Any], level: Level, said: str) -> None:
    (found,) = of_flow(letters(**known))
    assert (found.line, found.level) == (Line.DEAD_LETTERS, level)
    assert said in found.detail
    assert found.remedy
    assert found.reason


@pytest.mark.parametrize("rights", [None, frozenset({"Write", "Describe"})])
def test_what_is_right(rights: frozenset[str] | None) -> None:
    assert not list(of_flow(letters(rights=rights)))


@pytest.mark.parametrize(
    ("most", "limit", "told"),
    [(100, 100, True), (99, 100, True), (101, 100, False), (None, 100, False), (100, None, False)],
)
def test_it_has_to_take_more_than_the_topic(most: int | None, limit: int | None, told: bool) -> None:
    found = list(of_topic(letters(most=most), topic(terms=Terms(max_batch_size=limit))))
    assert [one.level for one in found] == [Level.WARNS] * told
    assert not told or "takes batches of" in found[0].detail


@pytest.mark.broker
def test_on_real_brokers(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. The topic for dead letters is not there: said of the flow, and nothing is refused for it.
    2. It is there, and takes no more than the topic: said of the topic. Then it takes more.
    """
    here, there, name = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers, f"{topic_name}-letters"
    create_topic(here, topic_name)
    create_topic(there, topic_name)
    produce(here, topic_name, 5)
    path = tmp_path / "a.yaml"
    settings = {"oversize.record": "deadletter", "oversize.record.topic": name}
    path.write_text(config_text(here, there, [topic_name], flow=settings))
    found = plan(path)
    assert found.rows(None)["P37"]["reason"] == "dead_letter_refused"
    assert found.code == 0
    create_topic(there, name)
    found = plan(path)
    assert "P37" not in found.rows(None)
    assert "is too large for the other" in found.rows(topic_name)["P37"]["detail"]
    set_config(there, name, max_message_bytes="4000000")
    while "P37" in (found := plan(path)).rows(topic_name):  # the controller hears of it soon
        pass
