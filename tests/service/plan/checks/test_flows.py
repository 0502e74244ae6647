"""The checks of a flow and its clusters, each by itself."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mirror.foretold import Line
from mirror.service.plan.checks import flows
from mirror.service.plan.model import FlowFacts, Level, PlanFinding, Quota
from tests.service.plan.facts import APIS, cluster, flow

Check = Callable[[FlowFacts], Iterator[PlanFinding]]


def test_all_is_well() -> None:
    for check in (*flows.CHECKS, flows.reached, flows.unread):
        assert list(check(flow())) == []


@pytest.mark.parametrize(
    ("check", "changes", "line", "level", "told"),
    [
        (flows.same_cluster, {"there": {"cluster_id": "id-source"}}, Line.SAME_CLUSTER, Level.REFUSED, "id-source"),
        (flows.topics_matched, {"topics_n": 0}, Line.TOPICS, Level.REFUSED, "no topic"),
        (flows.topics_matched, {"unmatched": ("orders",)}, Line.TOPICS, Level.WARNS, "orders"),
        (flows.versions, {"without_ids": True}, Line.VERSIONS, Level.TOLD, "no ids"),
        (flows.versions, {"there": {"apis": {key: APIS[key] for key in APIS if key != 61}}}, Line.VERSIONS, Level.TOLD,
         "producers"),
        (flows.versions, {"there": {"apis": {key: APIS[key] for key in APIS if key != 65}}}, Line.VERSIONS, Level.TOLD,
         "owners"),
        (flows.versions, {"there": {"apis": {key: APIS[key] for key in APIS if key != 26}}}, Line.VERSIONS, Level.WARNS,
         "producer_ids_refused"),
        (flows.versions, {"there": {"apis": {key: APIS[key] for key in APIS if key != 26}}, "relay": {"mapped": True}},
         Line.VERSIONS, Level.REFUSED, "fenced"),
        (flows.internal_topic, {"internal_refused": "it is not compacted"}, Line.INTERNAL_TOPIC, Level.REFUSED,
         "it is not compacted"),
        (flows.internal_topic, {"internal_unknown": "no answer"}, Line.INTERNAL_TOPIC, Level.UNKNOWN, "no answer"),
        (flows.internal_topic, {"internal_exists": False}, Line.INTERNAL_TOPIC, Level.TOLD, "is created"),
        (flows.reached, {"here": {"down": {3: "it hangs"}}}, Line.REACHED, Level.UNKNOWN, "broker 3 of cluster source"),
        (flows.unread, {"unsampled_n": 5, "sampled_bytes": 9}, Line.REACHED, Level.WARNS, "no batch of 5 partitions"),
        (flows.quotas, {"there": {"quotas": (Quota("client-id mirror", "producer_byte_rate", 1e6),)}}, Line.QUOTAS,
         Level.TOLD, "1,000,000 bytes/s"),
    ],
)  # fmt: skip
def test_each(check: Check, changes: dict[str, Any], line: Line, level: Level, told: str) -> None:
    (found,) = check(flow(**changes))
    assert (found.line, found.level) == (line, level)
    assert told in found.detail
    assert found.remedy or level in (Level.TOLD, Level.UNKNOWN)


def test_quotas_of_the_other_direction_do_not_matter() -> None:
    quotas = (Quota("client-id mirror", "producer_byte_rate", 1e6), Quota("client-id mirror", "request_percentage", 1))
    assert list(flows.quotas(flow(here={"quotas": quotas}))) == []


def test_what_quotas_allow() -> None:
    """The least of them, at each broker; 0: no limit."""
    quotas = (Quota("a", "producer_byte_rate", 5.0), Quota("b", "producer_byte_rate", 3.0))
    assert flows.quota_rate(cluster("x", quotas=quotas, brokers=4), "producer_byte_rate") == 12.0
    assert flows.quota_rate(cluster("x", quotas=quotas), "consumer_byte_rate") == 0.0
    assert flows.quota_rate(cluster("x"), "consumer_byte_rate") == 0.0
