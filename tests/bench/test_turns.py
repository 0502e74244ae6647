"""In which order systems are measured, and what becomes of their runs."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import bench.run
from bench.data.stored import Stored
from bench.errors import BenchError
from bench.measure import Measured
from bench.plan import Case, Plan, from_environment
from bench.report.results import Cost, Results, load
from tests.bench.samples import measured, results

COSTS = {"floor": [2.0, 1.0, 4.0], "mirror": [9.0, 3.0, 6.0], "mm2": [40.0, 60.0, 50.0]}


def measured_in_turn(
    monkeypatch: pytest.MonkeyPatch, out: Path, fails: str = "", only: str = "16KB-zstd-64p"
) -> tuple[list[str], Any]:
    """Three turns with made-up costs: the order of the runs, and the results."""
    order: list[str] = []

    def one(name: str) -> Measured:
        order.append(name)
        if f"{name}-{order.count(name)}" == fails:
            raise BenchError("stood still", "see the log")
        return measured(COSTS[name][order.count(name) - 1])

    monkeypatch.setattr("bench.copiers.floor.measure", lambda *_: one("floor"))
    monkeypatch.setattr("bench.run.measure", lambda copier, *_, **__: one(copier.name))
    plan = dataclasses.replace(
        from_environment({"BENCH_ONLY": only, "BENCH_SYSTEMS": "floor,mirror,mm2"}), repeat=3, out=out, unfinished=out
    )
    found = dataclasses.replace(results(), rows=[])
    side: Any = SimpleNamespace(segments=lambda *_: [], delete_all=lambda: None)
    progress: Any = SimpleNamespace(step=lambda _: None, line=lambda _: None, detail=lambda _: None)
    held = Stored(batches=1, records=1, bytes=1)
    monkeypatch.setattr("bench.data.loading.fill", lambda *_: held)
    made = bench.run._Bench(plan, progress, side, side, SimpleNamespace(), found)  # type: ignore[arg-type]
    made.workload(plan.workloads[0])
    return order, found


def test_floor_and_mirror_take_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    order, found = measured_in_turn(monkeypatch, tmp_path)
    assert order == ["floor", "mirror", "mm2", "mirror", "floor", "floor", "mirror"]
    assert [(row.system, row.cpu_s_per_gb, found.times_floor(row).median) for row in found.rows] == [
        ("floor", 2.0, 1.0), ("mirror", 6.0, 3.0), ("mm2", 40.0, 20.0),
    ]  # fmt: skip
    assert found.rows[1].runs_cpu_s_per_gb == (9.0, 3.0, 6.0)


@pytest.mark.parametrize("workload", ["16KB-lz4-8p", "16KB-lz4-64p", "1MB-zstd-8p"])
def test_mirrormaker_too_where_a_bound_is_against_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, workload: str
) -> None:
    """One run of its, which may be a fifth off, must not decide."""
    order, found = measured_in_turn(monkeypatch, tmp_path, only=workload)
    assert order == ["floor", "mirror", "mm2", "mm2", "mirror", "floor", "floor", "mirror", "mm2"]
    assert [row.cpu_s_per_gb for row in found.rows] == [2.0, 6.0, 50.0]


def test_over_tls_only_who_speaks_it_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of MirrorMaker 1 there is no row, and no failure either; no bound needs several turns of MirrorMaker 2."""
    order, found = measured_in_turn(monkeypatch, tmp_path, only="16KB-lz4-64p-tls$")
    assert order == ["floor", "mirror", "mm2", "mirror", "floor", "floor", "mirror"]
    assert [row.system for row in found.rows] == ["floor", "mirror", "mm2"]


def test_one_that_fails_is_not_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    order, found = measured_in_turn(monkeypatch, tmp_path, fails="mirror-2")
    assert order == ["floor", "mirror", "mm2", "mirror", "floor", "floor"]
    assert [row.error is not None for row in found.rows] == [False, True, False]


def test_a_relay_that_fails_is_a_row_that_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    order, found = measured_in_turn(monkeypatch, tmp_path, fails="floor-1")
    assert order == ["floor", "mirror", "mm2", "mirror", "mirror"]
    assert [row.error is not None for row in found.rows] == [True, False, False]


def bench_of(monkeypatch: pytest.MonkeyPatch, plan: Plan, found: Results, held: Callable[..., Stored]) -> Any:
    """A run without clusters."""
    monkeypatch.setattr("bench.data.loading.fill", held)
    monkeypatch.setattr("bench.copiers.floor.measure", lambda *_: measured(1.0))
    monkeypatch.setattr("bench.run.measure", lambda *_, **__: measured(2.0))
    side: Any = SimpleNamespace(segments=lambda *_: [], delete_all=lambda: None)
    progress: Any = SimpleNamespace(step=lambda _: None, line=lambda _: None, detail=lambda _: None)
    return bench.run._Bench(plan, progress, side, side, SimpleNamespace(), found)  # type: ignore[arg-type]


def test_what_cannot_be_filled_is_rows_that_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The other workloads go on; of MirrorMaker 1, which does not speak TLS, there is no row."""

    def fails(*_: object) -> Stored:
        raise BenchError("a loader failed", "see its log")

    plan = dataclasses.replace(from_environment({"BENCH_ONLY": "64p-tls$"}), unfinished=tmp_path, out=tmp_path)
    found = dataclasses.replace(results(), rows=[])
    bench_of(monkeypatch, plan, found, fails).workload(plan.workloads[0])
    assert [(row.system, row.error) for row in found.rows] == [
        (system, "a loader failed\n  see its log") for system in ("floor", "mirror", "mm2")
    ]


def test_a_complete_run_is_replaced_at_the_end_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What an interrupted one has measured is aside."""
    plan = dataclasses.replace(from_environment({}), repeat=1, out=tmp_path / "out", unfinished=tmp_path / "aside")
    found = dataclasses.replace(results(), rows=[], complete=False)
    made = bench_of(monkeypatch, plan, found, lambda *_: Stored(batches=1, records=1, bytes=1))
    for workload in plan.workloads[:2]:
        made.workload(workload)
    assert not plan.out.exists()
    assert len(load(plan.unfinished / "compare.json").rows) == 2 * 4
    found.complete = True
    made.save()
    assert {path.name for path in plan.out.iterdir()} == {"compare.json", "compare.md", "compare.svg"}


def cases_in_turn(
    monkeypatch: pytest.MonkeyPatch, out: Path, only: str, fails: str = ""
) -> tuple[list[str], dict[str, Cost]]:
    """Three turns with made-up costs: what was filled, measured and deleted, in order, and the rows."""
    order: list[str] = []

    def fill(case: Case, *_: object) -> Stored:
        order.append(f"fill {case.name}")
        if fails == order[-1]:
            raise BenchError("a loader failed", "see its log")
        return Stored(bytes=10**9, batches=1, records=1)

    def measure(case: Case, *_: object, **__: object) -> Measured:
        order.append(case.name)
        if fails == f"{case.name}-{order.count(case.name)}":
            raise BenchError("stood still", "see the log")
        return measured(float(order.count(case.name)))

    monkeypatch.setattr("bench.cases.exactness.fill", fill)
    monkeypatch.setattr("bench.cases.exactness.measure", measure)
    plan = dataclasses.replace(from_environment({"BENCH_ONLY": only}), repeat=3, out=out, unfinished=out)
    found = dataclasses.replace(results(), rows=[], costs=[])
    side: Any = SimpleNamespace(delete_all=lambda: order.append("delete"))
    progress: Any = SimpleNamespace(step=lambda _: None, line=lambda _: None, detail=lambda _: None)
    bench.run._Bench(plan, progress, side, side, SimpleNamespace(), found).cases()  # type: ignore[arg-type]
    return order, {cost.case: cost for cost in found.costs}


DEEP, SHALLOW = "exact-deep-2pc", "exact-deep-none"


def test_cases_that_a_bound_compares_take_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A pair is of one turn: what disturbs the machine for a minute disturbs both. The others are measured once."""
    order, rows = cases_in_turn(monkeypatch, tmp_path, "exact-deep|exact-old")
    assert order == [
        "fill exact-old", "exact-old", "delete", f"fill {DEEP}", f"fill {SHALLOW}",
        DEEP, SHALLOW, SHALLOW, DEEP, DEEP, SHALLOW, "delete",
    ]  # fmt: skip
    assert list(rows) == ["exact-old", DEEP, SHALLOW]
    assert rows[DEEP].runs_cpu_s_per_gb == rows[SHALLOW].runs_cpu_s_per_gb == (1.0, 2.0, 3.0)
    assert rows["exact-old"].runs_cpu_s_per_gb == ()


def test_a_case_that_is_asked_for_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    order, rows = cases_in_turn(monkeypatch, tmp_path, DEEP)
    assert order == [f"fill {DEEP}", DEEP, DEEP, DEEP, "delete"]
    assert list(rows) == [DEEP]


@pytest.mark.parametrize("fails", [f"{DEEP}-2", f"fill {DEEP}"])
def test_a_case_that_fails_is_not_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: str) -> None:
    order, rows = cases_in_turn(monkeypatch, tmp_path, "exact-deep", fails)
    assert order.count(SHALLOW) == 3
    assert order.count(DEEP) == (2 if fails.endswith("-2") else 0)
    assert [cost.error is not None for cost in rows.values()] == [True, False]
    assert order[-1] == "delete"
