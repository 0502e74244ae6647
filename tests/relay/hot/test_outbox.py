"""What waits: a deque, whichever form it has, and whatever of it is kept as numbers."""

import gc
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mirror.records.admit import Cause
from mirror.records.identity import Identity
from mirror.relay.hot.native import Outbox, PlainOutbox, is_compiled, new_outbox
from mirror.relay.hot.plain import PLAIN_ATTRIBUTES, InnerLoop, Shapes, take_plain
from mirror.relay.partition.queue import Batch, Hole
from tests.records.builders import raw_batch

MOST = 1 << 31
BODY = memoryview(b"".join(raw_batch(bytes(number % 7), base_offset=5 * number) for number in range(300)))
SIZES = [len(raw_batch(bytes(number % 7))) for number in range(300)]


def seen(outbox: Any) -> list[Any]:
    """Its items, payloads as bytes."""
    return [(bytes(item[0]), bytes(item[1]), *item[2:]) if isinstance(item, tuple) else item for item in outbox]


class Thing:
    """Something that can be seen to be gone."""


class Both(RuleBasedStateMachine):
    """The one that is used here beside a plain deque that the Python form fills."""

    @initialize()
    def begin(self) -> None:
        self.outbox, self.model = new_outbox(), PlainOutbox()
        self.loop, self.shapes = InnerLoop(9), Shapes(9)

    @rule(first=st.integers(0, 250), count=st.integers(0, 50))
    def take(self, first: int, count: int) -> None:
        at, end = sum(SIZES[:first]), sum(SIZES[: first + count])
        rest = (5 * first, 3, 1 << 62, 4, 7, MOST, PLAIN_ATTRIBUTES)
        found = self.loop.take(self.outbox, BODY, at, end, *rest)
        assert tuple(found) == tuple(take_plain(self.shapes, self.model, BODY, at, end, *rest))
        assert found[0] == count

    @rule(item=st.integers())
    def append(self, item: int) -> None:
        self.outbox.append(item)
        self.model.append(item)

    @rule(items=st.lists(st.integers(), max_size=20))
    def extend(self, items: list[int]) -> None:
        self.outbox.extend(items)
        self.model.extend(items)

    @rule(count=st.integers(1, 400), left=st.booleans())
    def pop(self, count: int, left: bool) -> None:
        for _ in range(min(count, len(self.model))):
            one, other = (
                (self.outbox.popleft(), self.model.popleft()) if left else (self.outbox.pop(), self.model.pop())
            )
            assert seen([one]) == seen([other])

    @rule(item=st.integers(), last=st.booleans())
    def replace(self, item: int, last: bool) -> None:
        if self.model:
            self.outbox[-last] = self.model[-last] = item

    @rule()
    def close(self) -> None:
        """The last batch has a frame from then on, if it is no object yet."""
        if self.model:
            last, frame = self.model[-1], Thing()
            is_batch = isinstance(last, tuple)
            assert self.outbox.close(frame) is (is_batch and is_compiled())
            assert not self.model.close(frame)
            if is_batch:
                self.model[-1] = (*last[:3], frame)
                if not is_compiled():
                    self.outbox[-1] = self.model[-1]

    @invariant()
    def the_same(self) -> None:
        assert len(self.outbox) == len(self.model)
        assert bool(self.outbox) == bool(self.model)
        assert seen(self.outbox) == seen(self.model)
        if self.model:
            assert seen([self.outbox[0], self.outbox[-1]]) == seen([self.model[0], self.model[-1]])


Both.TestCase.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)
TestBoth = Both.TestCase


@pytest.mark.parametrize("made", [new_outbox, deque])
def test_what_is_not_there(made: type[Any]) -> None:
    outbox: Outbox = made()
    for call in (outbox.pop, outbox.popleft, lambda: outbox[0], lambda: outbox[-1]):
        with pytest.raises(IndexError):
            call()
    with pytest.raises(IndexError):
        outbox[0] = 1
    with pytest.raises(TypeError):
        outbox.extend(7)  # type: ignore[arg-type]
    assert not outbox


@pytest.mark.parametrize("made", [new_outbox, deque])
def test_nothing_is_kept(made: type[Any]) -> None:
    """Of what left, was replaced, or was there when all of it ended."""
    outbox: Outbox = made()
    things = [Thing() for _ in range(4)]
    gone = [weakref.ref(thing) for thing in things]
    outbox.extend(things)
    things.clear()
    outbox.popleft()
    outbox.pop()
    outbox[0] = None
    gc.collect()
    assert [ref() is None for ref in gone] == [True, True, False, True]
    del outbox
    gc.collect()
    assert gone[2]() is None


@pytest.mark.skipif(not is_compiled(), reason="there is no C compiler here")
def test_a_frame_is_kept_as_long_as_its_batch() -> None:
    """
    1. Of two frames the last one counts.
    2. It is gone with the batch, however that leaves.
    3. Nothing waits: there is no last batch.
    """
    outbox = new_outbox()
    for leave in (outbox.popleft, outbox.pop, partial(outbox.__setitem__, 0, 7)):
        InnerLoop(9).take(outbox, BODY, 0, SIZES[0], 0, 3, 1 << 62, 4, 7, MOST, PLAIN_ATTRIBUTES)
        first, frame = Thing(), Thing()
        gone, kept = weakref.ref(first), weakref.ref(frame)
        assert outbox.close(first)
        assert outbox.close(frame)
        del first, frame
        assert gone() is None
        assert outbox[0][3] is kept()
        leave()
        assert kept() is None
    outbox.pop()
    with pytest.raises(IndexError):
        outbox.close(Thing())


@pytest.mark.skipif(not is_compiled(), reason="there is no C compiler here")
def test_an_iterable_that_fails_half_way() -> None:
    def items() -> Any:
        yield 1
        raise LookupError("half way")

    outbox = new_outbox()
    with pytest.raises(LookupError):
        outbox.extend(items())
    assert list(outbox) == [1]


@pytest.mark.parametrize("made", [new_outbox, PlainOutbox])
def test_sizes_are_known_without_looking(made: Callable[[], Outbox]) -> None:
    """Batches as stored, however they came in; a hole is none."""
    outbox = made()
    assert outbox.sizes() == (0, 0)
    take = partial(take_plain, Shapes(9)) if isinstance(outbox, PlainOutbox) else InnerLoop(9).take
    take(outbox, BODY, 0, sum(SIZES[:20]), 0, 3, 1 << 62, 4, 7, MOST, PLAIN_ATTRIBUTES)
    outbox.popleft()
    outbox.append(Hole(b"", Identity(1, 0, 0), 3, None, Cause.MARKER))
    outbox.append(Batch(b"head", memoryview(bytes(39)), 1, None))
    assert outbox.sizes() == (20, sum(SIZES[1:20]) + 100)
    outbox.append(7)
    with pytest.raises(TypeError):
        outbox.sizes()
