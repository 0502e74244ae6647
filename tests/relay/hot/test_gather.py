"""The requests of partitions with something to send, in both forms: the same of everything, whatever waits."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.records.admit import Cause
from mirror.records.identity import Identity
from mirror.relay.hot import native
from mirror.relay.hot.gather import JOIN_BELOW, Gathered, SentRequest, gather, gatherer
from mirror.relay.hot.native import PlainOutbox, is_compiled
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.queue import Batch, Hole, Queue
from mirror.wire.header import LAST_CORRELATION_ID
from mirror.wire.produce import Framing

FORMS = [False, True] if is_compiled() else [False]
WINDOW = 5
ID = 7
HOLE = Hole(b"", Identity(1, 0, 0), 3, None, Cause.MARKER)
COMPACT = Framing(13, b"start", b"\0", b"\1", compact=True)
WIDE = Framing(8, b"begin", b"", b"", compact=False)


def batch(number: int, size: int = 100) -> Batch:
    """So many bytes, a head of ten among them."""
    return Batch(b"head%6d" % number, memoryview(bytes(size - 10)), 1, None)


def partition(index: int, *waiting: Batch | Hole, topic: bytes = b"T", under_way: int = 0) -> Queue:
    """As a lane has it among those that are ready."""
    made = Partition("t", index).queue
    made.topic_head, made.window, made.queued = topic, WINDOW, True
    made.outbox.extend(waiting)
    made.in_flight.extend(batch(1000 + number) for number in range(under_way))
    return made


def found_by(
    compiled: bool,
    ready: list[Queue],
    max_size: int = 1 << 20,
    *,
    most: int = 1,
    framing: Framing = COMPACT,
    correlation_id: int = ID,
    join_below: int = 0,
) -> Gathered:
    found = Gathered(*gatherer(compiled=compiled)(ready, most, max_size, framing, correlation_id, join_below))
    return found._replace(requests=[SentRequest(*one) for one in found.requests])


def frame_of(topics: dict[bytes, list[Batch]], framing: Framing = COMPACT, correlation_id: int = ID) -> bytes:
    """Field by field: no topic or partition is the 127th."""

    def count(number: int) -> bytes:
        return bytes([number + 1]) if framing.compact else struct.pack(">i", number)

    body = framing.start + count(len(topics))
    for topic, batches in topics.items():
        body += topic + count(len(batches)) + b"".join(one.head + one.payload + framing.between for one in batches)
        body += framing.after_topic
    body += framing.after_topic
    return struct.pack(">ihhi", len(body) + 8, 0, framing.version, correlation_id) + body


@pytest.mark.parametrize("compiled", FORMS)
@pytest.mark.parametrize("framing", [COMPACT, WIDE])
def test_one_batch_of_each(compiled: bool, framing: Framing) -> None:
    """
    1. The first that waits, of each partition, topic by topic; each with its head, and what stands around it, as one
       piece, and its records as another, which are not copied.
    2. Who has more and may send more is to be asked again; who has not is to be offered again.
    """
    one, two, other = batch(1), batch(2), batch(3)
    first, second, third = partition(0, one, two), partition(1, two), partition(0, other, topic=b"U")
    full = partition(2, one, two, under_way=WINDOW - 1)
    found = found_by(compiled, [first, third, second, full], framing=framing)
    assert b"".join(found.pieces) == frame_of({b"T": [one, two, one], b"U": [other]}, framing)
    assert len(found.pieces) == 2 * 4 + 1
    assert [piece for piece in found.pieces if isinstance(piece, memoryview)] == [
        one.payload, two.payload, one.payload, other.payload,
    ]  # fmt: skip
    assert found.requests == [SentRequest([first, third, second, full], 400, None)]
    assert (found.ready, found.holes) == ([first], [])
    assert [each.queued for each in (first, second, third, full)] == [True, False, False, False]
    assert (list(first.outbox), list(first.in_flight)) == ([two], [one])
    assert len(full.in_flight) == WINDOW


@pytest.mark.parametrize("compiled", FORMS)
def test_several_requests(compiled: bool) -> None:
    """As many as are wanted, or as there are batches for; their correlation ids count on, and begin again at 0."""
    one, two, three, other = (batch(number) for number in range(4))
    first, second = partition(0, one, two, three), partition(1, other, under_way=1)
    found = found_by(compiled, [first, second], most=2, correlation_id=LAST_CORRELATION_ID)
    assert b"".join(found.pieces) == frame_of({b"T": [one, other]}, correlation_id=LAST_CORRELATION_ID) + frame_of(
        {b"T": [two]}, correlation_id=0
    )
    assert found.requests == [SentRequest([first, second], 200, b"T"), SentRequest([first], 100, b"T")]
    assert found.ready == [first]
    rest = found_by(compiled, found.ready, most=5)
    assert rest.requests == [SentRequest([first], 100, b"T")]
    assert rest.ready == []
    assert not first.queued
    assert found_by(compiled, [partition(0, one)], most=0).requests == []


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
        one, two, three = (each.outbox[0] for each in ready)
        found = found_by(compiled, ready, join_below=JOIN_BELOW)
        assert b"".join(found.pieces) == frame_of({b"T": [one, two], b"U": [three]})
        assert len(found.pieces) == (1 if joined else 7)
        assert [list(each.in_flight) for each in ready] == [[one], [two], [three]]


@pytest.mark.parametrize("compiled", FORMS)
@pytest.mark.parametrize("many", [126, 127, 128, 300])
def test_many_partitions_and_topics(compiled: bool, many: int) -> None:
    """Counts take more bytes from 127 on (a varint has seven bits to the byte, and one more than is counted)."""
    size = bytes([many + 1]) if many < 127 else bytes([(many + 1) & 0x7F | 0x80, (many + 1) >> 7])
    found = found_by(compiled, [partition(index, batch(1)) for index in range(many)])
    assert (
        found.pieces[0]
        == struct.pack(">ihhi", sum(map(len, found.pieces)) - 4, 0, 13, ID) + b"start\2T" + size + batch(1).head
    )
    ready = [partition(0, batch(1), topic=b"%3d" % index) for index in range(many)]
    found = found_by(compiled, ready, join_below=JOIN_BELOW)
    assert bytes(found.pieces[0][12:]).startswith(b"start" + size + b"  0\2" + batch(1).head)


@pytest.mark.parametrize("compiled", FORMS)
def test_holes_and_nothing(compiled: bool) -> None:
    """A hole is told once nothing of its partition is under way; neither it nor an empty outbox stays in the queue."""
    waits, due, empty = partition(0, HOLE, under_way=1), partition(1, HOLE, batch(1)), partition(2)
    assert found_by(compiled, [waits, due, empty], most=5) == Gathered([], [], [], [due])
    assert not any(each.queued for each in (waits, due, empty))
    assert list(due.outbox) == [HOLE, batch(1)]
    assert len(waits.outbox) == 1


@pytest.mark.parametrize("compiled", FORMS)
def test_a_request_has_a_size(compiled: bool) -> None:
    """What does not fit keeps its turn and its place in the queue; a batch larger than a request goes alone."""
    ready = [partition(0, batch(1)), partition(1), partition(2, batch(2)), partition(3, batch(3))]
    found = found_by(compiled, ready, max_size=200)
    assert found.requests == [SentRequest([ready[0], ready[2]], 200, b"T")]
    assert found.ready == [ready[3]]
    assert ready[3].queued
    assert len(ready[3].outbox) == 1
    large = [partition(0, batch(1, 300)), partition(1, batch(2))]
    found = found_by(compiled, large, max_size=200)
    assert found.requests == [SentRequest([large[0]], 300, b"T")]
    assert found.ready == [large[1]]


WAITING = st.lists(st.integers(10, 500) | st.none(), max_size=4)
READY = st.lists(st.tuples(WAITING, st.integers(0, WINDOW - 1), st.sampled_from([b"T", b"U"])), max_size=8)


@pytest.mark.skipif(not is_compiled(), reason="there is no C compiler here")
@given(
    READY, st.integers(1, 3), st.integers(1, 2000), st.sampled_from([COMPACT, WIDE]), st.sampled_from([0, 200, 1_000])
)
def test_both_forms_agree(
    ready: list[tuple[list[int | None], int, bytes]], most: int, max_size: int, framing: Framing, join_below: int
) -> None:
    """Over and over, until nothing is found any more: the same answers, and the same state of all partitions."""

    def made() -> list[Queue]:
        return [
            partition(
                index,
                *(HOLE if size is None else batch(number, size) for number, size in enumerate(waiting)),
                topic=topic,
                under_way=under_way,
            )
            for index, (waiting, under_way, topic) in enumerate(ready)
        ]

    sides = [(made(), False), (made(), True)]
    queues = [list(partitions) for partitions, _ in sides]
    for _ in range(40):
        found = [
            found_by(compiled, queue, max_size, most=most, framing=framing, join_below=join_below)
            for queue, (_, compiled) in zip(queues, sides, strict=True)
        ]
        assert seen(found[0]) == seen(found[1])
        assert list(map(state, sides[0][0])) == list(map(state, sides[1][0]))
        queues = [one.ready for one in found]
        if not queues[0]:
            break
    assert not queues[0]
    assert not queues[1]


def seen(found: Gathered) -> Any:
    """Its partitions by number."""
    requests = [([each.index for each in one.taken], one.size, one.topic) for one in found.requests]
    return found.pieces, requests, [[each.index for each in some] for some in (found.ready, found.holes)]


def state(each: Queue) -> Any:
    return list(each.outbox), list(each.in_flight), each.queued


@pytest.mark.skipif(not is_compiled(), reason="there is no C compiler here")
def test_what_cannot_be_gathered() -> None:
    """An error of Python's, and no crash."""
    compiled: Any = gatherer(compiled=True)
    wrong: list[tuple[Any, ...]] = [
        ([], 1, 1, COMPACT, 1), ((), 1, 1, COMPACT, 1, 0), ([], "1", 1, COMPACT, 1, 0), ([], 1, "1", COMPACT, 1, 0),
        ([], 1, 1, (), 1, 0), ([], 1, 1, (13, "start", b"", b"", True), 1, 0), ([], 1, 1, COMPACT, 1, "0"),
    ]  # fmt: skip
    for arguments in wrong:
        with pytest.raises(TypeError):
            compiled(*arguments)
    with pytest.raises(AttributeError):
        found_by(True, [object()])  # type: ignore[list-item]
    odd: Any
    for odd in ((), (b"head",), (b"head", 7, 1, None), ("head", memoryview(b""), 1, None)):
        broken = partition(0)
        broken.outbox.append(odd)
        with pytest.raises((TypeError, IndexError)):
            found_by(True, [broken])
    broken = partition(0, batch(1)._replace(payload=memoryview(bytes(8)).cast("I")))
    with pytest.raises(TypeError, match="not bytes"):
        found_by(True, [broken], join_below=1 << 20)
    for name in ("outbox", "in_flight"):
        broken = partition(0, batch(1))
        setattr(broken, name, PlainOutbox([batch(1)]))
        with pytest.raises(TypeError, match="another form"):
            found_by(True, [broken])
    for name, value in (("window", "wide"), ("topic_head", []), ("topic_head", "T")):
        broken = partition(0, batch(1))
        setattr(broken, name, value)
        with pytest.raises(TypeError):
            found_by(True, [broken])


def test_the_form_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.PURE, "1")
    assert gatherer() is gather
    monkeypatch.delenv(native.PURE)
    monkeypatch.setattr(native, "MODULE", None)
    assert gatherer() is gather
    with pytest.raises(RuntimeError, match="was not compiled on installation"):
        gatherer(compiled=True)
