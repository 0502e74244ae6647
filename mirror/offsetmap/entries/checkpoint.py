"""Checkpoints (the position of a partition, by writer), and the ranges that were skipped."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from mirror.offsetmap import fields
from mirror.offsetmap.entries.chunks import Order
from mirror.offsetmap.entries.keys import VERSION, Subject, dump, key_of
from mirror.offsetmap.entries.passed import DEAD_LETTER, DROPPED
from mirror.offsetmap.entries.pins import LastCopied
from mirror.records.identity import Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """States that everything before ``source_offset`` is at the destination, before ``destination_offset``, and that
    the flow's batches from there on are the source's from ``source_offset`` on. This stays true: a checkpoint is only
    ever superseded."""

    subject: Subject
    writer: str
    order: Order
    source_offset: int
    source_epoch: int
    """Leader epoch of the source's batch before ``source_offset``; -1 if not known."""
    destination_offset: int
    identity: Identity
    """The identity of the next batch."""
    source_id: str | None = None
    """Topic id in hexadecimal, if the cluster has one."""
    destination_id: str | None = None
    at_ms: int = 0
    own: tuple[int, ...] = ()
    """All producer ids under which the partition was ever written, including that of ``identity``; empty in records of
    versions that did not note them."""
    closed: bool = False
    """True if its writer has sent nothing behind this checkpoint: it stopped with nothing in flight, or is not
    confirmed yet."""
    confirmed: bool = True
    """True if its writer still owned the partition after its first checkpoint. Nothing is sent before that."""
    copied: LastCopied | None = None
    """The note with which the source is checked for what was copied. None in records of versions that did not note
    it."""
    isolation_level: str = ""
    """The setting under which the partition is copied; empty in records of versions that did not note it."""
    unused: bool = False
    """True if no writer had copied anything when this was written; False in records of versions that did not note
    it."""

    @property
    def rank(self) -> tuple[int, bool, Order]:
        """The checkpoint with the highest rank counts. Of several checkpoints of one takeover, all but one were written
        by workers that had already lost the partition. That one is confirmed, or nothing was sent yet. Producer ids do
        not tell which one it is, since a later one may be lower."""
        return self.order.takeover, self.confirmed, self.order

    def key(self) -> bytes:
        """Returns the key: one for each writer."""
        return key_of("checkpoint", self.subject, writer=self.writer)

    def value(self) -> bytes:
        """Returns the value, in JSON."""
        return dump(
            {
                "v": VERSION,
                "order": self.order,
                "source": self.source_offset,
                "source_epoch": self.source_epoch,
                "source_id": self.source_id,
                "destination": self.destination_offset,
                "destination_id": self.destination_id,
                "identity": [self.identity.producer_id, self.identity.epoch, self.identity.sequence],
                "at_ms": self.at_ms,
                "own": self.own,
                "closed": self.closed,
                "confirmed": self.confirmed,
                "copied": self.copied,
                "isolation_level": self.isolation_level,
                "unused": self.unused,
            }
        )

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """Reads what ``key`` and ``value`` made. Older versions did not write the last six fields."""
        older: dict[str, Any] = {"own": [], "closed": False, "confirmed": True, "copied": None, "isolation_level": ""}
        value = older | {"unused": False} | dict(value)
        return cls(
            subject=Subject.of(key),
            writer=fields.label(key, "writer"),
            order=Order.load(value),
            source_offset=fields.number(value, "source"),
            source_epoch=fields.number(value, "source_epoch", least=-1, most=fields.MOST_I32),
            source_id=fields.topic_id(value, "source_id"),
            destination_offset=fields.number(value, "destination"),
            destination_id=fields.topic_id(value, "destination_id"),
            identity=Identity(
                *fields.numbers(value, "identity", (-1, fields.MOST), (-1, fields.MOST_I16), (-1, fields.MOST_I32))
            ),
            at_ms=fields.at_ms(value),
            own=tuple(fields.numbers(value, "own", *[(-1, fields.MOST)] * len(value["own"]))),
            closed=fields.flag(value, "closed"),
            confirmed=fields.flag(value, "confirmed"),
            copied=LastCopied.load(value),
            isolation_level=fields.label(value, "isolation_level"),
            unused=fields.flag(value, "unused"),
        )


_WORDS = {
    "on.gap": "could not be copied; going on without them was accepted",
    "unproven": "not shown to be copied; taking that on trust was accepted",
    "retention_overtook": "deleted by the source while the partition was halted, before they were copied",
    "never_arrived": "refused by the destination; going on without them was accepted",
    DROPPED: "records too large for the destination; dropped, as the configuration says",
    DEAD_LETTER: "records too large for the destination; in the dead letter topic, as the configuration says",
}


def in_words(cause: str) -> str:
    """Returns the cause of a skipped range in words, for people."""
    return _WORDS.get(cause, cause)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedOffsets:
    """Source offsets that were not copied, or not shown to be copied: from ``start`` up to but not including ``end``.
    Either somebody decided that, or the source deleted them while the partition was halted."""

    subject: Subject
    start: int
    end: int
    cause: str
    """A stable name: ``on.gap``, or the reason of the halt that was resumed (``in_words`` has texts)."""
    at_ms: int

    def key(self) -> bytes:
        """Returns the key: one for each range."""
        return key_of("skipped", self.subject, start=self.start)

    def value(self) -> bytes:
        """Returns the value, in JSON."""
        return dump({"v": VERSION, "end": self.end, "cause": self.cause, "at_ms": self.at_ms})

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """Reads what ``key`` and ``value`` made."""
        start = fields.number(key, "start")
        return cls(
            subject=Subject.of(key),
            start=start,
            end=fields.number(value, "end", least=start),
            cause=fields.label(value, "cause"),
            at_ms=fields.at_ms(value),
        )
