"""A partition ends only when its last answer is in."""

from typing import Any, cast

from mirror.relay.halts import Halted
from mirror.relay.life.ending import Ending
from mirror.relay.partition.partition import Partition

CORRUPT = Halted("corrupt", "the batch at offset 7 does not match its checksum", "")


class _Lane:
    stalled = False

    def __init__(self) -> None:
        self.left: list[Any] = []

    def offer(self, queue: Any) -> None:
        """Not looked at."""

    def withhold(self, queue: Any) -> None:
        """Not looked at."""

    def detach(self, queue: Any) -> None:
        self.left.append(queue)


def _made() -> tuple[Ending, list[tuple[Partition, Halted]], Partition, _Lane]:
    halts: list[tuple[Partition, Halted]] = []

    def halt(partition: Partition, halted: Halted) -> None:
        halts.append((partition, halted))
        ending.halts_no_more(partition)

    ending = Ending(halt)
    partition, lane = Partition("t", 0, "t"), _Lane()
    partition.queue.lane = lane
    return ending, halts, partition, lane


def _batch() -> Any:
    return cast(Any, (b"head", memoryview(b"records"), 1, None))


def test_it_halts_at_once_if_nothing_was_fetched_before() -> None:
    ending, halts, partition, _ = _made()
    ending.halt_when_drained(partition, CORRUPT)
    assert halts == [(partition, CORRUPT)]


def test_it_halts_once_what_was_fetched_before_is_acknowledged() -> None:
    ending, halts, partition, _ = _made()
    partition.queue.outbox.append(_batch())
    ending.halt_when_drained(partition, CORRUPT)
    ending.check()
    assert not halts
    partition.queue.in_flight.append(partition.queue.outbox.popleft())
    ending.check()
    assert not halts
    partition.queue.in_flight.popleft()
    ending.check()
    assert halts == [(partition, CORRUPT)]
    ending.check()
    assert len(halts) == 1


def test_it_does_not_halt_after_its_queue_was_dropped() -> None:
    ending, halts, partition, _ = _made()
    partition.queue.outbox.append(_batch())
    ending.halt_when_drained(partition, CORRUPT)
    partition.queue.outbox.popleft()
    ending.halts_no_more(partition)
    ending.check()
    assert not halts


def test_a_released_partition_leaves_its_lane_with_the_last_answer() -> None:
    ending, halts, partition, lane = _made()
    partition.queue.outbox.append(_batch())
    ending.halt_when_drained(partition, CORRUPT)
    partition.queue.in_flight.append(partition.queue.outbox.popleft())
    ending.release(partition)
    assert ending.let_go == [partition]
    ending.check()
    assert not lane.left
    partition.queue.in_flight.popleft()
    ending.check()
    assert lane.left == [partition.queue]
    assert not halts  # it is another worker's by now
    ending.check()
    assert len(lane.left) == 1
