"""The demo's display while it runs: a live view on a terminal, plain lines everywhere else."""

import sys
import time
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from mirror.demo.show import units

__all__ = ["PlainScreen", "Screen", "TerminalScreen", "open_screen"]

_PLAIN_INTERVAL_S = 5.0
_PLAIN_REPEAT_S = 20.0
"""The interval after which an unchanged line is repeated, as a sign of life."""
_PLAIN_WIDTH = 110
_REFRESHES_PER_S = 8
_STEP_WIDTH = 8
_TIME_WIDTH = 5


class Screen(Protocol):
    """Shows steps, one at a time: each is begun, updated any number of times, and done."""

    def begin(self, step: str, line: str) -> None:
        """Begin a step."""

    def update(self, doing: str, *, line: str = "", panel: RenderableType | None = None) -> None:
        """Show what the step is doing, and how far it is: on a terminal as a panel, elsewhere as a line."""

    def done(self, line: str) -> None:
        """End the step; the line stays."""

    def show(self, renderable: RenderableType) -> None:
        """Show something that stays: a table, a text."""

    def close(self) -> None:
        """Leave the terminal as it was. May be called twice."""


class TerminalScreen:
    """A spinner with the step's line, the panel under it, and a check mark for each step that is done."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._spinner = Spinner("dots")
        self._step = ""
        self._began_at = 0.0

    def begin(self, step: str, line: str) -> None:
        """See ``Screen``."""
        self._step, self._began_at = step, time.monotonic()
        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(console=self._console, transient=True, refresh_per_second=_REFRESHES_PER_S)
        self.update(line)
        self._live.start()

    def update(self, doing: str, *, line: str = "", panel: RenderableType | None = None) -> None:
        """See ``Screen``."""
        if self._live is None:
            return
        head = self._row(self._spinner, Text(self._step, "bold cyan"), doing)
        self._live.update(head if panel is None else Group(head, panel))

    def done(self, line: str) -> None:
        """See ``Screen``."""
        self.close()
        self._console.print(self._row(Text("✓", "bold green"), Text(self._step, "bold"), line))

    def show(self, renderable: RenderableType) -> None:
        """See ``Screen``."""
        self._console.print(renderable)

    def close(self) -> None:
        """See ``Screen``."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _row(self, mark: RenderableType, step: Text, line: str) -> Table:
        """Mark, step, seconds and text side by side; a long text stays in its column."""
        row = Table.grid(padding=(0, 1))
        row.add_column()
        row.add_column(min_width=_STEP_WIDTH)
        row.add_column(min_width=_TIME_WIDTH, justify="right", style="dim")
        row.add_column()
        row.add_row(mark, step, f"{time.monotonic() - self._began_at:.0f} s", Text(line))
        return row


class PlainScreen:
    """Lines with the elapsed time; an update at most every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._step = ""
        self._began_at = self._opened_at = time.monotonic()
        self._last = ""
        self._next_at = self._repeat_at = 0.0

    def begin(self, step: str, line: str) -> None:
        """See ``Screen``."""
        self._step, self._began_at = step, time.monotonic()
        self._say(line)

    def update(self, doing: str, *, line: str = "", panel: RenderableType | None = None) -> None:
        """See ``Screen``; panels are for terminals."""
        said = f"{doing}: {line}" if line else doing
        if time.monotonic() >= (self._next_at if said != self._last else self._repeat_at):
            self._say(said)

    def done(self, line: str) -> None:
        """See ``Screen``."""
        self._say(f"{line} ({units.elapsed(time.monotonic() - self._began_at)})")

    def show(self, renderable: RenderableType) -> None:
        """See ``Screen``."""
        self._console.print(renderable)

    def close(self) -> None:
        """See ``Screen``."""

    def _say(self, line: str) -> None:
        now = time.monotonic()
        self._last, self._next_at, self._repeat_at = line, now + _PLAIN_INTERVAL_S, now + _PLAIN_REPEAT_S
        at = f"[{now - self._opened_at:6.1f} s]"
        self._console.print(f"{at} {self._step:<{_STEP_WIDTH}} {line}", markup=False, soft_wrap=True)


def open_screen() -> Screen:
    """Returns the screen that suits standard output."""
    console = Console(highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return TerminalScreen(console)
    return PlainScreen(Console(highlight=False, width=_PLAIN_WIDTH, file=sys.stdout))
