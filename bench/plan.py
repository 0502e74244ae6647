"""The workloads and systems of a run, and the environment variables that choose among them. Pure.

BENCH_QUICK=1          one workload (16 KB, lz4, 64 partitions) with floor, mirror and MirrorMaker 2
BENCH_ONLY=REGEX       workloads whose name matches anywhere, e.g. '^16KB' or 'zstd'; 'latency' is one too, and so are
                       the cases of the cost of exactness: 'exact' for all of them, or e.g. 'exact-far-8p'
BENCH_SYSTEMS=a,b      systems, out of floor, mirror, mm2, mm1
BENCH_SCALE=0.3        multiplies the number of bytes
BENCH_REPEAT=1         how often to measure the floor and mirror per workload, in turn; the median by CPU counts (5;
                       3 if quick). Their runs take seconds, and on a shared machine one such run says little. The
                       same for MirrorMaker 2 where a bound is against its figure
BENCH_FLOW=JSON        further settings of mirror's flow, e.g. '{"fetch.max.bytes": "8 MiB"}'
BENCH_OUT=FOLDER       where results go: bench/out; but build/bench for a quick run, with BENCH_ONLY, BENCH_SYSTEMS,
                       BENCH_SCALE or BENCH_FLOW, with MIRROR_PURE, and with fewer repetitions: only a full run replaces
                       a full one, and only at its end (until then, and if it is interrupted, build/bench)

The command fails if a row has failed or a bound of ``bench.goals`` is missed.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.errors import BenchError

__all__ = ["CASES", "FAR_MS", "ROOT", "SYSTEMS", "Case", "Plan", "Workload", "all_workloads", "from_environment"]

ROOT = Path(__file__).resolve().parent.parent
SYSTEMS = ("floor", "mirror", "mm2", "mm1")
SIDES = ("source", "destination")
FAR_MS = 200.0
"""Round trip in ms that is added for workloads with ``far``."""
CODECS = ("none", "lz4", "zstd")

_SIZES = {"1KB": 1_024, "16KB": 16_384, "1MB": 1_000_000}
_RECORD_BYTES = {"1KB": 200, "16KB": 1_000, "1MB": 2_000}
_TOTAL_BYTES = {
    "1KB": {"none": 9_200_000_000, "lz4": 6_600_000_000, "zstd": 2_000_000_000},
    "16KB": {"none": 9_200_000_000, "lz4": 9_000_000_000, "zstd": 3_400_000_000},
    "1MB": {"none": 9_200_000_000, "lz4": 9_200_000_000, "zstd": 3_600_000_000},
}
"""Batch size -> codec -> stored bytes to make. MirrorMaker 2 copied as many in 45 s or more on 2 cores: 20 s are its
warm-up (``measure.WARM``), and 20 s are measured. The exceptions are 16 KB and 1 MB uncompressed, of which it copies
350 MB/s: there is not enough memory for that much, and the run complains."""
_WITHOUT_JVM = 0.25
"""Fraction of these bytes if no JVM is measured. Mirror needs no more."""
_TLS_PARTITIONS = 1_000
_FAR_BYTES = {1: 3_600_000_000, 64: 6_500_000_000}
"""Number of partitions of workloads with ``far`` -> stored bytes to make."""
_MANY_PARTITIONS = ("1KB", "16KB")
_QUICK = "16KB-lz4-64p"
_REPEAT, _REPEAT_QUICK = 5.0, 3.0
_NARROWING = ("BENCH_ONLY", "BENCH_SYSTEMS", "BENCH_SCALE", "BENCH_FLOW", "MIRROR_PURE")
_ASIDE = ROOT / "build" / "bench"
LATENCY = "latency"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The data that every system copies.

    Attributes:
        size: name of the batch size: 1KB, 16KB or 1MB.
        codec: compression of the batches, as Kafka names it.
        partitions: number of partitions of the topic.
        batch_bytes: intended size of a stored batch, with header and compressed records.
        record_bytes: size of each record's value.
        total_bytes: stored bytes to make, approximately.
        tls: clusters to which the copiers connect with TLS: ``source``, ``destination`` or both.
        far: clusters to which a round trip takes ``FAR_MS`` longer.
    """

    size: str
    codec: str
    partitions: int
    batch_bytes: int
    record_bytes: int
    total_bytes: int
    tls: tuple[str, ...] = ()
    far: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name in tables, e.g. ``16KB-lz4-64p``, ``16KB-lz4-64p-tls`` or ``16KB-lz4-64p-far-source``."""
        kinds = (("tls", self.tls), ("far", self.far))
        what = ["-".join(["", kind, *(sides if sides != SIDES else ())]) for kind, sides in kinds if sides]
        return f"{self.size}-{self.codec}-{self.partitions}p{''.join(what)}"

    @property
    def topic(self) -> str:
        """Name of its topic on both sides."""
        return f"bench.{self.name}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case of the cost of exactness, of long round trips, or of many partitions. Mirror only.

    Attributes:
        name: name in tables and selections.
        what: the case in words.
        partitions: number of partitions of the topic.
        total_bytes: stored bytes to make, approximately.
        records_per_transaction: number of records of a partition before each marker; 0: no transactions.
        age_s: age of the records in seconds.
        round_trip_ms: round trip to the clusters in ``far``; 0: nothing is added to that of the machine.
        far: ``source``, ``destination`` or both.
        many: True to measure the time until all partitions are active, and the cost once everything is copied.
        records_per_s: records per second that are written meanwhile, to ``written_partitions`` of the partitions in
            turn.
        written_partitions: see ``records_per_s``.
        large_share: share of the bytes in batches that are four times as large, which is twice what the destination
            takes. They have to be cut in pieces.
        flow: further settings of mirror's flow.
    """

    name: str
    what: str
    partitions: int = 8
    total_bytes: int = 60_000_000
    records_per_transaction: int = 0
    age_s: float = 0.0
    round_trip_ms: float = 0.0
    far: tuple[str, ...] = SIDES
    many: bool = False
    records_per_s: int = 0
    written_partitions: int = 0
    large_share: float = 0.0
    flow: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def topic(self) -> str:
        """Name of its topic on both sides."""
        return f"bench.{self.name}"


_MAPPED = {"offsets": "mapped"}
CASES = (
    Case(name="exact-fresh", what="no holes, records of today", total_bytes=400_000_000),
    Case(name="exact-old", what="no holes, records two days old: one batch in flight", age_s=2 * 86_400.0),
    Case(
        name="exact-deep-2pc", what="2 % of the bytes in batches that the destination does not take",
        total_bytes=1_000_000_000, large_share=0.02,
    ),
    Case(name="exact-deep-none", what="the same without such batches", total_bytes=1_000_000_000),
    Case(
        name="exact-txn-1000", what="a marker every 1,000 records", records_per_transaction=1_000,
        total_bytes=200_000_000,
    ),
    Case(name="exact-txn-10", what="a marker every 10 records", records_per_transaction=10, total_bytes=12_000_000),
    Case(
        name="exact-txn-1000-mapped", what="a marker every 1,000 records, offsets mapped",
        records_per_transaction=1_000, total_bytes=200_000_000, flow=_MAPPED,
    ),
    Case(
        name="exact-txn-10-mapped", what="a marker every 10 records, offsets mapped", records_per_transaction=10,
        total_bytes=12_000_000, flow=_MAPPED,
    ),
    Case(
        name="exact-far-1p", what="a round trip of 200 ms", partitions=1, round_trip_ms=200.0, total_bytes=10_000_000
    ),
    Case(name="exact-far-8p", what="a round trip of 200 ms", partitions=8, round_trip_ms=200.0),
    Case(
        name="exact-far-64p", what="a round trip of 200 ms", partitions=64, round_trip_ms=200.0,
        total_bytes=200_000_000,
    ),
    *(
        Case(
            name=f"exact-far-{side}-{partitions}p", what=f"a round trip of 200 ms to the {side} only",
            partitions=partitions, round_trip_ms=200.0, far=(side,), total_bytes=total_bytes,
        )
        for side in SIDES[1:]
        for partitions, total_bytes in ((1, 30_000_000), (64, 400_000_000))
    ),
    Case(
        name="idle-2000p", what="nobody writes, after all is copied", partitions=2_000, many=True,
        total_bytes=32_768_000,
    ),
    Case(
        name="trickle-2000p", what="100 records per second over 100 of the partitions", partitions=2_000, many=True,
        records_per_s=100, written_partitions=100, total_bytes=32_768_000,
    ),
    Case(
        name="idle-10000p", what="nobody writes, after all is copied", partitions=10_000, many=True,
        total_bytes=163_840_000,
    ),
)  # fmt: skip
"""All cases: of the cost of exactness, of long round trips, and of many partitions."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run measures.

    Attributes:
        kind: ``full``, ``quick`` or ``selection``, for the results.
        workloads: the workloads, in the order in which they are measured.
        systems: the systems, in the order in which they are measured.
        latency: True if latency is measured as well.
        cases: the cases that are measured.
        repeat: number of measurements of the floor and of mirror for each workload.
        flow: further settings of mirror's flow.
        out: folder for the results at the end.
        unfinished: folder for the results until then.
    """

    kind: str
    workloads: tuple[Workload, ...]
    systems: tuple[str, ...]
    latency: bool
    cases: tuple[Case, ...]
    repeat: int
    flow: Mapping[str, Any]
    out: Path
    unfinished: Path


def all_workloads() -> list[Workload]:
    """Returns all workloads: all batch sizes and codecs with 8 partitions, 1 KB and 16 KB also with 64; and one of
    these over TLS (to both sides, to the source only, and with 1,000 partitions) and over a long link to the source
    (with 64 partitions and with one)."""
    made = [_workload(size, codec, 8) for size in _SIZES for codec in CODECS]
    made += [_workload(size, codec, 64) for size in _MANY_PARTITIONS for codec in CODECS]
    small = _workload("16KB", "lz4", 64)
    made += [dataclasses.replace(small, tls=tls) for tls in (SIDES, SIDES[:1])]
    made.append(dataclasses.replace(small, tls=SIDES, partitions=_TLS_PARTITIONS))
    return made + [
        dataclasses.replace(small, far=SIDES[:1], partitions=partitions, total_bytes=total_bytes)
        for partitions, total_bytes in _FAR_BYTES.items()
    ]


def from_environment(environ: Mapping[str, str]) -> Plan:
    """Returns the plan that the environment variables describe.

    Raises:
        BenchError: a value is invalid, or nothing is selected.
    """
    quick = environ.get("BENCH_QUICK", "") not in ("", "0")
    narrowed = any(environ.get(name) for name in _NARROWING)
    systems = _systems(environ.get("BENCH_SYSTEMS") or ("floor,mirror,mm2" if quick else ",".join(SYSTEMS)))
    workloads = all_workloads()
    if quick:
        workloads = [workload for workload in workloads if workload.name == _QUICK]
    only = environ.get("BENCH_ONLY") or ""
    chosen, cases, latency = _chosen(workloads, only)
    scale = _number(environ, "BENCH_SCALE", 1.0)
    share = scale if {"mm1", "mm2"} & set(systems) else scale * _WITHOUT_JVM
    repeat = _number(environ, "BENCH_REPEAT", _REPEAT_QUICK if quick else _REPEAT)
    if repeat != int(repeat):
        raise BenchError(f"BENCH_REPEAT={repeat} is not a whole number", "give 1 or more")
    narrowed = narrowed or repeat < (_REPEAT_QUICK if quick else _REPEAT)
    out = environ.get("BENCH_OUT")
    plan = Plan(
        kind="selection" if narrowed else "quick" if quick else "full",
        workloads=tuple(dataclasses.replace(w, total_bytes=int(w.total_bytes * share)) for w in chosen),
        systems=systems,
        latency=latency and not quick and any(system != "floor" for system in systems),
        cases=tuple(
            dataclasses.replace(case, total_bytes=int(case.total_bytes * scale))
            for case in cases
            if "mirror" in systems and not quick
        ),
        repeat=int(repeat),
        flow=_flow(environ.get("BENCH_FLOW") or "{}"),
        out=Path(out) if out else _ASIDE if narrowed or quick else ROOT / "bench" / "out",
        unfinished=Path(out) if out else _ASIDE,
    )
    if not plan.workloads and not plan.cases and not plan.latency:
        raise BenchError(
            "these variables together leave nothing to measure: cases are of mirror alone, latency is not the floor's, "
            "and a quick run has neither",
            "leave out BENCH_ONLY, BENCH_SYSTEMS or BENCH_QUICK",
        )
    return plan


def _workload(size: str, codec: str, partitions: int) -> Workload:
    return Workload(
        size=size, codec=codec, partitions=partitions, batch_bytes=_SIZES[size], record_bytes=_RECORD_BYTES[size],
        total_bytes=_TOTAL_BYTES[size][codec],
    )  # fmt: skip


def _systems(text: str) -> tuple[str, ...]:
    asked = [part.strip() for part in text.split(",") if part.strip()]
    unknown = sorted(set(asked) - set(SYSTEMS))
    if unknown or not asked:
        raise BenchError(f"BENCH_SYSTEMS names {', '.join(unknown) or 'nothing'}", f"known are {', '.join(SYSTEMS)}")
    return tuple(system for system in SYSTEMS if system in asked)


def _chosen(workloads: list[Workload], only: str) -> tuple[list[Workload], list[Case], bool]:
    try:
        pattern = re.compile(only)
    except re.error as error:
        raise BenchError(
            f"BENCH_ONLY={only!r} is not a regular expression: {error}", "try BENCH_ONLY='^16KB'"
        ) from error
    chosen = [workload for workload in workloads if pattern.search(workload.name)]
    cases = [case for case in CASES if pattern.search(case.name)]
    latency = bool(pattern.search(LATENCY))
    if not chosen and not cases and not latency:
        names = ", ".join([*(workload.name for workload in workloads), *(case.name for case in CASES), LATENCY])
        raise BenchError(f"BENCH_ONLY={only!r} matches no workload", f"they are {names}")
    return chosen, cases, latency


def _number(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1000:
        raise BenchError(f"{name}={text!r} is not a number above 0", "leave it out, or give one such as 1")
    return value


def _flow(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BenchError(
            f"BENCH_FLOW is not JSON: {error}", """try BENCH_FLOW='{"fetch.max.bytes": 8388608}'"""
        ) from error
    if not isinstance(value, dict):
        raise BenchError("BENCH_FLOW is not a JSON object", """try BENCH_FLOW='{"fetch.max.bytes": 8388608}'""")
    return value
