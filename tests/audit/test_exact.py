"""Audits of transactional topics on two real clusters: every hole filled passes, every wrong fill is named."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirror.audit import job
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Side, Span
from mirror.audit.model.request import ISOLATION_LEVELS, AuditRequest
from mirror.audit.model.result import AuditResult, Coverage
from mirror.audit.prepare import plan
from mirror.records.filler import filler_batch, filler_id
from mirror.records.header import BatchHeader
from mirror.records.identity import MIRROR_BIT
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import batches_of, create, delete_before, endpoint
from tests.audit.exact import Batch, Change, Markers, Step, copy_exact, steps_of, transactions
from tests.service.runs.holes.test_holes import wait_for_equal_ends
from tests.service.stage.running import config_text, mirror

pytestmark = [pytest.mark.broker, pytest.mark.spark]

Pair = tuple[SandboxCluster, SandboxCluster]
Told = tuple[Kind, Span | None, Span | None]

RECORDS, ABORTED, CONTROL = 20, 8, 4
"""Of what ``transactions`` writes to a topic."""


@pytest.fixture
def pair(source_cluster: SandboxCluster, destination_cluster: SandboxCluster) -> Pair:
    """The two clusters."""
    return source_cluster, destination_cluster


def request(pair: Pair, *topics: str, **more: str) -> AuditRequest:
    """Without waiting for a mirror that does not run."""
    return AuditRequest(
        flow="source->destination", source=endpoint(pair[0], "source"), destination=endpoint(pair[1], "destination"),
        topics=topics, catch_up_s=0, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def written(pair: Pair, topic_name: str, *names: str, codec: str = "lz4") -> list[str]:
    """Topics of one partition on both sides, with transactions at the source."""
    topics = [f"{topic_name}-{name}" for name in names]
    for topic in topics:
        for cluster in pair:
            create(cluster, topic)
    transactions(pair[0], *topics, codec=codec)
    return topics


def told(findings: Sequence[Finding], topic: str) -> list[Told]:
    """Of one topic, without the words."""
    return [
        (finding.kind, finding.source, finding.destination)
        for finding in findings
        if (finding.topic, finding.partition) == (topic, 0)
    ]


def rows(result: AuditResult, side: Side) -> list[Coverage]:
    """Coverage of one side."""
    return [row for row in result.coverage if row.side is side]


def test_filled_holes_are_identical(
    pair: Pair, spark: SparkSession, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every offset of both logs is accounted for, in one range or in many that cut through batches and holes."""
    topics = written(pair, topic_name, "a", "b", codec="zstd")
    for topic in topics:
        copy_exact(*pair, topic)
    for _ in range(2):
        result = job.run(request(pair, *topics), spark=spark)
        assert result.findings == ()
        for ours, theirs in zip(rows(result, Side.SOURCE), rows(result, Side.DESTINATION), strict=True):
            assert (ours.records, ours.offsets, ours.aborted, ours.control) == (RECORDS, RECORDS, ABORTED, CONTROL)
            assert (theirs.records, theirs.control, theirs.aborted) == (RECORDS, ABORTED + CONTROL, 0)
            assert ours.batches == theirs.batches
            assert ours.audited == theirs.audited == ours.log == theirs.log == Span(0, RECORDS + ABORTED + CONTROL)
            for row in (ours, theirs):
                assert row.offsets + row.holes == row.audited.offsets
        monkeypatch.setattr(plan, "LEAST_TASK_BYTES", 1)
        monkeypatch.setattr(plan, "TASK_BYTES", 200)
        monkeypatch.setattr(plan, "CHUNK_BYTES", 100)


def test_aborted_data_is_due_read_uncommitted(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    (topic,) = written(pair, topic_name, "t")
    copy_exact(*pair, topic, committed=False)
    uncommitted = request(pair, topic, isolation_level="read_uncommitted")
    result = job.run(uncommitted, spark=spark)
    assert result.identical
    assert {(row.records, row.control) for row in result.coverage} == {(RECORDS + ABORTED, CONTROL)}
    found = job.run(replace(uncommitted, isolation_level="read_committed"), spark=spark).findings
    assert {finding.kind for finding in found} == {Kind.EXTRA}
    assert {finding.detail for finding in found} == {"the source has aborted data here"}
    assert sum(finding.records for finding in found) == ABORTED


class Layout:
    """A topic's steps and where they lie; all alike in the order of their kinds, not always in where batches end."""

    def __init__(self, source: SandboxCluster, topic: str) -> None:
        self.topic = topic
        self.steps = steps_of(source, topic)
        sizes = [
            step.offsets if isinstance(step, Markers) else header(step).last_offset_delta + 1 for step in self.steps
        ]
        self.bases = [0, *itertools.accumulate(sizes)]
        self.hole = next(at for at, step in enumerate(self.steps) if isinstance(step, Markers) and step.offsets > 1)
        self.size = sizes[self.hole]
        self.start = self.bases[self.hole]
        self.end = self.bases[-1]

    def with_hole(self, *others: Step) -> Change:
        """These steps in place of the first hole."""
        return self.with_step(self.hole, *others)

    def with_step(self, at: int, *others: Step) -> Change:
        """These steps in place of one."""
        return lambda steps: [*steps[:at], *others, *steps[at + 1 :]]

    def span(self, at: int) -> Span:
        """Of a step."""
        return Span(self.bases[at], self.bases[at + 1])


def header(step: Batch) -> BatchHeader:
    """Of its batch."""
    return BatchHeader.read(step.data)


DAMAGES = ("more", "fewer", "last", "instead", "aborted", "foreign", "coordinator", "commit", "none")


def test_every_wrong_fill_is_named_with_its_place(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    """One topic for each damage; one audit."""
    topics = dict(zip(DAMAGES, written(pair, topic_name, *DAMAGES, codec="none"), strict=True))
    at = {name: Layout(pair[0], topic) for name, topic in topics.items()}
    owner = MIRROR_BIT + 12_345

    def aborted(layout: Layout) -> Change:
        data = next(
            Batch(raw) for raw in batches_of(pair[0], layout.topic) if BatchHeader.read(raw).base_offset == layout.start
        )
        rest = layout.size - header(data).last_offset_delta - 1
        return layout.with_hole(data, *([Markers(rest)] if rest else []))

    changes: dict[str, Change] = {
        "more": at["more"].with_hole(Markers(at["more"].size + 1)),
        "fewer": at["fewer"].with_hole(Markers(at["fewer"].size - 1)),
        "last": lambda steps: [*steps, Markers(1)],
        "instead": at["instead"].with_step(1, Markers(at["instead"].span(1).offsets)),
        "aborted": aborted(at["aborted"]),
        "foreign": at["foreign"].with_hole(Markers(at["foreign"].size - 1), Markers(1, producer_id=4_000_000, epoch=1)),
        "coordinator": at["coordinator"].with_hole(Markers(at["coordinator"].size, producer_id=4_000_001, epoch=0)),
        "commit": at["commit"].with_hole(Markers(at["commit"].size, producer_id=owner, epoch=2)),
        "none": list,
    }
    for name, change in changes.items():
        copy_exact(*pair, topics[name], change=change)
    result = job.run(request(pair, *topics.values()), spark=spark)
    found = {name: told(result.findings, topic) for name, topic in topics.items()}

    hole = at["more"].span(at["more"].hole)
    assert (Kind.OVERFILLED, None, Span(hole.end, hole.end + 1)) in found["more"]
    assert len(found["more"]) == 1

    hole = at["fewer"].span(at["fewer"].hole)
    assert (Kind.UNFILLED, Span(hole.end - 1, hole.end), None) in found["fewer"]
    assert len(found["fewer"]) == 1

    assert found["last"] == [(Kind.EXTRA, None, Span(at["last"].end, at["last"].end + 1))]

    lost = at["instead"].span(1)
    assert sorted(found["instead"], key=str) == [(Kind.MISSING, lost, None), (Kind.OVERFILLED, None, lost)]

    (extra,) = [finding for finding in result.findings if finding.topic == topics["aborted"]]
    assert (extra.kind, extra.destination and extra.destination.start) == (Kind.EXTRA, at["aborted"].start)
    assert extra.detail == "the source has aborted data here"

    hole = at["foreign"].span(at["foreign"].hole)
    assert found["foreign"] == [(Kind.FOREIGN, None, Span(hole.end - 1, hole.end))]
    for name in ("coordinator", "commit"):
        assert found[name] == [(Kind.FOREIGN, None, at[name].span(at[name].hole))]
    assert found["none"] == []

    assert job.run(request(pair, topics["coordinator"], fill="transaction"), spark=spark).identical
    assert not job.run(request(pair, topics["aborted"], fill="transaction"), spark=spark).identical


def test_leading_filler_that_is_still_visible(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    """1. The source's log begins behind its first batches; the destination's is filled up to there, as by a mirror.
    2. The filler is visible: found, up to its end.
    3. It is deleted: identical.
    """
    (topic,) = written(pair, topic_name, "t")
    first = Layout(pair[0], topic).bases[2]
    owner = filler_id(flow="source->destination", cluster_id=pair[0].cluster_id, topic=topic, partition=0)
    filler = [filler_batch(producer=owner, offset=at, count=1, timestamp=1) for at in range(first)]
    copy_exact(*pair, topic, change=lambda steps: [*(Batch(data, raw=True) for data in filler), *steps[2:]])
    delete_before(pair[0], topic, first)
    result = job.run(request(pair, topic), spark=spark)
    assert told(result.findings, topic) == [(Kind.FILLER, None, Span(0, first))]
    delete_before(pair[1], topic, first)
    assert job.run(request(pair, topic), spark=spark).identical


def test_what_the_mirror_itself_makes_of_transactions(
    pair: Pair, spark: SparkSession, topic_name: str, tmp_path: Path
) -> None:
    """1. ``mirror run`` copies transactional topics, at each isolation level.
    2. The audit of the same flow says identical, and of the other level it does not.
    """
    for level in ISOLATION_LEVELS:
        name = f"{topic_name}-{level}"
        create(pair[0], name)
        transactions(pair[0], name)
        text = config_text(
            pair[0].bootstrap_servers, pair[1].bootstrap_servers, [name], flow={"isolation.level": level}
        )
        with mirror(tmp_path / "mirror.yaml", text) as process:
            wait_for_equal_ends(process, pair[0].bootstrap_servers, pair[1].bootstrap_servers, name)
            assert process.stop() == 0
        same = job.run(request(pair, name, isolation_level=level), spark=spark)
        assert same.identical
        (theirs,) = rows(same, Side.DESTINATION)
        assert theirs.control == (ABORTED + CONTROL if level == "read_committed" else CONTROL)
        (other,) = set(ISOLATION_LEVELS) - {level}
        assert not job.run(request(pair, name, isolation_level=other), spark=spark).identical
