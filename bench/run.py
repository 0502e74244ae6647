"""A whole run of the benchmark. Each workload is loaded, every system is measured on it, and it is deleted; then
come the cases and the latency. Results are written after each: into another folder until the run has come to its
end."""

import os
from collections.abc import Callable, Sequence

from bench import goals as bounds
from bench.cases import exactness, latency, many
from bench.copiers import floor, jvm, mm2
from bench.copiers.copying import Copier, measure
from bench.copiers.mm1 import MirrorMaker1
from bench.copiers.mm2 import MirrorMaker2
from bench.copiers.programs import Programs, programs
from bench.copiers.shallow import Mirror
from bench.data import loading, room
from bench.data.clusters import BROKER_SETTINGS, Side, pair
from bench.data.stored import Stored
from bench.errors import BenchError
from bench.measure import Measured
from bench.plan import Case, Plan, Workload
from bench.report import chart, machine, results, table
from bench.report.results import Cost, Latency, Results
from lab import commit
from lab.console import Progress

__all__ = ["report", "run"]

_IN_TURN = ("floor", "mirror")
"""Systems that are always measured several times. The others take up to a minute each, and are measured once, unless a
bound is a ratio to their figure."""
NOTHING = Stored(batches=0, records=0, bytes=0)


def run(plan: Plan, progress: Progress) -> Results:
    """Carries out a plan, writes the results, and returns them.

    If a system fails on a workload, its row says so, and the others are measured.

    Raises:
        BenchError: nothing can be measured at all, for example because there is no room for the data.
    """
    room.find(os.environ)
    found = Results(
        kind=plan.kind, machine=machine.describe(), settings=_settings(plan), commit=commit.of_now("bench/out")
    )  # fmt: skip
    progress.line(found.machine.sentence())
    if found.machine.load_average > found.machine.cores:
        progress.line("[yellow]the machine is busy with other things: all figures will be too high[/]")
    progress.step("starting two clusters")
    with pair(long_links=True) as (source, destination), programs() as started:
        bench = _Bench(plan, progress, source, destination, started, found)
        try:
            for workload in plan.workloads:
                bench.workload(workload)
            bench.cases()
            if plan.latency:
                bench.latency()
            found.complete = True
        finally:
            found.commit = commit.since(found.commit, "bench/out")
            bench.save()
    return found


class _Bench:
    """The state of a run."""

    def __init__(
        self, plan: Plan, progress: Progress, source: Side, destination: Side, started: Programs, found: Results
    ) -> None:
        self._plan = plan
        self._progress = progress
        self._source = source
        self._destination = destination
        self._programs = started
        self._found = found
        made: tuple[Copier, ...] = (Mirror(plan.flow), MirrorMaker2(), MirrorMaker1())
        self._copiers = [copier for copier in made if copier.name in plan.systems]

    def workload(self, workload: Workload) -> None:
        """Loads a workload, measures every system on it, and deletes it."""
        self._progress.step(f"{workload.name}: filling the source with {workload.total_bytes / 1e9:.2f} GB")
        try:
            held = loading.fill(workload, self._source, self._programs)
            self._progress.line(
                f"{workload.name}: {held.bytes / 1e9:.2f} GB in {held.batches} batches "
                f"of {held.mean_batch_bytes:.0f} bytes, {held.records} records"
            )
            self._measure(workload, held)
        except BenchError as error:
            self._progress.line(f"{workload.name} could not be filled: {_plain(error)}")
            for system in self._measured(workload):
                self._found.rows.append(results.row(system, workload, NOTHING, error=str(error)))
        finally:
            self._source.delete_all()
        self.save()

    def cases(self) -> None:
        """Measures all cases. Those that a bound compares are measured together, when the last of them is due."""
        compared = [case for case in self._plan.cases if bounds.judges(case)]
        for case in self._plan.cases:
            if case.many:
                self._many(case)
            elif not bounds.judges(case):
                self._exact([case], turns=1)
            elif case is compared[-1]:
                self._exact(compared, turns=self._plan.repeat)

    def _many(self, case: Case) -> None:
        self._progress.step(f"{case.name}: {case.what}, {case.partitions} partitions")
        try:
            held = exactness.fill(case, self._source, self._programs)
            row = many.measure(
                case, held, source=self._source, destination=self._destination, programs=self._programs,
                flow=self._plan.flow, say=self._progress.detail,
            )  # fmt: skip
            late = f", 99 % of records within {results.shown_ms(row.p99_ms, 1)}" if row.p99_ms is not None else ""
            self._progress.line(
                f"{case.name}: all active after {row.active_s} s, {row.core_percent} % of a core, peak "
                f"{row.peak_rss_mb} MB{late}"
            )
        except BenchError as error:
            row = self._failed(case, error)
        finally:
            self._source.delete_all()
        self._found.costs.append(row)
        self.save()

    def _exact(self, cases: Sequence[Case], *, turns: int) -> None:
        """Measures cases of the cost of exactness, alternately. ``turns``: number of measurements of each."""
        held: dict[str, Stored] = {}
        runs: dict[str, list[Measured]] = {case.name: [] for case in cases}
        failed: dict[str, Cost] = {}
        try:
            for case in cases:
                self._progress.step(f"{case.name}: {case.what}, {case.partitions} partitions")
                try:
                    held[case.name] = exactness.fill(case, self._source, self._programs)
                except BenchError as error:
                    failed[case.name] = self._failed(case, error)
            for turn in range(turns):
                for case in cases if turn % 2 == 0 else reversed(cases):
                    if case.name in failed:
                        continue
                    try:
                        runs[case.name].append(
                            exactness.measure(
                                case, held[case.name], source=self._source, destination=self._destination,
                                programs=self._programs, flow=self._plan.flow,
                            )
                        )  # fmt: skip
                    except BenchError as error:
                        failed[case.name] = self._failed(case, error)
        finally:
            self._source.delete_all()
        for case in cases:
            row = failed.get(case.name) or exactness.cost(case, held[case.name], runs[case.name])
            if row.error is None:
                self._progress.line(
                    f"{case.name}: {row.mb_per_s} MB/s, {row.offsets_per_s} offsets/s, {row.cpu_s_per_gb} CPU-s/GB"
                )
            self._found.costs.append(row)
        self.save()

    def _failed(self, case: Case, error: BenchError) -> Cost:
        self._progress.line(f"{case.name} failed: {_plain(error)}")
        return Cost(case=case.name, what=case.what, partitions=case.partitions, error=str(error))

    def latency(self) -> None:
        """Measures the latency of the source itself, then of every copier."""
        copiers: list[Copier | None] = [None, *self._copiers]
        for copier in copiers:
            name = copier.name if copier else "source"
            self._progress.step(f"latency at {latency.MB_PER_S:g} MB/s: {table.TITLES[name]}")
            try:
                row = latency.measure(
                    copier, source=self._source, destination=self._destination, programs=self._programs,
                    say=self._progress.detail,
                )  # fmt: skip
                median, most = (results.shown_ms(value, 1) for value in (row.median_ms, row.p99_ms))
                self._progress.line(f"latency, {table.TITLES[name]}: median {median}, 99 % {most}")
            except BenchError as error:
                row = Latency(system=name, mb_per_s=latency.MB_PER_S, error=str(error))
                self._progress.line(f"latency, {table.TITLES[name]}: {_plain(error)}")
            self._found.latency.append(row)
            self.save()

    def save(self) -> None:
        """Writes the results so far, in all formats."""
        if not (self._found.rows or self._found.latency or self._found.costs):
            return
        folder = self._plan.out if self._found.complete else self._plan.unfinished
        results.save(self._found, folder)
        (folder / "compare.md").write_text(table.markdown(self._found))
        if self._found.rows:
            chart.draw(self._found, folder / "compare.svg")

    def _measure(self, workload: Workload, held: Stored) -> None:
        """Measures every system, in turns. So if something disturbs a shared machine for a minute, it disturbs floor
        and mirror alike, and not all measurements of one of them.
        """
        segments = self._source.segments(workload.topic, workload.partitions)
        copiers = {copier.name: copier for copier in self._copiers}
        runs: dict[str, list[Measured]] = {system: [] for system in self._measured(workload)}
        failed: dict[str, str] = {}
        for turn in range(self._plan.repeat):
            # In the reverse order every second time, so that no system always comes right after the filling or a JVM.
            for system in runs if turn % 2 == 0 else reversed(runs):
                again = system in _IN_TURN or bounds.compares(system, workload)
                if system in failed or (turn and not again):
                    continue
                self._progress.step(f"{workload.name}: {table.TITLES[system]}")
                try:
                    if system == "floor":
                        runs[system].append(floor.measure(self._programs, segments))
                    else:
                        runs[system].append(self._copy(copiers[system], workload, held))
                except BenchError as error:
                    failed[system] = str(error)
                    self._progress.line(f"{workload.name}: {table.TITLES[system]} failed: {_plain(error)}")
        for system, measured in runs.items():
            if system in failed:
                self._found.rows.append(results.row(system, workload, held, error=failed[system]))
            else:
                self._add(system, workload, held, measured)

    def _measured(self, workload: Workload) -> list[str]:
        """Returns the systems that are measured on a workload. Not all are measured over TLS and over long links."""
        but = {one.name for one in self._copiers if (workload.tls or workload.far) and not one.everywhere}
        return [system for system in self._plan.systems if system not in but]

    def _copy(self, copier: Copier, workload: Workload, held: Stored) -> Measured:
        return measure(
            copier, workload, held, source=self._source, destination=self._destination, programs=self._programs,
            watch=lambda _, text: self._progress.detail(text),
        )  # fmt: skip

    def _add(self, system: str, workload: Workload, held: Stored, runs: list[Measured]) -> None:
        costs = tuple(measured.cpu_s_per_gb for measured in runs)
        row = results.row(system, workload, held, runs=runs)
        self._found.rows.append(row)
        times = self._found.times_floor(row) if system != "floor" else None
        ratio = f" ({times.median:.2f} x floor)" if times else ""
        spread = f", runs {min(costs):.3f} to {max(costs):.3f}" if len(costs) > 1 else ""
        self._progress.line(
            f"{workload.name}: {table.TITLES[system]} {row.cpu_s_per_gb:.3f} CPU-s/GB{ratio}, {row.mb_per_s:.0f} MB/s, "
            f"peak {row.peak_rss_mb:.0f} MB{spread}"
        )


def report(found: Results, plan: Plan, show: Callable[..., None]) -> None:
    """Shows the tables at the end. ``show``: prints a table."""
    if found.rows:
        show(table.workloads(found))
    if found.costs:
        show(table.costs(found.costs))
    if found.latency:
        show(table.latency(found.latency))
    verdicts = bounds.verdicts(found)
    if verdicts:
        show(table.goals(verdicts))


def _settings(plan: Plan) -> dict[str, object]:
    return {
        "brokers": dict(BROKER_SETTINGS),
        "mirror flow": dict(plan.flow),
        "mm jvm": list(jvm.OPTIONS),
        "mm2": dict(mm2.SETTINGS),
        "mm consumer": jvm.consumer(prompt=False),
        "mm producer": jvm.producer("as the data", prompt=False),
    }


def _plain(error: BenchError) -> str:
    """Returns the error's text, with rich's markup escaped."""
    return str(error).replace("[", "\\[")
