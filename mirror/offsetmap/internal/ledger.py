"""All entries of the internal topic that count, and what they say together.

Several workers may write about one partition at the same time: one that owns it, and one that has lost it and does not
know yet. So no two of them share a key (``writer``), and in whatever order their records come, ``Ledger`` finds the
same truth: of two accounts of one partition the one with the higher ``order`` counts, from its first source offset on.

Pure.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from mirror.offsetmap.entries.checkpoint import Checkpoint, Skipped
from mirror.offsetmap.entries.chunks import Chunk, joined, linked
from mirror.offsetmap.entries.entry import Entry, Pinned, read_entry
from mirror.offsetmap.entries.keys import Side
from mirror.offsetmap.entries.passed import PassedOver
from mirror.offsetmap.entries.pins import (
    HALTED,
    AcceptedLoop,
    Flow,
    KeptHalt,
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
    _passed: dict[Side, dict[bytes, PassedOver]] = field(default_factory=dict)
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
        if isinstance(entry, PassedOver):
            self._passed.setdefault(entry.side, {})[key] = entry
            self._sides[key] = entry.side
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
        if side is None:
            return
        self._passed.get(side, {}).pop(key, None)
        account = self._accounts.get(side)
        if account is not None:
            account.checkpoints.pop(key, None)
            account.chunks.pop(key, None)
            account.notes.pop(key, None)

    def has(self, key: bytes) -> bool:
        """Returns True if there is an entry with this key."""
        return key in self._skipped or key in self._pinned or key in self._sides

    def about(self, sides: Container[Side]) -> list[Entry]:
        """Returns all entries of these partitions but checkpoints and maps."""
        pinned = [each for each in self._pinned.values() if not isinstance(each, Flow | Suspended)]
        notes = [note for account in self._accounts.values() for note in account.notes.values()]
        passed = [entry for entries in self._passed.values() for entry in entries.values()]
        return [each for each in (*pinned, *self._skipped.values(), *passed, *notes) if each.side in sides]

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

    def passed(self, side: Side | None = None) -> list[PassedOver]:
        """Returns the records that were passed over, of one partition or of all, in the order of their first
        offsets."""
        some = self._passed.values() if side is None else [self._passed.get(side, {})]
        found = [entry for entries in some for entry in entries.values()]
        return sorted(found, key=lambda one: (one.side, one.start, one.writer))

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
