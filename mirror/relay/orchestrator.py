"""The relay's interface for its parts: the attributes that they may read, and the events that they report."""

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
    """Owns every task. Only the owner changes a partition's phase."""

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
        """Source topic name -> the pair of topics, as the last look found it."""

    @property
    def lanes(self) -> "list[Lane]":
        """The lanes to all destination brokers."""

    # -- outcomes for a partition --------------------------------------------------------------------------------------

    def doubt(self, partition: "Partition", cause: str, detail: str) -> None:
        """The partition's position is not certain any more: its queue is dropped. When nothing is under way, it is
        located again. ``cause`` is a stable name."""

    def doubt_now(self, partition: "Partition", cause: str, detail: str) -> None:
        """As ``doubt``, for a doubt that no answer has caused: with nothing under way, it is located at once."""

    def emptied(self, partition: "Partition") -> None:
        """A partition in doubt has nothing under way any more."""

    def halt(self, partition: "Partition", halted: "Halted") -> None:
        """The partition cannot go on. The others do."""

    def halt_when_drained(self, partition: "Partition", halted: "Halted") -> None:
        """As ``halt``, but only once everything that was fetched before is acknowledged."""

    def act(self, partition: "Partition", outcome: "Halted | Doubt") -> None:
        """Acts on the outcome of work beside the data path that was stopped (``relay.outcome``)."""

    def place(self, partition: "Partition", location: "Location") -> None:
        """The partition was located: it goes on there."""

    def jump(self, partition: "Partition") -> None:
        """Everything before offsets that are not copied may be acknowledged by now (``offsets: mapped``)."""

    # -- work beside the data path -------------------------------------------------------------------------------------

    def fill(self, partition: "Partition") -> None:
        """A hole is next to be sent, and nothing is under way."""

    def confirmed(self, partition: "Partition", base_offset: int, batch: "Batch") -> None:
        """The first batch after a resync was acknowledged at the expected offset: it is read back."""

    def reconfirm(self, partition: "Partition") -> None:
        """Looks at the destination's log end again, then offers the partition to its lane."""

    def settle(self, partition: "Partition") -> None:
        """Locates the partition again, settled, before an old batch is sent (``Queue.must_settle``)."""

    def look(self, partition: "Partition") -> None:
        """Looks from all sides at the batches that the source has around ``due`` (``relay.holes.gaps``)."""

    def diverged(self, partition: "Partition", truncated: "Halted") -> None:
        """The source's leader says that its log was truncated."""

    def rewrites(self, partition: "Partition") -> None:
        """The destination answered with an append time: its topic has LogAppendTime now, or the batch is a repeat."""

    # -- the data path -------------------------------------------------------------------------------------------------

    def pump_sinks(self) -> None:
        """There may be something to send."""

    def drained(self) -> None:
        """Frames were released, or partitions have nothing under way any more: there may be something to fetch."""

    def no_room(self) -> None:
        """A fetch waits for room."""

    def work(self, partition: "Partition", work: Coroutine[Any, Any, None]) -> None:
        """Runs a task, which is cancelled when the partition is released."""

    def forgets_before_ms(self) -> float:
        """Returns a time in ms since 1970. If the newest record of a producer's last batch is older, the destination
        may forget the producer at any time: its state expires by that record."""

    # -- topics and assignment -----------------------------------------------------------------------------------------

    def look_now(self) -> None:
        """Looks for topics, and for flows the other way, at once."""

    def look_soon(self) -> None:
        """Asks for the topics again soon, because assigned partitions are not known here."""

    def adopt(self, key: "Key", *, committed: "Committed | None" = None) -> bool:
        """Begins to copy a partition. Returns False if no such partition is known (yet)."""

    def stop_fetching(self, partition: "Partition") -> None:
        """Stops fetching the partition. An answer under way is dropped."""

    def release(self, partition: "Partition") -> None:
        """Stops the partition at once and forgets it."""
