"""A partition that a raw consumer fetches, and what came of it."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from mirror.net.backoff import Backoff
from mirror.raw.errors import PositionError, RawError
from mirror.raw.model import ConsumerRecord, TopicPartition

E = TypeVar("E", bound=PositionError)

NO_EPOCH = -1


class RawCursor:
    """A partition that is fetched, from when it was put until it is put again or dropped. Assigned by ``Fetching``
    only.

    Attributes:
        at: the partition.
        offset: from where records are due.
        fetch_offset: from where it is fetched. It is the last offset of the batch before where damage was seen behind
            that: base offsets have no checksum, and only behind that batch does it show that one is out of order.
        last_epoch: leader epoch of the batch before; -1: not known.
        topic_id: of the topic, when it was first fetched; None: not known, or the cluster has none.
        busy: it is in a request, or something of it waits to be taken.
        lost: its leader has to be found again.
        waits_until: not to be fetched before (the event loop's time).
    """

    __slots__ = ("at", "backoff", "busy", "fetch_offset", "last_epoch", "lost", "offset", "topic_id", "waits_until")

    def __init__(self, at: TopicPartition, offset: int, backoff: Backoff) -> None:
        self.at = at
        self.offset = self.fetch_offset = offset
        self.backoff = backoff
        self.last_epoch = NO_EPOCH
        self.topic_id: bytes | None = None
        self.busy = self.lost = False
        self.waits_until = 0.0

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.at.topic}-{self.at.partition}"

    def wait(self, now: float) -> None:
        """Takes note of a failure: a pause before the next try."""
        self.waits_until = now + self.backoff.next_s()

    def error(self, kind: Callable[..., E], told: str) -> E:
        """Returns an error of this partition."""
        message = f"{self.name} at offset {self.offset}: {told}"
        return kind(message, topic=self.at.topic, partition=self.at.partition, offset=self.offset)


class FetchedRecords(NamedTuple):
    """What came of one partition: ``records``, up to ``next_offset``; or ``error``."""

    cursor: RawCursor
    records: list[ConsumerRecord]
    next_offset: int
    leader_epoch: int
    error: RawError | None = None
