"""What people see: numbers, the live view, steps on a terminal and in a file."""

import io
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from mirror.demo.show import dashboard, units
from mirror.demo.show.dashboard import DashboardView
from mirror.demo.show.screen import PlainScreen, TerminalScreen
from mirror.demo.watch.events import ProgressEvent

PROGRESS = ProgressEvent(
    lag_records=33_067, lag_unknown=0, bytes=182_300_000, bytes_per_s=61_200_000, batches_forwarded=3_210,
    batches_opened=0, partitions={"active": 33, "locating": 2}, cpu_s=2.1, rss_bytes=48_000_000,
)  # fmt: skip


def view(progress: ProgressEvent = PROGRESS, *, producing: int = 10) -> DashboardView:
    return DashboardView(
        progress=progress, rates=(0, 5, 61), cpu_percent=41.4, pid=4711, written_records=330_000, producing=producing
    )


def text_of(renderable: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 KB"), (61_249_000, "61.2 MB"), (2_500_000_000, "2.5 GB")],
)
def test_sizes(number: int, text: str) -> None:
    assert units.size(number) == text


def test_counts_and_times() -> None:
    assert units.count(12_345) == "12,345"
    assert units.count(1, "batch") == "1 batch"
    assert units.count(0, "batch") == "0 batches"
    assert units.count(2, "record") == "2 records"
    assert units.elapsed(8.6) == "9 s"
    assert units.elapsed(125) == "2 min 05 s"
    assert units.elapsed(59.7) == "1 min 00 s"


def test_the_line_has_what_the_panel_has() -> None:
    line, panel = dashboard.line(view()), text_of(dashboard.panel(view()))
    for part in ("182.3 MB", "61.2 MB/s", "33,067", "3,210", "0 opened", "33 active", "2 locating", "41 %", "48.0 MB"):
        assert part in line, part
        assert part in panel, part
    assert "process 4711" in panel
    assert "writing to the source" in panel
    assert "stopped" in text_of(dashboard.panel(view(producing=0)))


def test_a_lag_that_is_not_known_of_all_says_so() -> None:
    """The total leaves out partitions whose lag is unknown: their number stands beside it."""
    some, none = replace(PROGRESS, lag_unknown=2), replace(PROGRESS, lag_records=None, lag_unknown=1)
    assert "lag 33,067 records; unknown for 2 partitions;" in dashboard.line(view(some))
    assert "33,067; unknown for 2 partitions" in text_of(dashboard.panel(view(some)))
    assert "lag unknown (1 partition);" in dashboard.line(view(none))
    assert "unknown" not in dashboard.line(view())


def test_a_sparkline_shows_the_latest_against_their_highest() -> None:
    assert dashboard.sparkline([]) == ""
    assert dashboard.sparkline([0, 0]) == ""
    assert dashboard.sparkline([0, 1, 50, 100]) == " ▁▄█"
    assert len(dashboard.sparkline(range(1, 1_000))) == 36


def test_plain_steps_are_dated_lines_and_updates_are_held_back() -> None:
    file = io.StringIO()
    screen = PlainScreen(Console(file=file, width=60))
    screen.begin("load", "creating topics [not markup]")
    for _ in range(50):
        screen.update("half of it", line="a long line that is not wrapped, whatever the width of the console may be")
    screen.done("all of it")
    screen.show("a table")
    screen.close()
    lines = file.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0].endswith(" s] load     creating topics [not markup]")
    assert lines[1].endswith("all of it (0 s)")
    assert lines[2] == "a table"


def test_terminal_steps_leave_a_check_mark_and_the_cursor() -> None:
    file = io.StringIO()
    screen = TerminalScreen(Console(file=file, width=100, force_terminal=True))
    screen.begin("mirror", "starting")
    screen.update("copying", line="not for a terminal", panel=dashboard.panel(view()))
    screen.done("copied")
    screen.show("a table")
    screen.close()
    written = file.getvalue()
    assert "✓" in written
    assert "copied" in written
    assert "a table" in written
    assert "not for a terminal" not in written
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h")


def test_a_terminal_is_given_back_in_the_middle_of_a_step() -> None:
    file = io.StringIO()
    screen = TerminalScreen(Console(file=file, width=100, force_terminal=True))
    screen.begin("mirror", "starting")
    screen.close()
    screen.close()
    screen.update("too late")
    assert file.getvalue().count("\x1b[?25h") == 1
