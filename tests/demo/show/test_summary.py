"""The summary: what the audit's files say per topic, the verdict, and the cost."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mirror.demo.data.topics import TOPICS
from mirror.demo.errors import DemoError
from mirror.demo.show.summary import Cost, TopicResult, read_results, render

PLANS = TOPICS[:2]
COST = Cost(cpu_s=4.0, start_cpu_s=1.0, peak_rss_bytes=51_000_000, forwarded_bytes=1_500_000_000, opened=0)

Rows = list[dict[str, Any]]


def coverage() -> Rows:
    """Both sides of both topics, all read: partition N has N + 1 batches of 10 records and 1000 bytes each."""
    return [
        {
            "side": side, "topic": plan.name, "partition": partition, "cluster_id": side, "batches": partition + 1,
            "records": 10 * (partition + 1), "bytes": 1_000 * (partition + 1), "complete": True,
        }
        for side in ("source", "destination")
        for plan in PLANS
        for partition in range(plan.partitions)
    ]  # fmt: skip


def written(folder: Path, coverage_rows: Rows, findings: Rows) -> Path:
    (folder / "coverage.json").write_text(json.dumps(coverage_rows))
    (folder / "findings.json").write_text(json.dumps(findings))
    return folder


def finding(kind: str, topic: str) -> dict[str, Any]:
    return {"kind": kind, "topic": topic, "partition": 0, "detail": ""}


def shown(results: list[TopicResult], *, identical: bool, cost: Cost = COST) -> str:
    file = io.StringIO()
    Console(file=file, width=120).print(render(results, cost, identical=identical, took_s=75))
    return file.getvalue()


def test_topics_are_summed_over_their_partitions_on_the_source(tmp_path: Path) -> None:
    results = read_results(written(tmp_path, coverage(), []), PLANS)
    assert [(result.records, result.batches, result.bytes) for result in results] == [(100, 10, 10_000), (30, 3, 3_000)]
    assert all(result.identical for result in results)


def test_findings_are_counted_by_kind_under_their_topic(tmp_path: Path) -> None:
    name = PLANS[1].name
    findings = [finding("missing", name), finding("extra", name), finding("missing", name)]
    first, second = read_results(written(tmp_path, coverage(), findings), PLANS)
    assert first.identical
    assert second.verdict == "1 extra, 2 missing"


def _incomplete(rows: Rows) -> None:
    rows[0]["complete"] = False


def _no_destination_partition(rows: Rows) -> None:
    del rows[-1]


def _twice(rows: Rows) -> None:
    rows.append(rows[0])


@pytest.mark.parametrize("spoil", [_incomplete, _no_destination_partition, _twice])
def test_without_full_coverage_nothing_is_identical(tmp_path: Path, spoil: Callable[[Rows], None]) -> None:
    rows = coverage()
    spoil(rows)
    results = read_results(written(tmp_path, rows, []), PLANS)
    assert [result.verdict for result in results].count("not all read") == 1


@pytest.mark.parametrize("content", ["", "{", "{}x", '[{"side": "source"}]', "[3]"])
def test_files_that_are_not_the_audits_are_an_error_with_a_remedy(tmp_path: Path, content: str) -> None:
    written(tmp_path, [], [])
    (tmp_path / "coverage.json").write_text(content)
    with pytest.raises(DemoError, match=r"(?s)audit's files in .* cannot be read.*remedy"):
        read_results(tmp_path, PLANS)


def test_missing_files_are_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="remedy"):
        read_results(tmp_path, PLANS)


def test_the_table_ends_with_the_sums_the_verdict_and_the_cost(tmp_path: Path) -> None:
    results = read_results(written(tmp_path, coverage(), []), PLANS)
    text = shown(results, identical=True)
    for plan in PLANS:
        assert plan.name in text
    (total,) = [line for line in text.splitlines() if line.startswith("│ all")]
    assert "130" in total
    assert "13.0 KB" in total
    assert "IDENTICAL  130 records in 13 batches" in text
    assert "4.0 CPU-seconds, 1.0 of them for its start (2.0 per GB after that)" in text
    assert "51.0 MB of memory. No batch was opened" in text
    assert "1 min 15 s" in text


def test_a_difference_is_not_to_be_overlooked(tmp_path: Path) -> None:
    findings = [finding("corrupt", PLANS[0].name)]
    text = shown(read_results(written(tmp_path, coverage(), findings), PLANS), identical=False)
    assert "1 corrupt" in text
    assert "1 differ" in text
    assert "DIFFERENT: " in text
    assert "IDENTICAL" not in text


def test_opened_batches_are_said_and_nothing_copied_costs_nothing_per_gb() -> None:
    cost = replace(COST, opened=2, forwarded_bytes=0)
    assert cost.cpu_s_per_gb == 0
    assert "2 batches had to be opened" in shown([], identical=True, cost=cost)
