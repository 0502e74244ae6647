"""Draws the chart of CPU per GB, as in KIP-712: grouped bars for each workload, on a logarithmic scale."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.report.results import Results
from bench.report.table import TITLES

__all__ = ["draw"]

_ORDER = ("mm2", "mm1", "mirror", "floor")
_COLOURS = {"mm2": "#b5482a", "mm1": "#e0a458", "mirror": "#1f6f8b", "floor": "#b8c4c9"}
_WIDTH = 0.8
_LOWEST = 0.1  # lower end of the axis, in CPU-seconds per GB: less than a relay takes
_GAP = 0.5


def draw(results: Results, path: Path) -> None:
    """Writes the chart as SVG. The file is the same for the same results, so that changes can be reviewed."""
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "mirror"
    workloads = [name for name in results.workloads() if any(_cost(results, system, name) for system in _ORDER)]
    systems = [system for system in _ORDER if system in results.systems()]
    if not workloads:
        return
    figure = Figure(figsize=(max(6.0, 1.6 + 1.05 * len(workloads)), 5.6), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    bar = _WIDTH / len(systems)
    places = _places(workloads)
    for number, system in enumerate(systems):
        at = [place - _WIDTH / 2 + bar * (number + 0.5) for place in places]
        costs = [_cost(results, system, name) for name in workloads]
        bars = axes.bar(
            at, [cost or 0 for cost in costs], bar * 0.94, label=TITLES[system], color=_COLOURS[system], zorder=2
        )
        labels = ["" if cost is None else f"{cost:.1f}" if cost >= 1 else f"{cost:.2f}".lstrip("0") for cost in costs]
        axes.bar_label(bars, labels, padding=2, fontsize=6.5, rotation=90 if len(workloads) > 3 else 0)
    axes.set_yscale("log")
    axes.set_ylim(_LOWEST, axes.get_ylim()[1] * 2.2)
    axes.set_xlim(-0.6, places[-1] + 0.6)
    axes.set_xticks(places, [_label(name) for name in workloads], fontsize=8)
    axes.set_ylabel("CPU-seconds per GB copied (logarithmic)")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(axis="y", color="#dddddd", linewidth=0.6, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("CPU of the copying process, by batch size, codec and partitions", fontsize=11, loc="left")
    axes.legend(ncols=len(systems), fontsize=8, frameon=False, loc="upper right")
    machine = results.machine
    system = f"{machine.date}, {machine.cpu}, {machine.cores} cores shared with both brokers"
    programs = f"Python {machine.python}, {machine.java}"
    figure.supxlabel(f"{system}\n{programs}", x=0.01, ha="left", fontsize=6.5, color="#666666")
    figure.savefig(path, format="svg", metadata={"Date": None}, bbox_inches="tight", facecolor="white")


def _cost(results: Results, system: str, workload: str) -> float | None:
    row = results.find(system, workload)
    return row.cpu_s_per_gb if row else None


def _places(workloads: list[str]) -> list[float]:
    """Returns the position of each group of bars. There is a gap between batch sizes, and between numbers of
    partitions."""
    places: list[float] = []
    before = ""
    for name in workloads:
        size, _, kind = name.split("-", 2)
        kind += size
        places.append(places[-1] + 1 + (_GAP if kind != before else 0) if places else 0.0)
        before = kind
    return places


def _label(workload: str) -> str:
    size, codec, partitions, *tls = workload.split("-")
    unit = size.replace("KB", " KB").replace("MB", " MB")
    encrypted = "\n" + " ".join(tls).replace("tls", "TLS") if tls else ""
    return f"{unit}\n{codec}\n{partitions.removesuffix('p')} part.{encrypted}"
