"""Waits between tries: they grow, they are bounded, they differ, and success begins anew."""

from mirror.net.backoff import Backoff

JITTER = 0.2


def test_it_doubles_up_to_the_most() -> None:
    backoff = Backoff(least_ms=100, most_ms=1_000)
    for expected in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        assert abs(backoff.next_s() - expected) <= JITTER * expected + 1e-9
    assert backoff.tries == 6


def test_jitter() -> None:
    """A thousand that failed together do not come back together."""
    waits = {Backoff(least_ms=100, most_ms=100).next_s() for _ in range(50)}
    assert len(waits) > 40


def test_reset() -> None:
    backoff = Backoff(least_ms=100, most_ms=10_000)
    for _ in range(5):
        backoff.next_s()
    backoff.reset()
    assert backoff.tries == 0
    assert backoff.next_s() <= 0.1 * (1 + JITTER)


def test_a_most_below_the_least_is_the_least() -> None:
    backoff = Backoff(least_ms=100, most_ms=1)
    assert all(0.08 <= backoff.next_s() <= 0.12 for _ in range(5))


def test_very_many_tries() -> None:
    """No overflow after weeks of failures."""
    backoff = Backoff(least_ms=50, most_ms=10_000)
    for _ in range(5_000):
        assert backoff.next_s() <= 12
