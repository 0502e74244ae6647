"""The bounds on cost that the project has set itself, and the check that a run has kept them. Pure."""

import dataclasses
from collections.abc import Callable

from bench.plan import Case, Workload
from bench.report.results import Cost, Ratio, Results, Row, paired, shown

__all__ = ["MM2_S", "Verdict", "compares", "complaints", "in_turn", "judges", "verdicts"]

MM2_S = 20.0
"""Shortest warm-up, and shortest measurement, of MirrorMaker 2 in seconds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on one bound for one workload or case.

    Attributes:
        what: the bound in words, with its number.
        workload: name of the workload or case.
        found: the figure; for a ratio, the median of the pairs' ratios. None: it could not be measured.
        kept: True if the figure is within the bound.
        spread: lowest and highest ratio of single turns; None: there was only one turn, or the figure is no ratio.
    """

    what: str
    workload: str
    found: float | None
    kept: bool
    spread: tuple[float, float] | None = None


_Of = Callable[[Results, Row], float | Ratio | None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Goal:
    what: str
    applies: Callable[[Row | Workload], bool]
    figure: _Of
    against: str = ""
    """The other system if the figure is a ratio; otherwise empty. The ratio is the other's CPU by mirror's, mirror's
    CPU by the floor's, or mirror's bytes per second by the other's."""
    far: bool = False
    """True for a bound on bytes per second over a long link; False for a bound on cost, nearby."""
    least: float = 0.0
    most: float = float("inf")


def _floor_ratio(results: Results, row: Row) -> Ratio | None:
    return results.times_floor(row)


def _peak(results: Results, row: Row) -> float | None:
    return row.peak_rss_mb


def _times_less_than_mm2(results: Results, row: Row) -> Ratio | None:
    other = results.find("mm2", row.workload)
    return paired(other.costs, row.costs) if other is not None else None


def _mb_per_s(results: Results, row: Row) -> float | None:
    return row.speed


def _times_faster_than_mm2(results: Results, row: Row) -> Ratio | None:
    other = results.find("mm2", row.workload)
    return paired(row.speeds, other.speeds) if other is not None else None


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
    _Goal(
        what="peak memory, 8 or 64 partitions, nearby, without TLS: at most 100 MB",
        applies=lambda row: True, figure=_peak, most=100.0,
    ),
)  # fmt: skip


_CASE_GOALS = (
    ("10,000 partitions: all active after at most 40 s", "idle-10000p", "active_s", 40.0),
    ("2,000 partitions, idle: at most 2 % of a core", "idle-2000p", "core_percent", 2.0),
    ("2,000 partitions, 100 records per second: at most 5 % of a core", "trickle-2000p", "core_percent", 5.0),
    ("2,000 partitions, 100 records per second: 99 % within 100 ms", "trickle-2000p", "p99_ms", 100.0),
)
"""(bound in words, name of the case, name of the figure in ``Cost``, highest value that keeps the bound)."""
_DEEP, _SHALLOW, _MOST_DEEP = "exact-deep-2pc", "exact-deep-none", 1.5
"""Names of two cases, and the highest ratio of the first one's CPU per byte to the second one's that keeps the
bound."""


def compares(system: str, workload: Workload) -> bool:
    """Returns True if a bound on this workload is a ratio to that system's figure."""
    return any(goal.against == system and _applies(goal, workload) for goal in _GOALS)


def judges(case: Case) -> bool:
    """Returns True if a bound compares this case with another one. Then one run of each would say little."""
    return case.name in (_DEEP, _SHALLOW)


def _applies(goal: _Goal, of: Row | Workload) -> bool:
    """Returns True if a bound applies to a row or workload. Bounds on cost are for nearby clusters without encryption
    only."""
    return goal.far == bool(of.far) and goal.applies(of) and not of.tls


def verdicts(results: Results) -> list[Verdict]:
    """Returns a verdict on every bound that applies. A bound counts as missed if its figure failed or was not measured.

    If a run leaves out systems or cases on purpose, the bounds on these are left out.
    """
    made = []
    for goal in _GOALS:
        for row in results.rows:
            if row.system == "mirror" and _applies(goal, row) and _is_due(goal.against, row.workload, results):
                made.append(_verdict(goal.what, row.workload, goal.figure(results, row), goal.least, goal.most))
    costs = {cost.case: cost for cost in results.costs}
    for what, case, figure, most in _CASE_GOALS:
        if case in costs or results.kind == "full":
            made.append(_verdict(what, case, getattr(costs.get(case), figure, None), 0.0, most))
    if {_DEEP, _SHALLOW} <= costs.keys() or results.kind == "full":
        what = f"2 % of the bytes cut in pieces: at most {_MOST_DEEP} x the CPU"
        deep, shallow = (_costs(costs.get(case)) for case in (_DEEP, _SHALLOW))
        made.append(_verdict(what, _DEEP, paired(deep, shallow), 0.0, _MOST_DEEP))
    return made


def _is_due(system: str, workload: str, results: Results) -> bool:
    return not system or results.kind == "full" or results.find(system, workload) is not None


def in_turn(results: Results) -> bool:
    """Returns True if the cases that a bound compares were measured several times, alternately."""
    return all(cost.runs_cpu_s_per_gb for cost in results.costs if cost.case in (_DEEP, _SHALLOW))


def _costs(cost: Cost | None) -> tuple[float, ...]:
    if cost is None:
        return ()
    return cost.runs_cpu_s_per_gb or ((cost.cpu_s_per_gb,) if cost.cpu_s_per_gb else ())


def _verdict(what: str, workload: str, figure: float | Ratio | None, least: float, most: float) -> Verdict:
    found = figure.median if isinstance(figure, Ratio) else figure
    spread = (figure.least, figure.most) if isinstance(figure, Ratio) and figure.least < figure.most else None
    kept = bool(found) and least <= (found or 0.0) <= most
    return Verdict(what=what, workload=workload, found=found or None, kept=kept, spread=spread)


def _too_short(results: Results) -> list[str]:
    """Returns complaints about rows of MirrorMaker 2 that were measured too early or too briefly: a cold JVM costs more
    than it has to."""
    return [
        f"too short: {row.system}, {row.workload}: warmed up for {row.warm_s:.0f} s and measured for "
        f"{row.shortest_s:.0f} s, where {MM2_S:.0f} s are wanted of each; give it more bytes (BENCH_SCALE)"
        for row in results.rows
        if row.system == "mm2"
        and row.warm_s is not None
        and row.shortest_s is not None
        and min(row.warm_s, row.shortest_s) < MM2_S
    ]


def complaints(results: Results) -> list[str]:
    """Returns the reasons why a run is not a success: failures, measurements that are too short, and missed bounds.
    Empty: it is a success."""
    failed = [
        *((f"{row.system}, {row.workload}", row.error) for row in results.rows),
        *((f"{row.system}, latency", row.error) for row in results.latency),
        *((row.case, row.error) for row in results.costs),
    ]
    return [
        *([] if results.complete else ["the run did not come to its end"]),
        *(f"failed: {what}: {error}" for what, error in failed if error),
        *_too_short(results),
        *(f"missed: {one.what}; {one.workload}: {_told(one)}" for one in verdicts(results) if not one.kept),
    ]


def _told(verdict: Verdict) -> str:
    return "not measured" if verdict.found is None else shown(verdict.found)
