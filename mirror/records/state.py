"""What the mirror writes down at the destination, record by record: checkpoints, offset maps, skipped ranges, and what
flows and partitions are (``records.pins``).

Each is one record of a compacted topic, key and value in JSON, so that operators can read it with any consumer. The
newest record of a key counts, and one without a value takes the key away.

Several workers may write about one partition at the same time: one that owns it and one that has lost it and does not
know yet. So no two of them share a key (``writer``), and whatever order their records come in, ``Ledger`` finds the
same truth: of two accounts of one partition the one with the higher ``order`` counts, from its first source offset on.

Pure.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple, Self

from mirror.records.identity import Identity
from mirror.records.keys import VERSION, Side, dump, key_of
from mirror.records.mapping import MapError, OffsetMap
from mirror.records.pins import Flow, Halt, Pin, Remembered, halt_key, pin_key, remembered_key

__all__ = [
    "CHUNK_RUNS",
    "Checkpoint",
    "Chunk",
    "Entry",
    "Flow",
    "Halt",
    "Ledger",
    "Order",
    "Pin",
    "Remembered",
    "Side",
    "Skipped",
    "StateError",
    "joined",
    "read_entry",
]

CHUNK_RUNS = 1024
"""Runs of one map record. A full one is never written again; at most some 30 KB of JSON."""


class StateError(ValueError):
    """A record that no mirror of this version wrote. The message has its key."""


class Order(NamedTuple):
    """Which of two accounts of a partition is the later one: takeovers counted, then who the coordinator gave it."""

    takeover: int
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """All before ``source_offset`` is at the destination, before ``destination_offset``; what the flow wrote there from
    then on are the source's batches from ``source_offset`` on. True at any time after: only ever superseded."""

    side: Side
    writer: str
    order: Order
    source_offset: int
    source_epoch: int
    """Leader epoch of the source's batch before ``source_offset``; -1 if not known."""
    destination_offset: int
    identity: Identity
    """Of the next batch."""
    source_id: str | None = None
    """Topic id in hexadecimal, where the cluster has one."""
    destination_id: str | None = None
    at_ms: int = 0
    own: tuple[int, ...] = ()
    """Producer ids under which the partition was ever written, that of ``identity`` among them; empty in records of
    versions that did not note them."""
    closed: bool = False
    """Its writer stopped with nothing under way: it sent nothing behind this."""

    def key(self) -> bytes:
        """One for each writer."""
        return key_of("checkpoint", self.side, writer=self.writer)

    def value(self) -> bytes:
        """JSON."""
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
            }
        )

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """As ``key`` and ``value`` made them."""
        return cls(
            side=Side.of(key),
            writer=key["writer"],
            order=Order(*value["order"]),
            source_offset=value["source"],
            source_epoch=value["source_epoch"],
            source_id=value["source_id"],
            destination_offset=value["destination"],
            destination_id=value["destination_id"],
            identity=Identity(*value["identity"]),
            at_ms=value["at_ms"],
            own=tuple(value.get("own", ())),
            closed=value.get("closed", False),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a partition's map: what ``writer`` has copied, ``number`` counting its chunks from 0.

    ``since`` is the source offset from which this writer's account counts, instead of all of lower order."""

    side: Side
    writer: str
    order: Order
    number: int
    since: int
    map: OffsetMap
    sealed: bool = False
    """Full: nothing is added to it any more."""

    def key(self) -> bytes:
        """One for each chunk of each writer."""
        return key_of("map", self.side, writer=self.writer, chunk=self.number)

    def value(self) -> bytes:
        """JSON."""
        return dump(
            {"v": VERSION, "order": self.order, "since": self.since, "sealed": self.sealed, "runs": self.map.pack()}
        )

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """As ``key`` and ``value`` made them."""
        return cls(
            side=Side.of(key),
            writer=key["writer"],
            order=Order(*value["order"]),
            number=key["chunk"],
            since=value["since"],
            map=OffsetMap.unpack(value["runs"]),
            sealed=value["sealed"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Source offsets that were not copied, by the operator's decision or policy: ``start`` up to before ``end``."""

    side: Side
    start: int
    end: int
    cause: str
    """A stable name: the reason of the halt that this went over, such as ``unexplained_gap``."""
    at_ms: int

    def key(self) -> bytes:
        """One for each range."""
        return key_of("skipped", self.side, start=self.start)

    def value(self) -> bytes:
        """JSON."""
        return dump({"v": VERSION, "end": self.end, "cause": self.cause, "at_ms": self.at_ms})

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """As ``key`` and ``value`` made them."""
        return cls(side=Side.of(key), start=key["start"], end=value["end"], cause=value["cause"], at_ms=value["at_ms"])


Entry = Checkpoint | Chunk | Skipped | Flow | Pin | Halt | Remembered
_KINDS: dict[str, type[Entry]] = {
    "checkpoint": Checkpoint,
    "map": Chunk,
    "skipped": Skipped,
    "flow": Flow,
    "partition": Pin,
    "halt": Halt,
    "remembered": Remembered,
}


def read_entry(key: bytes, value: bytes) -> Entry | None:
    """The entry of one record; None for a kind that this version does not know, and for a key that is none of ours.

    Raises:
        StateError: a key of ours, and a value that is not.
    """
    try:
        named = json.loads(key)
    except ValueError:
        return None
    kind = _KINDS.get(str(named.get("kind"))) if isinstance(named, dict) else None
    if kind is None:
        return None
    try:
        told = json.loads(value)
        if told["v"] != VERSION:
            raise StateError(f"{key!r} is of version {told['v']}; this program knows {VERSION}")
        return kind.load(named, told)
    except (ValueError, KeyError, TypeError, MapError) as error:
        if isinstance(error, StateError):
            raise
        raise StateError(f"{key!r}: {type(error).__name__}: {error}") from error


def joined(chunks: Iterable[Chunk]) -> OffsetMap:
    """The map that these chunks of one partition make together, given in the order in which they count."""
    found = OffsetMap()
    writer = ""
    for chunk in chunks:
        if chunk.writer != writer:
            writer = chunk.writer
            found.truncate(chunk.since)
            if len(chunk.map):
                # A log that lost its end and was written again: the older account says more than there is.
                found.truncate_destination(chunk.map[0].destination)
        found.extend(chunk.map)
    return found


@dataclass(slots=True)
class _Account:
    """What is known of one side."""

    checkpoints: dict[bytes, Checkpoint] = field(default_factory=dict)
    chunks: dict[bytes, Chunk] = field(default_factory=dict)


@dataclass(slots=True)
class Ledger:
    """All entries that count, by key. ``apply`` records in the order of the log.

    A ``lean`` one keeps of each sealed chunk its first run only: what a worker needs, however long the maps are."""

    lean: bool = False
    _accounts: dict[Side, _Account] = field(default_factory=dict)
    _sides: dict[bytes, Side] = field(default_factory=dict)
    _skipped: dict[bytes, Skipped] = field(default_factory=dict)
    _pinned: dict[bytes, Flow | Pin | Halt | Remembered] = field(default_factory=dict)

    def apply(self, key: bytes, value: bytes | None) -> None:
        """One record; ``value`` None takes the key away.

        Raises:
            StateError: see ``read_entry``.
        """
        if value is None:
            self.forget(key)
        elif (entry := read_entry(key, value)) is not None:
            self.put(entry)

    def put(self, entry: Entry) -> None:
        """The newest of its key."""
        key = entry.key()
        if isinstance(entry, Skipped):
            self._skipped[key] = entry
            return
        if isinstance(entry, Flow | Pin | Halt | Remembered):
            self._pinned[key] = entry
            return
        account = self._accounts.setdefault(entry.side, _Account())
        self._sides[key] = entry.side
        if isinstance(entry, Checkpoint):
            account.checkpoints[key] = entry
        elif self.lean and entry.sealed:
            account.chunks[key] = replace(entry, map=OffsetMap(islice(entry.map, 1)))
        else:
            account.chunks[key] = entry

    def forget(self, key: bytes) -> None:
        """There is no such entry any more."""
        self._skipped.pop(key, None)
        self._pinned.pop(key, None)
        side = self._sides.pop(key, None)
        if side is not None:
            self._accounts[side].checkpoints.pop(key, None)
            self._accounts[side].chunks.pop(key, None)

    # -- what it says ------------------------------------------------------------------------------------------------

    @property
    def sides(self) -> list[Side]:
        """What there is a checkpoint of."""
        return sorted(side for side, account in self._accounts.items() if account.checkpoints)

    def checkpoints(self, side: Side) -> list[Checkpoint]:
        """All of this partition, the one that counts last."""
        account = self._accounts.get(side)
        return sorted(account.checkpoints.values(), key=lambda one: one.order) if account else []

    def checkpoint(self, side: Side) -> Checkpoint | None:
        """The one that counts."""
        found = self.checkpoints(side)
        return found[-1] if found else None

    def own(self, side: Side) -> set[int]:
        """Every producer id under which this partition was ever written, as far as it was noted."""
        account = self._accounts.get(side)
        if account is None:
            return set()
        known = {chunk.order.producer_id for chunk in account.chunks.values()}
        for one in account.checkpoints.values():
            known.update(one.own, (one.identity.producer_id,))
        return known

    def chunks(self, side: Side) -> list[Chunk]:
        """All of this partition, in the order in which they count."""
        account = self._accounts.get(side)
        return sorted(account.chunks.values(), key=lambda one: (one.order, one.number)) if account else []

    def map(self, side: Side) -> OffsetMap:
        """The whole map as it was written down. Not to be had of a lean ledger."""
        assert not self.lean
        return joined(self.chunks(side))

    def skipped(self, topic: str | None = None) -> Iterator[Skipped]:
        """Ranges that were not copied, of one source topic or of all, in order."""
        for entry in sorted(self._skipped.values(), key=lambda one: (one.side, one.start)):
            if topic in (None, entry.side.topic):
                yield entry

    def pin(self, side: Side) -> Pin | None:
        """What this partition is, if that was written down."""
        found = self._pinned.get(pin_key(side))
        return found if isinstance(found, Pin) else None

    def halt(self, side: Side) -> Halt | None:
        """Why this partition has stopped, if it has."""
        found = self._pinned.get(halt_key(side))
        return found if isinstance(found, Halt) else None

    def remembered(self, side: Side) -> Remembered | None:
        """What was noted before this partition was last fenced."""
        found = self._pinned.get(remembered_key(side))
        return found if isinstance(found, Remembered) else None

    @property
    def halts(self) -> list[Halt]:
        """Of all partitions, in order."""
        return sorted((one for one in self._pinned.values() if isinstance(one, Halt)), key=lambda one: one.side)

    @property
    def flows(self) -> list[Flow]:
        """Whose topic this is; more than one if it was shared, or the source cluster was replaced."""
        return [one for one in self._pinned.values() if isinstance(one, Flow)]
