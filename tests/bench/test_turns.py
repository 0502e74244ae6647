"""In which order systems are measured, and what becomes of their runs."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import bench.run
from bench.data.stored import Stored
from bench.errors import BenchError
from bench.measure import Measured
from bench.plan import from_environment
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
        from_environment({"BENCH_ONLY": only, "BENCH_SYSTEMS": "floor,mirror,mm2"}), repeat=3, out=out
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
    assert order == ["floor", "mirror", "mm2", "floor", "mirror", "floor", "mirror"]
    assert [(row.system, row.cpu_s_per_gb, row.floor_ratio) for row in found.rows] == [
        ("floor", 2.0, 1.0), ("mirror", 6.0, 3.0), ("mm2", 40.0, 20.0),
    ]  # fmt: skip
    assert found.rows[1].runs_cpu_s_per_gb == (9.0, 3.0, 6.0)


@pytest.mark.parametrize("workload", ["16KB-lz4-8p", "16KB-lz4-64p", "1MB-zstd-8p"])
def test_mirrormaker_too_where_a_bound_is_against_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, workload: str
) -> None:
    """One run of its, which may be a fifth off, must not decide."""
    order, found = measured_in_turn(monkeypatch, tmp_path, only=workload)
    assert order == ["floor", "mirror", "mm2"] * 3
    assert [row.cpu_s_per_gb for row in found.rows] == [2.0, 6.0, 50.0]


def test_over_tls_only_who_speaks_it_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of MirrorMaker 1 there is no row, and no failure either; no bound needs several turns of MirrorMaker 2."""
    order, found = measured_in_turn(monkeypatch, tmp_path, only="16KB-lz4-64p-tls$")
    assert order == ["floor", "mirror", "mm2", "floor", "mirror", "floor", "mirror"]
    assert [row.system for row in found.rows] == ["floor", "mirror", "mm2"]


def test_one_that_fails_is_not_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    order, found = measured_in_turn(monkeypatch, tmp_path, fails="mirror-2")
    assert order == ["floor", "mirror", "mm2", "floor", "mirror", "floor"]
    assert [row.error is not None for row in found.rows] == [False, True, False]
