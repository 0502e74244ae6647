"""Condenses workers' log lines about many partitions: the first lines of a kind are written, the others are counted.

An outage or a rebalance concerns thousands of partitions in a second. The first ``FREE`` lines of a kind (level, event,
cause) are written as they are. Further lines within a time window are counted, and one line reports them at the end of
the window. While more lines come, windows double, up to ``WINDOW_MOST_S``. After a window without held-back lines, the
kind starts again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from mirror.relay.events import EventLog

FREE = 5
WINDOW_S = 1.0
WINDOW_MOST_S = 64.0
WHOLE = frozenset({
    "halted", "paused", "resumed", "skipped", "oversize_record", "assigned", "revoked", "partitions_lost",
})  # fmt: skip
"""Events that are always logged: an operator has to act, or has acted; or one line is already about many partitions."""

Kind = tuple[str, str, str]
"""Level, event and cause."""


class FailureLog(EventLog, Protocol):
    """The logger that receives the lines."""

    def error(self, event: str, **fields: object) -> object:
        """Logs a failure."""


class TimerHandle(Protocol):
    """The handle that ``asyncio.loop.call_later`` returns."""

    def cancel(self) -> None:
        """Cancels the call."""


@dataclass(slots=True)
class _Window:
    length_s: float
    free: int
    held: int = 0
    last: dict[str, object] = field(default_factory=dict)
    partitions: dict[str, set[int]] = field(default_factory=dict)
    workers: set[int] = field(default_factory=set)
    timer: TimerHandle | None = None


class Digest:
    """A logger for workers' lines, which condenses them. ``call_later``: by default that of the running event loop."""

    def __init__(
        self, log: FailureLog, *, call_later: "Callable[[float, Callable[[], None]], TimerHandle] | None" = None
    ) -> None:
        self._log = log
        self._call_later = call_later or asyncio.get_running_loop().call_later
        self._windows: dict[Kind, _Window] = {}

    def info(self, event: str, **fields: object) -> None:
        """Logs a normal event."""
        self._take("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Logs an event that needs attention."""
        self._take("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Logs a failure."""
        self._take("error", event, fields)

    def close(self) -> None:
        """Logs a summary of all lines that are held back. To be called last."""
        for kind, window in list(self._windows.items()):
            if window.timer is not None:
                window.timer.cancel()
            self._tell(kind, window)
        self._windows.clear()

    def _take(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if event in WHOLE:
            getattr(self._log, level)(event, **fields)
            return
        kind = level, event, str(fields.get("cause", ""))
        window = self._windows.get(kind)
        if window is None:
            window = self._windows[kind] = _Window(WINDOW_S, FREE)
            window.timer = self._call_later(WINDOW_S, lambda: self._over(kind))
        if window.free:
            window.free -= 1
            getattr(self._log, level)(event, **fields)
            return
        window.held += 1
        window.last = fields
        if "worker" in fields:
            window.workers.add(fields["worker"])
        if "topic" in fields and "partition" in fields:
            window.partitions.setdefault(fields["topic"], set()).add(fields["partition"])

    def _over(self, kind: Kind) -> None:
        """Ends a window. If it held lines back, a longer one follows; otherwise the next line opens a new one."""
        window = self._windows[kind]
        if not window.held:
            del self._windows[kind]
            return
        self._tell(kind, window)
        after = self._windows[kind] = _Window(min(2 * window.length_s, WINDOW_MOST_S), 0)
        after.timer = self._call_later(after.length_s, lambda: self._over(kind))

    def _tell(self, kind: Kind, window: _Window) -> None:
        """Logs one line for all lines that were held back, with the detail of the last one."""
        if not window.held:
            return
        level, event, cause = kind
        count = sum(map(len, window.partitions.values()))
        what = f"{window.held} more" + (f", of {count:,} partitions" if count else "")
        fields: dict[str, object] = {"lines": window.held}
        if cause:
            fields["cause"] = cause
        if count:
            fields["count"] = count
            fields["partitions"] = {topic: sorted(found) for topic, found in sorted(window.partitions.items())}
        if window.workers:
            fields["workers"] = sorted(window.workers)
        last = window.last.get("detail")
        fields["detail"] = f"{what}; the last: {last}" if last else what
        getattr(self._log, level)(event, **fields)
