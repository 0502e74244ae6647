"""Old batches that wait in a lane for longer than a look at a log's end counts: each has its turn, and few looks are
made. A real lane, on a connection that only notes, in simulated time."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.net.errors import ConnectionLost
from mirror.net.health.histogram import RequestDurations
from mirror.net.metadata import Leader
from mirror.reasons import HaltReason
from mirror.records.identity import Identity
from mirror.relay import sink, timing
from mirror.relay.halts import Halted
from mirror.relay.locate import readback
from mirror.relay.partition import claim, clock
from mirror.relay.partition import queue as queue_module
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.partition.queue import Batch, Queue
from mirror.relay.settings import RelaySettings
from mirror.relay.sink import Lane
from mirror.relay.stats import Stats
from mirror.relay.watch.tracing import Tracer
from mirror.wire.produce import expected, topic_head
from tests.relay.sending.test_lane import VERSION, Noted

SIZE = 1_000_000
"""Of a batch."""
PAYLOAD = memoryview(bytes(SIZE))
STEP_S = 0.05


class Throttling(Noted):
    """A connection that the broker throttles."""

    throttled_s = 0.0

    def write(self, pieces: Any) -> None:
        """Nothing is kept of it."""


class Scene:
    """A lane and its partitions. ``sent``: batches of each that were answered; ``looks``: at a log's end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int, batches: int, old: Callable[[int], bool]) -> None:
        self.now, self.looks, self.sent = 1_000.0, 0, [0] * count
        self._looking: list[Partition] = []
        self._began: dict[Partition, float] = {}
        self.hangs = -1
        """The partition whose looks do not end."""
        times = SimpleNamespace(monotonic=lambda: self.now, time=lambda: self.now)
        for module in (sink, queue_module, timing, clock):
            monkeypatch.setattr(module, "time", times)
        owner: Any = SimpleNamespace(
            settings=RelaySettings(flow="a->b", selects=lambda _: True),
            stats=Stats(),
            tracer=Tracer(),
            destination=SimpleNamespace(failed=lambda *_: None, durations=RequestDurations()),
            doubt=lambda *_: None,
            emptied=lambda *_: None,
            reconfirm=self._reconfirm,
            forgets_before_ms=lambda: 1e15,
            confirmed=lambda *_: None,
        )
        self.lane, self.connection = Lane(owner, 1, version=VERSION), Throttling()
        self.lane._connection = self.connection  # type: ignore[assignment]
        self._gather, self.lane._gather = self.lane._gather, self._gathered
        monkeypatch.setattr(self.lane, "_pump_later", lambda _: None)
        for index in range(count):
            partition = Partition("t", index)
            partition.phase, queue = Phase.ACTIVE, partition.queue
            queue.topic_head, queue.acknowledged = topic_head(VERSION, "t"), 0
            partition.cursor.identity = Identity(1 << 62, 0, 0)
            queue.checking, queue.proven = False, True
            queue.old = queue.waits_old = old(index)
            queue.window, queue.confirmed_at = 1 if queue.old else 5, self.now
            for _ in range(batches):
                queue.outbox.append(Batch(b"h" * 100, PAYLOAD, 1, None))
            self.lane.attach(queue)
            self.lane.offer(queue)
        self.lane.pump()

    def _gathered(self, ready: list[Queue], *how: Any) -> Any:
        """Nothing is taken into a request whose log's end would have to be looked at first."""
        fresh_s = self.lane._relay.settings.fresh_s
        stale = {queue.index for queue in ready if (queue.old or queue.unsure) and queue.must_confirm(fresh_s)}
        gathered = self._gather(ready, *how)
        assert not stale & {queue.index for taken, *_ in gathered[1] for queue in taken}
        return gathered

    def _reconfirm(self, partition: Partition) -> None:
        assert partition.queue.begin_reconfirm()
        self.looks += 1
        self._looking.append(partition)
        self._began[partition] = self.now

    def end_looks(self) -> None:
        """All looks find what was expected."""
        for partition in list(self._looking):
            self._end_look(partition)
        self.lane.pump()

    def end_look(self, partition: Partition) -> None:
        """So does that at this one's."""
        self._end_look(partition)
        self.lane.pump()

    def _end_look(self, partition: Partition) -> None:
        self._looking.remove(partition)
        partition.queue.end_reconfirm()
        partition.queue.confirm(self.now)
        partition.queue.offer()

    def answer(self) -> None:
        """The oldest request is answered."""
        for queue in self.lane._under_way.popleft()[0]:
            queue.in_flight.popleft()
            queue.acknowledged += 1
            self.sent[queue.index] += 1
            queue.confirm(self.now)
            if queue.outbox and not queue.queued:
                queue.queued = True
                self.lane._ready.append(queue)
        self.lane.pump()

    def receive(self, base_offset: int) -> None:
        """The oldest request, of one partition, is answered: by the bytes of a real answer."""
        ((queue,), _, topic) = self.lane._under_way[0]
        assert topic is not None
        likely = expected(VERSION, topic, 1)
        assert likely is not None
        answer = bytearray(likely.plain)
        answer[likely.rows_at : likely.rows_at + 4] = queue.index.to_bytes(4)
        answer[likely.rows_at + 6 : likely.rows_at + 14] = base_offset.to_bytes(8)
        self.lane.receive(memoryview(bytes(answer)))
        self.lane._after_receive()

    def play(self, seconds: float, *, look_s: float, answer_s: float, throttle_s: float = 0.0) -> None:
        """Time goes by: each look takes so long, and each request; each answer throttles the lane for so long. A look
        counts as ``relay.locate.readback`` has it."""
        sent_at: list[float] = [self.now] * len(self.lane._under_way)
        throttled_until, fresh_s = 0.0, self.lane._relay.settings.fresh_s
        takes_s = look_s if look_s <= fresh_s else readback.SLOW_LOOKS * look_s
        for _ in range(round(seconds / STEP_S)):
            self.now += STEP_S
            self.connection.throttled_s = max(0.0, throttled_until - self.now)
            while sent_at and self.now - sent_at[0] >= answer_s:
                del sent_at[0]
                throttled_until = max(throttled_until, self.now + throttle_s)
                self.connection.throttled_s = throttled_until - self.now
                self.answer()
                sent_at += [self.now] * (len(self.lane._under_way) - len(sent_at))
            looking = [each for each in self._looking if each.index != self.hangs]
            for partition in [each for each in looking if self.now - self._began[each] >= takes_s]:
                self._looking.remove(partition)
                partition.queue.end_reconfirm()
                partition.queue.confirm(self._began[partition] if look_s <= fresh_s else self.now)
                partition.queue.offer()
            self.lane.pump()
            sent_at += [self.now] * (len(self.lane._under_way) - len(sent_at))

    def throttle(self) -> None:
        """All is answered, and the lane throttled for longer than a look counts; then it is over."""
        while self.lane._under_way:
            self.answer()
            self.connection.throttled_s = 3.0
        self.now += 3.0
        self.connection.throttled_s = 0.0
        self.lane.pump()


@pytest.mark.parametrize("stopped", [True, False])
def test_an_answer_that_was_there_long_before_it_is_read(stopped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. An old batch is sent, and the broker appends it. This process is stopped before it reads the answer, while the
       connection lives. Another worker copies the next batches, and the broker forgets the producer.
    2. The answer shows where the log ended when the request was sent, not where it ends now: the next batch waits for a
       look. It would be appended at the end of the other worker's.
    """
    scene = Scene(monkeypatch, 1, 3, lambda _: True)
    monkeypatch.setattr(scene.lane._relay, "drained", lambda: None, raising=False)
    assert len(scene.lane._under_way) == 1
    fresh_s = scene.lane._relay.settings.fresh_s
    scene.now += fresh_s + 1 if stopped else fresh_s / 2
    scene.receive(0)
    assert (scene.looks, len(scene.lane._under_way)) == ((1, 0) if stopped else (0, 1))
    if stopped:
        scene.end_looks()
        assert len(scene.lane._under_way) == 1


def test_an_answer_that_took_long_behind_a_survey(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lane was surveyed while the old batch was under way, and nothing waited: the next one waits for a look all
    the same."""
    scene = Scene(monkeypatch, 1, 3, lambda _: True)
    monkeypatch.setattr(scene.lane._relay, "drained", lambda: None, raising=False)
    fresh_s = scene.lane._relay.settings.fresh_s
    scene.now += fresh_s
    scene.lane._look_again()
    scene.now += fresh_s / 10
    scene.receive(0)
    assert (scene.looks, len(scene.lane._under_way)) == (1, 0)


@pytest.mark.parametrize("looks_first", [True, False])
def test_a_lane_that_is_throttled_again_and_again(looks_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine partitions have fresh batches, one has old ones. Each round of answers throttles the lane for longer than a
    look counts. The old ones have their turn, however quick the looks are: others wait for them."""
    scene = Scene(monkeypatch, 10, 400, lambda index: index == 9)
    for _ in range(30):
        if looks_first:
            scene.end_looks()
        scene.throttle()
        if not looks_first:
            scene.end_looks()
    assert scene.sent[9] > 20
    assert scene.looks <= 31


@pytest.mark.parametrize("throttle_s", [0.0, 3.0])
@pytest.mark.parametrize("look_s", [0.5, 1.2, 1.9, 2.5, 5.0])
@pytest.mark.parametrize("old", [1, 3])
def test_looks_that_take_long(old: int, look_s: float, throttle_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. A coordinator, or a leader, is slow: a look takes about as long as it counts, or longer. By then, others have
       taken all the places, or their answers have throttled the lane; and when there is room, the look is too old.
    2. The old batches have their turn all the same: the lane waits longer for looks that have come to nothing.
    3. Fresh batches of others are sent most of the time.
    """
    scene = Scene(monkeypatch, 10, 4_000, lambda index: index < old)
    scene.play(600.0, look_s=look_s, answer_s=4.0, throttle_s=throttle_s)
    assert min(scene.sent[:old]) >= 10, scene.sent
    assert min(scene.sent[old:]) >= 20, scene.sent


@pytest.mark.parametrize("hangs", [-1, 0])
@pytest.mark.parametrize("throttle_s", [0.0, 3.0])
@pytest.mark.parametrize("look_s", [0.5, 1.9, 2.5])
def test_more_old_batches_than_a_request_holds(
    look_s: float, throttle_s: float, hangs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. Many partitions have old batches, their looks end, and the lane is full or throttled for longer than they count.
    2. There is room for one request. Those that would go into it are looked at once more. In their places, none goes
       that has waited for as long.
    """
    scene = Scene(monkeypatch, 40, 1_000, lambda index: index < 30)
    scene.hangs = hangs
    scene.play(600.0, look_s=look_s, answer_s=4.0, throttle_s=throttle_s)
    assert min(scene.sent[1:30]) >= 10, scene.sent
    assert throttle_s or min(scene.sent[30:]) >= 20, scene.sent


def test_a_connection_that_is_lost_behind_their_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many have been looked at. Then the connection is lost, and there is room for a few on the next one. None is sent
    there before it was looked at again: the leader may have moved."""
    scene = Scene(monkeypatch, 40, 100, lambda _: True)
    scene.throttle()
    scene.connection.throttled_s = 1.0
    scene.end_looks()
    assert (scene.looks, len(scene.lane._seen)) == (21, 21)
    for queue in scene.lane.attached:
        queue.lose_connection()
    scene.lane._survey_at, scene.lane._max_in_flight, scene.connection.throttled_s = 0.0, 1, 0.0
    scene.lane.pump()
    assert (scene.looks, len(scene.lane._under_way)) == (26, 0)
    scene.end_looks()
    assert len(scene.lane._under_way) == 1


def test_old_batches_that_are_larger_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each goes alone. Those behind them, which the other requests take, are looked at, too."""
    scene = Scene(monkeypatch, 24, 0, lambda _: True)
    scene.now += 3.0
    for queue in scene.lane.attached:
        payload = memoryview(bytes(20 * SIZE)) if queue.index < 2 else PAYLOAD
        queue.outbox.append(Batch(b"h" * 100, payload, 1, None))
        scene.lane.offer(queue)
    scene.lane.pump()
    assert (scene.looks > 2, len(scene.lane._under_way)) == (True, 0)


def test_an_old_batch_that_comes_behind_a_survey(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lane was surveyed when nothing waited. The batch that is offered then waits for a look all the same."""
    scene = Scene(monkeypatch, 2, 1, lambda index: index == 0)
    while scene.lane._under_way:
        scene.answer()
    scene.now += scene.lane._relay.settings.fresh_s
    scene.lane._look_again()
    queue = scene.lane.attached[0]
    queue.outbox.append(Batch(b"h" * 100, PAYLOAD, 1, None))
    scene.lane.offer(queue)
    scene.now += 0.1
    scene.lane.pump()
    assert (scene.looks, len(scene.lane._under_way)) == (1, 0)


def test_looks_that_take_long_beside_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """For that one nobody waits any more. They wait for the others all the same."""
    scene = Scene(monkeypatch, 10, 4_000, lambda index: index < 3)
    scene.hangs = 0
    scene.play(600.0, look_s=1.5, answer_s=4.0)
    assert min(scene.sent[1:3]) >= 10, scene.sent
    assert min(scene.sent[3:]) >= 20, scene.sent


def test_a_partition_that_halts_during_its_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays pinned to its lane until it is resumed, and its look ends without a word of the former position. The old
    batches of another partition have their turn all the same: the lane waits for their looks as before."""
    scene = Scene(monkeypatch, 10, 400, lambda index: index >= 8)
    scene.throttle()
    halts = scene._looking.pop(0)
    assert halts.index == 8
    halts.stop_with(Halted.of(HaltReason.TOO_LARGE, "as an answer would have it"))
    for _ in range(30):
        scene.end_looks()
        scene.now += 3.0  # nothing is answered for so long: whoever waits behind what is under way waits too long
        scene.throttle()
    assert scene.sent[9] > 20
    assert scene.looks <= 32


def test_a_look_that_hangs_holds_up_others_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, 10, 400, lambda index: index == 9)
    scene.throttle()
    assert (scene.looks, bool(scene.lane._under_way)) == (1, False)
    scene.now += sink.HELD_S / 2
    scene.lane.pump()
    assert not scene.lane._under_way
    scene.now += sink.HELD_S / 2
    scene.lane.pump()
    assert scene.lane._under_way


@pytest.mark.parametrize("ends", ["is sent", "goes"])
def test_nobody_waits_for_those_that_are_sent_or_gone(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. Two old partitions are looked at. The look at one hangs; that at the other comes to nothing, several times, and
       the others wait longer each time.
    2. The latter is sent, or goes to another lane. For the one that hangs, nobody waits longer than for any other look.
    """
    scene = Scene(monkeypatch, 10, 400, lambda index: index >= 8)
    scene.throttle()
    other = next(each for each in scene._looking if each.index == 8)
    for _ in range(5):
        scene.connection.throttled_s = 3.0
        scene.end_look(other)
        scene.now += 3.0
        scene.connection.throttled_s = 0.0
        scene.lane.pump()
        assert not scene.lane._under_way
    assert scene.lane._held_until - scene.now == sink.MOST_HELD_S
    if ends == "is sent":
        scene.end_look(other)
        assert other.queue.in_flight
    else:
        scene.lane.detach(other.queue)
    scene.now += sink.HELD_S
    scene.lane.pump()
    assert {*range(8)} <= {queue.index for taken, *_ in scene.lane._under_way for queue in taken}


def test_a_rotation_that_takes_longer_than_a_look_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three hundred old partitions on a lane that takes 40 MB a second. Each is looked at once for each batch at most,
    and all have as many turns."""
    scene = Scene(monkeypatch, 300, 100, lambda _: True)
    for _ in range(600):
        scene.now += 0.1
        scene.end_looks()
        if scene.lane._under_way:
            scene.answer()
    assert max(scene.sent) - min(scene.sent) <= 2
    assert sum(scene.sent) > 1_500
    assert scene.looks <= sum(scene.sent) + 50


def test_what_may_still_be_read_of_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker reads one request after the other, each may take its timeout, and none while it throttles. Fresh batches
    are known for repeats. Another leader does not have them."""
    scene = Scene(monkeypatch, 60, 1, lambda index: index != 1)
    monkeypatch.setattr(claim, "time", SimpleNamespace(monotonic=lambda: scene.now))
    lane, timeout_s = scene.lane, scene.lane._timeout_ms / 1000
    requests = [list(taken) for taken, *_ in lane._under_way]
    assert len(requests) == 5
    scene.connection.throttled_s = 7.0
    while lane._under_way:
        lane.fail(ConnectionLost("lost"))
    for before, taken in enumerate(requests):
        for queue in taken:
            left_s = queue.partition.claim.waits_for_late(Leader(1, 9))
            assert left_s == (0 if queue.index == 1 else before * timeout_s + 7)
            assert queue.partition.claim.waits_for_late(Leader(2, 9)) == 0
            assert queue.partition.claim.waits_for_late(None) == 0
