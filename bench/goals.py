"""The project's bounds on cost, and the check that a run kept them. Pure."""

import dataclasses
import statistics
from collections.abc import Callable

from bench.plan import Workload
from bench.report.results import Results, Row

__all__ = ["MM2_S", "Verdict", "compares", "complaints", "verdicts"]

MM2_S = 20.0
"""Shortest warm-up and window of MirrorMaker 2 where a bound is against its figure."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One bound on one workload or case.

    Attributes:
        what: the bound, with its number.
        workload: its name.
        found: the figure, from the medians of all runs.
        kept: True if it is within the bound.
        spread: the smallest and the largest figure of single turns; None if there was only one, or no ratio.
    """

    what: str
    workload: str
    found: float
    kept: bool
    spread: tuple[float, float] | None = None


_Of = Callable[[Results, Row], float | None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Goal:
    what: str
    applies: Callable[[Row | Workload], bool]
    figure: _Of
    against: str = ""
    """The other system, if the figure is a ratio: its CPU over mirror's, mirror's over the floor's, or mirror's bytes
    per second over its."""
    far: bool = False
    """True if it is a bound on bytes per second over a long link; false: on cost, nearby."""
    least: float = 0.0
    most: float = float("inf")


def _floor_ratio(results: Results, row: Row) -> float | None:
    return row.floor_ratio


def _peak(results: Results, row: Row) -> float | None:
    return row.peak_rss_mb


def _times_less_than_mm2(results: Results, row: Row) -> float | None:
    other = results.find("mm2", row.workload)
    if other is None or not other.cpu_s_per_gb or not row.cpu_s_per_gb:
        return None
    return other.cpu_s_per_gb / row.cpu_s_per_gb


def _mb_per_s(results: Results, row: Row) -> float | None:
    return statistics.median(row.runs_mb_per_s or [row.mb_per_s or 0.0])


def _times_faster_than_mm2(results: Results, row: Row) -> float | None:
    other = results.find("mm2", row.workload)
    theirs = _mb_per_s(results, other) if other is not None else None
    ours = _mb_per_s(results, row)
    return ours / theirs if ours and theirs else None


_GOALS = (
    _Goal(
        what="1 MB batches: at most 1.8 x the floor",
        applies=lambda row: row.size == "1MB", figure=_floor_ratio, against="floor", most=1.8,
    ),
    _Goal(
        what="16 KB batches, 64 partitions: at most 2.5 x the floor",
        applies=lambda row: (row.size, row.partitions) == ("16KB", 64), figure=_floor_ratio,
        against="floor", most=2.5,
    ),
    _Goal(
        what="1 KB batches, 64 partitions: at most 10 x the floor",
        applies=lambda row: (row.size, row.partitions) == ("1KB", 64), figure=_floor_ratio,
        against="floor", most=10.0,
    ),
    _Goal(
        what="16 KB lz4: at least 20 x less CPU than MirrorMaker 2",
        applies=lambda row: (row.size, row.codec) == ("16KB", "lz4"), figure=_times_less_than_mm2,
        against="mm2", least=20.0,
    ),
    _Goal(
        what="1 MB zstd: at least 50 x less CPU than MirrorMaker 2",
        applies=lambda row: (row.size, row.codec) == ("1MB", "zstd"), figure=_times_less_than_mm2,
        against="mm2", least=50.0,
    ),
    _Goal(
        what="200 ms to the source, 1 partition: at least 60 MB/s",
        applies=lambda row: row.partitions == 1, figure=_mb_per_s, far=True, least=60.0,
    ),
    _Goal(
        what="200 ms to the source, 64 partitions: at least 150 MB/s",
        applies=lambda row: row.partitions == 64, figure=_mb_per_s, far=True, least=150.0,
    ),
    _Goal(
        what="200 ms to the source: at least 2 x as fast as MirrorMaker 2",
        applies=lambda row: True, figure=_times_faster_than_mm2, against="mm2", far=True, least=2.0,
    ),
    _Goal(what="peak memory: at most 100 MB", applies=lambda row: True, figure=_peak, most=100.0),
)  # fmt: skip


_CASE_GOALS = (
    ("all active after at most 40 s", "idle-10000p", "active_s", 40.0),
    ("idle: at most 2 % of a core", "idle-2000p", "core_percent", 2.0),
    ("100 records per second: at most 5 % of a core", "trickle-2000p", "core_percent", 5.0),
    ("100 records per second: 99 % within 100 ms", "trickle-2000p", "p99_ms", 100.0),
)
"""The bound, the case, the figure's name in ``Cost``, and the most that it may be."""
_DEEP, _SHALLOW, _MOST_DEEP = "exact-deep-2pc", "exact-deep-none", 1.5
"""Two cases, and how many times the CPU per byte of the second the first may cost at most."""


def compares(system: str, workload: Workload) -> bool:
    """Returns True if a bound on this workload is against that system's figure."""
    return any(goal.against == system and _applies(goal, workload) for goal in _GOALS)


def _applies(goal: _Goal, of: Row | Workload) -> bool:
    """Returns True if a bound applies: costs are bounded nearby and without encryption only."""
    return goal.far == bool(of.far) and goal.applies(of) and not of.tls


def verdicts(results: Results) -> list[Verdict]:
    """Returns a verdict on every bound that the run has figures for."""
    made = []
    for goal in _GOALS:
        for row in results.rows:
            if row.system == "mirror" and row.error is None and _applies(goal, row):
                found = goal.figure(results, row)
                if found is not None:
                    kept = goal.least <= found <= goal.most
                    spread = None if goal.far else _spread(results.find(goal.against, row.workload), row)
                    made.append(Verdict(what=goal.what, workload=row.workload, found=found, kept=kept, spread=spread))
    costs = {cost.case: cost for cost in results.costs if cost.error is None}
    for what, case, figure, most in _CASE_GOALS:
        found = getattr(costs.get(case), figure, None)
        if found is not None:
            made.append(Verdict(what=what, workload=case, found=found, kept=found <= most))
    deep, shallow = (getattr(costs.get(case), "cpu_s_per_gb", None) for case in (_DEEP, _SHALLOW))
    if deep and shallow:
        what = f"2 % of the bytes cut in pieces: at most {_MOST_DEEP} x the CPU"
        made.append(Verdict(what=what, workload=_DEEP, found=deep / shallow, kept=deep / shallow <= _MOST_DEEP))
    return made


def _spread(other: Row | None, row: Row) -> tuple[float, float] | None:
    """Returns the range of the single turns' ratios: a turn measures both systems one right after the other."""
    if other is None or not other.runs_cpu_s_per_gb:
        return None
    pairs = zip(other.runs_cpu_s_per_gb, row.runs_cpu_s_per_gb, strict=False)
    ratios = [mine / theirs if other.system == "floor" else theirs / mine for theirs, mine in pairs]
    return (min(ratios), max(ratios)) if ratios else None


def _too_short(results: Results) -> list[str]:
    """Returns complaints about MirrorMaker 2 where a bound is against it: a cold JVM is needlessly expensive."""
    return [
        f"too short: {row.system}, {row.workload}: warmed up for {row.warm_s:.0f} s and measured for "
        f"{row.shortest_s:.0f} s, where {MM2_S:.0f} s are wanted of each; give it more bytes (BENCH_SCALE)"
        for row in results.rows
        if row.warm_s is not None
        and row.shortest_s is not None
        and min(row.warm_s, row.shortest_s) < MM2_S
        and any(goal.against == row.system == "mm2" and _applies(goal, row) for goal in _GOALS)
    ]


def complaints(results: Results) -> list[str]:
    """Returns the reasons why a run is no success, one a line: failures, short runs, and missed bounds."""
    failed = [
        *((f"{row.system}, {row.workload}", row.error) for row in results.rows),
        *((f"{row.system}, latency", row.error) for row in results.latency),
        *((row.case, row.error) for row in results.costs),
    ]
    return [
        *(f"failed: {what}: {error}" for what, error in failed if error),
        *_too_short(results),
        *(f"missed: {one.what}; {one.workload}: {one.found:.2f}" for one in verdicts(results) if not one.kept),
    ]
