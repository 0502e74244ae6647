"""The results of a run: rows, as JSON, written after every workload, so that an interruption loses nothing."""

import dataclasses
import json
import math
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.data.stored import Stored
from bench.measure import DEFINITION, Measured, median
from bench.plan import SYSTEMS, Workload
from bench.report.machine import Machine

__all__ = ["Cost", "Latency", "Ratio", "Results", "Row", "load", "paired", "row", "save", "shown", "shown_ms"]

_NEVER = "p99_never_came"
"""In JSON, which has no infinity: True where the time that 99 % needed is infinite. It is null there."""


class Ratio(NamedTuple):
    """How many times as much: the median of the pairs' ratios, and the range of single pairs."""

    median: float
    least: float
    most: float


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Ratio | None:
    """Returns how many times theirs ours is, pair by pair in the order of the turns; None without a pair.

    What disturbs a shared machine for a minute disturbs both of a pair. What was measured once makes one, of the first
    turn.
    """
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=False) if other]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios)) if ratios else None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One system on one workload. Figures are None if it failed; ``error`` then says how.

    Attributes:
        system: floor, mirror, mm2 or mm1.
        workload: its name.
        size: batch size by name: 1KB, 16KB or 1MB.
        codec: compression.
        partitions: of the topic.
        tls: the clusters that copiers spoke TLS to: ``source``, ``destination`` or both.
        far: the clusters to which the round trip was long.
        batch_mean_bytes: mean size of a stored batch at the source, read back from the headers.
        stored_bytes: of the topic at the source.
        records: likewise.
        cpu_s_per_gb: CPU-seconds of the copying process per 10^9 stored bytes.
        mb_per_s: 10^6 stored bytes per second; the median of all runs.
        peak_rss_mb: 10^6 bytes.
        measured_bytes: copied in the interval that was measured.
        measured_s: its length.
        start_cpu_s: CPU-seconds before it.
        all_s: from the start of the process to the end of the interval.
        runs_cpu_s_per_gb: of every run, if there were several, in the order of the turns.
        runs_mb_per_s: likewise.
        warm_s: seconds of warm-up that were left out, the least of all runs.
        shortest_s: the shortest interval of all runs.
        error: what went wrong.
    """

    system: str
    workload: str
    size: str
    codec: str
    partitions: int
    batch_mean_bytes: float
    stored_bytes: int
    records: int
    cpu_s_per_gb: float | None = None
    mb_per_s: float | None = None
    peak_rss_mb: float | None = None
    measured_bytes: int | None = None
    measured_s: float | None = None
    start_cpu_s: float | None = None
    all_s: float | None = None
    runs_cpu_s_per_gb: tuple[float, ...] = ()
    warm_s: float | None = None
    shortest_s: float | None = None
    tls: tuple[str, ...] = ()
    far: tuple[str, ...] = ()
    runs_mb_per_s: tuple[float, ...] = ()
    error: str | None = None

    @property
    def costs(self) -> tuple[float, ...]:
        """CPU-seconds per GB of each run, in the order of the turns; of one that failed, none."""
        return self.runs_cpu_s_per_gb or ((self.cpu_s_per_gb,) if self.cpu_s_per_gb else ())

    @property
    def speeds(self) -> tuple[float, ...]:
        """MB/s of each run, likewise."""
        return self.runs_mb_per_s or ((self.mb_per_s,) if self.mb_per_s else ())

    @property
    def speed(self) -> float | None:
        """The median of them; ``mb_per_s`` of older results is that of the run with the median CPU."""
        return statistics.median(self.speeds) if self.speeds else None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Time from a record's timestamp until a consumer has it, at a steady rate. Figures are None if it failed.

    Attributes:
        system: mirror, mm2, mm1, or ``source``: a consumer at the source itself, the base of the others.
        mb_per_s: the rate.
        samples: records timed.
        median_ms: half of those that were written were quicker.
        p99_ms: 99 in 100 of those that were written were quicker; infinite if fewer came.
        max_ms: the slowest that came.
        error: what went wrong.
    """

    system: str
    mb_per_s: float
    samples: int = 0
    median_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None
    error: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One case of the cost of exactness. Figures are None if it failed.

    Attributes:
        case: its name.
        what: the case in words.
        partitions: of the topic.
        stored_bytes: of the topic at the source; likewise batches, and records, a marker counted as one of each.
        mb_per_s: 10^6 stored bytes per second.
        offsets_per_s: records and markers per second.
        cpu_s_per_gb: CPU-seconds of mirror per 10^9 stored bytes; the median of all runs.
        runs_cpu_s_per_gb: of every run, if there were several.
        core_percent: of one core, after all is copied; only for cases of many partitions, which lack the three figures
            above.
        active_s: time from the start until all partitions are active; likewise.
        p99_ms: time from a record's timestamp until a consumer has it; 99 in 100 of those that were written were
            quicker; infinite if fewer came. Only where some are written.
        peak_rss_mb: 10^6 bytes, of all of mirror's processes; likewise.
        error: what went wrong.
    """

    case: str
    what: str
    partitions: int
    stored_bytes: int = 0
    batches: int = 0
    records: int = 0
    mb_per_s: float | None = None
    offsets_per_s: int | None = None
    cpu_s_per_gb: float | None = None
    core_percent: float | None = None
    peak_rss_mb: float | None = None
    active_s: float | None = None
    p99_ms: float | None = None
    runs_cpu_s_per_gb: tuple[float, ...] = ()
    error: str | None = None


@dataclasses.dataclass(slots=True, kw_only=True)
class Results:
    """A whole run.

    Attributes:
        kind: full, quick or selection.
        machine: the machine of the run.
        commit: of the code; ``unknown`` in results of before it was written down.
        definition: of the figures, as that run measured them.
        settings: of brokers and systems, by their own names.
        rows: in the order in which they were measured.
        latency: likewise.
        costs: of exactness, likewise.
        complete: True if the run came to its end.
    """

    kind: str
    machine: Machine
    settings: dict[str, Any]
    rows: list[Row] = dataclasses.field(default_factory=list)
    latency: list[Latency] = dataclasses.field(default_factory=list)
    costs: list[Cost] = dataclasses.field(default_factory=list)
    complete: bool = False
    commit: str = "unknown"
    definition: str = DEFINITION

    def workloads(self) -> list[str]:
        """Returns the names, in the order of the rows."""
        return list(dict.fromkeys(row.workload for row in self.rows))

    def systems(self) -> list[str]:
        """Returns the names, in the order of tables."""
        had = {row.system for row in self.rows}
        return [system for system in SYSTEMS if system in had]

    def find(self, system: str, workload: str) -> Row | None:
        """Returns a row, or None."""
        return next((row for row in self.rows if (row.system, row.workload) == (system, workload)), None)

    def times_floor(self, row: Row) -> Ratio | None:
        """Returns how many times the floor's CPU a row has; None without a floor."""
        floor = self.find("floor", row.workload)
        return paired(row.costs, floor.costs) if floor is not None else None

    def to_json(self) -> str:
        """Returns the text of ``compare.json``."""
        return json.dumps(
            {
                "definition": self.definition,
                "kind": self.kind,
                "complete": self.complete,
                "commit": self.commit,
                "machine": dataclasses.asdict(self.machine),
                "settings": self.settings,
                "rows": [dataclasses.asdict(row) for row in self.rows],
                "latency": [_finite(dataclasses.asdict(row)) for row in self.latency],
                "costs": [_finite(dataclasses.asdict(row)) for row in self.costs],
            },
            indent=1,
            allow_nan=False,
        )


def shown(value: float | None, digits: int = 2) -> str:
    """Returns a figure as people get it; empty if there is none."""
    if value is None:
        return ""
    return f"{value:.{digits}f}" if math.isfinite(value) else "no answer"


def shown_ms(value: float | None, digits: int = 0) -> str:
    """Returns a time in ms, with its unit."""
    unit = " ms" if value is None or math.isfinite(value) else ""
    return f"{shown(value, digits)}{unit}"


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row as JSON can hold it."""
    return {**row, "p99_ms": None, _NEVER: True} if row["p99_ms"] == math.inf else row


def _of_json(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the row that ``_finite`` was given."""
    kept = {name: value for name, value in row.items() if name != _NEVER}
    return {**kept, "p99_ms": math.inf} if row.get(_NEVER) else kept


def row(
    system: str, workload: Workload, held: Stored, *, runs: Sequence[Measured] = (), error: str | None = None
) -> Row:
    """Returns a row made from the run with the median, or from the error."""
    made = Row(
        system=system, workload=workload.name, size=workload.size, codec=workload.codec, partitions=workload.partitions,
        tls=workload.tls, far=workload.far, batch_mean_bytes=round(held.mean_batch_bytes, 1), stored_bytes=held.bytes,
        records=held.records, error=error,
    )  # fmt: skip
    if not runs:
        return made
    measured = median(runs)
    return dataclasses.replace(
        made,
        cpu_s_per_gb=round(measured.cpu_s_per_gb, 4),
        mb_per_s=round(statistics.median(run.mb_per_s for run in runs), 1),
        peak_rss_mb=round(measured.peak_rss_bytes / 1e6, 1),
        measured_bytes=measured.bytes,
        measured_s=round(measured.seconds, 3),
        start_cpu_s=round(measured.start_cpu_s, 3),
        all_s=round(measured.all_seconds, 2),
        runs_cpu_s_per_gb=tuple(round(run.cpu_s_per_gb, 4) for run in runs) if len(runs) > 1 else (),
        runs_mb_per_s=tuple(round(run.mb_per_s, 1) for run in runs) if len(runs) > 1 else (),
        warm_s=round(min(run.warm_s for run in runs), 1),
        shortest_s=round(min(run.seconds for run in runs), 1),
    )


_TUPLES = ("runs_cpu_s_per_gb", "runs_mb_per_s", "tls", "far")
"""Fields of ``Row`` that JSON keeps as lists."""


def save(results: Results, folder: Path) -> Path:
    """Write ``compare.json`` atomically; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "compare.json"
    partial = path.with_suffix(".partial")
    partial.write_text(results.to_json() + "\n")
    os.replace(partial, path)
    return path


def load(path: Path) -> Results:
    """Read ``compare.json`` back."""
    data = json.loads(path.read_text())
    return Results(
        kind=data["kind"],
        machine=Machine(**data["machine"]),
        settings=data["settings"],
        rows=[_read(row) for row in data["rows"]],
        latency=[Latency(**_of_json(row)) for row in data["latency"]],
        costs=[
            Cost(**{**_of_json(row), "runs_cpu_s_per_gb": tuple(row.get("runs_cpu_s_per_gb", ()))})
            for row in data["costs"]
        ],
        complete=data["complete"],
        commit=data.get("commit", "unknown"),
        definition=data["definition"],
    )


def _read(row: dict[str, Any]) -> Row:
    known = {field.name for field in dataclasses.fields(Row)}  # older results have a ratio that is none of pairs
    kept = {name: value for name, value in row.items() if name in known}
    return Row(**{**kept, **{name: tuple(row.get(name, ())) for name in _TUPLES}})
