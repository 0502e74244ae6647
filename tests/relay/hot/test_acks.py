"""The answer to a request, in both forms: booked as a whole, or on nothing."""

import copy
import struct
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.net.buffers import Frame
from mirror.relay.hot import native
from mirror.relay.hot.acks import Acknowledged, acknowledge, acknowledger, expected_acknowledger
from mirror.relay.hot.native import is_compiled
from mirror.relay.hot.plain import PLAIN_ATTRIBUTES, InnerLoop
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.queue import IN_DOUBT, Batch, Queue
from mirror.wire.produce import Expected, PlainAnswer, expected
from tests.records.builders import raw_batch

FORMS = [False, True] if is_compiled() else [False]
T, U = b"\1t", b"\1u"
VERSION = 13
ROW_SIZE = 33
RECORDS = 3
DUE = 100
Rows = list[tuple[int, int]]


class Noted:
    """A frame."""

    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Noted) and self.released == other.released

    __hash__ = None  # type: ignore[assignment]


def batch(number: int, frame: Noted | None = None) -> Batch:
    return Batch(b"head%d" % number, memoryview(b"records"), RECORDS, cast(Frame | None, frame))


def partition(index: int, topic: bytes = T, *, due: int = DUE, under_way: int = 1, waiting: int = 0) -> Queue:
    made = Partition("t", index).queue
    made.topic_head, made.acknowledged, made.window = topic, due, 5
    made.in_flight.extend(batch(number) for number in range(under_way))
    made.outbox.extend(batch(10 + number) for number in range(waiting))
    return made


def answer_of(*topics: tuple[bytes, Rows]) -> PlainAnswer:
    """As ``plain_answer`` reads it off a frame."""
    row = struct.Struct(f">i2xq{ROW_SIZE - 14}x")
    return PlainAnswer(ROW_SIZE, [(head, b"".join(row.pack(*one) for one in rows)) for head, rows in topics])


def booked(compiled: bool, taken: list[Queue], answer: PlainAnswer, ready: list[Queue]) -> Acknowledged | None:
    found = acknowledger(compiled=compiled)(taken, answer, ready)
    return None if found is None else Acknowledged(*found)


@pytest.mark.skipif(not is_compiled(), reason="there is no C compiler here")
@pytest.mark.parametrize("window", [1, 5])
def test_a_batch_that_is_no_object_lets_its_frame_go(window: int) -> None:
    """Of two batches the second has the frame."""
    one, frame = partition(0, under_way=0), Noted()
    one.window, one.frames = window, 1
    body = memoryview(raw_batch(bytes(5), base_offset=DUE) + raw_batch(bytes(5), base_offset=DUE + 5))
    InnerLoop(9).take(one.in_flight, body, 0, len(body), DUE, 0, 1 << 62, 4, 7, 1 << 31, PLAIN_ATTRIBUTES)
    assert one.in_flight.close(frame)
    for due, released in ((DUE, 0), (DUE + 5, 1)):
        found = booked(True, [one], answer_of((T, [(0, due)])), [])
        assert found is not None
        assert (found.freed, len(found.confirmed)) == (bool(released), window == 1)
        assert [each[2][3] for each in found.confirmed] == [frame if released else None] * (window == 1)
        assert (one.acknowledged, frame.released, one.frames) == (due + 5, released, 1 - released)


@pytest.mark.parametrize("compiled", FORMS)
def test_what_is_where_it_should_be(compiled: bool) -> None:
    """
    1. The oldest batch under way counts as acknowledged, whatever the order of the answer.
    2. Who has more to send is offered again, once.
    """
    one, other = partition(1, waiting=1), partition(0, U, due=7, under_way=2)
    last, queued = partition(0, due=(1 << 62) + 1), partition(2, waiting=1)
    queued.queued = True
    ready: list[Queue] = [queued]
    answer = answer_of((U, [(0, 7)]), (T, [(2, DUE), (0, (1 << 62) + 1), (1, DUE)]))
    assert booked(compiled, [one, other, last, queued], answer, ready) == Acknowledged([], [], True)
    assert [each.acknowledged for each in (one, other, last, queued)] == [103, 10, (1 << 62) + 4, 103]
    assert [list(each.in_flight) for each in (one, other, last, queued)] == [[], [batch(1)], [], []]
    assert ready == [queued, one]
    assert one.queued
    assert not last.queued


@pytest.mark.parametrize("compiled", FORMS)
def test_the_last_batch_of_a_frame_lets_it_go(compiled: bool) -> None:
    """And is told, as it is told when nothing is under way any more: both may make room to fetch."""
    frame = Noted()
    one, other = partition(0, under_way=0), partition(1, under_way=2)
    one.in_flight.extend([batch(1, frame), batch(2)])
    one.frames = 2
    assert booked(compiled, [one, other], answer_of((T, [(0, DUE), (1, DUE)])), []) == Acknowledged([], [], True)
    assert (frame.released, one.frames) == (1, 1)
    one, other = partition(0, under_way=2), partition(1, under_way=3)
    for freed in (False, True):
        answer = answer_of((T, [(0, one.acknowledged), (1, other.acknowledged)]))
        assert booked(compiled, [one, other], answer, []) == Acknowledged([], [], freed)


@pytest.mark.parametrize("compiled", FORMS)
def test_elsewhere_than_expected(compiled: bool) -> None:
    """It is told; nothing of that partition is booked, and all of the others is."""
    one, other = partition(0, waiting=1), partition(1)
    ready: list[Queue] = []
    assert booked(compiled, [one, other], answer_of((T, [(0, DUE + 1), (1, DUE)])), ready) == Acknowledged(
        [(one, DUE + 1)], [], True
    )
    assert (one.acknowledged, len(one.in_flight), other.acknowledged) == (DUE, 1, DUE + RECORDS)
    assert ready == []


@pytest.mark.parametrize("compiled", FORMS)
@pytest.mark.parametrize("base_offset", [-1, 0, DUE])
def test_in_doubt_no_answer_is_expected(compiled: bool, base_offset: int) -> None:
    one = partition(0, due=IN_DOUBT)
    assert booked(compiled, [one], answer_of((T, [(0, base_offset)])), []) == Acknowledged(
        [(one, base_offset)], [], False
    )
    assert (one.acknowledged, len(one.in_flight)) == (IN_DOUBT, 1)


@pytest.mark.parametrize("compiled", FORMS)
def test_a_window_of_one(compiled: bool) -> None:
    """The batch is told, whole: it is read back if it is the first after a resync."""
    frame = Noted()
    one, other = partition(0), partition(1, under_way=0)
    other.in_flight.append(batch(1, frame))
    one.window = other.window = 1
    found = booked(compiled, [one, other], answer_of((T, [(0, DUE), (1, DUE)])), [])
    assert found == Acknowledged([], [(one, DUE, batch(0)), (other, DUE, batch(1, frame))], True)


@pytest.mark.parametrize("compiled", FORMS)
@pytest.mark.parametrize(
    "topics",
    [
        [],
        [(T, [(0, DUE)]), (U, [(0, DUE)])],
        [(T, [(0, DUE), (2, DUE)]), (U, [(0, DUE)])],
        [(T, [(0, DUE), (0, DUE)]), (U, [(0, DUE)])],
        [(T, [(0, DUE), (1, DUE), (2, DUE)]), (U, [(0, DUE)])],
        [(T, [(0, DUE)]), (T, [(1, DUE)]), (U, [(0, DUE)])],
        [(T, [(0, DUE), (1, DUE), (3, DUE)])],
        [(T, [(0, DUE), (1, DUE)]), (b"\1v", [(0, DUE)])],
        [(T, [(0, DUE), (1, DUE)]), (U, []), (b"\1v", [(0, DUE)])],
    ],
)
def test_an_answer_to_another_request_is_believed_in_nothing(compiled: bool, topics: list[tuple[bytes, Rows]]) -> None:
    """One left out, another one, one twice, one more, a topic in two parts, a topic left out, another topic."""
    taken = [partition(1, waiting=1), partition(0, U), partition(0)]
    ready: list[Queue] = []
    assert booked(compiled, taken, answer_of(*topics), ready) is None
    assert [(each.acknowledged, len(each.in_flight), each.queued) for each in taken] == [(DUE, 1, False)] * 3
    assert ready == []


@pytest.mark.parametrize("compiled", FORMS)
def test_nothing_was_asked(compiled: bool) -> None:
    assert booked(compiled, [], answer_of(), []) == Acknowledged([], [], False)
    assert booked(compiled, [], answer_of((T, [])), []) == Acknowledged([], [], False)
    assert booked(compiled, [], answer_of((T, [(0, 1)])), []) is None


PLACES = st.lists(
    st.tuples(st.sampled_from([T, U]), st.integers(0, 5)), unique=True, max_size=8
)  # fmt: skip
LIKE = st.tuples(st.integers(0, 2), st.sampled_from([1, 5]), st.booleans(), st.integers(1, 2))


@pytest.mark.skipif(not is_compiled(), reason="there is no C compiler here")
@given(PLACES, PLACES | st.none(), st.data())
def test_both_forms_agree(places: list[Any], answered: list[Any] | None, data: st.DataObject) -> None:
    """The same of everything, for partitions in any state and an answer to this request, or to another one."""
    states = [data.draw(LIKE) for _ in places]
    offs = [data.draw(st.integers(0, 1)) for _ in places]

    def made() -> list[Queue]:
        found = []
        for (topic, index), (waiting, window, queued, under_way) in zip(places, states, strict=True):
            one = partition(index, topic, under_way=under_way, waiting=waiting)
            one.window, one.queued = window, queued
            found.append(one)
        return found

    rows = [(place, DUE + off) for place, off in zip(places, offs, strict=True)]
    if answered is not None:
        rows = [(place, DUE) for place in answered]
    rows = data.draw(st.permutations(rows))
    heads = data.draw(st.permutations([T, U]))
    answer = answer_of(*(
        (head, here) for head in heads if (here := [(index, base) for (topic, index), base in rows if topic == head])
    ))  # fmt: skip
    sides = []
    for compiled in (False, True):
        taken = made()
        ready: list[Queue] = []
        found = booked(compiled, taken, answer, ready)
        sides.append((seen(found, taken), [taken.index(one) for one in ready], list(map(state, taken))))
    assert sides[0] == sides[1]
    assert (sides[0][0] is None) is (sorted(place for place, _ in rows) != sorted(places))


def frame_of(likely: Expected, rows: Rows) -> bytearray:
    """The expected answer, with these partitions and offsets."""
    frame = bytearray(likely.plain)
    for number, (index, base_offset) in enumerate(rows):
        struct.pack_into(">i2xq", frame, likely.rows_at + number * likely.row_size, index, base_offset)
    return frame


@pytest.mark.parametrize("compiled", FORMS)
@given(st.data())
def test_straight_from_the_frame(compiled: bool, data: st.DataObject) -> None:
    """
    1. What is booked of the expected answer, and told of it, is what its rows say.
    2. Any other answer, and one of other partitions, is left to who reads it field by field; nothing is booked.
    """
    indexes = data.draw(st.lists(st.integers(0, 5), unique=True, min_size=1, max_size=6))
    answered = data.draw(st.permutations(indexes) | st.lists(st.integers(0, 5), min_size=1, max_size=6))
    rows = [(index, data.draw(st.sampled_from([DUE, DUE + 1]))) for index in answered]
    likely = expected(VERSION, T, len(indexes))
    assert likely is not None
    frame = frame_of(likely, rows[: len(indexes)])
    spoilt = data.draw(st.none() | st.integers(4, len(frame) - 1))
    if spoilt is not None:
        frame[spoilt] ^= 0x10
    of_this = spoilt is None or not likely.mask[spoilt]
    sides = []
    for straight in (False, True):
        taken = [partition(index, waiting=1) for index in indexes]
        ready: list[Queue] = []
        found: Any
        if straight:
            found = expected_acknowledger(compiled=compiled)(taken, memoryview(frame), likely, ready)
        elif of_this:
            read = [
                struct.unpack_from(">i2xq", frame, likely.rows_at + at * likely.row_size) for at in range(len(taken))
            ]
            found = acknowledge(taken, answer_of((T, read)), ready)
        else:
            found = None
        found = None if found is None else Acknowledged(*found)
        sides.append((seen(found, taken), [taken.index(one) for one in ready], list(map(state, taken))))
    assert sides[0] == sides[1]


@pytest.mark.parametrize("compiled", FORMS)
def test_a_frame_of_another_size(compiled: bool) -> None:
    likely = expected(VERSION, T, 1)
    assert likely is not None
    frame = frame_of(likely, [(0, DUE)])
    booked = expected_acknowledger(compiled=compiled)
    for other in (b"", frame[:4], frame[:-1], frame + b"\0"):
        assert booked([partition(0)], memoryview(other), likely, []) is None
    assert booked([partition(0), partition(1)], memoryview(frame), likely, []) is None


@pytest.mark.skipif(not is_compiled(), reason="there is no C compiler here")
def test_what_cannot_be_booked_straight() -> None:
    """An error of Python's, or nothing at all, and no crash."""
    compiled: Any = expected_acknowledger(compiled=True)
    likely = expected(VERSION, T, 1)
    assert likely is not None
    frame = memoryview(frame_of(likely, [(0, DUE)]))
    wrong: list[tuple[Any, ...]] = [
        ([], frame, likely), ((), frame, likely, []), ([], 7, likely, []), ([], frame, (), []), ([], frame, likely, ()),
        ([], frame, (*likely[:-2], "mask", b""), []),
    ]  # fmt: skip
    for arguments in wrong:
        with pytest.raises(TypeError):
            compiled(*arguments)
    for odd in (
        {"row_size": 0},
        {"row_size": -1},
        {"rows_at": -1},
        {"rows_at": 1 << 40},
        {"plain": b""},
        {"partitions": 2},
    ):
        assert compiled([partition(0)], frame, likely._replace(**odd), []) is None
    with pytest.raises(ValueError, match="a row of 13 bytes"):
        compiled([partition(0)], frame, likely._replace(row_size=13), [])


def seen(found: Acknowledged | None, taken: list[Queue]) -> Any:
    """Its partitions by number."""
    if found is None:
        return None
    unexpected = [(taken.index(one), base) for one, base in found.unexpected]
    confirmed = [(taken.index(one), base, tuple(oldest)) for one, base, oldest in found.confirmed]
    return unexpected, confirmed, found.freed


def state(each: Queue) -> Any:
    return each.acknowledged, list(each.in_flight), list(each.outbox), each.queued, each.frames


@pytest.mark.skipif(not is_compiled(), reason="there is no C compiler here")
def test_what_cannot_be_booked() -> None:
    """An error of Python's, and no crash."""
    compiled: Any = acknowledger(compiled=True)
    plain = answer_of((T, [(0, DUE)]))
    wrong: list[tuple[Any, ...]] = [
        ([], plain), ((), plain, []), ([], (), []), ([], (33, ()), []), ([], ("33", []), []), ([], plain, ()),
    ]  # fmt: skip
    for arguments in wrong:
        with pytest.raises(TypeError):
            compiled(*arguments)
    with pytest.raises(ValueError, match="a row of 13 bytes"):
        compiled([], PlainAnswer(13, []), [])
    for topics in ([7], [(T,)], [(T, "rows")]):
        with pytest.raises((TypeError, SystemError)):
            compiled([partition(0)], (ROW_SIZE, topics), [])
    with pytest.raises(AttributeError):
        compiled([object()], plain, [])
    with pytest.raises(IndexError, match="nothing is under way"):
        compiled([partition(0, under_way=0)], plain, [])
    for name, value in (("index", "0"), ("acknowledged", None), ("window", "wide"), ("in_flight", [batch(0)])):
        broken = partition(0)
        setattr(broken, name, value)
        with pytest.raises(TypeError):
            compiled([broken], copy.copy(plain), [])


def test_the_form_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.PURE, "1")
    assert acknowledger() is acknowledge
    monkeypatch.delenv(native.PURE)
    monkeypatch.setattr(native, "MODULE", None)
    with pytest.raises(RuntimeError, match="was not compiled on installation"):
        acknowledger(compiled=True)
