"""The results of a run: rows that are saved as JSON. They are written after every workload, so that an interruption
loses nothing."""

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
"""Key in JSON, which has no infinity: True if ``p99_ms`` is infinite. ``p99_ms`` is null then."""


class Ratio(NamedTuple):
    """The ratio of two figures: the median of the pairs' ratios, and the lowest and the highest of them."""

    median: float
    least: float
    most: float


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Ratio | None:
    """Returns the ratio of one system's figures to another's, pair by pair.

    If something disturbs a shared machine for a minute, it disturbs both figures of a pair. A system that was measured
    once has one pair, that of the first turn.

    Args:
        ours: figures of the one system, in the order of the turns.
        theirs: figures of the other system, in the same order.

    Returns:
        The ratio; None if there is no pair.
    """
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=False) if other]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios)) if ratios else None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The figures of a system on a workload. They are None if the system has failed.

    Attributes:
        system: floor, mirror, mm2 or mm1.
        workload: name of the workload.
        size: name of the batch size: 1KB, 16KB or 1MB.
        codec: compression of the batches.
        partitions: number of partitions of the topic.
        tls: clusters to which the copiers connected with TLS: ``source``, ``destination`` or both.
        far: clusters to which the round trip was long.
        batch_mean_bytes: mean size of a stored batch at the source, read from the headers.
        stored_bytes: size of the topic at the source.
        records: number of records of the topic at the source.
        cpu_s_per_gb: CPU-seconds of the copying process per 10^9 stored bytes, of the run with the median CPU.
        mb_per_s: 10^6 stored bytes per second, the median of all runs.
        peak_rss_mb: peak memory in 10^6 bytes, the highest of all runs.
        measured_bytes: bytes that were copied in the measured interval.
        measured_s: length of that interval in seconds.
        start_cpu_s: CPU-seconds before that interval.
        all_s: time in seconds from the start of the process to the end of the interval.
        runs_cpu_s_per_gb: ``cpu_s_per_gb`` of every run in the order of the turns; empty if there was only one.
        runs_mb_per_s: ``mb_per_s`` of every run in the order of the turns; empty if there was only one.
        warm_s: seconds of warm-up that were left out, the fewest of all runs.
        shortest_s: length of the shortest interval of all runs, in seconds.
        error: what went wrong; None: nothing.
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
        """CPU-seconds per GB of each run, in the order of the turns; empty if the system has failed."""
        return self.runs_cpu_s_per_gb or ((self.cpu_s_per_gb,) if self.cpu_s_per_gb else ())

    @property
    def speeds(self) -> tuple[float, ...]:
        """MB/s of each run, in the order of the turns; empty if the system has failed."""
        return self.runs_mb_per_s or ((self.mb_per_s,) if self.mb_per_s else ())

    @property
    def speed(self) -> float | None:
        """Median of ``speeds``. In older results, ``mb_per_s`` is that of the run with the median CPU instead."""
        return statistics.median(self.speeds) if self.speeds else None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The time from a record's timestamp until a consumer has the record, at a steady rate. The figures are None if the
    system has failed.

    Attributes:
        system: mirror, mm2, mm1; or ``source``: a consumer at the source itself, to compare with.
        mb_per_s: the rate.
        samples: number of records that have arrived.
        median_ms: median over all records that were written.
        p99_ms: 99th percentile over all records that were written; infinite if fewer have arrived.
        max_ms: time of the slowest record that has arrived.
        error: what went wrong; None: nothing.
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
    """The figures of a case (``plan.Case``). They are None if the case has failed, or does not have that figure.

    Attributes:
        case: name of the case.
        what: the case in words.
        partitions: number of partitions of the topic.
        stored_bytes, batches, records: contents of the topic at the source. A marker counts as a batch and a record.
        mb_per_s: 10^6 stored bytes per second.
        offsets_per_s: records and markers per second.
        cpu_s_per_gb: CPU-seconds of mirror per 10^9 stored bytes, of the run with the median CPU.
        runs_cpu_s_per_gb: ``cpu_s_per_gb`` of every run; empty if there was only one.
        core_percent: percent of one core after everything is copied. Only cases of many partitions have this; they do
            not have the figures above.
        active_s: time from the start until all partitions are active, in seconds. Only for cases of many partitions.
        p99_ms: time from a record's timestamp until a consumer has the record: the 99th percentile over all records
            that were written; infinite if fewer have arrived. Only for cases that write records meanwhile.
        peak_rss_mb: peak memory of all of mirror's processes, in 10^6 bytes. Only for cases of many partitions.
        error: what went wrong; None: nothing.
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
    """The results of a run.

    Attributes:
        kind: full, quick or selection.
        machine: the machine of the run.
        commit: commit of the code; ``unknown`` in old results, which did not have it.
        definition: what the figures mean, as that run has measured them.
        settings: settings of the brokers and systems, by their own names.
        rows: figures of the workloads, in the order in which they were measured.
        latency: figures of the latency, in the order in which they were measured.
        costs: figures of the cases, in the order in which they were measured.
        complete: True if the run has come to its end.
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
        """Returns the names of the workloads, in the order of the rows."""
        return list(dict.fromkeys(row.workload for row in self.rows))

    def systems(self) -> list[str]:
        """Returns the names of the systems that have rows, in the order of the tables."""
        had = {row.system for row in self.rows}
        return [system for system in SYSTEMS if system in had]

    def find(self, system: str, workload: str) -> Row | None:
        """Returns the row of a system and a workload; None if there is none."""
        return next((row for row in self.rows if (row.system, row.workload) == (system, workload)), None)

    def times_floor(self, row: Row) -> Ratio | None:
        """Returns the ratio of a row's CPU to the floor's; None if the floor was not measured."""
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
    """Returns a figure as text: empty for None, "no answer" for infinity. ``digits``: digits behind the point."""
    if value is None:
        return ""
    return f"{value:.{digits}f}" if math.isfinite(value) else "no answer"


def shown_ms(value: float | None, digits: int = 0) -> str:
    """Returns a time in ms as text, with its unit. Like ``shown`` otherwise."""
    unit = " ms" if value is None or math.isfinite(value) else ""
    return f"{shown(value, digits)}{unit}"


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row without infinity, for JSON."""
    return {**row, "p99_ms": None, _NEVER: True} if row["p99_ms"] == math.inf else row


def _of_json(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the row from which ``_finite`` has made this one."""
    kept = {name: value for name, value in row.items() if name != _NEVER}
    return {**kept, "p99_ms": math.inf} if row.get(_NEVER) else kept


def row(
    system: str, workload: Workload, held: Stored, *, runs: Sequence[Measured] = (), error: str | None = None
) -> Row:
    """Returns a row, made from the run with the median CPU, or from an error.

    Args:
        system: name of the system.
        workload: the workload.
        held: contents of its topic at the source.
        runs: the measurements, in the order of the turns; empty if there is an error.
        error: what went wrong; None: nothing.
    """
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
"""Fields of ``Row`` that are tuples, and lists in JSON."""


def save(results: Results, folder: Path) -> Path:
    """Writes ``compare.json`` atomically into a folder, and returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "compare.json"
    partial = path.with_suffix(".partial")
    partial.write_text(results.to_json() + "\n")
    os.replace(partial, path)
    return path


def load(path: Path) -> Results:
    """Reads ``compare.json``."""
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
    known = {field.name for field in dataclasses.fields(Row)}  # older results also have a ratio that is not of pairs
    kept = {name: value for name, value in row.items() if name in known}
    return Row(**{**kept, **{name: tuple(row.get(name, ())) for name in _TUPLES}})
