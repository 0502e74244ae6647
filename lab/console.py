"""The harness's output while it runs: a live line on a terminal, plain lines elsewhere."""

import argparse
import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.status import Status

__all__ = ["Progress", "no_arguments"]


def no_arguments(program: str, about: str | None) -> None:
    """Parses the command line of a program that takes no arguments, since its settings are environment variables.
    ``--help`` prints ``about`` and ends the process; any other argument ends it with an error."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {program}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()


class Progress:
    """Shows the current step, and the time since the start."""

    def __init__(self) -> None:
        # Without a terminal, rich would take 80 columns: less than a table needs.
        self._console = Console(width=None if sys.stdout.isatty() else 130)
        self._began_at = time.monotonic()
        self._status: Status | None = None
        self._step = ""
        if self._console.is_terminal:
            self._status = self._console.status("")

    def step(self, text: str) -> None:
        """Begins a step, and shows its name."""
        self._step = text
        if self._status:
            self._status.update(text)
        else:
            self.line(f"{text} ...")

    def detail(self, text: str) -> None:
        """Shows the progress of the current step, on a terminal only."""
        if self._status:
            self._status.update(f"{self._step} [dim]{text}[/]")

    def line(self, text: str) -> None:
        """Prints a line that stays on the screen, with the time."""
        self._console.print(f"[dim]{self._clock()}[/] {text}", soft_wrap=True, highlight=False)

    def show(self, what: RenderableType) -> None:
        """Prints a table that stays on the screen."""
        self._console.print(what)

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status:
            self._status.stop()

    def _clock(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._began_at), 60)
        return f"{minutes:2d}:{seconds:02d}"
