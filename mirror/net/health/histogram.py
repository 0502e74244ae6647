"""Histograms of durations as plain numbers: no library, no lock, cheap enough to count every request."""

from bisect import bisect_left
from collections.abc import Sequence

REQUEST_BOUNDS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets for requests, in seconds."""


class Histogram:
    """Counts of values by bucket, and their sum.

    Attributes:
        counts: number of values in each bucket, not cumulative; the last bucket is for values above all bounds.
        total: the sum of all values.
    """

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """``bounds``: upper bounds of the buckets, ascending and inclusive."""
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def note(self, value: float) -> None:
        """Counts a value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def counters(self, name: str) -> dict[str, float]:
        """Returns the counters "name/sum", and "name/<index>" for each bucket with values (see ``counts``). Empty
        before the first value."""
        found: dict[str, float] = {f"{name}/{at}": count for at, count in enumerate(self.counts) if count}
        return found | {f"{name}/sum": self.total} if found else found


class RequestDurations:
    """The time from sending a request to its answer, by API (``wire.versions.API_NAMES``)."""

    def __init__(self) -> None:
        self._by_api: dict[str, Histogram] = {}

    def note(self, api: str, seconds: float) -> None:
        """Counts an answered request."""
        histogram = self._by_api.get(api)
        if histogram is None:
            histogram = self._by_api[api] = Histogram(REQUEST_BOUNDS_S)
        histogram.note(seconds)

    def counters(self, name: str) -> dict[str, float]:
        """Returns the counters of every API: see ``Histogram.counters``, with "name/api" as the name."""
        found: dict[str, float] = {}
        for api, histogram in self._by_api.items():
            found |= histogram.counters(f"{name}/{api}")
        return found
