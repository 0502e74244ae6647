"""The live view of a mirror at work: one line for any output, a panel for a terminal. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import ROUNDED
from rich.console import RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mirror.demo.show import units
from mirror.demo.watch.events import ProgressEvent

__all__ = ["DashboardView", "line", "panel", "sparkline"]

_BARS = " ▁▂▃▄▅▆▇█"
_SPARKS = 36
_BAR_WIDTH = 36
_STYLES = {"active": "green", "locating": "yellow", "halted": "bold red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardView:
    """The data that both views show.

    Attributes:
        progress: the mirror's last progress event.
        rates: bytes per second in the latest progress events, oldest first.
        cpu_percent: CPU use of the mirror's workers, in percent of one core.
        pid: process id of the mirror.
        written_records: number written by the producers so far.
        producing: how many producers are writing now.
    """

    progress: ProgressEvent
    rates: Sequence[int]
    cpu_percent: float
    pid: int
    written_records: int
    producing: int


def line(view: DashboardView) -> str:
    """Returns the view as one line."""
    now = view.progress
    states = ", ".join(units.count(number) + " " + state for state, number in sorted(now.partitions.items()))
    return (
        f"{units.size(now.bytes)} at {units.size(now.bytes_per_s)}/s, lag {_lag(now, 'record')}; "
        f"{units.count(now.batches_forwarded, 'batch')} forwarded, {now.batches_opened} opened; "
        f"partitions {states or 'none yet'}; CPU {view.cpu_percent:.0f} %, {units.size(now.rss_bytes)}"
    )


def _lag(now: ProgressEvent, noun: str = "") -> str:
    """Returns the known lag, and the number of partitions whose lag is unknown."""
    some = units.count(now.lag_unknown, "partition") if now.lag_unknown else ""
    if now.lag_records is None:
        return "unknown" + (some and f" ({some})")
    return units.count(now.lag_records, noun) + (some and f"; unknown for {some}")


def panel(view: DashboardView) -> RenderableType:
    """Returns the view as a panel."""
    now = view.progress
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim")
    rows.add_column(justify="right", min_width=12)
    rows.add_column()
    rows.add_row("throughput", Text(f"{units.size(now.bytes_per_s)}/s", "bold"), Text(sparkline(view.rates), "cyan"))
    known = now.lag_records is not None and not now.lag_unknown and "locating" not in now.partitions
    copied = max(0, view.written_records - (now.lag_records or 0)) if known else 0
    bar = ProgressBar(total=max(1, view.written_records), completed=copied, width=_BAR_WIDTH)
    rows.add_row("copied", Text(units.size(now.bytes), "bold"), bar)
    lag_style = "bold green" if now.lag_records == 0 and not now.lag_unknown else "bold yellow"
    rows.add_row("lag", Text(_lag(now), lag_style), Text(f"of {view.written_records:,} records"))
    opened = Text.assemble(
        (units.count(now.batches_opened), "bold green" if not now.batches_opened else "bold red"), " opened"
    )
    rows.add_row("batches", Text(units.count(now.batches_forwarded), "bold"), Text.assemble("forwarded, ", opened))
    rows.add_row("partitions", Text(units.count(sum(now.partitions.values())), "bold"), _states(now))
    rows.add_row("CPU", Text(f"{view.cpu_percent:.0f} %", "bold"), Text("of one core, by the worker"))
    rows.add_row("memory", Text(units.size(now.rss_bytes), "bold"), Text("resident in the worker"))
    rows.add_row("producers", Text(units.count(view.producing), "bold"), Text(_writing(view.producing)))
    return Panel(rows, box=ROUNDED, title=f"mirror run, process {view.pid}", title_align="left", expand=False)


def sparkline(values: Sequence[int]) -> str:
    """Returns the latest values as bars; the highest of them is a full bar."""
    shown = list(values)[-_SPARKS:]
    most = max(shown, default=0)
    if most <= 0:
        return ""
    return "".join(_BARS[-(-value * (len(_BARS) - 1) // most)] for value in shown)


def _states(progress: ProgressEvent) -> Text:
    parts: list[str | tuple[str, str]] = []
    for state, number in sorted(progress.partitions.items()):
        parts += [", "] * bool(parts) + [(f"{number} {state}", _STYLES.get(state, ""))]
    return Text.assemble(*parts)


def _writing(producing: int) -> str:
    return "writing to the source" if producing else "stopped"
