"""The frame pool: one number bounds the memory, everything comes back, and whoever waits is woken in turn."""

from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mirror.net.buffers import Frame, FramePool

FRAME = 100


def pool_of(frames: int) -> FramePool:
    return FramePool(budget=frames * FRAME, frame_size=FRAME)


def taken(pool: FramePool, size: int, reserved: int = FRAME) -> Frame:
    """The frame of an answer that there was room for."""
    assert pool.reserve(reserved)
    return pool.take(size, reserved=reserved)


def test_what_is_lent() -> None:
    """More has room while more is lent, and those that wait are woken; what is free goes back with the loan."""
    pool, woken = FramePool(budget=FRAME, frame_size=FRAME, most_budget=3 * FRAME), []
    assert pool.reserve(FRAME)
    assert not pool.reserve(FRAME)
    pool.when_room(FRAME, lambda: woken.append(pool.reserve(FRAME)))
    pool.lend("one", FRAME)
    assert woken == [True]
    frames = [pool.take(FRAME, reserved=FRAME) for _ in range(2)]
    for frame in frames:
        frame.release()
    assert pool.touched == 2 * FRAME
    pool.lend("one", 0)
    assert (pool.budget, pool.touched) == (FRAME, FRAME)


def test_what_is_spared() -> None:
    """A reservation leaves the room that it is told to leave, unless nothing else is in use."""
    pool = FramePool(budget=3 * FRAME, frame_size=FRAME)
    assert pool.reserve(FRAME, spare=3 * FRAME)
    assert not pool.reserve(FRAME, spare=2 * FRAME)
    assert pool.reserve(FRAME, spare=FRAME)


def test_what_is_urgent() -> None:
    """It does not queue behind one that waits for more room than there is."""
    pool = FramePool(budget=3 * FRAME, frame_size=FRAME)
    assert pool.reserve(2 * FRAME)
    pool.when_room(2 * FRAME, lambda: None)
    assert not pool.reserve(FRAME)
    assert pool.reserve(FRAME, urgent=True)
    assert not pool.reserve(FRAME, urgent=True)


def test_the_urgent_are_woken_first() -> None:
    """Where there is room for it, before one that waits for more."""
    pool, woken = FramePool(budget=3 * FRAME, frame_size=FRAME), []
    assert pool.reserve(2 * FRAME)
    assert pool.reserve(FRAME)
    assert pool.room == 0
    pool.when_room(2 * FRAME, lambda: woken.append("patient"))
    pool.when_room(FRAME, lambda: woken.append("urgent"), urgent=True)
    pool.cancel(FRAME)
    assert (woken, pool.room) == (["urgent"], FRAME)
    pool.cancel(FRAME)
    assert woken == ["urgent", "patient"]


def test_reserve_and_cancel() -> None:
    """As much as is asked for, and no more than the budget."""
    pool = pool_of(2)
    assert pool.reserve(FRAME)
    assert pool.reserve(60)
    assert not pool.reserve(41)
    assert pool.reserve(40)
    pool.cancel(60)
    assert pool.used == FRAME + 40
    assert not pool.reserve(61)
    assert pool.reserve(60)


def test_what_came_counts_not_what_was_asked_for() -> None:
    """An answer smaller than what was reserved for it leaves the rest to others at once."""
    pool = pool_of(2)
    frame = taken(pool, 30)
    assert pool.used == 30
    assert pool.reserve(170)
    frame.release()
    assert pool.used == 170


def test_a_frame_goes_back_with_its_last_holder() -> None:
    pool = pool_of(1)
    frame = taken(pool, 60)
    assert len(frame.body) == 60
    frame.hold()
    frame.release()
    assert pool.used == 60
    frame.release()
    assert pool.used == 0


def test_warm_buffers_are_used_again() -> None:
    """Of those that touched enough the one that touched least; of equals the one that came back last."""
    pool = pool_of(4)
    frames = [taken(pool, size) for size in (FRAME, 1, FRAME)]
    first, small, last = (frame.buffer for frame in frames)
    for frame in frames:
        frame.release()
    assert taken(pool, 50).buffer is last
    assert taken(pool, 50).buffer is first
    assert taken(pool, 1).buffer is small
    assert pool.touched == 2 * FRAME + 1


def test_a_free_buffer_grows_before_there_is_another() -> None:
    """The one that touched most: the kernel has to give the least."""
    pool = pool_of(3)
    frames = [taken(pool, size) for size in (60, 1)]
    most = frames[0].buffer
    for frame in frames:
        frame.release()
    assert taken(pool, 80).buffer is most
    assert pool.touched == 81


def test_what_free_buffers_touched_goes_back_when_it_would_be_too_much() -> None:
    """
    1. Four small answers are held at once, in buffers of their own, and released.
    2. Two large ones: two of the buffers grow, and the coldest of the others go back to the kernel.
    """
    pool = pool_of(2)
    small = [taken(pool, 50, 50) for _ in range(4)]
    assert pool.touched == 200
    for frame in small:
        frame.release()
    held = [taken(pool, 90), taken(pool, 90)]
    assert pool.touched == 180
    for frame in held:
        frame.release()
    assert pool.touched == 180


def test_an_oversize_answer_counts_until_it_is_released() -> None:
    """
    1. An answer larger than a frame (KIP-74's oversize first batch) takes more than was reserved for it.
    2. Meanwhile nobody else gets room; afterwards everybody does, and its buffer is not kept.
    """
    pool = pool_of(2)
    frame = taken(pool, 1000)
    assert pool.used == len(frame.body) == pool.touched == 1000
    assert not pool.reserve(1)
    frame.release()
    assert pool.used == pool.touched == 0
    assert len(taken(pool, 1).buffer.memory) == FRAME


def test_one_is_always_granted() -> None:
    """With nothing in use there is progress, whatever is asked for."""
    pool = pool_of(1)
    assert pool.reserve(10 * FRAME)
    assert not pool.reserve(1)


def test_waiters_are_woken_in_the_order_of_asking() -> None:
    """
    1. Three wait for room.
    2. Each release wakes the next one, who takes the room.
    """
    pool = pool_of(1)
    woken: list[str] = []
    pool.reserve(FRAME)

    def asker(name: str) -> None:
        woken.append(name)
        assert pool.reserve(FRAME)

    for name in "abc":
        pool.when_room(FRAME, partial(asker, name))
    for count in range(1, 4):
        pool.take(1, reserved=FRAME).release()
        assert woken == list("abc")[:count]
    pool.cancel(FRAME)
    assert woken == list("abc")


def test_who_wants_much_is_not_passed_over() -> None:
    """
    1. Brokers with nothing to give hold little each; one that has much to give waits for more than is left.
    2. Those with little ask again when they are answered: there would be room, but the one that waits comes first.
    """
    pool = pool_of(2)
    woken: list[str] = []
    for _ in range(11):
        assert pool.reserve(10)
    assert not pool.reserve(FRAME)
    pool.when_room(FRAME, lambda: woken.append("much") if pool.reserve(FRAME) else None)
    pool.when_room(10, lambda: woken.append("little") if pool.reserve(10) else None)
    assert not pool.reserve(10)
    pool.cancel(10)
    assert woken == ["much"]
    pool.cancel(10)
    assert woken == ["much", "little"]
    assert not pool.reserve(10)


def test_room_that_is_left_over_wakes() -> None:
    """Nobody waits for a release when an answer turns out to be small."""
    pool = pool_of(1)
    woken: list[str] = []
    assert pool.reserve(FRAME)
    pool.when_room(50, lambda: woken.append("next"))
    pool.take(50, reserved=FRAME)
    assert woken == ["next"]


def test_a_waiter_without_use_for_the_room_wakes_the_next() -> None:
    """Its broker is gone, say: the room must not wait for a release that will never come."""
    pool = pool_of(1)
    woken: list[str] = []
    pool.reserve(FRAME)
    pool.when_room(FRAME, lambda: woken.append("gone"))
    pool.when_room(FRAME, lambda: woken.append("next"))
    pool.cancel(FRAME)
    assert woken == ["gone", "next"]


def test_a_copy_has_its_own_size_and_counts() -> None:
    """
    1. Parts of a frame, copied: the frame goes back, the copy stays, and counts for what it is.
    2. It is never refused, and never kept for others.
    """
    pool = pool_of(2)
    frame = taken(pool, 60)
    frame.body[:] = bytes(range(60))
    copy = pool.copy([frame.body[10:12], b"x", frame.body[50:]])
    frame.release()
    assert bytes(copy.body) == bytes([10, 11]) + b"x" + bytes(range(50, 60))
    assert pool.used == pool.copied == len(copy.body) == 13
    assert not pool.reserve(190)
    other = pool.copy([bytes(500)])
    assert pool.used == 513
    other.release()
    touched = pool.touched
    copy.release()
    assert pool.used == pool.copied == 0
    assert pool.touched == touched - 13


def test_a_copy_that_goes_back_wakes() -> None:
    pool = pool_of(1)
    copy = pool.copy([b"x"])
    woken: list[str] = []
    assert not pool.reserve(FRAME)
    pool.when_room(FRAME, lambda: woken.append("next"))
    copy.release()
    assert woken == ["next"]


def test_room_for_copies_shrinks_with_them() -> None:
    """A sixteenth of what is left of a quarter of the budget."""
    pool = FramePool(budget=6_400, frame_size=FRAME)
    assert pool.copy_room == 100
    first = pool.copy([bytes(800)])
    assert pool.copy_room == 50
    pool.copy([bytes(900)])
    assert pool.copy_room == 0
    first.release()
    assert pool.copy_room == 43


class Accounting(RuleBasedStateMachine):
    """Any sequence of reservations, answers and releases keeps the books: what is used is what is out."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = pool_of(4)
        self.reserved: list[int] = []
        self.frames: list[Frame] = []

    @rule(size=st.integers(1, FRAME))
    def reserve(self, size: int) -> None:
        free = self.pool.used + size <= self.pool.budget or not self.pool.used
        assert self.pool.reserve(size) is free
        if free:
            self.reserved.append(size)

    @precondition(lambda self: self.reserved)
    @rule()
    def cancel(self) -> None:
        self.pool.cancel(self.reserved.pop())

    @precondition(lambda self: self.reserved)
    @rule(size=st.integers(0, 3 * FRAME), holders=st.integers(0, 2))
    def take(self, size: int, holders: int) -> None:
        frame = self.pool.take(size, reserved=self.reserved.pop())
        assert len(frame.body) == size
        frame.body[:] = bytes(size)
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
        assert self.pool.used == sum(len(frame.body) for frame in self.frames) + sum(self.reserved)

    @invariant()
    def no_buffer_is_out_twice(self) -> None:
        assert len({id(frame.buffer) for frame in self.frames}) == len(self.frames)

    @invariant()
    def touched_is_bounded(self) -> None:
        """Beyond the budget only by what is out."""
        held = sum(frame.buffer.touched for frame in self.frames)
        assert held <= self.pool.touched <= max(self.pool.budget, held)


TestAccounting = Accounting.TestCase
