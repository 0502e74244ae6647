"""The records of a flow that outlive every process: which flow it is, what each partition is, why it halted.

A consumer group's metadata cannot hold them, since they are deleted together with the topic. They are in the internal
topic beside checkpoints and maps (``offsetmap.entries.checkpoint``). A version that does not know a kind ignores it.

Pure.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from mirror.offsetmap import fields
from mirror.offsetmap.entries.keys import VERSION, Subject, dump, key_of
from mirror.records.header import HEADER_SIZE, MAGIC_AT, PRODUCER_ID_AT, RECORD_COUNT_AT, BatchHeader

DIGEST_SIZE = 8
MOST_HOPS = 128
"""Maximum number of flows that are recorded as feeding one partition. If there are more, these are the nearest ones."""


def header_digest(header: bytes | memoryview) -> str:
    """Returns a digest of a batch's 61 header bytes as the source has them, without base offset, length and leader
    epoch: 16 hexadecimal digits. The checksum is among these bytes, so the records are covered as well.

    If the batch stands for old messages, the digest covers only the fields about the last message. The others depend on
    how many messages are in it and on the library that compressed it."""
    told = header[MAGIC_AT:HEADER_SIZE]
    if BatchHeader.read(header).is_stand_in:
        told = header[PRODUCER_ID_AT:RECORD_COUNT_AT]
    return hashlib.blake2b(told, digest_size=DIGEST_SIZE).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowEntry:
    """A flow that writes to this destination. The producer ids of its batches are computed from its id and the source
    cluster's id (``records.identity``), so this entry identifies the flow of a foreign batch."""

    flow: str
    """The flow's id (``flow.id``)."""
    source_cluster: str
    """The source's cluster id; empty if it has none."""
    destination_cluster: str
    at_ms: int = 0

    def key(self) -> bytes:
        """Returns the key: one for each flow id and source cluster."""
        return dump({"kind": "flow", "flow": self.flow, "source_cluster": self.source_cluster})

    def value(self) -> bytes:
        """Returns the value, in JSON."""
        return dump({"v": VERSION, "destination_cluster": self.destination_cluster, "at_ms": self.at_ms})

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """Reads what ``key`` and ``value`` made."""
        return cls(
            flow=fields.label(key, "flow"),
            source_cluster=fields.label(key, "source_cluster"),
            destination_cluster=fields.label(value, "destination_cluster"),
            at_ms=fields.at_ms(value),
        )


class LastCopied(NamedTuple):
    """The part of a source partition that was known to be copied at some moment."""

    offset: int
    """Everything before this source offset was at the destination."""
    leader_epoch: int = -1
    """The epoch of the source's leader from which it was read: no record before ``offset`` has a higher one. -1: not
    known."""
    digest: str = ""
    """``header_digest`` of the last batch that was copied; empty: not known."""
    digest_at: int = -1
    """The offset behind that batch; at most ``offset``. -1: not known."""

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sorts notes; the highest one is the newest. The epoch comes first, because records that both sides have lost
        are copied again from a later leader. Of two owners that have copied equally far, the note with a digest is
        better."""
        return self.leader_epoch, self.offset, self.digest_at

    @classmethod
    def load(cls, value: Mapping[str, Any]) -> Self | None:
        """Reads the field ``copied`` of a record; None if it is null."""
        if value["copied"] is None:
            return None
        offset, leader_epoch, digest, digest_at = value["copied"]
        told = {"offset": offset, "leader_epoch": leader_epoch, "digest_at": digest_at}
        return cls(
            fields.number(told, "offset"),
            fields.number(told, "leader_epoch", least=-1, most=fields.MOST_I32),
            fields.digest(digest),
            fields.number(told, "digest_at", least=-1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The identity of a partition: the topics that it was copied from and into. It is written before the first batch,
    filler or marker, and replaced when an operator resumes over a change."""

    subject: Subject
    source_id: str | None
    """Topic id in hexadecimal, if the cluster has one."""
    destination_id: str | None
    source_cluster: str = ""
    """The source's cluster id."""
    copied: LastCopied | None = None
    """The note of what had been copied when this was written; see ``Note``. None: nothing yet, or not known."""
    accepted: int = 0
    """An operator has accepted what the destination has before this offset: earlier notes do not count for it."""
    offsets: str = ""
    """The setting of this name under which all of the partition was copied, as are the next two; empty in records of
    versions that did not note it."""
    isolation_level: str = ""
    identity: str = ""
    gaps_to: int = 0
    """Records of the source that the destination lacks before this offset were given up by decision: markers take their
    place."""
    aborted_to: int = 0
    """The offsets of aborted transactions before this one are filled, whatever ``isolation_level`` says."""
    replaced: bool = False
    """True if an operator has resumed over a source topic that took the place of another one. Then the destination must
    be shown to hold a copy of the new topic; it is not assumed."""
    adopted: int = 0
    """The batches before this offset are not the flow's, but are at the right offsets: the flow leads back to the
    cluster from which its source was copied (``mirror cutover --reverse``)."""
    adopted_epoch: int = -1
    """The epoch of the destination's leader when these batches were certified. A batch of a later epoch was written
    since, in the place of something that was lost. -1: not known."""
    at_ms: int = 0

    def key(self) -> bytes:
        """Returns the key: one for each partition."""
        return pin_key(self.subject)

    def value(self) -> bytes:
        """Returns the value, in JSON."""
        return dump(
            {
                "v": VERSION,
                "source_id": self.source_id,
                "destination_id": self.destination_id,
                "source_cluster": self.source_cluster,
                "copied": self.copied,
                "accepted": self.accepted,
                "offsets": self.offsets,
                "isolation_level": self.isolation_level,
                "identity": self.identity,
                "gaps_to": self.gaps_to,
                "aborted_to": self.aborted_to,
                "replaced": self.replaced,
                "adopted": self.adopted,
                "adopted_epoch": self.adopted_epoch,
                "at_ms": self.at_ms,
            }
        )

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """Reads what ``key`` and ``value`` made. Older versions wrote neither the settings nor the decisions."""
        value = {"offsets": "", "isolation_level": "", "identity": "", "gaps_to": 0, "aborted_to": 0} | dict(value)
        value.setdefault("replaced", False)
        value.setdefault("adopted", 0)
        value.setdefault("adopted_epoch", -1)
        return cls(
            subject=Subject.of(key),
            source_id=fields.topic_id(value, "source_id"),
            destination_id=fields.topic_id(value, "destination_id"),
            source_cluster=fields.label(value, "source_cluster"),
            copied=LastCopied.load(value),
            accepted=fields.number(value, "accepted"),
            offsets=fields.label(value, "offsets"),
            isolation_level=fields.label(value, "isolation_level"),
            identity=fields.label(value, "identity"),
            gaps_to=fields.number(value, "gaps_to"),
            aborted_to=fields.number(value, "aborted_to"),
            replaced=fields.flag(value, "replaced"),
            adopted=fields.number(value, "adopted"),
            adopted_epoch=fields.number(value, "adopted_epoch", least=-1, most=fields.MOST_I32),
            at_ms=fields.at_ms(value),
        )


HALTED = "halted"
"""``Note.writer`` in the note of what was due when a partition halted, whichever worker wrote it: records from
``copied.offset`` on were due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note of what one owner of a partition knows to be copied last. Several owners may write at the same time, so
    each has its own key. The newest note by its content (``LastCopied.rank``) counts, in whatever order they are
    written."""

    subject: Subject
    writer: str
    source_id: str | None
    """Topic ids, as in a ``Pin``. The note does not count for other topics."""
    destination_id: str | None
    copied: LastCopied
    at_ms: int = 0

    def key(self) -> bytes:
        """Returns the key: one for each partition and writer."""
        return key_of("copied", self.subject, writer=self.writer)

    def value(self) -> bytes:
        """Returns the value, in JSON."""
        return dump(
            {
                "v": VERSION,
                "source_id": self.source_id,
                "destination_id": self.destination_id,
                "copied": self.copied,
                "at_ms": self.at_ms,
            }
        )

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """Reads what ``key`` and ``value`` made."""
        copied = LastCopied.load(value)
        if copied is None:
            raise ValueError("copied is nothing")
        return cls(
            subject=Subject.of(key),
            writer=fields.label(key, "writer"),
            source_id=fields.topic_id(value, "source_id"),
            destination_id=fields.topic_id(value, "destination_id"),
            copied=copied,
            at_ms=fields.at_ms(value),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptHalt:
    """The halt of a partition. It holds for every worker that takes the partition over, until an operator resumes
    it."""

    subject: Subject
    reason: str
    detail: str
    remedy: str
    at_ms: int
    source_id: str | None = None
    """The topic ids at that time. The halt does not count for other topics."""
    destination_id: str | None = None

    def key(self) -> bytes:
        """Returns the key: one for each partition."""
        return halt_key(self.subject)

    def value(self) -> bytes:
        """Returns the value, in JSON."""
        return dump(
            {
                "v": VERSION,
                "reason": self.reason,
                "detail": self.detail,
                "remedy": self.remedy,
                "source_id": self.source_id,
                "destination_id": self.destination_id,
                "at_ms": self.at_ms,
            }
        )

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """Reads what ``key`` and ``value`` made."""
        return cls(
            subject=Subject.of(key),
            reason=fields.label(value, "reason"),
            detail=fields.prose(value, "detail"),
            remedy=fields.prose(value, "remedy"),
            source_id=fields.topic_id(value, "source_id"),
            destination_id=fields.topic_id(value, "destination_id"),
            at_ms=fields.at_ms(value),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLoop:
    """The decision of an operator to resume a partition although its records come back through another flow
    (``relay.durable.loops``), or although another flow copies it as well (``relay.durable.flows``)."""

    subject: Subject
    by: str
    """The other flow: its internal topic, which is at the source unless this says "at the destination"; or its edge in
    a ring (``loops.by_of``)."""
    digest: str
    """A digest of what the other flow had recorded about the partition at that time. What it records later is not
    accepted."""

    def key(self) -> bytes:
        """Returns the key: one for each partition and flow."""
        return loop_key(self.subject, self.by)

    def value(self) -> bytes:
        """Returns the value, in JSON."""
        return dump({"v": VERSION, "digest": self.digest})

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """Reads what ``key`` and ``value`` made."""
        return cls(subject=Subject.of(key), by=fields.label(key, "by"), digest=fields.label(value, "digest"))


class Edge(NamedTuple):
    """A flow that copies a topic of one cluster into a topic of another. Partitions keep their numbers, so an edge
    tells for each partition where its records come from."""

    flow: str
    """The flow's id."""
    source_cluster: str
    """The source's cluster id; ``destination_cluster`` likewise."""
    topic: str
    destination_cluster: str
    into: str
    """The destination topic."""


class Hop(NamedTuple):
    """One flow on the way of a partition's records."""

    edge: Edge
    digest: str
    """A digest of what the flow has recorded about the partition. It changes whenever the flow has copied more."""
    at_ms: int
    """When the next flow on the way first saw this digest. If there are several hops for an edge, the latest counts."""

    @classmethod
    def load(cls, row: object) -> Self:
        """Reads one row of the field ``hops`` of a record."""
        if type(row) is not list or len(row) != len(_HOP):
            raise ValueError("a hop is not a list of its fields")
        told = dict(zip(_HOP, row, strict=True))
        edge = Edge(
            flow=fields.label(told, "flow"),
            source_cluster=fields.label(told, "source_cluster"),
            topic=fields.topic(told, "topic"),
            destination_cluster=fields.label(told, "destination_cluster"),
            into=fields.topic(told, "into"),
        )
        return cls(edge, fields.digest(told["digest"]), fields.at_ms(told))


_HOP = (*Edge._fields, "digest", "at_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The flows that feed the source partition of a flow, as far back as they are known (``relay.durable.loops``). A
    flow that copies from this flow's destination reads this entry there, to know where its records come from."""

    subject: Subject
    hops: tuple[Hop, ...]
    """The nearest flow first; no edge twice."""
    at_ms: int = 0

    def key(self) -> bytes:
        """Returns the key: one for each partition."""
        return upstream_key(self.subject)

    def value(self) -> bytes:
        """Returns the value, in JSON."""
        hops = [[*hop.edge, hop.digest, hop.at_ms] for hop in self.hops]
        return dump({"v": VERSION, "hops": hops, "at_ms": self.at_ms})

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """Reads what ``key`` and ``value`` made."""
        rows = value["hops"]
        if type(rows) is not list or len(rows) > MOST_HOPS:
            raise ValueError(f"hops is not a list of at most {MOST_HOPS}")
        hops = tuple(Hop.load(row) for row in rows)
        if len({hop.edge for hop in hops}) < len(hops):
            raise ValueError("a hop is there twice")
        return cls(subject=Subject.of(key), hops=hops, at_ms=fields.at_ms(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What the destination's leader remembered of the last checkpoint's producer before a fence, which makes it forget.
    It is written before the fence and again after it, for the next takeover in case this one does not finish."""

    subject: Subject
    producer_id: int
    epoch: int
    last_sequence: int
    """The producer's last sequence before ``end``; -1: it had written nothing in this epoch."""
    end: int
    """The end of the destination's log when the leader was asked. Batches that were appended behind it do not count."""
    fenced: bool
    """True if nothing of the producer can have been appended behind ``end``."""

    def key(self) -> bytes:
        """Returns the key: one for each partition."""
        return remembered_key(self.subject)

    def value(self) -> bytes:
        """Returns the value, in JSON."""
        producer = [self.producer_id, self.epoch, self.last_sequence]
        return dump({"v": VERSION, "producer": producer, "end": self.end, "fenced": self.fenced})

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """Reads what ``key`` and ``value`` made."""
        producer_id, epoch, last_sequence = fields.numbers(
            value, "producer", (-1, fields.MOST), (-1, fields.MOST_I16), (-1, fields.MOST_I32)
        )
        return cls(
            subject=Subject.of(key),
            producer_id=producer_id,
            epoch=epoch,
            last_sequence=last_sequence,
            end=fields.number(value, "end"),
            fenced=fields.flag(value, "fenced"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """The settings to restore at a destination topic whose cleanup was suspended, if the process that suspended it dies
    (``relay.leading.cleanup``). It is written before cleanup is suspended, and is never removed: the next suspension
    writes a newer one."""

    topic: str
    topic_id: str | None
    """The topic id in hexadecimal. The entry does not count for another topic of this name."""
    values: Mapping[str, str | None]
    """Config name -> the topic's own value; None: it has no own value, and follows its broker."""

    def key(self) -> bytes:
        """Returns the key: one for each topic."""
        return suspended_key(self.topic)

    def value(self) -> bytes:
        """Returns the value, in JSON."""
        return dump({"v": VERSION, "topic_id": self.topic_id, "values": dict(self.values)})

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """Reads what ``key`` and ``value`` made."""
        values = value["values"]
        return cls(
            topic=fields.topic(key, "topic"),
            topic_id=fields.topic_id(value, "topic_id"),
            values={name: None if values[name] is None else fields.label(values, name) for name in values},
        )


def suspended_key(topic: str) -> bytes:
    """Returns the key of a destination topic's ``Suspended``."""
    return dump({"kind": "suspended", "topic": topic})


def pin_key(subject: Subject) -> bytes:
    """Returns the key of a partition's ``Pin``."""
    return key_of("partition", subject)


def halt_key(subject: Subject) -> bytes:
    """Returns the key of a partition's ``KeptHalt``."""
    return key_of("halt", subject)


def remembered_key(subject: Subject) -> bytes:
    """Returns the key of a partition's ``Remembered``."""
    return key_of("remembered", subject)


def loop_key(subject: Subject, by: str) -> bytes:
    """Returns the key of a partition's ``AcceptedLoop``."""
    return key_of("loop", subject, by=by)


def upstream_key(subject: Subject) -> bytes:
    """Returns the key of a partition's ``Upstream``."""
    return key_of("upstream", subject)
