"""A request's batches, in both forms: the same of everything, whatever waits."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.records.admit import Cause
from mirror.records.identity import Identity
from mirror.relay import native
from mirror.relay.gather import JOIN_BELOW, Gathered, Group, gather, gatherer
from mirror.relay.native import PlainOutbox, is_compiled
from mirror.relay.partition import Batch, Hole, Partition

FORMS = [False, True] if is_compiled() else [False]
WINDOW = 5
HOLE = Hole(b"", Identity(1, 0, 0), 3, None, Cause.MARKER)


def batch(number: int, size: int = 100) -> Batch:
    """So many bytes, a head of ten among them."""
    return Batch(b"head%6d" % number, memoryview(bytes(size - 10)), 1, None)


def partition(index: int, *waiting: Batch | Hole, topic: bytes = b"T", under_way: int = 0) -> Partition:
    """As a lane has it among those that are ready."""
    made = Partition("t", index)
    made.topic_head, made.window, made.queued = topic, WINDOW, True
    made.outbox.extend(waiting)
    made.in_flight.extend(batch(1000 + number) for number in range(under_way))
    return made


def found_by(compiled: bool, ready: list[Partition], max_size: int = 1 << 20, join_below: int = 0) -> Gathered:
    return Gathered(*gatherer(compiled=compiled)(ready, max_size, b"\0", join_below))


@pytest.mark.parametrize("compiled", FORMS)
def test_one_batch_of_each(compiled: bool) -> None:
    """
    1. The first that waits, of each partition, topic by topic; a head begins with what ends the batch before it.
    2. Who has more and may send more is to be asked again; who has not is to be offered again.
    """
    one, two, other = batch(1), batch(2), batch(3)
    first, second, third = partition(0, one, two), partition(1, two), partition(0, other, topic=b"U")
    full = partition(2, one, two, under_way=WINDOW - 1)
    found = found_by(compiled, [first, second, third, full])
    assert found.taken == [first, second, third, full]
    assert found.groups == {
        b"T": Group(3, [one.head, one.payload, b"\0" + two.head, two.payload, b"\0" + one.head, one.payload]),
        b"U": Group(1, [other.head, other.payload]),
    }
    assert list(found.groups) == [b"T", b"U"]
    assert (found.again, found.holes, found.looked_at, found.size) == ([first], [], 4, 400)
    assert [each.queued for each in (first, second, third, full)] == [True, False, False, False]
    assert (list(first.outbox), list(first.in_flight)) == ([two], [one])
    assert len(full.in_flight) == WINDOW


@pytest.mark.parametrize("compiled", FORMS)
def test_small_batches_are_copied_into_one_piece(compiled: bool) -> None:
    """By their mean size in the request; what goes over the network is the same."""
    sizes = [(JOIN_BELOW - 1, JOIN_BELOW), (JOIN_BELOW, JOIN_BELOW)]
    for joined, (first, second) in zip([True, False], sizes, strict=True):
        ready = [
            partition(0, batch(1, first)),
            partition(1, batch(2, second)),
            partition(0, batch(3, second), topic=b"U"),
        ]
        sent = [each.outbox[0] for each in ready]
        found = found_by(compiled, ready, join_below=JOIN_BELOW)
        assert [(topic, group.batches) for topic, group in groups_of(found)] == [(b"T", 2), (b"U", 1)]
        assert [len(group.pieces) for _, group in groups_of(found)] == ([1, 1] if joined else [4, 2])
        one, two, three = (each[0] + each[1] for each in sent)
        assert [b"".join(group.pieces) for _, group in groups_of(found)] == [one + b"\0" + two, three]
        assert [list(each.in_flight) for each in ready] == [[each] for each in sent]


def groups_of(found: Gathered) -> list[tuple[bytes, Group]]:
    return [(topic, Group(*group)) for topic, group in found.groups.items()]


@pytest.mark.parametrize("compiled", FORMS)
def test_holes_and_nothing(compiled: bool) -> None:
    """A hole is told once nothing of its partition is under way; neither it nor an empty outbox stays in the queue."""
    waits, due, empty = partition(0, HOLE, under_way=1), partition(1, HOLE, batch(1)), partition(2)
    found = found_by(compiled, [waits, due, empty])
    assert (found.groups, found.taken, found.again, found.holes) == ({}, [], [], [due])
    assert (found.looked_at, found.size) == (3, 0)
    assert not any(each.queued for each in (waits, due, empty))
    assert list(due.outbox) == [HOLE, batch(1)]
    assert len(waits.outbox) == 1


@pytest.mark.parametrize("compiled", FORMS)
def test_a_request_has_a_size(compiled: bool) -> None:
    """What does not fit keeps its turn and its place in the queue; a batch larger than a request goes alone."""
    ready = [partition(0, batch(1)), partition(1), partition(2, batch(2)), partition(3, batch(3))]
    found = found_by(compiled, ready, max_size=200)
    assert (found.taken, found.looked_at, found.size) == ([ready[0], ready[2]], 3, 200)
    assert ready[3].queued
    assert len(ready[3].outbox) == 1
    large = [partition(0, batch(1, 300)), partition(1, batch(2))]
    found = found_by(compiled, large, max_size=200)
    assert (found.taken, found.looked_at, found.size) == ([large[0]], 1, 300)


WAITING = st.lists(st.integers(10, 500) | st.none(), max_size=4)
READY = st.lists(st.tuples(WAITING, st.integers(0, WINDOW - 1), st.sampled_from([b"T", b"U"])), max_size=8)


@pytest.mark.skipif(not is_compiled(), reason="there is no C compiler here")
@given(READY, st.integers(1, 2000), st.sampled_from([b"", b"\0"]), st.sampled_from([0, 200, 1_000]))
def test_both_forms_agree(
    ready: list[tuple[list[int | None], int, bytes]], max_size: int, between: bytes, join_below: int
) -> None:
    """Over and over, until nothing is found any more: the same answers, and the same state of all partitions."""

    def made() -> list[Partition]:
        return [
            partition(
                index,
                *(HOLE if size is None else batch(number, size) for number, size in enumerate(waiting)),
                topic=topic,
                under_way=under_way,
            )
            for index, (waiting, under_way, topic) in enumerate(ready)
        ]

    sides = [(made(), gather), (made(), gatherer(compiled=True))]
    queues = [list(partitions) for partitions, _ in sides]
    for _ in range(40):
        found = [
            Gathered(*form(queue, max_size, between, join_below))
            for queue, (_, form) in zip(queues, sides, strict=True)
        ]
        assert seen(found[0]) == seen(found[1])
        assert list(map(state, sides[0][0])) == list(map(state, sides[1][0]))
        queues = [queue[one.looked_at :] + one.again for queue, one in zip(queues, found, strict=True)]
        if not queues[0]:
            break
    assert not queues[0]
    assert not queues[1]


def seen(found: Gathered) -> Any:
    """Its partitions by number."""
    lists = (found.taken, found.again, found.holes)
    return list(found.groups.items()), [[each.index for each in one] for one in lists], found.looked_at, found.size


def state(each: Partition) -> Any:
    return list(each.outbox), list(each.in_flight), each.queued


@pytest.mark.skipif(not is_compiled(), reason="there is no C compiler here")
def test_what_cannot_be_gathered() -> None:
    """An error of Python's, and no crash."""
    compiled: Any = gatherer(compiled=True)
    wrong: list[tuple[Any, ...]] = [([], 1, b""), ((), 1, b"", 0), ([], "1", b"", 0), ([], 1, "", 0), ([], 1, b"", "0")]
    for arguments in wrong:
        with pytest.raises(TypeError):
            compiled(*arguments)
    with pytest.raises(AttributeError):
        compiled([object()], 1, b"", 0)
    odd: Any
    for odd in ((), (b"head",), (b"head", 7, 1, None), ("head", memoryview(b""), 1, None)):
        broken = partition(0)
        broken.outbox.append(odd)
        with pytest.raises((TypeError, IndexError)):
            compiled([broken], 1 << 20, b"\0", 0)
    broken = partition(0, batch(1)._replace(payload=memoryview(bytes(8)).cast("I")))
    with pytest.raises(TypeError, match="not bytes"):
        compiled([broken], 1 << 20, b"\0", 1 << 20)
    broken = partition(0)
    broken.outbox = PlainOutbox([batch(1)])
    with pytest.raises(TypeError, match="another form"):
        compiled([broken], 1 << 20, b"\0", 0)
    broken = partition(0, batch(1))
    broken.in_flight = PlainOutbox()
    with pytest.raises(TypeError, match="another form"):
        compiled([broken], 1 << 20, b"\0", 0)
    broken = partition(0, batch(1))
    broken.window = "wide"  # type: ignore[assignment]
    with pytest.raises(TypeError):
        compiled([broken], 1 << 20, b"\0", 0)
    broken = partition(0, batch(1))
    broken.topic_head = []  # type: ignore[assignment]
    with pytest.raises(TypeError):
        compiled([broken], 1 << 20, b"\0", 0)


def test_the_form_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.PURE, "1")
    assert gatherer() is gather
    monkeypatch.delenv(native.PURE)
    monkeypatch.setattr(native, "MODULE", None)
    assert gatherer() is gather
    with pytest.raises(RuntimeError, match="was not compiled on installation"):
        gatherer(compiled=True)
