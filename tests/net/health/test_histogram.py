"""Durations by bucket."""

from mirror.net.health.histogram import REQUEST_BOUNDS_S, Histogram, RequestDurations


def test_buckets() -> None:
    """A value that equals a bound belongs to it, one above all to the last bucket. Empty buckets are left out."""
    one = Histogram((1.0, 2.0))
    assert one.counters("x") == {}
    for value in (0.5, 1.0, 1.5, 7.0):
        one.note(value)
    assert one.counts == [2, 1, 1]
    assert one.counters("x") == {"x/0": 2, "x/1": 1, "x/2": 1, "x/sum": 10.0}


def test_by_api() -> None:
    durations = RequestDurations()
    durations.note("Fetch", 0.0005)
    durations.note("Produce", REQUEST_BOUNDS_S[-1] + 1)
    assert durations.counters("s") == {
        "s/Fetch/0": 1, "s/Fetch/sum": 0.0005,
        f"s/Produce/{len(REQUEST_BOUNDS_S)}": 1, "s/Produce/sum": REQUEST_BOUNDS_S[-1] + 1,
    }  # fmt: skip
