"""What is kept of a run, and what is made of it."""

import dataclasses
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from bench import goals
from bench.cases import latency
from bench.data.stored import Stored
from bench.errors import BenchError
from bench.plan import all_workloads
from bench.report import chart, documents, table
from bench.report.results import Cost, Latency, load, row, save
from tests.bench import samples

PEAK = "peak memory, 8 or 64 partitions, nearby, without TLS: at most 100 MB"


def test_rows_have_what_is_asked_of_them(tmp_path: Path) -> None:
    data = json.loads(save(samples.results(), tmp_path).read_text())
    asked = {
        "system",
        "workload",
        "cpu_s_per_gb",
        "mb_per_s",
        "peak_rss_mb",
        "batch_mean_bytes",
        "stored_bytes",
    }
    assert data["definition"].startswith("CPU-seconds per GB")
    assert len(data["rows"]) == 15 * 4 + 5 * 3
    assert all(asked <= found.keys() for found in data["rows"])
    mirror = next(found for found in data["rows"] if (found["system"], found["size"]) == ("mirror", "1MB"))
    assert (mirror["cpu_s_per_gb"], mirror["mb_per_s"], mirror["peak_rss_mb"]) == (0.5, 125.0, 50.0)
    assert {"cpu", "cores", "memory_gb", "kernel", "python", "java", "date"} <= data["machine"].keys()
    assert {"system", "median_ms", "p99_ms"} <= data["latency"][0].keys()
    assert not list(tmp_path.glob("*.partial"))


def test_results_are_read_back_as_they_were(tmp_path: Path) -> None:
    results = samples.results()
    assert load(save(results, tmp_path)) == results


def test_without_a_floor_there_is_no_ratio() -> None:
    results = samples.results(only="1KB-none-8p")
    (mirror,) = (row for row in results.rows if row.system == "mirror")
    assert results.times_floor(mirror) == (2.0, 2.0, 2.0)
    results.rows = [mirror]
    assert results.times_floor(mirror) is None


def test_tables_and_markdown_show_every_system_and_what_failed() -> None:
    results = samples.results()
    console = Console(file=io.StringIO(), width=130)
    console.print(table.workloads(results), table.latency(results.latency), table.goals(goals.verdicts(results)))
    console.print(table.costs(results.costs))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for name in ("MirrorMaker 2", "MirrorMaker 1", "byte relay", "16KB-lz4-64p", "1.00 MB", "failed", "source itself"):
        assert name in text
    lines = table.markdown(results).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + 75 + 2 + 2 + 2 + 3 + 2 + 32
    assert "| exact-old | old | 8 | 21.0 | 21000 | 1.50 |  |  |  |  |" in rows
    assert "| idle-2000p | idle | 2000 |  |  |  | 24 | 2.0 | 80 | 100 |" in rows
    bound = "| 16 KB lz4: at least 20 x less CPU than MirrorMaker 2 | 16KB-lz4-8p | 32.00 |  | kept |"
    assert bound in rows
    assert {line.count("|") for line in rows[:77]} == {10}
    assert "| 16KB-lz4-64p-tls-source | 16.4 KB | byte relay | 0.25 | 1.00 |" in "\n".join(rows)
    assert any("-tls-source`: to the source only" in line for line in lines)
    assert "| 1MB-zstd-8p | 1.00 MB | byte relay | 0.25 | 1.00 |" in "\n".join(rows)


def test_bounds_are_judged_where_there_are_figures() -> None:
    kept = {(verdict.what, verdict.workload): verdict.kept for verdict in goals.verdicts(samples.results())}
    assert len(kept) == 3 + 3 + 3 + 2 + 1 + 15 + 1 + 1 + 2 + 1
    assert not kept["1 MB batches: at most 1.8 x the floor", "1MB-none-8p"]
    assert kept["16 KB batches, 64 partitions: at most 2.5 x the floor", "16KB-none-64p"]
    assert kept["16 KB lz4: at least 20 x less CPU than MirrorMaker 2", "16KB-lz4-8p"]
    assert not kept["1 MB zstd: at least 50 x less CPU than MirrorMaker 2", "1MB-zstd-8p"]
    assert kept[PEAK, "1KB-none-8p"]
    assert kept["200 ms to the source, 1 partition: at least 60 MB/s", "16KB-lz4-1p-far-source"]
    assert not kept["200 ms to the source, 64 partitions: at least 150 MB/s", "16KB-lz4-64p-far-source"]
    assert not kept["200 ms to the source: at least 2 x as fast as MirrorMaker 2", "16KB-lz4-64p-far-source"]
    assert not kept["2,000 partitions, idle: at most 2 % of a core", "idle-2000p"]


@pytest.mark.parametrize(("cost", "kept"), [(1.49, [True]), (1.51, [False]), (None, [False])])
def test_what_cutting_batches_costs_is_judged_against_a_copy_without(cost: float | None, kept: list[bool]) -> None:
    found = samples.results(only="none of them")
    found.costs = [
        Cost(case=case, what="", partitions=8, cpu_s_per_gb=figure)
        for case, figure in (("exact-deep-2pc", cost), ("exact-deep-none", 1.0))
    ]
    assert [verdict.kept for verdict in goals.verdicts(found) if "pieces" in verdict.what] == kept


def test_what_failed_and_what_was_missed_is_no_success() -> None:
    found = goals.complaints(samples.results())
    assert "failed: mm1, 1KB-none-8p: stood still" in found
    assert "failed: mirror, latency: ended" in found
    assert "failed: exact-txn-10: halted" in found
    assert "missed: 1 MB batches: at most 1.8 x the floor; 1MB-none-8p: 2.00" in found
    assert not [line for line in found if "peak memory" in line]
    fine = samples.results({"floor": 0.25, "mirror": 0.25, "mm2": 16.0, "mm1": 20.0}, only="16KB-lz4")
    fine.rows = [row for row in fine.rows if not row.far]
    fine.latency, fine.costs = [], []
    assert goals.complaints(fine) == []


def test_a_mirrormaker_that_was_not_warm_is_no_success() -> None:
    """The least of all runs counts."""
    held = Stored(bytes=10**9, batches=1, records=1)
    for workload in all_workloads():
        found = dataclasses.replace(samples.results(only="none of them"), latency=[], costs=[])
        long, cold, short = (
            dataclasses.replace(samples.measured(16.0), warm_s=warm_s, seconds=seconds)
            for warm_s, seconds in ((20.0, 20.2), (19.0, 20.2), (20.0, 18.6))
        )
        found.rows = [row("mm2", workload, held, runs=[long])]
        assert goals.complaints(found) == []
        found.rows = [row("mm2", workload, held, runs=[long, cold, short, long])]
        (said,) = goals.complaints(found)
        assert "warmed up for 19 s and measured for 19 s" in said


def test_a_bound_is_judged_in_pairs() -> None:
    """The quotient of the medians would be 22."""
    found = samples.results(only="none of them")
    held, workload = Stored(bytes=10**9, batches=1, records=1), all_workloads()[4]
    assert workload.name == "16KB-lz4-8p"
    for system, costs in (("mirror", (0.5, 0.4, 1.0)), ("mm2", (10.0, 12.0, 11.0))):
        found.rows.append(row(system, workload, held, runs=[samples.measured(cost) for cost in costs]))
    (verdict,) = [each for each in goals.verdicts(found) if "MirrorMaker" in each.what]
    assert (verdict.found, verdict.spread) == (20.0, (11.0, 30.0))


def test_what_could_not_be_measured_has_kept_no_bound() -> None:
    """1. A row that failed. 2. In a complete run, a system or a case that is not there. 3. A CPU of zero."""
    found = samples.results(only="16KB-lz4-8p")
    found.latency, found.costs = [], []
    found.rows = [dataclasses.replace(row, cpu_s_per_gb=0.0, runs_cpu_s_per_gb=()) for row in found.rows]
    assert goals.complaints(found) == [
        "missed: 16 KB lz4: at least 20 x less CPU than MirrorMaker 2; 16KB-lz4-8p: not measured"
    ]
    held, workload = Stored(bytes=10**9, batches=1, records=1), all_workloads()[4]
    found.rows = [row("mirror", workload, held, error="ended")]
    assert goals.complaints(found) == [
        "failed: mirror, 16KB-lz4-8p: ended", f"missed: {PEAK}; 16KB-lz4-8p: not measured",
    ]  # fmt: skip
    found.kind = "full"
    missed = [line for line in goals.complaints(found) if line.startswith("missed")]
    assert len(missed) == 2 + 4 + 1
    assert all(line.endswith("not measured") for line in missed)


def test_a_run_that_was_interrupted_is_no_success() -> None:
    found = dataclasses.replace(samples.results(only="none of them"), latency=[], costs=[])
    assert goals.complaints(found) == []
    found.complete = False
    assert goals.complaints(found) == ["the run did not come to its end"]


@pytest.mark.parametrize("only", ["", "16KB-lz4-64p"])
def test_a_chart_is_drawn(only: str, tmp_path: Path) -> None:
    path = tmp_path / "compare.svg"
    chart.draw(samples.results(only=only), path)
    drawn = path.read_text()
    assert "<svg" in drawn
    chart.draw(samples.results(only=only), path)
    assert path.read_text() == drawn


def test_a_chart_of_nothing_is_not_drawn(tmp_path: Path) -> None:
    chart.draw(samples.results(only="none of them"), tmp_path / "compare.svg")
    assert not list(tmp_path.iterdir())


def test_percentiles_are_values_that_were_seen() -> None:
    found = latency.summary("mirror", [float(value) for value in range(200, 0, -1)])
    assert (found.samples, found.median_ms, found.p99_ms, found.max_ms) == (200, 100.0, 198.0, 200.0)
    assert latency.percentile([7.0], 99) == 7.0


@pytest.mark.parametrize(
    ("quick", "slow", "p99_ms"),
    [(2_970, 0, 1.0), (2_969, 0, float("inf")), (2_969, 31, 500.0), (2_950, 0, float("inf")), (2_960, 20, 500.0)],
)
def test_records_that_did_not_come_are_the_slowest(quick: int, slow: int, p99_ms: float) -> None:
    """99 % are of what was written. That they came late is one thing, that they did not come is no better."""
    program: Any = SimpleNamespace(failure=lambda what: BenchError(f"mirror {what}", "see its log"))
    times = [1.0] * quick + [500.0] * slow
    every = latency.all_of(times, 3_000, program)
    assert (len(every), latency.percentile(every, 99)) == (3_000, p99_ms)
    found = latency.summary("mirror", every)
    assert (found.samples, found.p99_ms, found.max_ms) == (len(times), p99_ms, max(times))


@pytest.mark.parametrize(("p99_ms", "kept"), [(100.0, True), (101.0, False), (float("inf"), False)])
def test_what_did_not_come_is_not_in_time(p99_ms: float, kept: bool, tmp_path: Path) -> None:
    found = samples.results(only="none of them")
    found.costs = [Cost(case="trickle-2000p", what="", partitions=2_000, core_percent=1.0, p99_ms=p99_ms)]
    found = load(save(found, tmp_path))
    assert [verdict.kept for verdict in goals.verdicts(found) if "99 %" in verdict.what] == [kept]


def test_what_did_not_come_is_valid_json_and_no_answer(tmp_path: Path) -> None:
    """
    1. Fewer than 99 % came, of a copier and of a case. Another case has no writer, so there is no such figure.
    2. JSON has no infinity: strict readers refuse it. What is read back is what was measured.
    3. Tables, documents and complaints say it in words.
    """

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    never = float("inf")
    found = samples.results(only="none of them")
    found.latency = [Latency(system="mirror", mb_per_s=5.0, samples=99, median_ms=2.0, p99_ms=never, max_ms=11.0)]
    found.costs = [
        Cost(case="trickle-2000p", what="some", partitions=2_000, core_percent=1.0, p99_ms=never),
        Cost(case="idle-2000p", what="none", partitions=2_000, core_percent=1.0),
    ]
    text = save(found, tmp_path).read_text()
    data = json.loads(text, parse_constant=refuse)
    assert [one["p99_ms"] for one in [*data["latency"], *data["costs"]]] == [None, None, None]
    assert load(tmp_path / "compare.json") == found
    shown = table.markdown(found)
    assert "| mirror | 2 | no answer | 11 | 99 |" in shown
    assert "no answer" in next(line for line in shown.splitlines() if line.startswith("| trickle-2000p |"))
    assert "no answer" not in next(line for line in shown.splitlines() if line.startswith("| idle-2000p |"))
    bound = "2,000 partitions, 100 records per second: 99 % within 100 ms"
    assert f"missed: {bound}; trickle-2000p: no answer" in goals.complaints(found)
    for block, line in (
        ("latency", "| behind mirror | 2 ms | no answer |"),
        ("missed", f"* {bound}: kept in 0 of 1 workload (no answer)."),
    ):
        assert line in documents.written(f"<!-- bench: {block} -->\n<!-- end of bench -->", found)
    assert "inf" not in shown.replace("infinite", "")


def test_a_few_records_are_no_copy() -> None:
    """Three quick ones of three thousand are no quick copy."""
    program: Any = SimpleNamespace(failure=lambda what: BenchError(f"mirror {what}", "see its log"))
    with pytest.raises(BenchError, match="mirror brought 3 records while 3000 were written"):
        latency.all_of([1.0] * 3, 3_000, program)
