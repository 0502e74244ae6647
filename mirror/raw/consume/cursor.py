"""A partition that a raw consumer fetches, and the records that were fetched."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from mirror.net.backoff import Backoff
from mirror.raw.errors import PositionError, RawError
from mirror.raw.model import ConsumerRecord, TopicPartition

E = TypeVar("E", bound=PositionError)

NO_EPOCH = -1


class ReadBefore(NamedTuple):
    """What was read before an offset: by that, it shows that the log is another one now. ``topic_id``: of the topic;
    None: not known, or the cluster has no ids. ``leader_epoch``: of the batch before the offset; -1: not known."""

    topic_id: bytes | None = None
    leader_epoch: int = NO_EPOCH


NOTHING = ReadBefore()


class RawCursor:
    """A partition that is fetched. It is valid from one ``Fetching.put`` of the partition until the next, or until
    ``Fetching.drop``. Only ``Fetching`` assigns its fields.

    Attributes:
        at: the partition.
        offset: offset of the next record to return.
        fetch_offset: offset of the next Fetch. It is ``offset``, or the last offset of the previous batch if damage was
            seen behind that: base offsets have no checksum, and only together with the previous batch it shows that the
            next one is out of order.
        last_epoch: leader epoch of the previous batch; -1: not known.
        topic_id: id of the topic when it was first read; None: not known, or the cluster has no ids.
        busy: True if the partition is in a request, or has records or an error that wait for ``Fetching.take``.
        lost: True if its leader has to be found again.
        waits_until: it is not fetched before this time (the event loop's).
    """

    __slots__ = ("at", "backoff", "busy", "fetch_offset", "last_epoch", "lost", "offset", "topic_id", "waits_until")

    def __init__(self, at: TopicPartition, offset: int, backoff: Backoff, before: ReadBefore = NOTHING) -> None:
        self.at = at
        self.offset = self.fetch_offset = offset
        self.backoff = backoff
        self.topic_id, self.last_epoch = before
        self.busy = self.lost = False
        self.waits_until = 0.0

    @property
    def name(self) -> str:
        """The partition's name in messages."""
        return f"{self.at.topic}-{self.at.partition}"

    def wait(self, now: float) -> None:
        """Takes note of a failure, and sets the pause before the next try. ``now``: the event loop's time."""
        self.waits_until = now + self.backoff.next_s()

    def error(self, kind: Callable[..., E], told: str) -> E:
        """Returns an error of this kind that names the partition and its offset."""
        message = f"{self.name} at offset {self.offset}: {told}"
        return kind(message, topic=self.at.topic, partition=self.at.partition, offset=self.offset)


class FetchedRecords(NamedTuple):
    """The result of fetching one partition: ``records``, which end before ``next_offset``, or an ``error``.
    ``leader_epoch``: of the last batch."""

    cursor: RawCursor
    records: list[ConsumerRecord]
    next_offset: int
    leader_epoch: int
    error: RawError | None = None
