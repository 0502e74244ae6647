"""The relay's interface for its parts: the attributes that they may read, and the methods by which they report
events."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mirror.net.buffers import FramePool
    from mirror.net.cluster import Cluster
    from mirror.relay.assignment import Key
    from mirror.relay.durable.loops import Loops
    from mirror.relay.durable.pins import Pins
    from mirror.relay.events import EventLog
    from mirror.relay.fetch.limits import Limits
    from mirror.relay.fetch.replicas import Replicas
    from mirror.relay.halts import Halted
    from mirror.relay.hot.deep import Rewriter
    from mirror.relay.hot.plain import InnerLoop
    from mirror.relay.locate.position import Locator
    from mirror.relay.outcome import Doubt
    from mirror.relay.partition.claim import Committed
    from mirror.relay.partition.location import Location
    from mirror.relay.partition.partition import Partition
    from mirror.relay.partition.queue import Batch
    from mirror.relay.pausing import Pausing
    from mirror.relay.settings import RelaySettings
    from mirror.relay.sink import Lane
    from mirror.relay.stats import Stats
    from mirror.relay.topics.pairing import Pair
    from mirror.relay.topics.verdicts import Verdicts
    from mirror.relay.watch.expiry import ProducerExpiry
    from mirror.relay.watch.tracing import Tracer


class Orchestrator(Protocol):
    """The relay, as its parts see it. It owns all tasks, and only it changes the phase of a partition."""

    source: "Cluster"
    destination: "Cluster"
    settings: "RelaySettings"
    log: "EventLog"
    stats: "Stats"
    pool: "FramePool"
    rewriter: "Rewriter"
    partitions: "dict[Key, Partition]"
    locator: "Locator"
    pins: "Pins"
    loops: "Loops"
    verdicts: "Verdicts"
    expiry: "ProducerExpiry"
    limits: "Limits"
    pausing: "Pausing"
    replicas: "Replicas"
    tracer: "Tracer"

    @property
    def inner_loop(self) -> "InnerLoop":
        """The loop over plain batches, for the Produce version in use."""

    @property
    def pairs(self) -> "dict[str, Pair]":
        """Source topic name -> the pair of topics, as of the last look for topics."""

    @property
    def lanes(self) -> "list[Lane]":
        """The lanes to all destination brokers."""

    # -- outcomes for a partition --------------------------------------------------------------------------------------

    def doubt(self, partition: "Partition", cause: str, detail: str) -> None:
        """Puts an active partition into doubt: its position is not certain any more. Its queue is dropped. Once nothing
        is in flight, ``emptied`` has it located again.

        Args:
            partition: the partition.
            cause: a stable name, for metrics and logs.
            detail: the values involved.
        """

    def doubt_now(self, partition: "Partition", cause: str, detail: str) -> None:
        """As ``doubt``, for a doubt that no response has caused. With nothing in flight, the partition is located at
        once. Does nothing if the partition is not active."""

    def emptied(self, partition: "Partition") -> None:
        """Locates a partition in doubt again, since nothing of it is in flight any more."""

    def halt(self, partition: "Partition", halted: "Halted") -> None:
        """Halts the partition. The other partitions go on."""

    def halt_when_drained(self, partition: "Partition", halted: "Halted") -> None:
        """As ``halt``, but only once everything that was fetched before is acknowledged."""

    def act(self, partition: "Partition", outcome: "Halted | Doubt") -> None:
        """Acts on the outcome of work beside the data path that could not be completed (``relay.outcome``)."""

    def place(self, partition: "Partition", location: "Location") -> None:
        """Begins to copy a located partition from its position on."""

    def jump(self, partition: "Partition") -> None:
        """Passes over offsets that are not copied, if everything before them is acknowledged (``offsets: mapped``)."""

    # -- work beside the data path -------------------------------------------------------------------------------------

    def fill(self, partition: "Partition") -> None:
        """Begins to fill the hole that is next to be sent. Nothing of the partition is in flight."""

    def confirmed(self, partition: "Partition", base_offset: int, batch: "Batch") -> None:
        """Begins to read back the first batch after a resync, which was acknowledged at the expected offset."""

    def reconfirm(self, partition: "Partition") -> None:
        """Checks the destination's log end again, then offers the partition to its lane."""

    def settle(self, partition: "Partition") -> None:
        """Locates the partition again, settled, before an old batch is sent (``Queue.must_settle``)."""

    def look(self, partition: "Partition") -> None:
        """Begins to verify a possible gap at ``Cursor.due`` with requests of other kinds to the source
        (``relay.holes.gaps``)."""

    def diverged(self, partition: "Partition", truncated: "Halted") -> None:
        """Acts on a fetch response in which the source's leader says that its log was truncated.

        Args:
            partition: the partition.
            truncated: the halt, if the truncation is confirmed.
        """

    def rewrites(self, partition: "Partition") -> None:
        """Acts on a Produce response with an append time: the topic has LogAppendTime by now, or the batch is a
        repeat."""

    # -- the data path -------------------------------------------------------------------------------------------------

    def pump_sinks(self) -> None:
        """Sends what can be sent."""

    def drained(self) -> None:
        """Acts on frames that were released, and on partitions that have nothing in flight any more: there may be
        something to fetch, and to end."""

    def no_room(self) -> None:
        """Reports that a fetch waits for room in the frame pool."""

    def work(self, partition: "Partition", work: Coroutine[Any, Any, None]) -> None:
        """Runs a task on the partition. It is cancelled when the partition is released."""

    def forgets_before_ms(self) -> float:
        """Returns a time in ms since 1970. If the newest record of a producer's last batch is older than that, the
        destination may forget the producer at any time."""

    # -- topics and assignment -----------------------------------------------------------------------------------------

    def look_now(self) -> None:
        """Has the topics, and flows in the opposite direction, looked for at once."""

    def look_soon(self) -> None:
        """Has the topics looked for again soon, because assigned partitions are not known here."""

    def adopt(self, key: "Key", *, committed: "Committed | None" = None) -> bool:
        """Begins to copy a partition. Returns False if no such partition is known (yet), or while draining."""

    def stop_fetching(self, partition: "Partition") -> None:
        """Stops fetching the partition. The response to an outstanding fetch is dropped."""

    def release(self, partition: "Partition") -> None:
        """Stops the partition at once and forgets it."""
