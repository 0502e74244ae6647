"""A failure is printed when it happens, and not only at the end: a run that is killed has shown what it found."""

from __future__ import annotations

import pytest

__all__ = ["AtOnce"]


class AtOnce:
    """A plugin of the process that reports: the controller, where pytest-xdist has workers.

    Args:
        terminal: what pytest writes its progress with.
    """

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        self._terminal.ensure_newline()
        self._terminal.line(f"FAILED in {report.when}: {report.nodeid}", red=True)
        for line in report.longreprtext.splitlines():
            self._terminal.line(f"    {line}")
        self._terminal.flush()
