"""The lane for ``offsets: mapped``: batches are appended at the end of the destination's log, and their offsets are
noted.

It is a class of its own, so that it costs the lane for exact offsets nothing.
"""

from mirror.net.connection import Connection
from mirror.net.stream import Piece
from mirror.relay.hot.acks import Acknowledged, bases_of
from mirror.relay.locate.owners import FENCED
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.partition.phases import Phase
from mirror.relay.partition.queue import Queue
from mirror.relay.sink import Lane
from mirror.wire.produce import Expected, PlainAnswer, Produced, ProduceResponse, as_expected


class AppendingLane(Lane):
    """Accepts any base offset behind the last one. Several source partitions may go to the same destination partition.
    A request then has a batch of only one of them, because a broker loses the first of two."""

    def __init__(self, owner: Orchestrator, node_id: int, *, version: int) -> None:
        super().__init__(owner, node_id, version=version)
        self._shared = False
        self._book_all = self._append_all
        self._book_expected = self._append_expected

    def attach(self, queue: Queue) -> None:
        """See ``Lane``."""
        self._shared = self._shared or any(_place(queue) == _place(each) for each in self._partitions)
        super().attach(queue)

    def detach(self, queue: Queue) -> None:
        """See ``Lane``."""
        super().detach(queue)
        if self._shared:
            self._shared = len({*map(_place, self._partitions)}) < len(self._partitions)

    def _build(self, connection: Connection, most: int) -> list[Piece]:
        """See ``Lane``."""
        if not self._shared:
            return super()._build(connection, most)
        first: dict[tuple[bytes, int], Queue] = {}
        for queue in self._ready:
            first.setdefault(_place(queue), queue)
        chosen = set(first.values())
        later = [queue for queue in self._ready if queue not in chosen]
        self._ready = list(first.values())
        pieces = super()._build(connection, 1)
        # Those left out go before those that have another batch, so that each has its turn.
        self._ready = later + self._ready
        return pieces

    def _append_expected(
        self, taken: list[Queue], frame: memoryview, likely: Expected, ready: list[Queue]
    ) -> Acknowledged | None:
        """As ``acks.acknowledge_expected``."""
        answer = as_expected(frame, likely)
        return None if answer is None else self._append_all(taken, answer, ready)

    def _append_all(self, taken: list[Queue], answer: PlainAnswer, _ready: list[Queue]) -> Acknowledged | None:
        """As ``acks.acknowledge``; nothing is left to do after it."""
        bases = bases_of(taken, answer)
        if bases is None:
            return None
        for queue, base_offset in zip(taken, bases, strict=True):
            self._acknowledge_one(queue, base_offset)
        return Acknowledged([], [], False)

    def _acknowledge_one(self, queue: Queue, base_offset: int) -> None:
        """See ``Lane``."""
        copied = queue.copied
        if queue.partition.phase is not Phase.ACTIVE or copied is None or base_offset < (due := copied.destination):
            self._unexpected(queue, base_offset)
            return
        batch = queue.landed(copied, base_offset)
        self._freed = True
        if copied.jumps:
            self._relay.jump(queue.partition)
        if queue.outbox and queue.line_up():
            self._ready.append(queue)
        if queue.window == 1:
            if queue.old and base_offset > due:
                copied.passed(due, base_offset)
            self._confirm(queue, base_offset, batch)

    def _refused(self, queue: Queue, answer: Produced, response: ProduceResponse) -> None:
        """See ``Lane``. If another worker has fenced us, the partition is left to that worker, and taken over again
        later: brokers before 3.0 cannot be asked who owns it."""
        if answer.error in FENCED and queue.partition.phase is Phase.ACTIVE:
            queue.partition.claim.leave()
        super()._refused(queue, answer, response)


def _place(queue: Queue) -> tuple[bytes, int]:
    """Returns the destination partition that the queue goes to: the topic as requests carry it, and the index."""
    return queue.topic_head, queue.index
