"""One partition of a flow: its phase, and operations that concern its cursor, its queue and its claim together."""

import time
from typing import TYPE_CHECKING, NamedTuple

from mirror.offsetmap.entries.keys import Subject
from mirror.reasons import UNPLACED
from mirror.records.admit import Cause, Terms
from mirror.relay.halts import Halted
from mirror.relay.partition.claim import Claim, Committed
from mirror.relay.partition.cursor import Cursor
from mirror.relay.partition.location import Location
from mirror.relay.partition.phases import MOVES, Phase
from mirror.relay.partition.queue import Hole, Queue
from mirror.relay.partition.tally import Counts

if TYPE_CHECKING:
    from mirror.relay.watch.tracing import Trace


class Waiting(NamedTuple):
    """Why a partition is not being copied, although it has not halted."""

    since_s: float
    """Seconds since 1970."""
    reason: str
    failed: bool
    """True if ``reason`` says why the last look for the position failed; otherwise it says what is being done."""


class Partition:
    """The state of a partition. It has no sockets, timers or tasks: these belong to the fetcher, the lane and the
    relay.

    The relay moves it from phase to phase. ``cursor`` belongs to fetching, ``queue`` to the lane, and ``claim`` is what
    makes the partition ours; each is changed by its own module only.
    """

    __slots__ = (
        "claim",
        "cursor",
        "destination",
        "halted",
        "index",
        "phase",
        "positions",
        "queue",
        "terms",
        "topic",
        "trace",
        "unplaced",
        "waiting",
    )

    def __init__(self, topic: str, index: int, destination: str | None = None) -> None:
        self.topic = topic
        self.index = index
        self.destination = destination or topic
        """Name of the destination topic."""
        self.terms = Terms()
        self.phase = Phase.LOCATING
        self.halted: Halted | None = None
        self.waiting: Waiting | None = None
        """Set while it is located or in doubt, for watching only."""
        self.unplaced = False
        """True if its position belongs to topics that have been replaced or are gone. For watching only."""
        self.trace: Trace | None = None
        """Set while somebody follows the partition (``relay.watch.tracing``)."""
        self.positions = 0
        """Counts positions. Work that was begun under an earlier value must not act on this one."""
        self.cursor = Cursor()
        self.queue = Queue(self, index)
        self.claim = Claim()

    # -- for watching --------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """topic-partition, as in Kafka's own logs."""
        return f"{self.topic}-{self.index}"

    @property
    def subject(self) -> Subject:
        """The partition's name in the internal topic."""
        return Subject(self.topic, self.index, self.destination)

    @property
    def counts(self) -> Counts:
        """See ``Queue.counts``."""
        return self.queue.counts

    @property
    def position(self) -> int:
        """See ``Queue.position``."""
        return self.queue.position

    @property
    def shown_position(self) -> int:
        """The position for watching; -1: nothing is known of the current topics."""
        return -1 if self.unplaced else self.position

    @property
    def lag(self) -> int | None:
        """Number of source offsets that the destination is not known to have; None if either end is not known. A source
        that ends before the position was recreated or truncated: unless the partition is active, its end says nothing
        about this copy."""
        position, end = self.shown_position, self.cursor.high_watermark
        if position < 0 or end < 0 or (end < position and self.phase is not Phase.ACTIVE):
            return None
        return max(0, end - position)

    def wait(self, reason: str, *, failed: bool = False) -> None:
        """Notes why the partition is not being copied. What is being done does not replace the reason why the last look
        failed."""
        if self.trace is not None:
            self.trace.waits(reason)
        before = self.waiting
        if before is None or failed or not before.failed:
            self.waiting = Waiting(time.time() if before is None else before.since_s, reason, failed)

    def follow(self, trace: "Trace | None") -> None:
        """Records each step in this trace from now on; None: in none."""
        self.trace = trace

    # -- from phase to phase -------------------------------------------------------------------------------------------

    def move(self, event: str) -> None:
        """Changes the phase according to ``MOVES``.

        Raises:
            AssertionError: there is no such move, which is a bug.
        """
        phase = MOVES.get((self.phase, event))
        if phase is None:
            raise AssertionError(f"{self.name}: {event} while {self.phase.value}")
        before, self.phase = self.phase, phase
        if self.trace is not None:
            self.trace.note("phase", before=before.value, phase=phase.value, because=event)

    def judge_by(self, terms: Terms) -> None:
        """Judges batches by these terms from now on: the topics' current configs."""
        self.terms = terms

    def inherit(self, committed: Committed | None, offset: int) -> None:
        """Notes what the group had committed when the partition was assigned.

        Args:
            committed: the commit; None: there is none.
            offset: up to where the last owner had copied, according to it; -1: not known.
        """
        self.claim.inherit(committed, offset)
        self.queue.inherit(offset)

    def start(self, location: Location, *, topic_head: bytes) -> None:
        """Takes over a new position. From here on, the partition is fetched and sent.

        Args:
            location: the position.
            topic_head: the destination topic as Produce requests carry it.
        """
        self.move("located")
        self.waiting = None
        self.unplaced = False
        self.positions += 1
        self.cursor.start(location)
        self.queue.start(location, topic_head)
        if location.source_start > location.offset:
            # Retention has deleted the records in between, and an operator has decided to continue.
            self._leave_out(location.source_start, Cause.ACCEPTED)
        elif location.fill_to > location.offset:
            self._leave_out(location.fill_to, None)
        self.claim.start(location)

    def _leave_out(self, end: int, cause: Cause | None) -> None:
        """Has the offsets up to ``end`` filled instead of copied. With ``offsets: mapped``, offsets with a ``cause``
        are passed over."""
        cursor, queue = self.cursor, self.queue
        start, count = queue.acknowledged, end - queue.acknowledged
        if queue.copied is not None and cause is not None:
            queue.copied.skip(start, count, cause)
            cursor.skip_to(end, cursor.identity)
        else:
            queue.outbox.append(Hole(b"", cursor.identity, count, None, Cause.COMPACTED))
            cursor.skip_to(end, cursor.identity.behind_markers())

    def begin_again(self) -> None:
        """Restarts the counts: nothing was copied, and the copy begins elsewhere now, so offsets before that do not
        count as copied."""
        self.queue.begin_again()

    def doubt(self) -> None:
        """Puts an active partition into doubt: drops its queue. Responses to batches in flight are waited for, and not
        believed."""
        self.move("doubted")
        self._drop()
        self.claim.doubt()

    def emptied(self) -> bool:
        """Returns True if the partition is in doubt and nothing of it is in flight any more, so that it can be
        located."""
        return self.phase is Phase.DOUBT and not self.queue.in_flight and not self.queue.filling

    def stop_with(self, halted: Halted) -> None:
        """Halts the partition: nothing more is fetched or sent."""
        self.move("halted")
        self.halted, self.waiting = halted, None
        self.unplaced = self.unplaced or halted.reason in UNPLACED
        self._drop()

    def still_halted(self, halted: Halted) -> None:
        """Replaces the halt of a halted partition: this is why it cannot go on by now."""
        self.halted = halted

    def resume(self, *, accept_gap: bool = False, accept_unproven: bool = False, accept_settings: bool = False) -> None:
        """Resumes a halted partition. It is located again, in the current topics.

        Args:
            accept_gap: records that the source has deleted in the meantime may be skipped, this once.
            accept_unproven: the destination's content is taken for a copy although nothing shows it, this once.
            accept_settings: a copy under another isolation level goes on under the current one, this once.
        """
        self.move("resumed")
        self.halted = None
        self.claim.resume(accept_gap=accept_gap, accept_unproven=accept_unproven, accept_settings=accept_settings)

    def stop(self) -> None:
        """Stops the partition for good, because the relay lets it go."""
        self.move("stopped")
        self._drop()

    def _drop(self) -> None:
        self.queue.drop()
        self.cursor.drop()
        if not self.lag:
            self.cursor.forget_hearing()
        self.positions += 1
