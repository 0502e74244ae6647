"""The clock of what is known of a log."""

import time
from types import SimpleNamespace

import pytest

from mirror.relay.partition import clock
from mirror.relay.partition.clock import since_boot


def test_it_counts_the_time_of_a_suspended_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The monotonic clock stood still meanwhile."""
    clocks = {7: 5_000.0}
    monkeypatch.setattr(
        clock,
        "time",
        SimpleNamespace(CLOCK_BOOTTIME=7, clock_gettime=lambda which: clocks[which], monotonic=lambda: 1_000.0),
    )
    assert since_boot() == 5_000


def test_without_such_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: 1_000.0))
    assert since_boot() == 1_000


def test_it_is_never_behind_the_monotonic_one() -> None:
    before = time.monotonic()
    assert before <= since_boot() <= since_boot()
