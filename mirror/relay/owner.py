"""The relay, as its parts know it: what they may look at, and what they report."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mirror.net.buffers import FramePool
    from mirror.net.cluster import Cluster
    from mirror.relay.assignment import Key
    from mirror.relay.durable.loops import Loops
    from mirror.relay.durable.pins import Pins
    from mirror.relay.halts import Halted
    from mirror.relay.hot.plain import InnerLoop
    from mirror.relay.locate.position import Locator
    from mirror.relay.locate.resync import Log
    from mirror.relay.outcome import Doubt
    from mirror.relay.partition import Batch, Committed, Location, Partition
    from mirror.relay.settings import RelaySettings
    from mirror.relay.sink import Lane
    from mirror.relay.stats import Stats
    from mirror.relay.topics.pairing import Pair
    from mirror.relay.topics.verdicts import Verdicts
    from mirror.relay.watch.memory import ProducerMemory


class Owner(Protocol):
    """Who owns every task, and alone changes a partition's phase."""

    source: "Cluster"
    destination: "Cluster"
    settings: "RelaySettings"
    log: "Log"
    stats: "Stats"
    pool: "FramePool"
    inner_loop: "InnerLoop"
    pairs: "dict[str, Pair]"
    partitions: "dict[Key, Partition]"
    locator: "Locator"
    pins: "Pins"
    loops: "Loops"
    verdicts: "Verdicts"
    memory: "ProducerMemory"

    @property
    def lanes(self) -> "list[Lane]":
        """To all destination brokers."""

    # -- what a partition has come to ----------------------------------------------------------------------------------

    def doubt(self, partition: "Partition", cause: str, detail: str) -> None:
        """Its position is not certain any more: the queue is dropped; when nothing is under way, it is sought again.
        ``cause`` is a stable name."""

    def doubt_now(self, partition: "Partition", cause: str, detail: str) -> None:
        """The same where no answer leads to it: with nothing under way, the position is sought at once."""

    def emptied(self, partition: "Partition") -> None:
        """In doubt, and nothing under way any more."""

    def halt(self, partition: "Partition", halted: "Halted") -> None:
        """It cannot go on; the others do."""

    def halt_when_drained(self, partition: "Partition", halted: "Halted") -> None:
        """The same, once what was fetched before is acknowledged."""

    def act(self, partition: "Partition", outcome: "Halted | Doubt") -> None:
        """What follows from work beside the data path that was stopped (``relay.outcome``)."""

    def place(self, partition: "Partition", location: "Location") -> None:
        """Its position is found: it goes on there."""

    def jump(self, partition: "Partition") -> None:
        """All before offsets that are not copied may be acknowledged (``offsets: mapped``)."""

    # -- what is to be looked at ---------------------------------------------------------------------------------------

    def fill(self, partition: "Partition") -> None:
        """The next thing to send is a hole, and nothing is under way."""

    def confirmed(self, partition: "Partition", base_offset: int, batch: "Batch") -> None:
        """The first batch after a resync was acknowledged where it belongs: it is read back."""

    def reconfirm(self, partition: "Partition") -> None:
        """Offers the partition to its lane once its log end was looked at again."""

    def settle(self, partition: "Partition") -> None:
        """Seeks its position again and waits ``settle.ms``, before an old batch is sent (``Partition.must_settle``)."""

    def look(self, partition: "Partition") -> None:
        """What the source has at ``due`` is looked at from all sides (``relay.holes.gaps``)."""

    def diverged(self, partition: "Partition", truncated: "Halted") -> None:
        """The source's leader says that its log was truncated."""

    def rewrites(self, partition: "Partition") -> None:
        """The destination answered with an append time: its topic has LogAppendTime now, or the batch is a repeat."""

    # -- what goes on --------------------------------------------------------------------------------------------------

    def pump_sinks(self) -> None:
        """There is something to send."""

    def drained(self) -> None:
        """Frames were let go, or partitions have nothing under way any more: there may be something to fetch."""

    def no_room(self) -> None:
        """A fetch waits for room."""

    def work(self, partition: "Partition", work: Coroutine[Any, Any, None]) -> None:
        """Runs a task that ends with the partition at the latest."""

    def forgets_before_ms(self) -> float:
        """Batches whose newest record is older than this (ms since 1970) may be forgotten by the destination at any
        time: their producer's state expires by it."""

    # -- topics and assignment -----------------------------------------------------------------------------------------

    def look_now(self) -> None:
        """Topics, and flows the other way, are looked for at once."""

    def look_soon(self) -> None:
        """Asks for the topics again."""

    def adopt(self, key: "Key", *, committed: "Committed | None" = None) -> bool:
        """Begins to copy a partition; False if no such partition is known (yet)."""

    def stop_fetching(self, partition: "Partition") -> None:
        """Nothing more of it is fetched; an answer under way is dropped."""

    def release(self, partition: "Partition") -> None:
        """Stops it at once and forgets it."""
