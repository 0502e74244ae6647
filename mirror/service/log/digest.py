"""Workers' log lines about many partitions at once: the first of a kind as they are, the others as their number.

An outage or a rebalance concerns thousands of partitions in a second. A kind of line (event, level, cause) may be
written ``FREE`` times; what comes within the following window is counted, and told as one line at its end. While more
comes, windows double, up to ``WINDOW_MOST_S``; one in which nothing came begins all anew.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

FREE = 5
WINDOW_S = 1.0
WINDOW_MOST_S = 64.0
WHOLE = frozenset({"halted", "resumed", "skipped", "assigned", "revoked", "partitions_lost"})
"""Each of these is told: somebody has to do something, or did; or it is about many partitions as it is."""

Kind = tuple[str, str, str]
"""Level, event and cause."""


class Log(Protocol):
    """Where lines go."""

    def info(self, event: str, **fields: object) -> object:
        """Something happened."""

    def warning(self, event: str, **fields: object) -> object:
        """Something needs a look."""

    def error(self, event: str, **fields: object) -> object:
        """Something failed."""


class Later(Protocol):
    """What ``asyncio.loop.call_later`` gives."""

    def cancel(self) -> None:
        """It is not called any more."""


@dataclass(slots=True)
class _Window:
    length_s: float
    free: int
    held: int = 0
    last: dict[str, object] = field(default_factory=dict)
    partitions: dict[str, set[int]] = field(default_factory=dict)
    workers: set[int] = field(default_factory=set)
    timer: Later | None = None


class Digest:
    """A logger for what workers say. ``call_later``: by default the running event loop's."""

    def __init__(self, log: Log, *, call_later: "Callable[[float, Callable[[], None]], Later] | None" = None) -> None:
        self._log = log
        self._call_later = call_later or asyncio.get_running_loop().call_later
        self._windows: dict[Kind, _Window] = {}

    def info(self, event: str, **fields: object) -> None:
        """Something happened."""
        self._take("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Something needs a look."""
        self._take("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Something failed."""
        self._take("error", event, fields)

    def close(self) -> None:
        """Tells what is held back; to be called last."""
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
        """The window is over: the next is longer, if anything was held back, and the last otherwise."""
        window = self._windows[kind]
        if not window.held:
            del self._windows[kind]
            return
        self._tell(kind, window)
        after = self._windows[kind] = _Window(min(2 * window.length_s, WINDOW_MOST_S), 0)
        after.timer = self._call_later(after.length_s, lambda: self._over(kind))

    def _tell(self, kind: Kind, window: _Window) -> None:
        """One line for all that was held back; the detail is the last one's."""
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
