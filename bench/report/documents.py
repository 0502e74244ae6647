"""The figures in README.md and docs/results/COSTS.md. ``python -m bench.report.documents`` writes them, from
``bench/out/compare.json``.

Each block of figures stands between two comments, and the text around it is written by hand. A test compares the blocks
with the file.
"""

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from bench import goals
from bench.goals import MM2_S, Verdict, verdicts
from bench.measure import NOT_COME
from bench.plan import ROOT
from bench.report import results
from bench.report.results import Cost, Results, Row, shown, shown_ms
from bench.report.table import TITLES

__all__ = ["BLOCKS", "DOCUMENTS", "written"]

DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "results" / "COSTS.md")
_BLOCK = re.compile(r"(<!-- bench: ([\w-]+) -->\n).*?(<!-- end of bench -->)", re.DOTALL)
_LEFT = ("codec", "what", "consumer", "encrypted", "bound")
_SIZES = {"1KB": "1 KB", "16KB": "16 KB", "1MB": "1 MB"}
_FAR_SYSTEMS = ("mirror", "mm2")


def _run(found: Results) -> list[str]:
    machine = found.machine
    where = f"{machine.cpu}, {machine.cores} cores shared with both brokers, whose data is in {machine.data}"
    versions = f"Linux {machine.kernel}, Python {machine.python.split()[0]}, inner loop {machine.inner_loop}"
    return [
        f"One complete run of `make bench` at {found.commit} ({machine.date}): {where}; {machine.memory_gb:.0f} GB, "
        f"{versions}.",
        "",
        _warmth([row for row in _of("mm2", found) if row.warm_s is not None and row.shortest_s is not None]),
    ]


def _warmth(rows: list[Row]) -> str:
    """Returns how warm MirrorMaker 2 was, which a reader has to know: a cold JVM costs more than it has to."""
    times = {row.workload: (row.warm_s or 0.0, row.shortest_s or 0.0) for row in rows}
    long = [name for name, both in times.items() if min(both) >= MM2_S]
    told = f"MirrorMaker 2 was warm for {MM2_S:.0f} s and measured for as long in {len(long)} of {len(times)} workloads"
    if len(long) == len(times):
        return f"{told}."
    name, (warm_s, measured_s) = min(times.items(), key=lambda item: min(item[1]))
    return (
        f"{told}; it copied the others sooner, and was less warm, least of all in {name}: {warm_s:.0f} s and then "
        f"{measured_s:.0f} s."
    )


def _main(found: Results) -> list[str]:
    headings = (
        "batches", "codec", "partitions", "byte relay", "mirror", "x relay", "MirrorMaker 2", "MirrorMaker 1",
        "mirror MB/s", "peak MB: mirror / MM2 / MM1",
    )  # fmt: skip
    rows = []
    for mirror in _of("mirror", found):
        if not mirror.tls and not mirror.far:
            times = found.times_floor(mirror)
            floor, *makers = (found.find(system, mirror.workload) for system in ("floor", "mm2", "mm1"))
            rows.append(
                (
                    _SIZES[mirror.size], mirror.codec, str(mirror.partitions), _cpu(floor), f"**{_cpu(mirror)}**",
                    shown(times.median if times else None, 1), *(_cpu(maker, 1) for maker in makers),
                    _speed(mirror), " / ".join(_peak(one) for one in (mirror, *makers)),
                )
            )  # fmt: skip
    return _table(headings, rows)


def _bounds(found: Results) -> list[str]:
    headings = ("bound", "kept in", "figures", "single turns")
    rows = []
    for what, some in _by_bound(found).items():
        turns = _range([figure for one in some for figure in one.spread or ()])
        rows.append((what, _kept_in(some) if _is_kept(some) else f"**{_kept_in(some)}**", _figures(some), turns))
    return [*_table(headings, rows), "", *_scope(found)]


def _scope(found: Results) -> list[str]:
    """Returns what the bounds leave out, and what was measured in another way in that run than it will be in the
    next."""
    told = [
        "* The bounds on CPU per GB against the floor and MirrorMaker 2, and that on peak memory, are on workloads "
        "nearby, without TLS. The tables below have the others' figures."
    ]
    if "without the supervisor" in found.definition:
        told.append(
            "* The mirror's CPU per GB in that run is that of the worker without its supervisor, also in these bounds. "
            "The next run counts both."
        )
    if not goals.in_turn(found):
        told.append(
            "* *Cut in pieces*: one measurement of each case in that run, one after the other. The next run measures "
            "both several times, in turn."
        )
    if NOT_COME not in found.definition:
        told.append(
            "* *99 % within 100 ms*: in that run, 99 % of the records that came, which were at least 98 % of those "
            "that were written. In the next run, 99 % of all that were written."
        )
    return told


def _missed(found: Results) -> list[str]:
    """Returns the bounds that were missed for some workload, for a reader who does not read all bounds."""
    bounds = _by_bound(found)
    missed = {what: some for what, some in bounds.items() if not _is_kept(some)}
    if not missed:
        return [f"All {len(bounds)} bounds that the project has set itself were kept in that run."]
    return [
        f"**Missed in that run:** {len(missed)} of the {len(bounds)} bounds that the project has set itself.",
        "",
        *(
            f"* {what}: kept in {_kept_in(some)} workload{'s' * (len(some) > 1)} ({_figures(some)})."
            for what, some in missed.items()
        ),
    ]


def _by_bound(found: Results) -> dict[str, list[Verdict]]:
    """Returns bound -> its verdicts, one for each workload to which it applies."""
    by_bound: dict[str, list[Verdict]] = {}
    for verdict in verdicts(found):
        by_bound.setdefault(verdict.what, []).append(verdict)
    return by_bound


def _is_kept(some: list[Verdict]) -> bool:
    return all(one.kept for one in some)


def _kept_in(some: list[Verdict]) -> str:
    return f"{sum(one.kept for one in some)} of {len(some)}"


def _figures(some: list[Verdict]) -> str:
    figures = _range([one.found for one in some if one.found is not None])
    if any(one.found is None for one in some):
        return " and ".join(["not measured", *([figures] if figures else [])])
    return figures


def _range(figures: list[float]) -> str:
    ends = [shown(end(figures), 1) for end in (min, max) if figures]
    return " to ".join(dict.fromkeys(ends))


def _tls(found: Results) -> list[str]:
    headings = (
        "encrypted", "partitions", "byte relay", "mirror", "MirrorMaker 2", "MB/s: mirror / MM2",
        "peak MB: mirror / MM2",
    )  # fmt: skip
    rows = []
    for mirror in _of("mirror", found):
        if mirror.tls:
            floor, maker = (found.find(system, mirror.workload) for system in ("floor", "mm2"))
            sides, partitions = " and ".join(mirror.tls), str(mirror.partitions)
            speeds, peaks = (" / ".join([one(mirror), one(maker)]) for one in (_speed, _peak))
            rows.append((sides, partitions, _cpu(floor), f"**{_cpu(mirror)}**", _cpu(maker, 1), speeds, peaks))
    return _table(headings, rows)


def _far(found: Results) -> list[str]:
    headings = ("partitions", "mirror MB/s", "MirrorMaker 2 MB/s", "CPU-s/GB: mirror / MM2", "peak MB: mirror / MM2")
    rows = []
    for mirror in _of("mirror", found):
        if mirror.far:
            both = [found.find(system, mirror.workload) for system in _FAR_SYSTEMS]
            ours, theirs = (_speed(one) for one in both)
            costs, peaks = (" / ".join(one(row) for row in both) for one in (_cpu, _peak))
            rows.append((str(mirror.partitions), f"**{ours}**", theirs, costs, peaks))
    return _table(headings, rows)


def _latency(found: Results) -> list[str]:
    names = {"source": "at the source", **{system: f"behind {TITLES[system]}" for system in ("mirror", "mm2", "mm1")}}
    rows = [
        (names[one.system], shown_ms(one.median_ms), shown_ms(one.p99_ms))
        for one in sorted(found.latency, key=lambda one: list(names).index(one.system))
    ]
    return _table(("consumer", "median", "99 %"), rows)


def _exactness(found: Results) -> list[str]:
    rows = []
    for one in found.costs:
        if not _is_many(one):
            offsets = f"{one.offsets_per_s:,}" if one.offsets_per_s else ""
            figures = shown(one.mb_per_s, 1), offsets, shown(one.cpu_s_per_gb)
            rows.append((one.what, str(one.partitions), *figures))
    return _table(("what", "partitions", "MB/s", "offsets/s", "CPU-s/GB"), rows)


def _many(found: Results) -> list[str]:
    rows = [
        (
            one.what, f"{one.partitions:,}", shown(one.active_s, 0), shown(one.core_percent, 1),
            shown(one.p99_ms, 0), shown(one.peak_rss_mb, 0),
        )
        for one in found.costs
        if _is_many(one)
    ]  # fmt: skip
    return _table(("what", "partitions", "all active after s", "% of a core", "99 % ms", "peak MB"), rows)


def _is_many(cost: Cost) -> bool:
    return cost.active_s is not None or cost.core_percent is not None


BLOCKS: dict[str, Callable[[Results], list[str]]] = {
    "run": _run,
    "main": _main,
    "missed": _missed,
    "bounds": _bounds,
    "tls": _tls,
    "far": _far,
    "latency": _latency,
    "exactness": _exactness,
    "many": _many,
}


def written(text: str, found: Results) -> str:
    """Returns a document with the figures of some results in every block. ``text``: the document.

    Raises:
        KeyError: a block has an unknown name.
    """
    return _BLOCK.sub(lambda block: "\n".join([block[1], *BLOCKS[block[2]](found), "", block[3]]), text)


def _of(system: str, found: Results) -> list[Row]:
    return [row for row in found.rows if row.system == system]


def _cpu(row: Row | None, digits: int = 2) -> str:
    return shown(row.cpu_s_per_gb if row else None, digits)


def _peak(row: Row | None) -> str:
    return shown(row.peak_rss_mb if row else None, 0)


def _speed(row: Row | None) -> str:
    return shown(row.speed if row else None, 0)


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    rule = [":--" if heading in _LEFT else "--:" for heading in headings]
    return [f"| {' | '.join(cells)} |" for cells in (headings, rule, *rows)]


def main() -> int:
    """Writes the figures of all documents, and returns the exit code."""
    found = results.load(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench" / "out" / "compare.json")
    for document in DOCUMENTS:
        document.write_text(written(document.read_text(encoding="utf-8"), found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
