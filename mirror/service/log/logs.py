"""Logging: JSON lines on stdout for machines, readable lines on a terminal, and limits for repeated lines.

Logging never blocks and never fails, whatever stdout is connected to (``service.log.outlet``).

Every line has `event`, `level` and `timestamp` (ISO 8601, UTC). Event names are stable, because dashboards and scripts
search for them. The names that more than one module uses are constants here.
"""

from __future__ import annotations

import json as json_codec
import logging
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from mirror.service.log.outlet import LogOutlet
from mirror.service.log.plainlog import structlog

if TYPE_CHECKING:
    from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

# Events.
STARTED: Final = "started"
STOPPED: Final = "stopped"
PROGRESS: Final = "progress"
CAUGHT_UP: Final = "caught_up"
HALTED: Final = "halted"
SKIPPED: Final = "skipped"
OVERSIZE_RECORD: Final = "oversize_record"
RESUMED: Final = "resumed"
SUPPRESSED_EVENT: Final = "repeats_suppressed"
LINES_LOST: Final = "log_lines_lost"

# Keys of every line.
EVENT: Final = "event"
LEVEL: Final = "level"
TIMESTAMP: Final = "timestamp"
# The subject of a line.
FLOW: Final = "flow"
CLUSTER: Final = "cluster"
BROKER: Final = "broker"
TOPIC: Final = "topic"
PARTITION: Final = "partition"
LOGGER: Final = "logger"
# The reason, and the remedy.
DETAIL: Final = "detail"
REMEDY: Final = "remedy"
# Keys of `progress`.
BYTES_PER_S: Final = "bytes_per_s"
PARTITIONS: Final = "partitions"
# Keys of reports on lines that were held back.
SUPPRESSED: Final = "suppressed"
OF_EVENT: Final = "of_event"

IDENTITY: Final = (EVENT, FLOW, CLUSTER, BROKER, TOPIC, PARTITION)
"""Two lines with equal values of these keys are repeats of each other."""

UNLIMITED: Final = frozenset({PROGRESS, SUPPRESSED_EVENT, SKIPPED, OVERSIZE_RECORD, HALTED, RESUMED})
"""Events without a limit: those that repeat by design, and those that say which data is not copied any more, or is
copied again. No two of the latter are about the same offsets."""

REPEATS_MAX: Final = 10
REPEATS_INTERVAL_S: Final = 60.0
IDENTITIES_MAX: Final = 10_000
"""Most identities that are kept at a time; beyond that, the oldest are reported and dropped."""

FLUSH_S: Final = 2.0
"""Longest wait at the end until the last lines are written."""

LIBRARY_LEVEL: Final = logging.WARNING


@dataclass(slots=True)
class _Window:
    """The number of lines of one identity since `began_at` (monotonic), and how many of them were held back."""

    began_at: float
    count: int = 0
    suppressed: int = 0


class RepeatLimit:
    """A structlog processor that lets at most `limit` repeats of a line through per interval.

    Held-back lines are reported once the interval is over: as `suppressed` on the next such line if there is one.
    Otherwise `tell` gets them as a line of its own (event, identity keys, count), at any next line or at `flush`.
    """

    def __init__(
        self,
        tell: Callable[[Mapping[str, Any]], None],
        *,
        limit: int = REPEATS_MAX,
        interval_s: float = REPEATS_INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell = tell
        self._limit = limit
        self._interval_s = interval_s
        self._clock = clock
        self._windows: dict[tuple[object, ...], _Window] = {}  # in the order in which they began

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        if event[EVENT] in UNLIMITED:
            return event
        now = self._clock()
        identity = tuple(_hashable(event.get(key)) for key in IDENTITY)
        window = self._windows.get(identity)
        if window is None or now - window.began_at >= self._interval_s:
            self._windows.pop(identity, None)
            if window is not None and window.suppressed:
                event[SUPPRESSED] = window.suppressed
            window = self._windows[identity] = _Window(began_at=now)
        self._expire(now)
        window.count += 1
        if window.count > self._limit:
            window.suppressed += 1
            raise structlog.DropEvent
        return event

    def flush(self) -> None:
        """Reports all lines that are held back. To be called before the process ends."""
        self._expire(float("inf"))

    def _expire(self, now: float) -> None:
        while self._windows:
            identity, window = next(iter(self._windows.items()))
            if now - window.began_at < self._interval_s and len(self._windows) <= IDENTITIES_MAX:
                return
            del self._windows[identity]  # before `tell` is called, which logs a line itself
            if window.suppressed:
                known = {key: value for key, value in zip(IDENTITY, identity, strict=True) if value is not None}
                self._tell({OF_EVENT: known.pop(EVENT), **known, SUPPRESSED: window.suppressed})


def _hashable(value: object) -> object:
    return value if isinstance(value, str | int | None) else repr(value)


class _ToStructlog(logging.Handler):
    """Passes lines that libraries log through the standard library to structlog, so that all lines look alike."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # a library's wrong format string must not lose the line
            message = str(record.msg)
        # Libraries may use levels in between; structlog knows only the standard ones.
        level = min(record.levelno // 10 * 10, logging.CRITICAL)
        get_logger().log(level, message, **{LOGGER: record.name}, exc_info=record.exc_info)


_limit: RepeatLimit | None = None
"""The limit set by the last `configure`. A process has one log, as it has one stdout."""
_outlet: LogOutlet | None = None
"""The writer to stdout; None with another stream, or if stdout was replaced by an object without a descriptor."""


def configure(level: str = "info", json: bool | None = None, stream: TextIO | None = None) -> None:
    """Sets up logging for this process. May be called again, for example with another level.

    Args:
        level: "debug", "info", "warning" or "error".
        json: True for JSON lines; None: JSON unless `stream` is a terminal.
        stream: by default stdout.

    Raises:
        ValueError: another level.
    """
    global _limit, _outlet
    if level not in ("debug", "info", "warning", "error"):
        raise ValueError(f"unknown log level {level!r}: debug, info, warning or error")
    terminal = _is_terminal(sys.stdout if stream is None else stream)
    as_json = not terminal if json is None else json
    out: TextIO | LogOutlet | None = stream
    _outlet = None
    if out is None and (descriptor := _descriptor(sys.stdout)) is not None:
        out = _outlet = LogOutlet(descriptor, _lost_as_json if as_json else _lost_as_text)
    _limit = RepeatLimit(lambda held: get_logger().warning(SUPPRESSED_EVENT, **held))
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _limit,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key=TIMESTAMP),
            *(_json_processors() if as_json else [_console(terminal)]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", out)),
        cache_logger_on_first_use=False,  # otherwise loggers made before a second `configure` keep the old level
    )
    root = logging.getLogger()
    root.handlers = [_ToStructlog(LIBRARY_LEVEL)]  # the handler's level too: a library may lower its own logger's
    root.setLevel(LIBRARY_LEVEL)
    logging.captureWarnings(True)


def get_logger(**bound: object) -> FilteringBoundLogger:
    """Returns a logger with these keys on every line. Argument names of ``structlog.wrap_logger`` cannot be keys."""
    logger: FilteringBoundLogger = structlog.get_logger(**bound)
    return logger


def flush() -> None:
    """Reports how many repeats are held back, and waits at most ``FLUSH_S`` until all lines are written. To be called
    last."""
    if _limit is not None:
        _limit.flush()
    if _outlet is not None:
        _outlet.settle(FLUSH_S)


def lines_lost() -> int:
    """Returns the number of lines that could not be written to stdout since the last `configure`."""
    return _outlet.lost if _outlet is not None else 0


def _is_terminal(stream: TextIO | None) -> bool:
    with suppress(ValueError):  # the stream is closed
        return stream is not None and stream.isatty()
    return False


def _descriptor(stream: TextIO | None) -> int | None:
    """Returns stdout's descriptor; -1 if the process has no stdout, None if it was replaced by an object without
    one."""
    with suppress(OSError, ValueError):
        return -1 if stream is None else stream.fileno()
    return None


def _lost(count: int, why: str) -> dict[str, Any]:
    at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    detail = f"{count} log lines were lost: {why}"
    return {TIMESTAMP: at, LEVEL: "warning", EVENT: LINES_LOST, "count": count, DETAIL: detail}


def _lost_as_json(count: int, why: str) -> str:
    return json_codec.dumps(_lost(count, why)) + "\n"


def _lost_as_text(count: int, why: str) -> str:
    fields = _lost(count, why)
    return f"{fields[TIMESTAMP]} [warning  ] {fields[DETAIL]}\n"


def _json_processors() -> list[Processor]:
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_dumps)]


def _dumps(event: EventDict, **_: object) -> str:
    # A value of a type that JSON does not have becomes text, and such a key is left out; neither raises.
    first = {key: event[key] for key in (TIMESTAMP, LEVEL, EVENT)}
    return json_codec.dumps(first | dict(event), default=str, skipkeys=True)


def _console(terminal: bool) -> Processor:
    return structlog.dev.ConsoleRenderer(colors=terminal, exception_formatter=structlog.dev.plain_traceback)
