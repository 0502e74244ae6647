"""The checks of batches that were read, each by itself."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mirror.foretold import Line
from mirror.reasons import HaltReason
from mirror.relay.halts import Halted
from mirror.relay.topics.limits import AFTER, BEFORE
from mirror.service.plan.checks import batches
from mirror.service.plan.model import FlowFacts, Level, PartitionFacts, PlanFinding, TopicFacts
from tests.service.plan.facts import APIS, EVERYTHING, HOUR_MS, NOW_MS, flow, partition, topic

Check = Callable[[FlowFacts, TopicFacts, PartitionFacts], Iterator[PlanFinding]]


def test_all_is_well() -> None:
    for check in batches.CHECKS:
        assert list(check(flow(), topic(), partition())) == []
        nothing = partition()
        nothing.sample = None
        assert list(check(flow(), topic(), nothing)) == []


@pytest.mark.parametrize(
    "reason",
    [HaltReason.LOG_APPEND_TIME, HaltReason.OLD_FORMAT, HaltReason.SPARSE_BATCH, HaltReason.UNKNOWN_ATTRIBUTES,
     HaltReason.UNEXPLAINED_GAP, HaltReason.CORRUPT, HaltReason.NOT_STRICT],
)  # fmt: skip
def test_the_relays_verdicts(reason: HaltReason) -> None:
    (found,) = batches.judged(flow(), topic(), partition(sample={"halts": {reason.slug: Halted.of(reason, "so")}}))
    assert (found.level, found.reason, found.detail, found.remedy) == (Level.REFUSED, reason.slug, "so", reason.told)


@pytest.mark.parametrize(
    ("check", "sample", "there", "line", "level", "told"),
    [
        (batches.batch_size, {"largest": 9}, {"segment.bytes": "8"}, Line.BATCH_SIZE, Level.REFUSED, "9 bytes"),
        (batches.timestamps, {"newest_ms": NOW_MS + 2 * HOUR_MS, "oldest_ms": NOW_MS}, {AFTER: str(HOUR_MS)},
         Line.TIMESTAMPS, Level.REFUSED, "2 h ahead"),
        (batches.timestamps, {"newest_ms": NOW_MS, "oldest_ms": NOW_MS - 2 * HOUR_MS}, {BEFORE: str(HOUR_MS)},
         Line.TIMESTAMPS, Level.REFUSED, "2 h behind"),
        (batches.clocks, {"newest_ms": NOW_MS + 120_000}, {}, Line.CLOCKS, Level.WARNS, "2 min ahead"),
        (batches.null_keys, {"null_key": 4}, {}, Line.NULL_KEYS, Level.REFUSED, "offset 4"),
        (batches.holes, {"holes": {"marker": 10}}, {}, Line.HOLES, Level.TOLD, "10.0%"),
        (batches.holes, {"holes": {"marker": 60, "aborted": 1}}, {}, Line.HOLES, Level.WARNS, "61.0%"),
        (batches.destination_retention, {"due_ms": NOW_MS - 2 * HOUR_MS}, {"retention.ms": str(HOUR_MS)},
         Line.DESTINATION_RETENTION, Level.WARNS, "2 h old"),
    ],
)  # fmt: skip
def test_each(check: Check, sample: dict[str, Any], there: dict[str, str], line: Line, level: Level, told: str) -> None:
    (found,) = check(flow(), topic(there=there), partition(sample=sample))
    assert (found.line, found.level) == (line, level)
    assert told in found.detail
    assert found.remedy or level is Level.TOLD
    assert bool(found.reason) is (level is Level.REFUSED)


@pytest.mark.parametrize(
    ("most", "policy", "due", "warns"),
    [("1000", "delete", 0, True), ("1001", "delete", 0, False), ("-1", "delete", 0, False),
     ("1000", "compact", 0, False), ("1000", "delete", 100, False)],
)  # fmt: skip
def test_a_source_that_is_full(most: str, policy: str, due: int, warns: bool) -> None:
    of = topic(here={"retention.bytes": most, "cleanup.policy": policy})
    found = list(batches.source_size(flow(here={"sizes": {("t", 0): 1_000}}), of, partition(due=due)))
    assert [one.line for one in found] == [Line.SOURCE_RETENTION] * warns
    assert not list(batches.source_size(flow(), of, partition(due=due)))


def test_zstd_of_an_old_destination() -> None:
    sample = {"codecs": {"zstd", "lz4"}}
    (found,) = batches.codec(flow(there={"apis": APIS | {0: 6}}), topic(), partition(sample=sample))
    assert (found.line, found.reason) == (Line.CODEC, "unsupported_codec")
    assert not list(batches.codec(flow(there={"apis": APIS | {0: 7}}), topic(), partition(sample=sample)))


def test_holes_that_may_not_be_filled() -> None:
    """Before 3.9, Alter is not enough. With offsets: mapped, or fill: transaction, none of that is needed."""
    sample = {"holes": {"marker": 10}}
    for rights, fetch, refused in (
        (EVERYTHING - {"Alter", "ClusterAction"}, 17, True),
        (EVERYTHING - {"ClusterAction"}, 17, False),
        (EVERYTHING - {"ClusterAction"}, 16, True),
        (EVERYTHING - {"Alter"}, 16, False),
        (None, 16, False),
    ):
        there = {"rights": rights, "apis": APIS | {1: fetch}}
        (found,) = batches.holes(flow(there=there), topic(), partition(sample=sample))
        assert (found.reason == "fill_not_permitted") is refused
    none = {"rights": frozenset[str]()}
    (found,) = batches.holes(flow(there=none, relay={"fill_by_transaction": True}), topic(), partition(sample=sample))
    assert found.level is Level.TOLD
    assert not list(batches.holes(flow(there=none, relay={"mapped": True}), topic(), partition(sample=sample)))


@pytest.mark.parametrize(
    ("there", "due_ms", "end"),
    [
        ({"retention.ms": "-1"}, NOW_MS - 2 * HOUR_MS, 100),
        ({"retention.ms": str(HOUR_MS), "cleanup.policy": "compact"}, NOW_MS - 2 * HOUR_MS, 100),
        ({"retention.ms": str(HOUR_MS), "message.timestamp.type": "LogAppendTime"}, NOW_MS - 2 * HOUR_MS, 100),
        ({"retention.ms": str(HOUR_MS)}, NOW_MS, 100),
        ({"retention.ms": str(HOUR_MS)}, NOW_MS - 2 * HOUR_MS, 0),
        ({}, NOW_MS - 2 * HOUR_MS, 100),
    ],
)
def test_what_is_kept(there: dict[str, str], due_ms: int, end: int) -> None:
    """For ever; compacted only; young enough; nothing is due; not known."""
    one = partition(end=end, sample={"due_ms": due_ms})
    assert not list(batches.destination_retention(flow(), topic(there=there), one))
