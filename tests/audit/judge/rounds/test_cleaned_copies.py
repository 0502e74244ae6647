"""Copies of compacted topics, drawn from seeds: cleaners worked before the copy, behind it, and on both sides.

A healthy one has notes only, wherever the borders of the first look's chunks are; a fault is found with any of them.
"""

import random
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import pytest

from mirror.audit.errors import AuditError
from mirror.audit.judge.rounds import differences
from mirror.audit.model.differences import Pairs, RecordDifference
from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Side, Span, TopicPartition
from mirror.audit.prepare.plan import Range
from mirror.records.identity import MIRROR_BIT
from tests.audit.judge.rounds.test_chunk_borders import BOTH, KEY, BytesOfLogs, Told
from tests.audit.logs import Logs, plain
from tests.records.builders import raw_batch
from tests.simulation.model.broker import ABORT, marker_batch

WIDTHS = (500, 23, 11, 7, 4, 2, 1)
NOTES = {Kind.CLEANED, Kind.REENCODED, Kind.UNVERIFIABLE}
TAIL = 40
"""Batches of one record at the end, the same on both sides."""
Records = dict[int, str]


class Unit(NamedTuple):
    """A batch of offsets ``base`` to ``last``, with these records; without records and empty ``base``: a marker."""

    base: int
    last: int
    records: Records | None = None

    @property
    def raw(self) -> bytes:
        if self.records is None:
            marker = bytearray(marker_batch(0, MIRROR_BIT + 5, 1, kind=ABORT))
            struct.pack_into(">q", marker, 0, self.base)
            return bytes(marker)
        content = repr(sorted((offset - self.base, value) for offset, value in self.records.items())).encode()
        return raw_batch(
            content, base_offset=self.base, last_offset_delta=self.last - self.base, record_count=len(self.records)
        )


def marker(offset: int) -> Unit:
    return Unit(offset, offset)


class Copy(NamedTuple):
    """Both logs, and the offsets of the records of which a later one stands: a cleaner may have taken them."""

    source: list[Unit]
    destination: list[Unit]
    excused: set[int]
    cleaned: bool

    def told(self, width: int) -> Told:
        source, destination = ([unit.raw for unit in log] for log in (self.source, self.destination))
        logs = CleanedLogs(source, destination, self.source[-1].last + 1, BOTH if self.cleaned else frozenset())
        logs.copy = self
        return logs.audit(width)


class CleanedLogs(BytesOfLogs):
    """Opens batches, too."""

    copy: Copy

    def records(
        self, differing: Mapping[TopicPartition, Pairs], _: Mapping[TopicPartition, int], *, digests: bool
    ) -> dict[TopicPartition, list[RecordDifference]]:
        ours, theirs = (records_of(log) for log in (self.copy.source, self.copy.destination))
        found = []
        for offset in sorted({offset for row in differing[KEY].rows for offset in range(*row.span)}):
            here, there = ours.get(offset), theirs.get(offset)
            if here != there:
                at = None if here and there else Side.SOURCE if here else Side.DESTINATION
                found.append(RecordDifference(offset, at, at is not None and offset in self.copy.excused, 5))
        return {KEY: found}


class Busy(CleanedLogs):
    """A cleaner works at the destination: whenever records are read, its log is as the next of these has it. What it
    takes for a later record of the key is excused once that record is read: with ``renew``."""

    def __init__(self, source: list[Unit], *later: list[Unit], known: set[int], written_since: bool = False) -> None:
        super().__init__([], [], source[-1].last + 1, BOTH)
        self.here, self.later, self.known = source, [*later], known
        self.written_since = written_since
        self.renewed = self.looked = 0
        self.never = False
        self._become(self.later.pop(0))

    def _become(self, log: list[Unit]) -> None:
        if self.never:
            return
        gone = records_of(self.here).keys() - records_of(log).keys()
        excused = gone if self.renewed or not self.written_since else gone & self.known
        self.copy = Copy(self.here, log, {*excused}, cleaned=True)
        self.source, self.destination = ([unit.raw for unit in some] for some in (self.here, log))

    def rows(self, ranges: Sequence[Range], *, by_record: bool) -> dict[TopicPartition, Pairs]:
        self.looked += 1
        return super().rows(ranges, by_record=by_record)

    def records(self, *asked: Any, **options: Any) -> dict[TopicPartition, list[RecordDifference]]:
        if self.later:
            self._become(self.later.pop(0))
        return super().records(*asked, **options)

    def renew(self, keys: Collection[TopicPartition]) -> bool:
        assert {*keys} == {KEY}
        self.renewed += 1
        self._become(self.copy.destination)
        return self.written_since


def records_of(log: Iterable[Unit]) -> Records:
    return {offset: value for unit in log for offset, value in (unit.records or {}).items()}


def copied(chance: random.Random, unit: Unit) -> list[Unit]:
    """What the mirror makes of a batch: runs of records, in one piece or two, and markers over what it lacks."""
    records = unit.records or {}
    runs: list[list[int]] = []
    for offset in sorted(records):
        if runs and runs[-1][-1] == offset - 1:
            runs[-1].append(offset)
        else:
            runs.append([offset])
    if len(runs) == 1 and len(records) == unit.last - unit.base + 1 > 1 and chance.random() < 0.3:
        at = chance.randint(1, len(records) - 1)
        runs = [runs[0][:at], runs[0][at:]]
    pieces = [Unit(run[0], run[-1], {offset: records[offset] for offset in run}) for run in runs]
    markers = [marker(offset) for offset in range(unit.base, unit.last + 1) if offset not in records]
    return sorted([*pieces, *markers], key=lambda one: one.base)


def clean(chance: random.Random, log: list[Unit], excused: set[int]) -> list[Unit]:
    """As a cleaner leaves it: batches with fewer records, empty ones, and gaps."""
    left = []
    for unit in log:
        if unit.records is None or chance.random() >= 0.25:
            left.append(unit)
            continue
        gone = {offset for offset in unit.records if chance.random() < 0.6}
        excused |= gone
        kept = {offset: value for offset, value in unit.records.items() if offset not in gone}
        if kept or chance.random() < 0.3:
            left.append(unit._replace(records=kept))
    return left


def drawn(seed: int) -> Copy:
    """A healthy copy."""
    chance = random.Random(seed)
    compacted = chance.random() < 0.6
    source: list[Unit] = []
    destination: list[Unit] = []
    excused: set[int] = set()
    at = 0
    for _ in range(chance.randint(3, 12)):
        end = at + chance.randint(1, 8)
        kind = chance.random()
        if kind < 0.15:
            source += [marker(offset) for offset in range(at, end)]
            destination += [marker(offset) for offset in range(at, end)]
        elif kind < 0.25 and compacted:  # a gap at the source
            destination += [marker(offset) for offset in range(at, end)]
        else:
            records = {offset: f"{offset} {chance.random()}" for offset in range(at, end)}
            if compacted and chance.random() < 0.4:
                records = {offset: value for offset, value in records.items() if chance.random() < 0.6} or records
            source.append(Unit(at, end - 1, records))
            destination += copied(chance, source[-1])
        at = end
    if compacted:
        source, destination = (clean(chance, log, excused) for log in (source, destination))
    tail = [Unit(offset, offset, {offset: f"tail {offset}"}) for offset in range(at, at + TAIL)]
    return Copy(source + tail, destination + tail, excused, compacted)


class Fault(NamedTuple):
    """A copy with one fault. ``sure``: it has to be told as a difference; else the source's cleaner hides it."""

    copy: Copy
    sure: bool


def damaged(seed: int) -> Fault:
    """One record at the destination is another one or is gone, or a marker is a record."""
    for turn in range(100):
        if (fault := _damaged(seed + 1_000 * turn, random.Random(f"{seed} {turn}"))) is not None:
            return fault
    raise AssertionError(seed)


def _damaged(seed: int, chance: random.Random) -> Fault | None:
    copy = drawn(seed)
    if len(copy.destination) <= TAIL:
        return None
    at = chance.randrange(len(copy.destination) - TAIL)
    unit = copy.destination[at]
    if unit.records is None:
        copy.destination[at] = Unit(unit.base, unit.last, {unit.base: "forged"})
        markers = {one.base for one in copy.source if one.records is None}
        return Fault(copy, sure=unit.base in markers)
    sure = sorted((unit.records.keys() & records_of(copy.source).keys()) - copy.excused)
    if not sure:
        return None
    one = chance.choice(sure)
    kind = chance.choice(("value", "record", "marker", "batch"))
    if kind == "value":
        copy.destination[at] = unit._replace(records={**unit.records, one: "forged"})
    elif kind == "record":
        left = {offset: value for offset, value in unit.records.items() if offset != one}
        copy.destination[at] = unit._replace(records=left)
    else:
        offsets = range(unit.base, unit.last + 1) if kind == "marker" else ()
        copy.destination[at : at + 1] = [marker(offset) for offset in offsets]
    return Fault(copy, sure=True)


@pytest.mark.parametrize("seed", range(120))
def test_a_healthy_copy_has_notes_only(seed: int) -> None:
    copy = drawn(seed)
    for width in WIDTHS:
        assert {kind for kind, _, _ in copy.told(width)} <= NOTES, width


@pytest.mark.parametrize("seed", [*range(60), 207])
def test_a_fault_is_told(seed: int) -> None:
    """Where the source's cleaner has taken what was there, it cannot be compared: then that is said. (207: two windows
    of one round, the later one first.)"""
    fault = damaged(seed)
    for width in WIDTHS:
        kinds = {kind for kind, _, _ in fault.copy.told(width)}
        assert kinds - NOTES or (not fault.sure and Kind.UNVERIFIABLE in kinds), width


def test_most_faults_are_sure() -> None:
    assert sum(damaged(seed).sure for seed in range(60)) > 40


WHOLE = {offset: f"value {offset}" for offset in range(10)}


def left(*offsets: int) -> list[Unit]:
    """Of a batch of ten records, with one behind it."""
    return [Unit(0, 9, {offset: WHOLE[offset] for offset in offsets}), Unit(10, 10, {10: "last"})]


def test_a_cleaner_that_works_between_two_looks_is_no_difference() -> None:
    """
    1. A batch at the destination has lost two records to a cleaner. Before its records are read, a third: now they are
       fewer than the batch had.
    2. It is read once more before anything is told of it. It was the cleaner.
    3. Mutation: the first look counts, and the value has changed.
    """
    logs = Busy(left(*range(10)), left(*range(2, 10)), left(*range(3, 10)), known={0, 1, 2})
    assert logs.audit(100) == [(Kind.CLEANED, Span(0, 10), Span(0, 10))]
    assert logs.looked == 2


def test_what_a_cleaner_took_for_a_record_that_was_written_since() -> None:
    """The later records of all keys were read before it was written. They are read once more. Mutation: they are
    not, and the record is missing."""
    logs = Busy(left(*range(10)), left(*range(2, 10)), known={0}, written_since=True)
    assert logs.audit(100) == [(Kind.CLEANED, Span(0, 10), Span(0, 10))]
    assert logs.renewed == 1


def test_what_no_cleaner_took_is_told_after_another_look() -> None:
    """Whether or not the logs go on."""
    for written_since in (False, True):
        logs = Busy(left(*range(10)), left(*range(2, 10)), known=set(), written_since=written_since)
        logs.never = True
        logs.copy = logs.copy._replace(excused={0})
        assert logs.audit(100) == [(Kind.VALUE_CHANGED, Span(0, 10), Span(0, 10))]
        assert logs.looked == 2 + written_since


class Followed(Busy):
    """The source's cleaner takes the same records, once the destination's has worked."""

    def rows(self, ranges: Sequence[Range], *, by_record: bool) -> dict[TopicPartition, Pairs]:
        if not self.later:
            self.here = self.copy.destination
            self._become(self.here)
        return super().rows(ranges, by_record=by_record)


def test_what_cleaners_made_equal_between_two_looks_is_no_difference() -> None:
    """
    1. As above; but when the batch is read once more, the source has lost the same records.
    2. A note says so of its chunk, so that the partition has a finding. Mutations: the log changed while it was read;
       nobody says how the chunk differs.
    """
    logs = Followed(left(*range(10)), left(*range(2, 10)), left(*range(3, 10)), known={0, 1, 2})
    assert logs.audit(5) == [(Kind.CLEANED, Span(0, 5), Span(0, 5))]
    assert logs.said == [Span(0, 5)]


@pytest.mark.parametrize("cleaners", [BOTH, frozenset({Side.DESTINATION}), frozenset()])
def test_what_cleaners_made_equal_before_the_first_look_is_no_difference(cleaners: Set[Side]) -> None:
    """
    1. Two batches are far apart, and the destination's cleaner has rewritten both. Before the first one is looked at,
       the source's has done so as well.
    2. A note says so, and the audit goes on with the other. Mutation: it ends without a verdict.
    3. Where no cleaner works, it does.
    """

    def log(first: int, second: int) -> list[Unit]:
        here, there = (
            {at: f"{at}" for at in range(base + gone, base + 10)} for base, gone in ((0, first), (90, second))
        )
        return [Unit(0, 9, here), *(Unit(at, at, {at: f"{at}"}) for at in range(10, 90)), Unit(90, 99, there)]

    logs = EqualByNow([], [], 100, cleaners)
    logs.copy = Copy(log(0, 0), log(2, 3), {*range(100)}, cleaned=bool(cleaners))
    logs.by_now = log(2, 0)
    if not cleaners:
        with pytest.raises(AuditError, match="t partition 0 changed between offsets 0 and 5 while it was read"):
            logs.audit(5)
        return
    found = logs.audit(5)
    assert (Kind.CLEANED, Span(0, 5), Span(0, 5)) in found
    assert logs.said == [Span(0, 5)]
    kinds = {Kind.CLEANED} if cleaners == BOTH else {Kind.CLEANED, Kind.VALUE_CHANGED}
    assert {kind for kind, _, _ in found} == kinds


class EqualByNow(CleanedLogs):
    """The source is as ``by_now`` has it once both sides were compared."""

    by_now: list[Unit]

    def audit(self, width: int, *, rebatches: bool = False) -> Told:
        self.source, self.destination = ([unit.raw for unit in log] for log in self.copy[:2])
        return super().audit(width, rebatches=rebatches)

    def rows(self, ranges: Sequence[Range], *, by_record: bool) -> dict[TopicPartition, Pairs]:
        self.copy = self.copy._replace(source=self.by_now)
        self.source = [unit.raw for unit in self.by_now]
        return super().rows(ranges, by_record=by_record)


def test_a_cleaner_that_works_at_each_look_leaves_no_verdict() -> None:
    logs = Busy(left(*range(10)), *(left(*range(first, 10)) for first in range(1, 9)), known=set())
    with pytest.raises(AuditError, match="a log cleaner changed t partition 0 between offsets 0 and"):
        logs.audit(100)


@pytest.mark.parametrize("written_since", [False, True])
def test_a_cleaner_that_rests_before_the_last_look_is_no_difference(*, written_since: bool) -> None:
    """Three looks saw it work; the last one explains all. Mutations: that one is not asked; or the first one counts if
    only the later records were read anew, and no batch changed."""
    same = [left(*range(1, 10))] * written_since
    logs = Busy(
        left(*range(10)),
        *same,
        *(left(*range(first, 10)) for first in range(1, 5)),
        known=set(),
        written_since=written_since,
    )
    assert logs.audit(100) == [(Kind.CLEANED, Span(0, 10), Span(0, 10))]


def test_what_a_cleaner_changes_at_each_look_is_named() -> None:
    """Not another place, which no cleaner explains, and which has not changed since. Nor is that looked at again."""

    def log(*, forged: bool, gone: int) -> list[Unit]:
        singles = [Unit(at, at, {at: f"{at}"}) for at in range(100)]
        singles[5] = Unit(5, 5, {5: "forged" if forged else "5"})
        return [*singles, Unit(100, 109, {at: f"{at}" for at in range(100 + gone, 110)})]

    logs = Busy(log(forged=False, gone=0), *(log(forged=True, gone=gone) for gone in range(1, 9)), known=set())
    with pytest.raises(AuditError, match="a log cleaner changed t partition 0 between offsets 100 and 110"):
        logs.audit(1)


def test_later_records_are_read_anew_once_for_many_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. Many places were lost, each a round of its own, while the logs go on.
    2. All of them were read before what may excuse them is read anew. Mutation: that is done for each.
    3. Where a batch was changed since, once more.
    """
    monkeypatch.setattr(differences, "ROUND_BATCHES", 1)
    source = [Unit(at, at, {at: f"{at}"}) for at in range(1_000)]
    lost = [unit for unit in source if unit.base % 100 != 50]
    logs = Busy(source, lost, known=set(), written_since=True)
    logs.never = True
    logs.copy = logs.copy._replace(excused=set())
    assert len(logs.audit(1)) == 10
    assert logs.renewed == 1
    logs = Busy(left(*range(10)), *(left(*range(first, 10)) for first in range(1, 4)), known=set(), written_since=True)
    assert logs.audit(100) == [(Kind.CLEANED, Span(0, 10), Span(0, 10))]
    assert logs.renewed == 2


def test_nobody_asks_for_later_records_of_what_was_shifted(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read for each look there. Mutation: those of all others are let go for that."""
    monkeypatch.setattr(differences, "MOST_WAITING", 1)
    asked: list[Collection[TopicPartition]] = []

    class Asked(Logs):
        def renew(self, keys: Collection[TopicPartition]) -> bool:
            asked.append(keys)
            return False

    source = plain(400, 3)
    there = [*source[:100], *source[101:200], *source[201:]]
    logs = Asked(source, there, width=30, cleaners={Side.DESTINATION})
    logs.audit()
    assert len(asked) == 1
