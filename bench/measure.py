"""The figures of one copy: CPU of the copying process per byte, between two looks at the destination. Pure."""

import dataclasses
from collections.abc import Sequence
from enum import Enum

__all__ = ["DEFINITION", "NOT_COME", "WARM", "Interval", "Measured", "Step", "Window", "median"]

NOT_COME = "a record that did not come counts as later than all others"
DEFINITION = (
    "CPU-seconds per GB: user and system CPU of the copying process and its children, by the kernel's own clock, "
    "and of mirror the supervisor and the worker, "
    "between two looks at the destination, divided by the stored bytes copied between the two (1 GB = 10^9 bytes of "
    "record batches as the source has them). "
    "For mirror: from the first look that sees data at the destination until all is there, so without its start, "
    "which is given apart (start_cpu_s), or for 10 s. "
    "For MirrorMaker 1 and 2 the JVM's warm-up is left out as well, and over a long link every system's: from 20 s "
    "after the first data, but no later than at 50 %, until all is there, or for 20 s. "
    "The floor: a process that receives the same bytes (the topic's log segments, sent as a broker sends them, "
    "with sendfile, over again until it is 4 GB, and not much more) into a 256 KB buffer and sends them on. "
    "The floor and mirror are measured several times, in turn; the run with the median of the CPU counts. "
    "Ratios are of runs of one turn, pair by pair; their median counts. "
    "MB/s is over the same interval, the median of all runs; "
    "memory: the sum of the peak RSS (VmHWM) of the process and its children over their life, in which a page of a "
    "file that several of them map counts once, as the machine holds it once; the highest of all runs; "
    f"of times, 99 % are of all records that were written: {NOT_COME}; "
    "1 MB = 10^6 bytes."
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The figures of one run.

    Attributes:
        bytes: stored bytes that were copied in the interval.
        seconds: length of the interval.
        cpu_s: CPU of the copying process in the interval, in seconds.
        start_cpu_s: its CPU before the interval, in seconds.
        peak_rss_bytes: its peak memory.
        all_seconds: time from the start of the process to the end of the interval.
        warm_s: time from the first data at the destination to the beginning of the interval, in seconds.
    """

    bytes: int
    seconds: float
    cpu_s: float
    start_cpu_s: float
    peak_rss_bytes: int
    all_seconds: float
    warm_s: float = 0.0

    @property
    def cpu_s_per_gb(self) -> float:
        """CPU-seconds per 10^9 stored bytes."""
        return self.cpu_s / self.bytes * 1e9

    @property
    def mb_per_s(self) -> float:
        """10^6 stored bytes per second."""
        return self.bytes / self.seconds / 1e6


def median(runs: Sequence[Measured]) -> Measured:
    """Returns the run whose CPU per byte is the median (the lower one of two in the middle), with the highest peak
    memory of all runs."""
    middle = sorted(runs, key=lambda run: run.cpu_s_per_gb)[(len(runs) - 1) // 2]
    return dataclasses.replace(middle, peak_rss_bytes=max(run.peak_rss_bytes for run in runs))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The part of a copy that is measured.

    It begins when ``warm_fraction`` is copied and ``warm_s`` have passed since the first data were seen; at the latest
    when ``latest_fraction`` is copied.

    Attributes:
        warm_fraction: fraction of the records.
        warm_s: time in seconds.
        latest_fraction: fraction of the records.
        longest_s: time in seconds after which it ends, unless everything is copied before.
    """

    warm_fraction: float = 0.0
    warm_s: float = 0.0
    latest_fraction: float = 1.0
    longest_s: float = 600.0


WARM = Window(warm_s=20.0, latest_fraction=0.5, longest_s=20.0)
"""The window for a JVM, and for all systems over a long link, where the sizes of windows and requests grow first. If
everything is copied sooner, the second half is measured."""


class Step(Enum):
    """The state of a measurement."""

    WAITING = "nothing at the destination yet"
    WARMING = "warming up"
    MEASURING = "measuring"
    DONE = "done"


class Interval:
    """Finds the two looks between which a copy is measured, and keeps their readings.

    Args:
        records: number of records to copy.
        stored_bytes: their size at the source. Every record counts as equally large.
        window: the part to measure.
    """

    def __init__(self, records: int, stored_bytes: int, window: Window) -> None:
        self._records = records
        self._stored_bytes = stored_bytes
        self._window = window
        self._seen_at: float | None = None
        self._first: tuple[float, int, float] | None = None
        self._last: tuple[float, int, float] | None = None
        self.step = Step.WAITING

    def look(self, at: float, copied: int, cpu_s: float) -> Step:
        """Adds a look, and returns the new state.

        Args:
            at: time of the look (monotonic).
            copied: number of records at the destination; 0 or less if there are none, or if it is not known.
            cpu_s: CPU of the copying process so far, in seconds.
        """
        if self.step is Step.DONE or copied <= 0:
            return self.step
        if self._seen_at is None:
            self._seen_at = at
        if self._first is None:
            self.step = Step.WARMING
            if self._is_warm(at, copied):
                self._first = (at, copied, cpu_s)
                self.step = Step.MEASURING
            return self.step
        self._last = (at, copied, cpu_s)
        if copied >= self._records or at - self._first[0] >= self._window.longest_s:
            self.step = Step.DONE
        return self.step

    def result(self, *, peak_rss_bytes: int, started_at: float) -> Measured | None:
        """Returns the figures; None if everything was copied before there were two looks.

        Args:
            peak_rss_bytes: peak memory of the process.
            started_at: time of its start (monotonic).
        """
        if self._seen_at is None or self._first is None or self._last is None or self._last[1] <= self._first[1]:
            return None
        (began_at, had, had_cpu_s), (ended_at, has, has_cpu_s) = self._first, self._last
        return Measured(
            bytes=round((has - had) / self._records * self._stored_bytes),
            seconds=ended_at - began_at,
            cpu_s=has_cpu_s - had_cpu_s,
            start_cpu_s=had_cpu_s,
            peak_rss_bytes=peak_rss_bytes,
            all_seconds=ended_at - started_at,
            warm_s=began_at - self._seen_at,
        )

    def _is_warm(self, at: float, copied: int) -> bool:
        fraction, window = copied / self._records, self._window
        assert self._seen_at is not None
        warm = fraction >= window.warm_fraction and at - self._seen_at >= window.warm_s
        return warm or fraction >= window.latest_fraction
