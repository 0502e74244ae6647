"""One partition's state: the table of its phases, and what each move does to queues and frames."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.net.buffers import Frame, FramePool
from mirror.net.metadata import Leader
from mirror.records.admit import Cause
from mirror.records.identity import Identity
from mirror.relay.halts import Halted, Suspicion
from mirror.relay.partition.cursor import Mark
from mirror.relay.partition.location import Location
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import MOVES, Phase
from mirror.relay.partition.queue import IN_DOUBT, Batch, Hole

HALTED = Halted("reason", "detail", "remedy")
EVENTS = sorted({event for _, event in MOVES})
WHERE = Location(
    offset=40,
    identity=Identity(1 << 62, 2, 7),
    last_epoch=3,
    destination_leader=Leader(4, 1),
    source_leader=Leader(5, 9),
    source_end=100,
    log_start=0,
    proven=True,
    coordinator_epoch=0,
    source_start=0,
)


def in_phase(phase: Phase) -> Partition:
    partition = Partition("t", 3)
    partition.phase = phase
    return partition


def active() -> Partition:
    partition = Partition("t", 3)
    partition.start(WHERE, topic_head=b"head")
    return partition


class Frames:
    """Record sets of a pool, put into a partition's queues as the forwarding loop does."""

    def __init__(self) -> None:
        self.pool = FramePool(budget=1 << 20, frame_size=16)

    def put(self, partition: Partition, count: int) -> Frame:
        """One record set of so many batches, all in the outbox."""
        frame = self.pool.take(10)
        for number in range(count):
            last = number == count - 1
            partition.queue.outbox.append(Batch(b"head", frame.body, 2, frame if last else None))
        frame.hold()
        partition.queue.frames += 1
        frame.release()
        return frame


def send(partition: Partition, count: int) -> None:
    """So many batches go under way."""
    for _ in range(count):
        batch = partition.queue.outbox.popleft()
        assert isinstance(batch, Batch)
        partition.queue.in_flight.append(batch)


def to_end(partition: Partition) -> None:
    """It is to halt when it is drained."""
    partition.cursor.ending = HALTED


# The table.


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("event", EVENTS)
def test_every_move(phase: Phase, event: str) -> None:
    """What the table has, goes where it says; everything else is a bug, and says so."""
    partition = in_phase(phase)
    if (phase, event) in MOVES:
        partition.move(event)
        assert partition.phase is MOVES[phase, event]
    else:
        with pytest.raises(AssertionError, match=f"t-3: {event} while {phase.value}"):
            partition.move(event)
        assert partition.phase is phase


def test_stopped_is_final_and_halted_until_an_operator_says_otherwise() -> None:
    """No other way leads back to work."""
    assert {event for phase, event in MOVES if phase is Phase.HALTED} == {"resumed", "stopped"}
    assert not [event for phase, event in MOVES if phase is Phase.STOPPED]


def test_doubt_is_left_through_locating_only() -> None:
    """No batch is sent from a position that was not looked up."""
    assert {phase for (phase, _), to in MOVES.items() if to is Phase.ACTIVE} == {Phase.LOCATING}
    assert {event for (phase, event), to in MOVES.items() if to is Phase.LOCATING} == {"emptied", "resumed"}


# Starting.


def test_start() -> None:
    partition = active()
    assert partition.phase is Phase.ACTIVE
    assert (partition.cursor.due, partition.queue.acknowledged) == (40, 40)
    assert partition.cursor.identity == WHERE.identity
    assert (partition.cursor.leader, partition.cursor.leader_epoch, partition.claim.destination_leader) == (5, 9, 4)
    assert (partition.cursor.last_epoch, partition.queue.window, partition.queue.topic_head) == (3, 1, b"head")
    assert partition.lag == 60


def test_lag_is_not_known_without_a_position() -> None:
    """Nor without an end. Through doubt and halt, the position that was known last counts."""
    assert Partition("t", 3).lag is None
    partition = Partition("t", 3)
    partition.cursor.heard(50, 1.0)
    assert (partition.position, partition.lag) == (-1, None)
    partition.queue.reached = 20
    assert (partition.position, partition.lag) == (20, 30)
    partition = active()
    assert partition.lag == 60
    partition.doubt()
    assert (partition.position, partition.lag) == (40, 60)
    partition.stop_with(Halted("corrupt", "", ""))
    partition.cursor.heard(200, 1.0)
    assert (partition.position, partition.lag) == (40, 160)


def test_that_nothing_waits_is_not_believed_of_a_source_that_is_not_heard_of() -> None:
    """In doubt, and halted, with nothing to copy: 0 only once the source was heard of again. One whose end went back
    was made anew or truncated: how much of it waits is not known."""
    partition = active()
    partition.cursor.heard(40, 1.0)
    assert partition.lag == 0
    partition.doubt()
    assert (partition.lag, partition.cursor.heard_at) == (0, -math.inf)
    partition.cursor.heard(40, 2.0)
    partition.stop_with(Halted("recreated", "", ""))
    assert partition.cursor.heard_at == -math.inf
    partition.cursor.heard(20, 3.0)
    assert partition.lag is None


def test_each_position_is_another_generation() -> None:
    """So that an answer to a fetch from before is known as such."""
    partition = active()
    seen = {partition.cursor.generation}
    partition.doubt()
    seen.add(partition.cursor.generation)
    partition.move("emptied")
    partition.start(WHERE, topic_head=b"head")
    seen.add(partition.cursor.generation)
    assert len(seen) == 3


# Dropping.


def test_a_hole_counts_once_it_is_filled() -> None:
    """Mutations: it is not counted, its offsets are not passed, its frame is kept."""
    partition = active()
    queue, pool = partition.queue, FramePool(budget=1 << 20, frame_size=16)
    frame = pool.take(10)
    queue.outbox.append(Hole(b"", WHERE.identity, 3, frame, Cause.MARKER))
    frame.hold()
    queue.frames += 1
    frame.release()
    before = queue.filled, queue.acknowledged
    assert queue.pop_hole().records == 3
    assert (queue.filled, queue.acknowledged) == (before[0] + 3, before[1] + 3)
    assert (queue.frames, len(queue.outbox), pool.used) == (0, 0, 0)


def test_doubt() -> None:
    """
    1. Three record sets are in the outbox, of which one and a half are under way. Doubt drops what was not sent.
    2. The frame of the half that is under way stays: its bytes may not have left yet. The third goes back at once.
    3. Each answer, not believed, lets one batch go; with the last one everything is back, and the position is sought.
    """
    partition, frames = active(), Frames()
    for _ in range(3):
        frames.put(partition, 2)
    send(partition, 3)
    to_end(partition)
    partition.doubt()
    assert (partition.phase, partition.queue.acknowledged, partition.cursor.ending) == (Phase.DOUBT, IN_DOUBT, None)
    assert (len(partition.queue.outbox), len(partition.queue.in_flight)) == (0, 3)
    assert partition.claim.doubts == 1
    assert frames.pool.used == 2 * 10
    assert not partition.emptied()
    for left in (2, 1, 1):
        partition.queue.pop_unbelieved()
        assert partition.queue.frames == left - (not partition.queue.in_flight)
    assert partition.emptied()
    assert frames.pool.used == 0


def test_doubt_with_nothing_under_way() -> None:
    partition, frames = active(), Frames()
    frames.put(partition, 3)
    partition.doubt()
    assert partition.emptied()
    assert frames.pool.used == partition.queue.frames == 0


@pytest.mark.parametrize("end", ["stop_with", "stop"])
def test_the_end_drops_what_was_not_sent(end: str) -> None:
    partition, frames = active(), Frames()
    frames.put(partition, 2)
    send(partition, 1)
    if end == "stop":
        partition.stop()
        assert partition.phase is Phase.STOPPED
    else:
        partition.stop_with(HALTED)
        assert (partition.phase, partition.halted) == (Phase.HALTED, HALTED)
    assert not partition.queue.outbox
    assert frames.pool.used == 10
    partition.queue.pop_unbelieved()
    assert frames.pool.used == 0


def test_no_base_offset_matches_in_doubt() -> None:
    """Not even one that is no offset: 64 bits with a sign."""
    assert not -(1 << 63) <= IN_DOUBT < 1 << 63


def test_an_answer_for_nothing_is_taken_calmly() -> None:
    partition = active()
    partition.queue.pop_unbelieved()
    assert not partition.queue.in_flight


@given(st.lists(st.integers(1, 4), max_size=6), st.data())
def test_frames_come_back_whenever_doubt_comes(record_sets: list[int], data: st.DataObject) -> None:
    """Whatever is acknowledged, under way or queued: while a batch is under way its frame is held, then none is."""
    partition, frames = active(), Frames()
    under: dict[int, Frame] = {}
    for count in record_sets:
        frame = frames.put(partition, count)
        under |= {len(under) + number: frame for number in range(count)}
    sent = data.draw(st.integers(0, len(under)))
    acknowledged = data.draw(st.integers(0, sent))
    send(partition, sent)
    for _ in range(acknowledged):
        partition.queue.pop_unbelieved()
    partition.doubt()
    for number in range(acknowledged, sent):
        assert under[number].holders == 1
        partition.queue.pop_unbelieved()
    assert partition.emptied()
    assert frames.pool.used == partition.queue.frames == 0


# What was put on its way.


def test_marks_of_what_never_arrived_go_with_the_next_position() -> None:
    """The source may have another batch there by then: a note of the copy must not have the digest of this one.

    (Simulation, mapped mode: a source lost its end, and its copy halted ``source_truncated`` without a cause.)
    """
    partition = active()
    for at in (35, 40, 47, 60):
        partition.cursor.marks.append(Mark(at, 0, b"header" * 11))
    partition.doubt()
    partition.move("emptied")
    partition.start(WHERE, topic_head=b"head")
    assert [each.next_offset for each in partition.cursor.marks] == [35, 40]


def test_marks_of_what_is_fetched_again_go() -> None:
    """What waited behind a hole was dropped. Were its marks kept, those of what is copied would have no room."""
    partition = active()
    for at in (35, 40, 47, 60):
        partition.cursor.marks.append(Mark(at, 0, b"header" * 11))
    partition.cursor.rewind(40, partition.cursor.identity, None)
    assert [each.next_offset for each in partition.cursor.marks] == [35, 40]


def test_a_verdict_that_was_to_be_confirmed_ends_when_an_operator_resumes() -> None:
    """It was suspected, and paused before it could be confirmed. The next look decides anew, by what is there then."""
    partition = active()
    partition.claim.suspect(Suspicion(HALTED, partition.terms, 0, None))
    partition.stop_with(HALTED)
    partition.resume()
    assert partition.claim.suspected is None


def test_a_look_that_was_cancelled_before_its_first_step() -> None:
    """The partition halted while it was located again. Resumed, it is sent: nothing looks at its log's end any more."""
    partition = active()
    assert partition.queue.begin_reconfirm()
    partition.doubt()
    partition.move("emptied")
    partition.start(WHERE, topic_head=b"head")
    assert partition.queue.line_up()
