"""The current entries of the internal topic, and answers that follow from them.

Several workers may write about one partition at the same time: one that owns it, and one that has lost it and does not
know that yet. So no two of them share a key (``writer``), and ``Ledger`` gives the same answers in whatever order their
records come: of two accounts of one partition, the one whose checkpoint has the higher rank (``Checkpoint.rank``)
counts.

Pure.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from mirror.offsetmap.entries.checkpoint import Checkpoint, SkippedOffsets
from mirror.offsetmap.entries.chunks import MapChunk, joined, linked
from mirror.offsetmap.entries.entry import Entry, Pinned, read_entry
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.passed import PassedOverOffsets
from mirror.offsetmap.entries.pins import (
    HALTED,
    AcceptedLoop,
    FlowEntry,
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
from mirror.offsetmap.entries.starting import StartingOffset
from mirror.offsetmap.fields import ids_differ
from mirror.offsetmap.runs import OffsetMap
from mirror.reasons import ELSEWHERE


@dataclass(slots=True)
class _Account:
    """The checkpoints, chunks and notes of one subject."""

    checkpoints: dict[bytes, Checkpoint] = field(default_factory=dict)
    chunks: dict[bytes, MapChunk] = field(default_factory=dict)
    notes: dict[bytes, Note] = field(default_factory=dict)


@dataclass(slots=True)
class Ledger:
    """The current entries, by key. Records must be applied in the order of the log.

    A ``lean`` ledger keeps only the first run of each sealed chunk: a worker needs no more, however long the maps are.
    With ``only``, it keeps just the entries for which that returns True.
    """

    lean: bool = False
    only: Callable[[Entry], bool] | None = None
    _accounts: dict[Subject, _Account] = field(default_factory=dict)
    _subjects: dict[bytes, Subject] = field(default_factory=dict)
    _skipped: dict[bytes, SkippedOffsets] = field(default_factory=dict)
    _passed: dict[Subject, dict[bytes, PassedOverOffsets]] = field(default_factory=dict)
    _starting: dict[Subject, dict[bytes, StartingOffset]] = field(default_factory=dict)
    _pinned: dict[bytes, Pinned] = field(default_factory=dict)

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Applies one record. ``value`` None removes the key.

        Raises:
            StateError: see ``read_entry``.
        """
        if value is None:
            self.forget(key)
        elif (entry := read_entry(key, value)) is not None:
            self.put(entry)

    def put(self, entry: Entry) -> None:
        """Keeps an entry as the newest one of its key."""
        if self.only is not None and not self.only(entry):
            return
        key = entry.key()
        if isinstance(entry, SkippedOffsets):
            self._skipped[key] = entry
            return
        if isinstance(entry, Pinned):
            self._pinned[key] = entry
            return
        if isinstance(entry, StartingOffset):
            # In the order of the topic: an entry that this process has written is read again later, behind entries that
            # other workers had written before it.
            entries = self._starting.setdefault(entry.subject, {})
            entries.pop(key, None)
            entries[key] = entry
            self._subjects[key] = entry.subject
            return
        if isinstance(entry, PassedOverOffsets):
            self._passed.setdefault(entry.subject, {})[key] = entry
            self._subjects[key] = entry.subject
            return
        account = self._accounts.setdefault(entry.subject, _Account())
        self._subjects[key] = entry.subject
        if isinstance(entry, Checkpoint):
            account.checkpoints[key] = entry
        elif isinstance(entry, Note):
            account.notes[key] = entry
        elif self.lean and entry.sealed:
            account.chunks[key] = replace(entry, map=OffsetMap(islice(entry.map, 1)))
        else:
            account.chunks[key] = entry

    def forget(self, key: bytes) -> None:
        """Removes the entry with this key, if there is one."""
        self._skipped.pop(key, None)
        self._pinned.pop(key, None)
        subject = self._subjects.pop(key, None)
        if subject is None:
            return
        self._passed.get(subject, {}).pop(key, None)
        self._starting.get(subject, {}).pop(key, None)
        account = self._accounts.get(subject)
        if account is not None:
            account.checkpoints.pop(key, None)
            account.chunks.pop(key, None)
            account.notes.pop(key, None)

    def has(self, key: bytes) -> bool:
        """Returns True if there is an entry with this key."""
        return key in self._skipped or key in self._pinned or key in self._subjects

    def about(self, subjects: Container[Subject]) -> list[Entry]:
        """Returns all entries of these partitions, except checkpoints and map chunks."""
        pinned = [each for each in self._pinned.values() if not isinstance(each, FlowEntry | Suspended)]
        notes = [note for account in self._accounts.values() for note in account.notes.values()]
        passed = [entry for entries in self._passed.values() for entry in entries.values()]
        starting = [entry for entries in self._starting.values() for entry in entries.values()]
        entries = (*pinned, *self._skipped.values(), *passed, *starting, *notes)
        return [each for each in entries if each.subject in subjects]

    def of(self, subject: Subject) -> "Ledger":
        """Returns a copy of the checkpoints and chunks of one subject. Entries that are applied later do not change
        it."""
        found = Ledger(lean=self.lean)
        account = self._accounts.get(subject)
        if account is not None:
            found._accounts[subject] = _Account(dict(account.checkpoints), dict(account.chunks))
        return found

    # -- what it says ------------------------------------------------------------------------------------------------

    @property
    def subjects(self) -> list[Subject]:
        """The partitions that have a checkpoint, in order."""
        return sorted(subject for subject, account in self._accounts.items() if account.checkpoints)

    @property
    def known(self) -> set[Subject]:
        """The partitions that have a checkpoint or a pin."""
        return {*self.subjects, *(each.subject for each in self._pinned.values() if isinstance(each, Pin))}

    def checkpoints(self, subject: Subject) -> list[Checkpoint]:
        """Returns all checkpoints of this partition, ordered by rank. The last one counts."""
        account = self._accounts.get(subject)
        return sorted(account.checkpoints.values(), key=lambda one: one.rank) if account else []

    def checkpoint(self, subject: Subject) -> Checkpoint | None:
        """Returns the checkpoint of this partition that counts; None if there is none."""
        found = self.checkpoints(subject)
        return found[-1] if found else None

    def own(self, subject: Subject) -> set[int]:
        """Returns every producer id under which this partition was ever written, as far as the entries have them."""
        account = self._accounts.get(subject)
        if account is None:
            return set()
        known = {chunk.order.producer_id for chunk in account.chunks.values()}
        for one in account.checkpoints.values():
            known.update(one.own, (one.identity.producer_id,))
        return known

    def chunks(self, subject: Subject) -> list[MapChunk]:
        """Returns the chunks of this partition that count, in order."""
        return [one for one in self._all_chunks(subject) if one.writer not in self._void(subject)]

    def void(self, subject: Subject) -> list[MapChunk]:
        """Returns the chunks of this partition that do not count, because their writers had lost the partition before
        their first checkpoint. If no account of a takeover is confirmed, the last one counts, because the next takeover
        is built on it."""
        return [one for one in self._all_chunks(subject) if one.writer in self._void(subject)]

    def _all_chunks(self, subject: Subject) -> list[MapChunk]:
        account = self._accounts.get(subject)
        return sorted(account.chunks.values(), key=lambda one: (one.order, one.number)) if account else []

    def _void(self, subject: Subject) -> set[str]:
        accounts = self.checkpoints(subject)
        last = {one.order.takeover: one.writer for one in accounts}
        return {one.writer for one in accounts if not one.confirmed and last[one.order.takeover] != one.writer}

    def linked(self, subject: Subject, *, gone_to: int = 0) -> list[MapChunk]:
        """Returns the chunks of the account that counts and those before it that it continues (``chunks.linked``).
        ``gone_to``: the start of the destination's log. Chunks before it need not exist.

        Raises:
            MapError: a chunk is missing.
        """
        checkpoint, counted = self.checkpoint(subject), self.chunks(subject)
        if checkpoint is None:
            return counted
        return linked(counted, self._all_chunks(subject), writer=checkpoint.writer, gone_to=gone_to)

    def map(self, subject: Subject) -> OffsetMap:
        """Returns the whole map of this partition. A lean ledger does not have it.

        Raises:
            MapError: a part of the map is missing.
        """
        assert not self.lean
        return joined(self.linked(subject))

    def skipped(self, topic: str | None = None) -> Iterator[SkippedOffsets]:
        """Yields the ranges that were not copied, of one source topic or of all, in order."""
        for entry in sorted(self._skipped.values(), key=lambda one: (one.subject, one.start)):
            if topic in (None, entry.subject.topic):
                yield entry

    def passed(self, subject: Subject | None = None) -> list[PassedOverOffsets]:
        """Returns the records that were passed over, of one partition or of all, in the order of their first
        offsets."""
        some = self._passed.values() if subject is None else [self._passed.get(subject, {})]
        found = [entry for entries in some for entry in entries.values()]
        return sorted(found, key=lambda one: (one.subject, one.start, one.writer))

    def pin(self, subject: Subject) -> Pin | None:
        """Returns the pin of this partition; None if there is none."""
        found = self._pinned.get(pin_key(subject))
        return found if isinstance(found, Pin) else None

    def starting(self, subject: Subject, source_id: str | None) -> StartingOffset | None:
        """Returns where this partition's copy of the source topic with this id begins; None: where the source begins.
        Of several decisions, the first one counts. A decision does not count if the copy had already begun before that
        offset (``offsets: mapped``)."""
        entries = self._starting.get(subject, {}).values()
        found = next((each for each in entries if not ids_differ(each.source_id, source_id)), None)
        return None if found is None or self._began_before(found) else found

    def _began_before(self, starting: StartingOffset) -> bool:
        return any(
            each.source_offset < starting.offset
            for each in self.checkpoints(starting.subject)
            if not ids_differ(each.source_id, starting.source_id)
        )

    def notes(self, subject: Subject) -> list[Note]:
        """Returns each owner's note of what was copied last of this partition, the newest last."""
        notes = [one for one in self._notes(subject) if one.writer != HALTED]
        return sorted(notes, key=lambda one: (one.copied.rank, one.key()))

    def due(self, subject: Subject) -> Note | None:
        """Returns the note of what was due when this partition halted; None if there is none."""
        return next((one for one in self._notes(subject) if one.writer == HALTED), None)

    def _notes(self, subject: Subject) -> Iterable[Note]:
        account = self._accounts.get(subject)
        return account.notes.values() if account else ()

    def suspended(self, topic: str) -> Suspended | None:
        """Returns the settings that this destination topic had when its cleanup was last suspended; None if it never
        was."""
        found = self._pinned.get(suspended_key(topic))
        return found if isinstance(found, Suspended) else None

    def halt(self, subject: Subject) -> KeptHalt | None:
        """Returns the halt of this partition; None if it has not halted."""
        found = self._pinned.get(halt_key(subject))
        return found if isinstance(found, KeptHalt) else None

    def is_copy(
        self, topic: str, into: str, partitions: Iterable[int], source_id: str | None, destination_id: str | None
    ) -> bool:
        """Returns True if ``into`` is a copy of a topic, according to the entries: the copy of a partition was begun,
        all entries are of the topics with these ids, and no partition has halted with a reason of
        ``reasons.ELSEWHERE``.

        Args:
            topic: the topic's name at the source.
            into: the topic's name at the destination.
            partitions: all partitions of the source topic.
            source_id, destination_id: the ids of the present topics, in hexadecimal; None: the cluster has none.
        """
        begun = False
        for index in partitions:
            subject = Subject(topic, index, into)
            halt = self.halt(subject)
            if halt is not None and halt.reason in ELSEWHERE:
                return False
            for entry in (self.pin(subject), self.checkpoint(subject)):
                if entry is None:
                    continue
                if ids_differ(entry.source_id, source_id) or ids_differ(entry.destination_id, destination_id):
                    return False
                begun = True
        return begun

    def accepted_loop(self, subject: Subject, by: str) -> AcceptedLoop | None:
        """Returns an operator's decision about another flow; None if there is none. ``by``: see ``AcceptedLoop.by``."""
        found = self._pinned.get(loop_key(subject, by))
        return found if isinstance(found, AcceptedLoop) else None

    def upstream(self, subject: Subject) -> Upstream | None:
        """Returns the flows that feed this partition's source, as last recorded; None if that never was."""
        found = self._pinned.get(upstream_key(subject))
        return found if isinstance(found, Upstream) else None

    def remembered(self, subject: Subject) -> Remembered | None:
        """Returns what was noted when this partition was last fenced; None if nothing was."""
        found = self._pinned.get(remembered_key(subject))
        return found if isinstance(found, Remembered) else None

    @property
    def halts(self) -> list[KeptHalt]:
        """The halts of all partitions, in order."""
        return sorted((one for one in self._pinned.values() if isinstance(one, KeptHalt)), key=lambda one: one.subject)

    @property
    def flows(self) -> list[FlowEntry]:
        """The flows that have claimed this topic. There is more than one if two flows have shared it, or if the source
        cluster was replaced."""
        return [one for one in self._pinned.values() if isinstance(one, FlowEntry)]
