"""The checks of a partition, each by itself."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mirror.foretold import FORETOLD, Line
from mirror.reasons import HaltReason
from mirror.records.admit import Terms
from mirror.relay.halts import Halted
from mirror.service.plan.checks import partitions
from mirror.service.plan.model import FlowFacts, Level, PartitionFacts, PlanFinding, TopicFacts
from tests.service.plan.facts import EVERYTHING, flow, partition, topic

Check = Callable[[FlowFacts, TopicFacts, PartitionFacts], Iterator[PlanFinding]]


def test_all_is_well() -> None:
    for check in partitions.CHECKS:
        assert list(check(flow(), topic(), partition())) == []


@pytest.mark.parametrize("reason", FORETOLD, ids=lambda reason: reason.name.lower())
def test_the_relays_verdicts(reason: HaltReason) -> None:
    """Each under its line; one that was written down says so."""
    halted = Halted.of(reason, "the detail")
    (found,) = partitions.located(flow(), topic(), partition(halted=halted))
    assert found == PlanFinding(FORETOLD[reason], Level.REFUSED, "the detail", reason.told, reason.slug)
    (kept,) = partitions.located(flow(), topic(), partition(halted=halted, kept=True))
    assert (kept.line, kept.reason) == (Line.HALTED, reason.slug)
    assert "it has halted before" in kept.detail


def test_a_pair_that_does_not_fit() -> None:
    """Unless the mirror would make it fit. Settings that rewrite say which batches are there."""
    halted = Halted.of(HaltReason.DESTINATION_REWRITES, "t: compression.type=gzip")
    (found,) = partitions.paired(flow(), topic(pair={"halted": halted}), partition(sample={"codecs": {"lz4", "none"}}))
    assert (found.line, found.reason) == (Line.REWRITES, "destination_rewrites")
    assert "lz4, none" in found.detail
    few = topic(partitions=2, partitions_there=1, pair={"partitions_there": 1})
    (found,) = partitions.paired(flow(), few, partition(index=1))
    assert (found.line, found.reason) == (Line.PARTITIONS, "fewer_partitions")
    assert not list(partitions.paired(flow(), few, partition(index=0)))
    grown = topic(partitions=2, partitions_there=1, grown=True, pair={"partitions_there": 1})
    assert not list(partitions.paired(flow(), grown, partition(index=1)))
    created = topic(created=True, exists=False, pair={"partitions_there": 0})
    assert not list(partitions.paired(flow(), created, partition()))


@pytest.mark.parametrize(
    ("check", "changes", "line", "level", "told"),
    [
        (partitions.begun_anew, {"begun_anew": True}, Line.RECREATED, Level.TOLD, "begins again"),
        (
            partitions.starting_offset,
            {"start": 7, "left_out": 5},
            Line.STARTING,
            Level.TOLD,
            "5 offsets that the source",
        ),
        (partitions.leading_filler, {"start": 7, "leading": 7}, Line.LEADING, Level.TOLD, "7 offsets are filled"),
        (partitions.replicas, {"in_sync": 1}, Line.REPLICAS, Level.WARNS, "1 of 3 replicas"),
        (partitions.reached, {"unknown": "it hangs"}, Line.REACHED, Level.UNKNOWN, "not known: it hangs"),
    ],
)
def test_each(check: Check, changes: dict[str, Any], line: Line, level: Level, told: str) -> None:
    (found,) = check(flow(), topic(there={"min.insync.replicas": "2"}), partition(**changes))
    assert (found.line, found.level) == (line, level)
    assert told in found.detail


def test_too_many_leading_offsets() -> None:
    (found,) = partitions.leading_filler(flow(relay={"max_leading_filler": 6}), topic(), partition(start=7, leading=7))
    assert (found.level, found.reason) == (Level.REFUSED, "leading_offsets")


@pytest.mark.parametrize(
    ("compacted", "lacks", "refused"), [(False, "Delete", True), (False, "AlterConfigs", False),
                                        (True, "AlterConfigs", True)],
)  # fmt: skip
def test_rights_for_leading_filler(compacted: bool, lacks: str, refused: bool) -> None:
    there = topic(terms=Terms(compacted_there=compacted), rights_there=EVERYTHING - {lacks})
    found = list(partitions.leading_filler(flow(), there, partition(start=7, leading=7)))
    assert [one.line for one in found if one.level is Level.REFUSED] == [Line.RIGHTS] * refused
