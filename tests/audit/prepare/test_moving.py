"""Logs whose beginning is deleted before an audit, and while it runs."""

from collections.abc import Callable, Sequence

import pytest
from pyspark.sql import SparkSession

from mirror.audit import job
from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Side, Span
from mirror.audit.model.request import AuditRequest
from mirror.audit.model.result import AuditResult
from mirror.audit.prepare import moving, plan
from mirror.audit.spark.progress import JobProgress
from mirror.records.header import BatchHeader
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import Change, batches_of, copy, create, delete_before, edited, endpoint, fill
from tests.audit.exact import transactions
from tests.audit.judge.test_mapped import copy_mapped, due
from tests.audit.judge.test_mapped import request as mapped_request

pytestmark = [pytest.mark.broker, pytest.mark.spark]

Pair = tuple[SandboxCluster, SandboxCluster]
READING = "reading and comparing both clusters"
LOOKING = "looking at the batches that differ"
ELSEWHERE = "looking for them elsewhere"


@pytest.fixture
def pair(source_cluster: SandboxCluster, destination_cluster: SandboxCluster) -> Pair:
    """The two clusters."""
    return source_cluster, destination_cluster


class At(JobProgress):
    """Does something when the audit comes to a stage, once."""

    def __init__(self, stage: str, does: Callable[[], None]) -> None:
        self._stage, self._does = stage, does
        self.done = False

    def stage(self, text: str, size: int = 0) -> None:
        if text == self._stage and not self.done:
            self.done = True
            self._does()


def request(pair: Pair, *topics: str) -> AuditRequest:
    """Without waiting for a mirror that does not run."""
    return AuditRequest(
        flow="source->destination", source=endpoint(pair[0], "source"), destination=endpoint(pair[1], "destination"),
        topics=topics, catch_up_s=0,
    )  # fmt: skip


def audited(asked: AuditRequest, spark: SparkSession, stage: str, does: Callable[[], None]) -> AuditResult:
    """The result of an audit in the middle of which something was done."""
    progress = At(stage, does)
    result = job.run(asked, spark=spark, progress=progress)
    assert progress.done, f"never came to {stage!r}"
    return result


def fine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts logs into ranges and chunks of a few batches."""
    monkeypatch.setattr(plan, "LEAST_TASK_BYTES", 1)
    monkeypatch.setattr(plan, "TASK_BYTES", 1_500)
    monkeypatch.setattr(plan, "CHUNK_BYTES", 400)


def spans(batches: Sequence[bytes]) -> list[Span]:
    """Their offsets."""
    return [Span(header.base_offset, header.next_offset) for header in map(BatchHeader.read, batches)]


def filled(pair: Pair, topic: str, change: Change = list) -> list[Span]:
    """A topic and its copy; where its batches are."""
    for cluster in pair:
        create(cluster, topic)
    fill(pair[0], topic)
    copy(*pair, topic, change=change)
    return spans(batches_of(pair[0], topic))


SIDES = ("source", "destination")


async def nobody(_scope: moving.Scope, _looked: object) -> None:
    """In place of ``Scope.check``: asks no cluster where its logs begin by now."""


def test_what_is_deleted_meanwhile_moves_the_start_on_both_sides(
    pair: Pair, spark: SparkSession, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. At either side, up to a batch's border, up to inside one, and all of it: the rest is identical, and it is noted.
       What the source still has of it is missing.
    2. Once more, in many ranges.
    3. Mutation: nobody looks where logs begin by now; what is gone is a difference.
    """

    def audit(name: str, *untils: str) -> AuditResult:
        wanted.clear()
        for side in range(2):
            for until in untils:
                topic = f"{topic_name}-{name}-{SIDES[side]}-{until}"
                places = filled(pair, topic)
                start = {"border": places[3].start, "inside": places[4].start + 1, "all": places[-1].end}[until]
                wanted[topic] = side, Span(start, places[-1].end)
        return audited(request(pair, *wanted), spark, READING, delete)

    def delete() -> None:
        for topic, (side, left) in wanted.items():
            delete_before(pair[side], topic, left.start)

    wanted: dict[str, tuple[int, Span]] = {}
    for name in ("one", "many"):
        if name == "many":
            fine(monkeypatch)
        result = audit(name, "border", "inside", "all")
        assert [(one.kind, one.topic, one.source) for one in result.findings] == sorted(
            (Kind.MISSING, topic, Span(0, left.start)) for topic, (side, left) in wanted.items() if side
        )
        assert sorted(note for note in result.notes if "while the audit ran" in note) == sorted(
            f"{topic} partition 0: {SIDES[side]} deleted offsets 0 to {left.start - 1} while the audit ran; what "
            "follows was compared"
            for topic, (side, left) in wanted.items()
        )
        assert {(row.topic, row.audited) for row in result.coverage} == {
            (topic, left) for topic, (_, left) in wanted.items()
        }
        records = {(row.side, row.topic): row.records for row in result.coverage}
        for topic, (_, left) in wanted.items():
            assert records[Side.SOURCE, topic] == records[Side.DESTINATION, topic], topic
            assert bool(records[Side.SOURCE, topic]) is bool(left.offsets), topic
    monkeypatch.setattr(job, "found_starts", lambda _: {})
    monkeypatch.setattr(moving.Scope, "check", nobody)
    assert any(one.kind is not Kind.MISSING for one in audit("mutated", "border").findings)


def test_differences_behind_the_new_start_are_found(
    pair: Pair, spark: SparkSession, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. One value changed before the new start, one behind it: the latter alone is a difference.
    2. Deleted when the differing batches are looked at, and when their contents are looked for: the same.
    3. All that differs is deleted then: no difference.
    4. Mutation: nobody asks where the logs begin by now; a difference is told that is none.
    """
    fine(monkeypatch)

    def damaged(batches: list[bytes]) -> list[bytes]:
        return [edited(raw, at=raw.index(b"none ")) if index in (1, 5) else raw for index, raw in enumerate(batches)]

    def audit(name: str, stage: str, *cases: tuple[int, int]) -> tuple[AuditResult, dict[tuple[int, int], list[Span]]]:
        topics = {case: f"{topic_name}-{name}-{SIDES[case[0]]}-{case[1]}" for case in cases}
        places = {case: filled(pair, topic, damaged) for case, topic in topics.items()}

        def delete() -> None:
            for (side, until), topic in topics.items():
                delete_before(pair[side], topic, places[side, until][until].start)

        return audited(request(pair, *topics.values()), spark, stage, delete), places

    for name, stage in (("reading", READING), ("looking", LOOKING), ("elsewhere", ELSEWHERE)):
        result, places = audit(name, stage, (0, 3), (1, 3), (0, 6))
        found = sorted(
            (finding.topic, finding.kind, finding.source, finding.destination)
            for finding in result.findings
            if "deleted them while the audit ran" not in finding.detail
        )
        lost = [one.source for one in result.findings if "deleted them while the audit ran" in one.detail]
        assert lost == [Span(0, places[1, 3][3].start)], stage
        assert found == [
            (f"{topic_name}-{name}-{SIDES[side]}-3", Kind.VALUE_CHANGED, places[side, 3][5], places[side, 3][5])
            for side in (1, 0)
        ], stage
        assert len([note for note in result.notes if "while the audit ran" in note]) == 3

    monkeypatch.setattr(moving.Scope, "check", nobody)
    result, _ = audit("mutated", LOOKING, (0, 3))
    assert len(result.findings) > 1


def test_copies_with_offsets_of_their_own(
    pair: Pair, spark: SparkSession, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. The source begins later than the copy: what the copy has of before is nobody's business.
    2. Deleted at the source while the audit runs, and at the destination: the rest is identical. What was deleted at
       the destination alone is missing.
    3. The first batches were never copied, or are in no map any more: missing, as nothing was deleted meanwhile.
    """
    fine(monkeypatch)
    names = before, here, there, never = [f"{topic_name}-{name}" for name in ("before", "here", "there", "never")]
    for topic in names:
        create(pair[0], topic)
        create(pair[1], f"{topic}-there")
    transactions(pair[0], *names, codec="none")
    maps = {topic: copy_mapped(pair, topic, f"{topic}-there") for topic in (before, here, there)}
    copy_mapped(pair, never, f"{never}-there", change=lambda batches: batches[2:])
    start = spans(due(pair[0], here))[3].start
    place = maps[there].to_destination(start)
    assert place is not None
    delete_before(pair[0], before, start)

    def delete() -> None:
        delete_before(pair[0], here, start)
        delete_before(pair[1], f"{there}-there", place.offset)

    result = audited(mapped_request(pair, *names), spark, READING, delete)
    lost = [finding for finding in result.findings if finding.topic == never]
    assert {(finding.kind, finding.source and finding.source.start) for finding in lost} == {(Kind.MISSING, 0)}
    (finding,) = [finding for finding in result.findings if finding.topic != never]
    assert (finding.kind, finding.topic, finding.source) == (Kind.MISSING, there, Span(0, start))
    read = [row for row in result.coverage if row.topic != never]
    assert {row.topic for row in read} == {before, here, there}
    assert {row.audited.start for row in read} == {start}
    assert len({row.records for row in read}) == 1
    told = "while the audit ran; what follows was compared"
    assert sorted(note for note in result.notes if told in note) == [
        f"{here} partition 0: source deleted offsets 0 to {start - 1} {told}",
        f"{there} partition 0: destination deleted offsets 0 to {place.offset - 1} {told}",
    ]
