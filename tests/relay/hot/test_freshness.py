"""How many batches may be under way: what the destination remembers at least, held against all that it may have."""

import time
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.records.admit import Cause
from mirror.records.identity import MAX_EPOCH, Identity
from mirror.relay.hot import freshness as module
from mirror.relay.hot.freshness import UNKNOWN_MS, Freshness, counted_ms
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.queue import Hole

TIMES = st.lists(st.integers(0, 9), min_size=1, max_size=4)


def test_nothing_is_fresh_before_the_first_acknowledgement() -> None:
    freshness = Freshness()
    assert freshness.least_ms(0) == UNKNOWN_MS
    freshness.put(0, 10, 500, 700)
    assert freshness.least_ms(0) == UNKNOWN_MS
    freshness.appended(3, 600)
    assert freshness.least_ms(3) == 500
    assert freshness.least_ms(10) == 700
    freshness.clear()
    assert freshness.least_ms(10) == UNKNOWN_MS


def test_an_old_batch_counts_until_a_fresh_one_is_acknowledged_behind_it() -> None:
    freshness = Freshness()
    freshness.appended(0, 900)
    freshness.put(0, 10, 100, 900)  # the old one is somewhere among fresh ones
    assert freshness.least_ms(9) == 100
    assert freshness.least_ms(10) == 900
    freshness.put(10, 20, 100, 100)
    freshness.put(10, 30, 950, 960)
    assert freshness.least_ms(20) == 100  # it is the last that the destination knows
    freshness.appended(25, 955)
    assert freshness.least_ms(25) == 950


def test_another_producer_id_begins_with_nothing() -> None:
    freshness = Freshness()
    freshness.put(0, 10, 900, 900)
    freshness.put(0, 20, 900, 900)
    freshness.another_id(12)
    assert freshness.least_ms(12) == UNKNOWN_MS
    freshness.appended(14, 900)
    assert freshness.least_ms(14) == 900


@given(st.lists(st.tuples(TIMES, st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12))
def test_never_more_than_what_the_destination_may_have(steps: list[tuple[list[int], int, int]]) -> None:
    """Of record sets of one-offset batches that are put, acknowledged, and fetched again from anywhere: neither bound
    is ever above the time of the last batch that was appended, or of one that waits."""
    freshness, waiting = Freshness(), deque[int]()
    freshness.appended(0, 5)
    last, acknowledged = 5, 0
    for times, arrive, stay in steps:
        due = acknowledged + len(waiting) + len(times)
        waiting.extend(times)
        freshness.put(acknowledged, due, min(times), times[-1])
        for _ in range(min(arrive, len(waiting))):
            last = waiting.popleft()
            acknowledged += 1
        if stay < len(waiting):
            while len(waiting) > stay:
                waiting.pop()
            freshness.returned(acknowledged, acknowledged + stay)
        quick, least = freshness.bound_ms, freshness.least_ms(acknowledged)
        assert quick <= least == freshness.bound_ms
        assert least <= min([last, *waiting])
    while waiting:
        last = waiting.popleft()
        acknowledged += 1
    freshness.appended(acknowledged, last)
    assert freshness.least_ms(acknowledged) == last


@pytest.mark.parametrize(
    ("stamp_ms", "append_times", "counted"), [(100, True, 100), (900, True, 500), (900, False, 900)]
)
def test_times_of_the_append(monkeypatch: pytest.MonkeyPatch, stamp_ms: int, append_times: bool, counted: int) -> None:
    """Which is still to come: what lies ahead of it does not count where the broker puts it in. What is older does: the
    topic may be one again that keeps the records' times."""
    monkeypatch.setattr(module, "now_ms", lambda: 500)
    assert counted_ms(stamp_ms, append_times=append_times) == counted


def test_the_clock_is_in_milliseconds() -> None:
    assert abs(module.now_ms() - time.time() * 1000) < 60_000


# The window.


def active(*, proven: bool = True) -> Partition:
    partition = Partition("t", 0)
    partition.queue.acknowledged, partition.queue.proven = 0, proven
    return partition


@pytest.mark.parametrize(
    ("proven", "checking", "last_ms", "window"),
    [(True, False, 100, 5), (True, False, 99, 1), (False, True, 100, 1), (False, False, 100, 0)],
)
def test_window(proven: bool, checking: bool, last_ms: int, window: int) -> None:
    """One batch goes alone; nothing goes while it is read back (``checking`` is over, and it is not proven)."""
    partition = active(proven=proven)
    partition.queue.checking = checking
    partition.queue.freshness.appended(0, last_ms)
    partition.queue.widen(5, 100.0)
    assert partition.queue.window == window
    assert partition.queue.old is (last_ms < 100)


@pytest.mark.parametrize(("epoch", "window"), [(MAX_EPOCH - 2, 5), (MAX_EPOCH, 1)])
def test_behind_the_last_epoch_of_a_producer_id_one_goes_alone(epoch: int, window: int) -> None:
    """The hole's markers are of the old id; the first batch of the next one is the first that the broker sees of it."""
    partition = active()
    partition.queue.freshness.appended(0, 100)
    partition.queue.widen(5, 100.0)
    partition.queue.outbox.append(Hole(b"", Identity(1 << 62, epoch, 7), 3, None, Cause.MARKER))
    partition.queue.pop_hole()
    assert partition.queue.window == window
    partition.queue.widen(5, 100.0)
    assert partition.queue.window == window
