"""The records that the mirror writes down at the destination: checkpoints, offset maps, skipped ranges, and what flows
and partitions are (``offsetmap.pins``).

Each is one record of a compacted topic, key and value in JSON, so that operators can read it with any consumer. The
newest record of a key counts, and one without a value takes the key away.

Several workers may write about one partition at the same time: one that owns it, and one that has lost it and does not
know yet. So no two of them share a key (``writer``), and in whatever order their records come, ``Ledger`` finds the
same truth: of two accounts of one partition the one with the higher ``order`` counts, from its first source offset on.

Pure.
"""

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Self

from mirror.offsetmap import fields
from mirror.offsetmap.chunks import CHUNK_RUNS, Chunk, Order, joined, linked
from mirror.offsetmap.keys import VERSION, Side, dump, key_of
from mirror.offsetmap.pins import (
    HALTED,
    AcceptedLoop,
    Flow,
    KeptHalt,
    LastCopied,
    Note,
    Pin,
    Remembered,
    Suspended,
    Upstream,
    halt_key,
    loop_key,
    pin_key,
    remembered_key,
    suspended_key,
    upstream_key,
)
from mirror.offsetmap.runs import OffsetMap
from mirror.reasons import ELSEWHERE
from mirror.records.identity import Identity

__all__ = [
    "CHUNK_RUNS",
    "AcceptedLoop",
    "Checkpoint",
    "Chunk",
    "Entry",
    "Flow",
    "KeptHalt",
    "Ledger",
    "Note",
    "Order",
    "Pin",
    "Remembered",
    "Side",
    "Skipped",
    "StateError",
    "Upstream",
    "read_entry",
]

SHOWN = 500
"""Bytes of a key that a message shows at most."""


class StateError(ValueError):
    """A record that no mirror of this version wrote. The message has its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Says that all before ``source_offset`` is at the destination, before ``destination_offset``, and that the flow's
    batches from there on are the source's from ``source_offset`` on. It stays true: it is only ever superseded."""

    side: Side
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
    """Producer ids under which the partition was ever written, that of ``identity`` among them; empty in records of
    versions that did not note them."""
    closed: bool = False
    """True if its writer sent nothing behind this: it stopped with nothing under way, or is not confirmed yet."""
    confirmed: bool = True
    """True if the partition was still its writer's after its first checkpoint; before that, nothing is sent."""
    copied: LastCopied | None = None
    """The note by which the source is checked for what was copied. None in records of versions that did not note it."""
    isolation_level: str = ""
    """The setting under which the partition is copied; empty in records of versions that did not note it."""
    unused: bool = False
    """True if nothing was copied up to here, by anybody; False in records of versions that did not note it."""

    @property
    def rank(self) -> tuple[int, bool, Order]:
        """The checkpoint with the highest rank counts. All but one of a takeover's checkpoints were written by workers
        that had lost the partition by then: that one is confirmed, or nobody has sent anything. Producer ids say
        nothing, since a later one may be lower."""
        return self.order.takeover, self.confirmed, self.order

    def key(self) -> bytes:
        """Returns the key: one for each writer."""
        return key_of("checkpoint", self.side, writer=self.writer)

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
        """Reads what ``key`` and ``value`` made. Older versions did not write the last six."""
        older: dict[str, Any] = {"own": [], "closed": False, "confirmed": True, "copied": None, "isolation_level": ""}
        value = older | {"unused": False} | dict(value)
        return cls(
            side=Side.of(key),
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
}


def in_words(cause: str) -> str:
    """Returns the cause of a skipped range in words, for people."""
    return _WORDS.get(cause, cause)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Source offsets that were not copied, or not shown to be copied: ``start`` up to before ``end``. That was decided,
    or the source deleted them while the partition was halted."""

    side: Side
    start: int
    end: int
    cause: str
    """A stable name: ``on.gap``, or the reason of the halt that this went over (``in_words``)."""
    at_ms: int

    def key(self) -> bytes:
        """Returns the key: one for each range."""
        return key_of("skipped", self.side, start=self.start)

    def value(self) -> bytes:
        """Returns the value, in JSON."""
        return dump({"v": VERSION, "end": self.end, "cause": self.cause, "at_ms": self.at_ms})

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """Reads what ``key`` and ``value`` made."""
        start = fields.number(key, "start")
        return cls(
            side=Side.of(key),
            start=start,
            end=fields.number(value, "end", least=start),
            cause=fields.label(value, "cause"),
            at_ms=fields.at_ms(value),
        )


Pinned = Flow | Pin | KeptHalt | AcceptedLoop | Upstream | Remembered | Suspended
"""Entries of which the newest of a key counts, whatever else there is."""
Entry = Checkpoint | Chunk | Skipped | Note | Pinned
_KINDS: dict[str, type[Entry]] = {
    "checkpoint": Checkpoint,
    "map": Chunk,
    "skipped": Skipped,
    "flow": Flow,
    "partition": Pin,
    "copied": Note,
    "halt": KeptHalt,
    "loop": AcceptedLoop,
    "upstream": Upstream,
    "remembered": Remembered,
    "suspended": Suspended,
}


def read_entry(key: bytes, value: bytes) -> Entry | None:
    """Returns the entry of one record; None for a kind that this version does not know, and for a key that is not ours.

    Raises:
        StateError: the key is ours and the value is not, or the key is nearly one of ours.
    """
    try:
        named = json.loads(key)
    except (ValueError, RecursionError):
        return None
    kind = _KINDS.get(str(named.get("kind"))) if isinstance(named, dict) else None
    if kind is None:
        return None
    shown = repr(key[:SHOWN]) + ("..." if len(key) > SHOWN else "")
    try:
        told = json.loads(value)
        version = fields.number(told, "v")
        if version != VERSION:
            raise StateError(f"{shown} is of version {version}; this program knows {VERSION}")
        entry = kind.load(named, told)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, StateError):
            raise
        raise StateError(f"{shown}: {type(error).__name__}: {error}") from error
    if entry.key() != key:
        # Otherwise one entry could have two records, and the tombstone of either would not take the other away.
        raise StateError(f"{shown} is not written as {entry.key()!r}")
    return entry


@dataclass(slots=True)
class _Account:
    """The checkpoints, chunks and notes of one side."""

    checkpoints: dict[bytes, Checkpoint] = field(default_factory=dict)
    chunks: dict[bytes, Chunk] = field(default_factory=dict)
    notes: dict[bytes, Note] = field(default_factory=dict)


@dataclass(slots=True)
class Ledger:
    """All entries that count, by key. ``apply`` records in the order of the log.

    A ``lean`` ledger keeps only the first run of each sealed chunk: a worker needs no more, however long the maps are.
    With ``only``, it keeps the entries for which that returns True.
    """

    lean: bool = False
    only: Callable[[Entry], bool] | None = None
    _accounts: dict[Side, _Account] = field(default_factory=dict)
    _sides: dict[bytes, Side] = field(default_factory=dict)
    _skipped: dict[bytes, Skipped] = field(default_factory=dict)
    _pinned: dict[bytes, Pinned] = field(default_factory=dict)

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Applies one record; ``value`` None takes the key away.

        Raises:
            StateError: see ``read_entry``.
        """
        if value is None:
            self.forget(key)
        elif (entry := read_entry(key, value)) is not None:
            self.put(entry)

    def put(self, entry: Entry) -> None:
        """Keeps an entry, as the newest of its key."""
        if self.only is not None and not self.only(entry):
            return
        key = entry.key()
        if isinstance(entry, Skipped):
            self._skipped[key] = entry
            return
        if isinstance(entry, Pinned):
            self._pinned[key] = entry
            return
        account = self._accounts.setdefault(entry.side, _Account())
        self._sides[key] = entry.side
        if isinstance(entry, Checkpoint):
            account.checkpoints[key] = entry
        elif isinstance(entry, Note):
            account.notes[key] = entry
        elif self.lean and entry.sealed:
            account.chunks[key] = replace(entry, map=OffsetMap(islice(entry.map, 1)))
        else:
            account.chunks[key] = entry

    def forget(self, key: bytes) -> None:
        """Drops the entry with this key, if there is one."""
        self._skipped.pop(key, None)
        self._pinned.pop(key, None)
        side = self._sides.pop(key, None)
        if side is not None:
            self._accounts[side].checkpoints.pop(key, None)
            self._accounts[side].chunks.pop(key, None)
            self._accounts[side].notes.pop(key, None)

    def has(self, key: bytes) -> bool:
        """Returns True if there is an entry with this key."""
        return key in self._skipped or key in self._pinned or key in self._sides

    def about(self, sides: Container[Side]) -> list[Entry]:
        """Returns all entries of these partitions but checkpoints and maps."""
        pinned = [each for each in self._pinned.values() if not isinstance(each, Flow | Suspended)]
        notes = [note for account in self._accounts.values() for note in account.notes.values()]
        return [each for each in (*pinned, *self._skipped.values(), *notes) if each.side in sides]

    def of(self, side: Side) -> "Ledger":
        """Returns a copy of the checkpoints and chunks of one side, which what is applied later does not change."""
        found = Ledger(lean=self.lean)
        account = self._accounts.get(side)
        if account is not None:
            found._accounts[side] = _Account(dict(account.checkpoints), dict(account.chunks))
        return found

    # -- what it says ------------------------------------------------------------------------------------------------

    @property
    def sides(self) -> list[Side]:
        """The sides that have a checkpoint, in order."""
        return sorted(side for side, account in self._accounts.items() if account.checkpoints)

    @property
    def known(self) -> set[Side]:
        """The sides that have a checkpoint or a pin."""
        return {*self.sides, *(each.side for each in self._pinned.values() if isinstance(each, Pin))}

    def checkpoints(self, side: Side) -> list[Checkpoint]:
        """Returns all checkpoints of this partition. The one that counts is the last."""
        account = self._accounts.get(side)
        return sorted(account.checkpoints.values(), key=lambda one: one.rank) if account else []

    def checkpoint(self, side: Side) -> Checkpoint | None:
        """Returns the checkpoint that counts."""
        found = self.checkpoints(side)
        return found[-1] if found else None

    def own(self, side: Side) -> set[int]:
        """Returns every producer id under which this partition was ever written, as far as it was noted."""
        account = self._accounts.get(side)
        if account is None:
            return set()
        known = {chunk.order.producer_id for chunk in account.chunks.values()}
        for one in account.checkpoints.values():
            known.update(one.own, (one.identity.producer_id,))
        return known

    def chunks(self, side: Side) -> list[Chunk]:
        """Returns all chunks of this partition that count, in the order in which they do."""
        return [one for one in self._all_chunks(side) if one.writer not in self._void(side)]

    def void(self, side: Side) -> list[Chunk]:
        """Returns the chunks of this partition that do not count: of workers that had lost it before their first
        checkpoint. If no account of a takeover is confirmed, the last one counts, because the next is built on it."""
        return [one for one in self._all_chunks(side) if one.writer in self._void(side)]

    def _all_chunks(self, side: Side) -> list[Chunk]:
        account = self._accounts.get(side)
        return sorted(account.chunks.values(), key=lambda one: (one.order, one.number)) if account else []

    def _void(self, side: Side) -> set[str]:
        accounts = self.checkpoints(side)
        last = {one.order.takeover: one.writer for one in accounts}
        return {one.writer for one in accounts if not one.confirmed and last[one.order.takeover] != one.writer}

    def linked(self, side: Side, *, gone_to: int = 0) -> list[Chunk]:
        """Returns the chunks of the account that counts and those that it goes on from. See ``chunks.linked``.

        Raises:
            MapError: one of them is missing.
        """
        checkpoint, counted = self.checkpoint(side), self.chunks(side)
        if checkpoint is None:
            return counted
        return linked(counted, self._all_chunks(side), writer=checkpoint.writer, gone_to=gone_to)

    def map(self, side: Side) -> OffsetMap:
        """Returns the whole map as it was written down. A lean ledger does not have it.

        Raises:
            MapError: it is not whole.
        """
        assert not self.lean
        return joined(self.linked(side))

    def skipped(self, topic: str | None = None) -> Iterator[Skipped]:
        """Yields the ranges that were not copied, of one source topic or of all, in order."""
        for entry in sorted(self._skipped.values(), key=lambda one: (one.side, one.start)):
            if topic in (None, entry.side.topic):
                yield entry

    def pin(self, side: Side) -> Pin | None:
        """Returns the pin of this partition, if one was written down."""
        found = self._pinned.get(pin_key(side))
        return found if isinstance(found, Pin) else None

    def notes(self, side: Side) -> list[Note]:
        """Returns each owner's note of what was copied last of this partition; the newest last."""
        notes = [one for one in self._notes(side) if one.writer != HALTED]
        return sorted(notes, key=lambda one: (one.copied.rank, one.key()))

    def due(self, side: Side) -> Note | None:
        """Returns the note of what was due when this partition halted."""
        return next((one for one in self._notes(side) if one.writer == HALTED), None)

    def _notes(self, side: Side) -> Iterable[Note]:
        account = self._accounts.get(side)
        return account.notes.values() if account else ()

    def suspended(self, topic: str) -> Suspended | None:
        """Returns the settings that this destination topic had when its cleanup was last suspended."""
        found = self._pinned.get(suspended_key(topic))
        return found if isinstance(found, Suspended) else None

    def halt(self, side: Side) -> KeptHalt | None:
        """Returns the halt of this partition, if it has halted."""
        found = self._pinned.get(halt_key(side))
        return found if isinstance(found, KeptHalt) else None

    def is_copy(
        self, topic: str, into: str, partitions: Iterable[int], source_id: str | None, destination_id: str | None
    ) -> bool:
        """Returns True if by what is written down ``into`` is a copy of a topic: a partition was begun, of the topics
        with these ids, and none has halted for a reason by which something else may stand there.

        Args:
            topic: its name at the source.
            into: at the destination.
            partitions: all of the source's.
            source_id, destination_id: ids of the topics of now, in hexadecimal; None: the cluster has none.
        """
        begun = False
        for index in partitions:
            side = Side(topic, index, into)
            halt = self.halt(side)
            if halt is not None and halt.reason in ELSEWHERE:
                return False
            for entry in (self.pin(side), self.checkpoint(side)):
                if entry is None:
                    continue
                if _differ(entry.source_id, source_id) or _differ(entry.destination_id, destination_id):
                    return False
                begun = True
        return begun

    def accepted_loop(self, side: Side, by: str) -> AcceptedLoop | None:
        """Returns what an operator has accepted of a flow the other way. ``by``: its internal topic."""
        found = self._pinned.get(loop_key(side, by))
        return found if isinstance(found, AcceptedLoop) else None

    def upstream(self, side: Side) -> Upstream | None:
        """Returns the flows that feed this partition's source, as last written down."""
        found = self._pinned.get(upstream_key(side))
        return found if isinstance(found, Upstream) else None

    def remembered(self, side: Side) -> Remembered | None:
        """Returns what was noted before this partition was last fenced."""
        found = self._pinned.get(remembered_key(side))
        return found if isinstance(found, Remembered) else None

    @property
    def halts(self) -> list[KeptHalt]:
        """The halts of all partitions, in order."""
        return sorted((one for one in self._pinned.values() if isinstance(one, KeptHalt)), key=lambda one: one.side)

    @property
    def flows(self) -> list[Flow]:
        """The flows that own this topic; more than one if it was shared, or the source cluster was replaced."""
        return [one for one in self._pinned.values() if isinstance(one, Flow)]


def _differ(one: str | None, other: str | None) -> bool:
    """Returns True if two topic ids are known to be of two topics."""
    return one is not None and other is not None and one != other
