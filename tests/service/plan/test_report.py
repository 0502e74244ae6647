"""Findings added up: rows, states, sums; and what each form of it says."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.foretold import Line
from mirror.net.errors import Unreachable
from mirror.net.options import ClusterOptions
from mirror.reasons import HaltReason
from mirror.relay.halts import Halted
from mirror.service.commands import Commands
from mirror.service.exits import EXIT_FAILED, EXIT_HALTED, EXIT_OK
from mirror.service.plan import command
from mirror.service.plan.command import exit_code
from mirror.service.plan.document import document
from mirror.service.plan.fix import Act, acts_for
from mirror.service.plan.model import Level, PlanFinding
from mirror.service.plan.report import NAMED, PlanRow, Prospect, Report
from mirror.service.plan.table import text
from tests.relay.stage.flows import settings
from tests.service.plan.facts import flow, partition, topic

BAD = Halted.of(HaltReason.NOT_A_COPY, "they differ")


def report(*partitions: dict[str, Any], count: int = 0, of: dict[str, Any] | None = None, **changes: Any) -> Report:
    """The plan of one topic with these partitions, and ``count`` more with which all is well."""
    total = len(partitions) + count
    facts = topic(partitions=total, **of or {})
    found = Report(flow(**changes), [facts])
    for index, each in enumerate([*partitions, *({} for _ in range(count))]):
        found.tell(facts, partition(index=index, **each))
    found.finish(flow(**changes))
    return found


def test_all_is_well() -> None:
    found = report(count=3)
    assert found.partitions == {Prospect.FITS: 3}
    assert found.level is Level.TOLD
    assert exit_code([found], {}) == EXIT_OK
    assert found.estimate.need.offsets == 300


def test_one_cluster_on_both_sides() -> None:
    """Nothing is said of its topics as if they were copies: a remedy would be to delete the source."""
    foreign = Halted.of(HaltReason.FOREIGN_WRITER, "a batch of somebody else")
    assert Line.PREFIX in {row.finding.line for row in report({"halted": foreign}).rows}
    found = report({"halted": foreign}, count=2, there={"cluster_id": "id-source"})
    assert [(row.finding.line, row.finding.level) for row in found.rows if row.finding.level > Level.TOLD] == [
        (Line.SAME_CLUSTER, Level.REFUSED)
    ]
    assert not [row for row in found.rows if row.topic]
    assert (found.partitions, found.fixable) == ({Prospect.REFUSED: 3}, [])
    assert exit_code([found], {}) == EXIT_HALTED
    assert "same cluster" in text(found, [], Commands(), everything=True, fixed=False)


def test_states() -> None:
    """The gravest finding counts. One about the topic concerns all its partitions."""
    found = report({"halted": BAD}, {"unknown": "it hangs"}, {"in_sync": 0, "replicas": 3}, {"leading": 5, "start": 5},
                   of={"there": {"min.insync.replicas": "1"}})  # fmt: skip
    assert found.partitions == {Prospect.REFUSED: 1, Prospect.UNKNOWN: 1, Prospect.WARNS: 1, Prospect.FITS: 1}
    (row,) = found.topics.values()
    assert row.state is Prospect.REFUSED
    assert report(count=2, of={"partitions_there": 9}).partitions == {Prospect.WARNS: 2}
    new = {"exists": False, "created": True, "partitions_there": 0, "pair": {"partitions_there": 0}}
    assert report(count=2, of=new).partitions == {Prospect.CREATED: 2}
    grown = {"grown": True, "partitions_there": 1, "pair": {"partitions_there": 1}}
    assert report(count=3, of=grown).partitions == {Prospect.FITS: 1, Prospect.CREATED: 2}


@pytest.mark.parametrize(
    ("partitions", "code"),
    [([{"halted": BAD}, {"unknown": "it hangs"}], EXIT_HALTED), ([{"unknown": "it hangs"}], EXIT_FAILED),
     ([{"in_sync": 0}], EXIT_OK)],
)  # fmt: skip
def test_exit_codes(partitions: list[dict[str, Any]], code: int) -> None:
    found = report(*partitions, of={"there": {"min.insync.replicas": "1"}})
    assert exit_code([report(count=1), found], {}) == code


def test_what_could_not_be_fixed() -> None:
    failed = {"a->b": [Act("create", "t", "create t", failed="no")]}
    assert exit_code([report(count=1)], failed) == EXIT_FAILED


def test_many_partitions_make_one_row() -> None:
    """Of which the first are named: memory is bounded, and so is what people have to read."""
    found = report(*[{"halted": BAD}] * 5_000)
    (row,) = [row for row in found.rows if row.finding.level is Level.REFUSED]
    assert (row.partitions, row.named) == (5_000, list(range(NAMED)))


def test_what_deserves_attention_comes_first() -> None:
    levels = [row.finding.level for row in report({"unknown": "?"}, {"halted": BAD}, {"leading": 5}).rows]
    assert levels == sorted(levels, reverse=True)


def test_an_empty_topic_is_one_without_records() -> None:
    """Nobody knows of what could not be asked."""
    assert [each.empty for each in report(count=2).found] == [True]
    assert [each.empty for each in report({}, {"there_end": 1}).found] == [False]
    assert [each.empty for each in report({}, {"unknown": "it hangs"}).found] == [False]
    assert [each.empty for each in report({}, {"there_end": 5, "there_start": 5}).found] == [True]
    assert [each.empty for each in report(count=1, of={"exists": False, "created": True}).found] == [False]


def test_only_empty_topics_are_set() -> None:
    relay = settings(fixed_configs={"compression.type": "producer"})
    rewriting = topic(there={"compression.type": "lz4"}, empty=True)
    (act,) = acts_for([rewriting], relay, "destination")
    assert (act.kind, act.topic, act.config, act.value) == ("set", "t", "compression.type", "producer")
    assert act.told == "set compression.type=producer on t at destination (it is lz4)"
    assert acts_for([topic(there={"compression.type": "lz4"})], relay, "destination") == []
    refused = topic(exists=False, created=True, refusal=BAD)
    assert acts_for([refused], relay, "destination") == []


def test_others_topics_are_left_alone() -> None:
    """What stands there may be somebody else's: partitions that are added send their keys elsewhere, for good."""
    assert [each.name for each in report(count=1).fixable] == ["t"]
    assert report({"halted": BAD}, count=1).fixable == []


@pytest.mark.parametrize("reason", [HaltReason.FOREIGN_WRITER, HaltReason.NOT_A_COPY, HaltReason.RECREATED])
def test_a_strange_topic_is_not_said_to_grow(reason: HaltReason) -> None:
    """The mirror adds partitions to its copies only. With another cause, such as a batch too large, it adds them."""
    grown = {"grown": True, "partitions_there": 1, "pair": {"partitions_there": 1}}
    found = report({"halted": Halted.of(reason, "others' records")}, count=2, of=grown)
    assert found.partitions == {Prospect.REFUSED: 3}
    (row,) = [row for row in found.rows if row.finding.line is Line.PARTITIONS]
    assert (row.finding.level, row.finding.reason, row.partitions) == (Level.REFUSED, "fewer_partitions", 2)
    assert "t has 1 of 3 partitions at destination, and none are added" in row.finding.detail
    too_large = report({"halted": Halted.of(HaltReason.TOO_LARGE, "a batch")}, count=2, of=grown)
    assert too_large.partitions == {Prospect.REFUSED: 1, Prospect.CREATED: 2}


def test_what_is_refused_is_not_to_be_copied() -> None:
    """Its offsets are not in the sums. A topic of which nothing would be copied is not created by --fix either."""
    new = {"exists": False, "created": True, "partitions_there": 0, "pair": {"partitions_there": 0}}
    old = Halted.of(HaltReason.OLD_FORMAT, "magic 1")
    some = report({"halted": old}, count=2, of=new)
    assert some.estimate.need.offsets == 200
    assert [act.kind for act in acts_for(some.fixable, settings(), "destination")] == ["create"]
    none = report({"halted": old}, {"halted": old}, of=new)
    assert none.estimate.need.offsets == 0
    assert acts_for(none.fixable, settings(), "destination") == []


def test_configs_that_would_be_changed() -> None:
    """Of copies only: what others have put there keeps its retention."""
    of = {"altered": {"retention.ms": "5", "segment.ms": None}}
    (row,) = [row for row in report(count=2, of=of).rows if row.finding.line is Line.CONFIGS]
    assert row.finding.level is Level.TOLD
    assert "t at destination gets retention.ms=5, segment.ms=(default), as at the source" in row.finding.detail
    assert not [row for row in report({"halted": BAD}, of=of).rows if row.finding.line is Line.CONFIGS]


KEYS = {
    "flow": None, "flow_id": None, "offsets": None, "time_ms": None, "topics": None, "at_least_seconds": None,
    "rests_on": None,
    "source": {"cluster", "cluster_id", "brokers", "round_trip_seconds", "rights", "brokers_down"},
    "destination": {"cluster", "cluster_id", "brokers", "round_trip_seconds", "rights", "brokers_down"},
    "partitions": {"fits", "created", "warns", "unknown", "refused"},
    "to_copy": {"offsets", "bytes", "markers", "leading_offsets", "disk_bytes", "unsized_partitions"},
    "sampled": {"bytes", "partitions", "partitions_left_out", "bytes_per_second"},
    "findings": {"line", "name", "level", "topic", "partitions", "first_partitions", "reason", "detail", "remedy"},
    "by_topic": {"topic", "destination", "state", "partitions", "states", "offsets", "bytes", "disk_bytes"},
    "fix": {"done", "acts"},
}  # fmt: skip
"""The object's keys, which scripts rely on: none may go."""


def test_the_object_is_stable() -> None:
    made = report({"halted": BAD}, count=1)
    told = document([made], {}, {made.flow.name: Commands()}, exit_code=2, fixed=False, not_asked={"other": "away"})
    found = json.loads(json.dumps(told))
    assert found.keys() == {"plan", "exit_code", "flows", "not_asked"}
    assert found["not_asked"] == [{"flow": "other", "why": "away"}]
    assert (found["plan"], found["exit_code"]) == (1, 2)
    (one,) = found["flows"]
    assert one.keys() == KEYS.keys()
    for name, keys in KEYS.items():
        for each in one[name] if isinstance(one[name], list) else [one[name]]:
            assert keys is None or each.keys() == keys, name
    assert {row["level"] for row in one["findings"]} <= {"told", "warns", "unknown", "refused"}
    (refused,) = [row for row in one["findings"] if row["level"] == "refused"]
    assert (refused["line"], refused["name"], refused["reason"]) == ("P16", "prefix", "not_a_copy")
    assert "mirror resume t" in refused["remedy"]


def test_the_text() -> None:
    """What needs attention, in columns; the rest is counted, and shown with --all."""
    found = report({"halted": BAD}, *[{"leading": 5, "start": 5}] * 7, rate=10.0, unsampled_n=3, sampled_n=5)
    short = text(found, [], Commands(config="a.yaml"), everything=False, fixed=False)
    lines = short.splitlines()
    assert lines[0] == "flow source->destination, offsets: exact"
    assert "  topics      1: 1 refused" in lines
    assert "  partitions  8: 7 fit, 1 refused" in lines
    assert "3 were left out (--sample-bytes)" in short
    assert "at least 11 min" in short
    assert any(line.split()[:5] == ["REFUSED", "P16", "prefix", "(not_a_copy)", "t"] for line in lines)
    assert "P22" not in short
    assert "more rows need no attention: --all shows them" in short
    whole = text(found, [], Commands(), everything=True, fixed=False)
    assert any("P22 leading-filler" in line and "7 (1, 2, 3, 4, 5, ...)" in line for line in whole.splitlines())
    assert "--all shows them" not in whole


def test_the_text_of_what_is_fixed() -> None:
    acts = [Act("create", "t", "create t"), Act("set", "u", "set x on u", failed="no right")]
    shown = text(report(count=1), acts, Commands(), everything=False, fixed=False)
    assert "--fix would:\n  create t\n  set x on u" in shown
    done = text(report(count=1), acts, Commands(), everything=False, fixed=True)
    assert "fixed:\n  create t\n  set x on u: FAILED, no right" in done


@pytest.mark.parametrize(("partitions", "only"), [(1, 0), (3, None)])
def test_a_remedy_is_for_what_the_row_is_about(partitions: int, only: int | None) -> None:
    """It names a partition if there is one, and says that what has not begun cannot be resumed."""
    resume = "delete it and run `mirror resume TOPIC PARTITION`"
    named = list(range(partitions))
    row = PlanRow(
        topic="t",
        finding=PlanFinding(Line.PREFIX, Level.REFUSED, "d", remedy=resume),
        partitions=partitions,
        named=named,
    )
    assert row.only == only
    assert row.remedy.startswith(f"{resume}. (Partitions that have not halted yet need no resume")
    halted = PlanRow(
        topic="t",
        finding=PlanFinding(Line.HALTED, Level.REFUSED, "d", remedy=resume),
        partitions=partitions,
        named=named,
    )
    assert halted.remedy == resume
    for line in (Line.LOOP, Line.SOURCE_RETENTION):
        mended = PlanRow(topic="t", finding=PlanFinding(line, Level.REFUSED, "d", remedy=resume))
        assert mended.remedy.startswith(f"{resume}. (Only a partition that has halted can be resumed")


@pytest.mark.parametrize("which", [0, 1], ids=["data", "text"])
def test_several_flows(monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    """One whose cluster is away does not hide the others; one that has not the topic that is asked for is left out."""

    async def asked(asking: Any) -> Any:
        if asking.name == "a->away":
            raise Unreachable("cluster away does not answer")
        return report(count=1)

    there = ClusterOptions(bootstrap=(("127.0.0.1", 9092),))
    monkeypatch.setattr(
        command, "asking_of", lambda _, flow, **__: SimpleNamespace(name=flow.name, settings=None, destination=there)
    )
    monkeypatch.setattr(command, "_asked", asked)
    monkeypatch.setattr(command, "acts_for", lambda *_: [])
    every: list[Any] = [
        SimpleNamespace(
            name=name, settings=SimpleNamespace(selection=None, selects=lambda topic, has=has: topic in has)
        )
        for name, has in (("a->b", {"t"}), ("a->away", {"t"}), ("a->c", {"u"}))
    ]

    def planned(*names: str) -> tuple[int, str]:
        told: list[Any] = []
        flows = [flow for flow in every if flow.name in names]
        none: Any = None
        code = command.plan(
            none, Commands(), flows=flows, topics=["t"], sample_bytes=1, everything=True, fix=False,
            dry_run=False, tell=lambda data, text: told.extend((json.dumps(data), text)),
        )  # fmt: skip
        return code, told[which]

    code, told = planned("a->b", "a->away", "a->c")
    assert code == 1
    assert "cluster away does not answer" in told
    assert "a->c" not in told
    assert planned("a->b", "a->c")[0] == 0
    with pytest.raises(command.NotPlanned, match="cluster away does not answer"):
        planned("a->away", "a->c")
