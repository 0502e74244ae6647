"""One lane against a connection that only notes what it is told."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from mirror.net.health.histogram import RequestDurations
from mirror.net.options import ConnectionOptions
from mirror.net.stream import Piece, Waiter
from mirror.records.header import HEADER_SIZE
from mirror.records.identity import Identity
from mirror.relay.mapped.lane import AppendingLane
from mirror.relay.partition.clock import since_boot
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.partition.queue import Batch
from mirror.relay.settings import RelaySettings
from mirror.relay.sink import ANSWERS_AT_ONCE, Lane
from mirror.relay.stats import Stats
from mirror.relay.watch.tracing import Tracer
from mirror.wire.produce import least_answer, topic_head

VERSION = 9


class Noted:
    """A connection."""

    closed = None
    throttled_s = 0.0
    options = ConnectionOptions()

    def __init__(self) -> None:
        self.under_way: list[Waiter] = []
        self.sent: list[bytes] = []
        self.woken_at = 0

    @property
    def in_flight(self) -> int:
        return len(self.under_way)

    def next_correlation_id(self, count: int) -> int:
        assert count > 0
        return len(self.under_way) + 1

    def expect(self, correlation_id: int, waiter: Waiter, timeout_s: float, *, count: int) -> None:
        assert correlation_id == len(self.under_way) + 1
        assert timeout_s > 0
        self.under_way += [waiter] * count

    def write(self, pieces: Sequence[Piece]) -> None:
        self.sent.append(b"".join(pieces))

    def wake_at(self, size: int) -> None:
        self.woken_at = size


DESTINATION = SimpleNamespace(durations=RequestDurations())


def lane_with(batches: int) -> tuple[Lane, Noted]:
    """A lane to which one partition has so many batches."""
    owner: Any = SimpleNamespace(
        settings=RelaySettings(flow="a->b", selects=lambda _: True),
        stats=Stats(),
        destination=DESTINATION,
        tracer=Tracer(),
    )
    lane, connection = Lane(owner, 1, version=VERSION), Noted()
    lane._connection = connection  # type: ignore[assignment]
    partition = Partition("t", 0)
    partition.phase, partition.queue.topic_head = Phase.ACTIVE, topic_head(VERSION, "t")
    partition.cursor.identity = Identity(1 << 62, 0, 0)
    partition.queue.window = owner.settings.max_in_flight
    partition.queue.confirm(since_boot())
    for number in range(batches):
        partition.queue.outbox.append(Batch(b"head%d" % number + bytes(HEADER_SIZE), memoryview(b"records"), 1, None))
    lane.attach(partition.queue)
    lane.offer(partition.queue)
    lane.pump()
    return lane, connection


def test_a_full_pipeline_waits_for_several_answers() -> None:
    """Also when all there is to send is under way: an answer at a time would cost a wake-up for each request."""
    for batches in (5, 6):
        _, connection = lane_with(batches)
        assert connection.in_flight == 5
        assert len(connection.sent) == 1, "all in one call"
        assert connection.woken_at == ANSWERS_AT_ONCE * least_answer(VERSION, 1)


def test_with_room_in_the_pipeline_every_answer_counts() -> None:
    _, connection = lane_with(4)
    assert connection.in_flight == 4
    assert connection.woken_at == 0


@pytest.mark.parametrize("rule", [True, False])
def test_a_window_that_has_become_1_waits_for_all_that_is_under_way(*, rule: bool) -> None:
    """
    1. Five batches are under way when an old one is fetched: the destination may forget who sent the last of them.
    2. Nothing more goes before all of them are answered, and then one. Else each answer lets go of another.
    """
    with patch.object(Lane, "withhold", Lane.withhold if rule else lambda *_: None):
        lane, _ = lane_with(8)
        (partition,) = lane.attached
        partition.acknowledged, partition.window, partition.old, partition.waits_old = 0, 1, True, True
        lane.withhold(partition)
        left = []
        for answered in range(5):
            lane._under_way.popleft()
            lane._sent_at = lane._times.answered()
            lane._acknowledge_one(partition, answered)
            lane.pump()
            left.append(len(partition.outbox))
        assert left == ([3, 3, 3, 3, 2] if rule else [2, 1, 0, 0, 0])


def test_a_stalled_lane_with_nothing_under_way() -> None:
    """
    1. What a lane was to send came into doubt while it had no connection: no answer will come, and nothing is sent.
    2. A partition whose position was found is fetched for, all the same.
    """
    owner: Any = SimpleNamespace(
        settings=RelaySettings(flow="a->b", selects=lambda _: True),
        stats=Stats(),
        tracer=Tracer(),
        destination=DESTINATION,
        drained=lambda: None,
    )
    lane = Lane(owner, 1, version=VERSION)
    lane.stall(SimpleNamespace())  # type: ignore[arg-type]
    partition = Partition("t", 0)
    lane.attach(partition.queue)
    assert not lane.stalled
    assert not partition.queue.parked


def test_partitions_that_share_one_of_the_destination() -> None:
    """Mapped: a request has a batch of one of them only. Once one of the two has left, requests are built as ever."""
    owner: Any = SimpleNamespace(
        settings=RelaySettings(flow="a->b", selects=lambda _: True), stats=Stats(), destination=DESTINATION
    )
    lane = AppendingLane(owner, 1, version=VERSION)
    a, other, b = Partition("a", 0).queue, Partition("a", 1).queue, Partition("b", 0).queue
    for queue in (a, other, b):
        queue.topic_head = topic_head(VERSION, "both")
    shared = []
    for change, queue in ((lane.attach, a), (lane.attach, other), (lane.attach, b), (lane.detach, a), (lane.attach, a)):
        change(queue)
        shared.append(lane._shared)
    assert shared == [False, False, True, False, True]
