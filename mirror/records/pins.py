"""What of a flow and its partitions outlives every process: who the flow is, what each partition is, why it halted.

A group's metadata cannot hold it, since a deleted topic takes that along. These are records of the internal topic
beside checkpoints and maps (``records.state``). A program that does not know them passes over them.

Pure.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from mirror.records.header import HEADER_SIZE, MAGIC_AT
from mirror.records.keys import VERSION, Side, dump, key_of

DIGEST_SIZE = 8


def header_digest(header: bytes | memoryview) -> str:
    """Of a batch's 61 header bytes as the source has them, without base offset, length and leader epoch; its checksum
    is among them, so the records are covered as well. 16 hexadecimal digits."""
    return hashlib.blake2b(header[MAGIC_AT:HEADER_SIZE], digest_size=DIGEST_SIZE).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A flow that writes to this destination. Its id and the source cluster's make the producer ids of its batches
    (``records.identity``), so a batch of another flow can be told by name."""

    flow: str
    """The flow's id (``flow.id``)."""
    source_cluster: str
    """Cluster id of the source; empty where it has none."""
    destination_cluster: str
    at_ms: int = 0

    def key(self) -> bytes:
        """One for each flow id and source cluster."""
        return dump({"kind": "flow", "flow": self.flow, "source_cluster": self.source_cluster})

    def value(self) -> bytes:
        """JSON."""
        return dump({"v": VERSION, "destination_cluster": self.destination_cluster, "at_ms": self.at_ms})

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """As ``key`` and ``value`` made them."""
        return cls(
            flow=key["flow"],
            source_cluster=key["source_cluster"],
            destination_cluster=value["destination_cluster"],
            at_ms=value["at_ms"],
        )


class LastCopied(NamedTuple):
    """What of a source partition was known to be copied at some moment."""

    offset: int
    """All before it was at the destination."""
    leader_epoch: int = -1
    """Of the source's leader that it was read from: no record before ``offset`` had a higher one. -1: not known."""
    digest: str = ""
    """``header_digest`` of the last batch; empty: not known."""
    digest_at: int = -1
    """The offset behind that batch; at most ``offset``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """What a partition is: the topics that it was copied from and into. Written before the first batch, padding or
    marker; replaced when an operator resumes over a change."""

    side: Side
    source_id: str | None
    """Topic id in hexadecimal, where the cluster has one."""
    destination_id: str | None
    source_cluster: str = ""
    """Cluster id."""
    copied: LastCopied | None = None
    """None: nothing yet, or not known."""
    accepted: int = 0
    """An operator has accepted what stands before this offset as it is: what was known of it before says nothing."""
    at_ms: int = 0

    def key(self) -> bytes:
        """One for each partition."""
        return pin_key(self.side)

    def value(self) -> bytes:
        """JSON."""
        return dump(
            {
                "v": VERSION,
                "source_id": self.source_id,
                "destination_id": self.destination_id,
                "source_cluster": self.source_cluster,
                "copied": self.copied,
                "accepted": self.accepted,
                "at_ms": self.at_ms,
            }
        )

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """As ``key`` and ``value`` made them."""
        copied = value["copied"]
        return cls(
            side=Side.of(key),
            source_id=value["source_id"],
            destination_id=value["destination_id"],
            source_cluster=value["source_cluster"],
            copied=None if copied is None else LastCopied(*copied),
            accepted=value["accepted"],
            at_ms=value["at_ms"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """A partition has stopped, and stays so for whoever takes it over, until an operator resumes it."""

    side: Side
    reason: str
    detail: str
    remedy: str
    at_ms: int
    source_id: str | None = None
    """Topic ids as they were then: of other topics the halt says nothing."""
    destination_id: str | None = None

    def key(self) -> bytes:
        """One for each partition."""
        return halt_key(self.side)

    def value(self) -> bytes:
        """JSON."""
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
        """As ``key`` and ``value`` made them."""
        return cls(
            side=Side.of(key),
            reason=value["reason"],
            detail=value["detail"],
            remedy=value["remedy"],
            source_id=value["source_id"],
            destination_id=value["destination_id"],
            at_ms=value["at_ms"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What the destination's leader remembered of the last checkpoint's producer before a fence that makes it forget.
    Written before that fence and behind it, for whoever takes over next if this takeover gets no further."""

    side: Side
    producer_id: int
    epoch: int
    last_sequence: int
    """Of the producer's last batch below ``end``; -1: it had written nothing in this epoch."""
    end: int
    """Of the destination's log: what was appended behind was not looked at."""
    fenced: bool
    """Nothing of the producer can have been appended behind."""

    def key(self) -> bytes:
        """One for each partition."""
        return remembered_key(self.side)

    def value(self) -> bytes:
        """JSON."""
        producer = [self.producer_id, self.epoch, self.last_sequence]
        return dump({"v": VERSION, "producer": producer, "end": self.end, "fenced": self.fenced})

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """As ``key`` and ``value`` made them."""
        producer_id, epoch, last_sequence = value["producer"]
        return cls(
            side=Side.of(key),
            producer_id=producer_id,
            epoch=epoch,
            last_sequence=last_sequence,
            end=value["end"],
            fenced=value["fenced"],
        )


def pin_key(side: Side) -> bytes:
    """Of a partition's ``Pin``."""
    return key_of("partition", side)


def halt_key(side: Side) -> bytes:
    """Of a partition's ``Halt``."""
    return key_of("halt", side)


def remembered_key(side: Side) -> bytes:
    """Of a partition's ``Remembered``."""
    return key_of("remembered", side)
