"""The frame pool: one number bounds the memory, everything comes back, and whoever waits is woken in turn."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mirror.net.buffers import Frame, FramePool

FRAME = 100


def pool_of(frames: int) -> FramePool:
    return FramePool(budget=frames * FRAME, frame_size=FRAME)


def test_a_budget_holds_a_frame() -> None:
    with pytest.raises(ValueError, match="99 bytes holds no frame of 100"):
        FramePool(budget=99, frame_size=FRAME)


def test_reserve_and_cancel() -> None:
    pool = pool_of(2)
    assert pool.reserve()
    assert pool.reserve()
    assert not pool.reserve()
    pool.cancel()
    assert pool.used == FRAME
    assert pool.reserve()


def test_a_frame_goes_back_with_its_last_holder() -> None:
    pool = pool_of(1)
    pool.reserve()
    frame = pool.take(60)
    assert len(frame.body) == 60
    frame.hold()
    frame.release()
    assert pool.used == FRAME
    frame.release()
    assert pool.used == 0


def test_warm_buffers_are_used_again() -> None:
    """The buffer that came back last is the next to be used; its size never changes."""
    pool = pool_of(3)
    frames = []
    for size in (1, FRAME):
        pool.reserve()
        frames.append(pool.take(size))
    first, second = (frame.buffer for frame in frames)
    for frame in frames:
        frame.release()
    pool.reserve()
    again = pool.take(50)
    assert again.buffer is second
    assert len(first) == len(second) == FRAME


def test_an_oversize_answer_counts_until_it_is_released() -> None:
    """
    1. An answer larger than a frame (KIP-74's oversize first batch) takes more than was reserved for it.
    2. Meanwhile nobody else gets room; afterwards everybody does, and its buffer is not kept.
    """
    pool = pool_of(2)
    pool.reserve()
    frame = pool.take(1000)
    assert pool.used == len(frame.body) == 1000
    assert not pool.reserve()
    frame.release()
    assert pool.used == 0
    pool.reserve()
    assert len(pool.take(1).buffer) == FRAME


def test_one_frame_is_always_granted() -> None:
    """With nothing in use there is progress even in a budget of a single frame."""
    pool = pool_of(1)
    assert pool.reserve()
    assert not pool.reserve()


def test_waiters_are_woken_in_the_order_of_asking() -> None:
    """
    1. Three wait for room (one asks twice, and counts once).
    2. Each release wakes the next one, who takes the room.
    """
    pool = pool_of(1)
    woken: list[str] = []
    pool.reserve()

    def asker(name: str) -> None:
        woken.append(name)
        assert pool.reserve()

    wakes = [lambda name=name: asker(name) for name in "abc"]
    for wake in [*wakes, wakes[0]]:
        pool.when_room(wake)
    for count in range(1, 4):
        pool.take(1).release()
        assert woken == list("abc")[:count]
    pool.cancel()
    assert woken == list("abc")


def test_a_waiter_without_use_for_the_room_wakes_the_next() -> None:
    """Its broker is gone, say: the room must not wait for a release that will never come."""
    pool = pool_of(1)
    woken: list[str] = []
    pool.reserve()
    pool.when_room(lambda: woken.append("gone"))
    pool.when_room(lambda: woken.append("next"))
    pool.cancel()
    assert woken == ["gone", "next"]


class Accounting(RuleBasedStateMachine):
    """Any sequence of reservations, answers and releases keeps the books: what is used is what is out."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = pool_of(4)
        self.reserved = 0
        self.frames: list[Frame] = []

    @rule()
    def reserve(self) -> None:
        free = self.pool.used + FRAME <= self.pool.budget or not self.pool.used
        assert self.pool.reserve() is free
        self.reserved += free

    @precondition(lambda self: self.reserved)
    @rule()
    def cancel(self) -> None:
        self.pool.cancel()
        self.reserved -= 1

    @precondition(lambda self: self.reserved)
    @rule(size=st.integers(0, 3 * FRAME), holders=st.integers(0, 2))
    def take(self, size: int, holders: int) -> None:
        frame = self.pool.take(size)
        self.reserved -= 1
        for _ in range(holders):
            frame.hold()
        self.frames.append(frame)

    @precondition(lambda self: self.frames)
    @rule(which=st.integers(0, 1 << 30))
    def release(self, which: int) -> None:
        frame = self.frames[which % len(self.frames)]
        frame.release()
        if not frame.holders:
            self.frames.remove(frame)

    @invariant()
    def used_is_what_is_out(self) -> None:
        out = sum(max(FRAME, len(frame.body)) for frame in self.frames)
        assert self.pool.used == out + self.reserved * FRAME

    @invariant()
    def no_buffer_is_out_twice(self) -> None:
        assert len({id(frame.buffer) for frame in self.frames}) == len(self.frames)


TestAccounting = Accounting.TestCase
