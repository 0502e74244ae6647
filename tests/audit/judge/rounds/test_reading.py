"""How windows are read: where the destination has a border of old formats, and what lies at the ends of the logs."""

from collections.abc import Mapping, Sequence, Set
from itertools import pairwise
from typing import Any

import pytest

from mirror.audit.errors import AuditError
from mirror.audit.judge.rounds import reading
from mirror.audit.judge.rounds.looks import Tails
from mirror.audit.judge.rounds.reading import WindowReader
from mirror.audit.judge.rounds.regions import DifferingChunk, Window, of_bounds
from mirror.audit.judge.spans import merged
from mirror.audit.model.differences import Pairs, RecordDifference
from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Side, Span, TopicPartition
from mirror.audit.prepare.plan import Range
from tests.audit.logs import KEY, Batch, Logs, plain, units


@pytest.mark.parametrize(
    ("unmatched", "there"), [({53: 12, 55: 4}, 55), ({53: 4, 55: 2}, 53), ({53: 10, 55: 11}, None)]
)
def test_a_border_is_where_fewer_rows_are_without_a_counterpart(
    monkeypatch: pytest.MonkeyPatch, unmatched: dict[int | None, int], there: int | None
) -> None:
    """Of two places for it, the first that leaves fewer than the ten where it is due; otherwise it stays there."""
    pinned: list[int | None] = [None]

    class Bordered(Logs):
        def borders(self, key: TopicPartition) -> Sequence[int]:
            return [50]

        def pin(self, key: TopicPartition, border: int, there: int | None) -> None:
            pinned.append(there)

    def seen() -> Pairs:
        rows = units(plain({None: 10, **unmatched}[pinned[-1]]))
        return Pairs({row.base_offset: row for row in rows}, {})

    def read(_: WindowReader, windows: Sequence[Window], **__: bool) -> None:
        for window in windows:
            window.pairs = seen()

    logs = Bordered(plain(100), plain(100))
    monkeypatch.setattr(WindowReader, "read", read)
    monkeypatch.setattr(reading, "shifts_at", lambda *_: [3, 5])
    whole, where = of_bounds(logs.bounds()), Range("t", 0, 0, 100, True, 10)
    window = Window(whole, (DifferingChunk(where, 10),), (), where, seen())
    WindowReader(logs, {KEY: logs.bounds()}).pin([window])
    assert pinned[-1] == there
    assert window.pairs == seen()


@pytest.mark.parametrize(("ours", "theirs", "lost"), [(40, 30, Kind.MISSING), (30, 40, Kind.EXTRA)])
@pytest.mark.parametrize("torn", [False, True])
def test_what_cannot_be_read_behind_the_other_log_is_no_copy(ours: int, theirs: int, lost: Kind, *, torn: bool) -> None:
    """
    1. One log ends before the other. Its last batch differs, so the rest of the other one is looked at, too.
    2. It cannot be read: it is damaged just there, where no neighbour reports that.
    3. The lag is told from the bounds, and the damage besides. Mutation: it counts as read, and as nothing.
    """
    longer, other = (Side.SOURCE, Side.DESTINATION) if ours > theirs else (Side.DESTINATION, Side.SOURCE)
    sides = {longer: plain(40), other: [*plain(29), ("changed",)]}
    logs = Logs(sides[Side.SOURCE], sides[Side.DESTINATION], torn={longer} if torn else set())
    found = logs.audit()
    assert [one.source or one.destination for one in found if one.kind is lost] == [Span(30, 40)]
    assert [one for one in found if one.kind is Kind.CORRUPT] == ([logs.damage(longer)] if torn else [])
    assert [one.source for one in found if one.kind is Kind.VALUE_CHANGED] == [Span(29, 30)]


@pytest.mark.parametrize(("torn", "most"), [(True, 1 << 20), (False, 0)])
def test_a_tail_that_could_be_read_before(monkeypatch: pytest.MonkeyPatch, most: int, *, torn: bool) -> None:
    """Windows are read again, at other shifts or by records. What one log has behind the other's end is damaged now, or
    too much: it was not looked at. Mutation: what was found out before still counts."""
    monkeypatch.setattr(reading, "MOST_TAIL", most)
    logs = Logs(plain(40), plain(30), torn={Side.SOURCE} if torn else set())
    reader = WindowReader(logs, {KEY: logs.bounds()}, ended={KEY})
    where = Range("t", 0, 0, 30, True, 10)
    reader._add_tails([Window(of_bounds(logs.bounds()), (DifferingChunk(where, 10),), (), where, Pairs())])
    assert not reader.ended


def test_another_look_says_nothing_of_the_ends_of_the_logs() -> None:
    """A later round has found that it cannot look at them. Mutation: the window that is read again still could."""
    logs = Logs([*plain(29), ("last",)], [*plain(29), ("not the last",)])
    reader = WindowReader(logs, {KEY: logs.bounds()})
    where = Range("t", 0, 20, 30, False, 10)
    window = Window(of_bounds(logs.bounds()), (DifferingChunk(where, 10),), (), where, Pairs())
    reader.read([window])
    assert reader.ended == {KEY}
    reader.ended.clear()
    assert reader.again([window], {KEY}) == []
    assert not reader.ended


def test_another_look_is_at_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches reach over the end of a window that was not made larger for them any more. Mutation: now it is."""
    monkeypatch.setattr(reading, "MOST_ROWS", 10)
    source = plain(100, 3)
    logs = Logs(source, [("x", "y"), *(tuple(f"new {name}" for name in batch) for batch in source[1:])])
    reader = WindowReader(logs, {KEY: logs.bounds()})
    whole, where = of_bounds(logs.bounds()), Range("t", 0, 0, 30, True, 10)
    rest = (DifferingChunk(where._replace(start=30, end=290, first=False), 90),)
    window = Window(whole, (DifferingChunk(where, 10),), rest, where, Pairs())
    reader.read([window])
    assert 30 < window.where.end < 100
    assert reader.again([window], set()) == []


class TornLater(Logs):
    """The source cannot be read behind the destination's end any more, once it was."""

    def tails(self, side: Side, ranges: Sequence[Range], *, by_record: bool) -> Tails:
        seen = super().tails(side, ranges, by_record=by_record)
        self.torn = {Side.SOURCE}
        return seen


def test_what_cannot_be_read_any_more_behind_the_other_log_leaves_no_verdict() -> None:
    """
    1. The last batch was changed by a cleaner, and the source has ten more. So they are missing, and looked at again.
    2. Now they cannot be read. Mutation: both logs were examined to their ends, and nothing is missing.
    """
    logs = TornLater(plain(40), [*plain(29), ("cleaned",)], cleaners={Side.DESTINATION})
    with pytest.raises(AuditError, match=r"t partition 0: what one log has behind .* cannot be read any more: torn"):
        logs.audit()


class TornAtFirst(Logs):
    """The source cannot be read behind the destination's end at first; later it can."""

    def tails(self, side: Side, ranges: Sequence[Range], *, by_record: bool) -> Tails:
        seen = super().tails(side, ranges, by_record=by_record)
        self.torn = frozenset()
        return seen

    def records(self, *asked: Any, digests: bool) -> dict[TopicPartition, list[RecordDifference]]:
        self.cleaners, cleaners = frozenset(), self.cleaners
        found = super().records(*asked, digests=digests)
        self.cleaners = cleaners
        return found


def test_what_can_be_read_later_behind_the_other_log_is_told_once() -> None:
    """
    1. The source's tail is damaged: that is told, and the lag by the bounds. No cleaner explains the last batch, so it
       is looked at again.
    2. Now the tail can be read. Mutation: its batches are told as well.
    """
    logs = TornAtFirst(plain(40), [*plain(29), ("changed",)], cleaners={Side.DESTINATION}, torn={Side.SOURCE})
    assert [(one.kind, one.source) for one in logs.audit()] == [
        (Kind.VALUE_CHANGED, Span(29, 30)), (Kind.CORRUPT, Span(30, 40)), (Kind.MISSING, Span(30, 40)),
    ]  # fmt: skip


@pytest.mark.parametrize("torn", [False, True])
def test_a_trial_says_nothing_of_the_ends_of_the_logs(monkeypatch: pytest.MonkeyPatch, *, torn: bool) -> None:
    """A border is tried elsewhere, which does not count; meanwhile the tail could be read, or could not. Mutation: that
    counts, and the tail is told twice, or by nobody."""

    class Bordered(Logs):
        def borders(self, key: TopicPartition) -> Sequence[int]:
            return [25]

        def pin(self, key: TopicPartition, border: int, there: int | None) -> None:
            self.torn = {Side.SOURCE} if torn else frozenset()

    logs = Bordered(plain(40), [*plain(29), ("changed",)], torn=frozenset() if torn else {Side.SOURCE})
    monkeypatch.setattr(reading, "shifts_at", lambda *_: [3])
    reader = WindowReader(logs, {KEY: logs.bounds()})
    where = Range("t", 0, 20, 30, False, 10)
    window = Window(of_bounds(logs.bounds()), (DifferingChunk(where, 10),), (), where, Pairs())
    reader.read([window])
    assert (KEY in reader.ended, KEY in reader.broken) == (torn, not torn)
    reader.pin([window])
    assert (KEY in reader.ended, KEY in reader.broken) == (torn, not torn)


def without(log: list[Batch], *lost: range) -> list[Batch]:
    return [batch for at, batch in enumerate(log) if not any(at in some for some in lost)]


@pytest.mark.parametrize(
    ("count", "records", "width", "lost", "behind"),
    [
        (60, 1, 5, range(5, 35), Span(35, 60)),
        (600, 3, 2, range(154, 590), Span(1_770, 1_800)),  # no batch begins in the last chunk
        (400, 2, 20, range(285, 391), Span(782, 800)),
        (2_000, 3, 150, range(500, 1_997), Span(5_991, 6_000)),
    ],
)
@pytest.mark.parametrize("most", [64 << 20, 5])
def test_a_large_loss_with_little_behind_it_is_one_fault(
    monkeypatch: pytest.MonkeyPatch, count: int, records: int, width: int, lost: range, behind: Span, most: int
) -> None:
    """
    1. What is left lies where the source has what was lost, so the logs are compared up to there only.
    2. It is sought in the rest of the source. From there to its end there is no chunk that differs, but the source has
       that alone, unless it was moved. Mutation: no shift makes less differ than nothing.
    3. What lies between the destination's end and there is missing as well, be it read or too much for that.
    """
    monkeypatch.setattr(reading, "MOST_TAIL", most)
    source = plain(count, records)
    found = Logs(source, without(source, lost), width=width).audit()
    assert {one.kind for one in found} == {Kind.MISSING}
    assert merged(one.source for one in found if one.source) == [Span(lost.start * records, lost.stop * records)]
    assert sum(one.source.offsets for one in found if one.source) == len(lost) * records
    assert found[-1].detail.endswith(f"source offsets {behind.start} to {behind.end - 1}")


@pytest.mark.parametrize("most", [64 << 20, 5])
def test_a_large_addition_near_the_end_is_one_fault(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """It reaches over the source's end. Mutation: what lies there is not told."""
    monkeypatch.setattr(reading, "MOST_TAIL", most)
    source = plain(60, 2)
    for at, width in ((46, 20), (53, 40), (10, 5)):
        found = Logs(
            source, [*source[:at], *((f"new {one}",) for one in range(120)), *source[at:]], width=width
        ).audit()
        assert {one.kind for one in found} == {Kind.EXTRA}
        assert merged(one.destination for one in found if one.destination) == [Span(2 * at, 2 * at + 120)]


@pytest.mark.parametrize("most", [64 << 20, 5])
def test_what_was_moved_is_not_missing_in_another_window(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Two losses, and the second is large: of batches that one window finds behind it, another has the places at the
    source. Mutations: they are missing there; what is between two moves is told by nobody."""
    monkeypatch.setattr(reading, "MOST_TAIL", most)
    for count, width, lost in (
        (200, 5, (range(126, 131), range(137, 196))),
        (60, 20, (range(7, 16), range(21, 56))),
        (400, 40, (range(34, 84), range(90, 399))),
    ):
        source = plain(count)
        found = Logs(source, without(source, *lost), width=width).audit()
        assert {one.kind for one in found} <= {Kind.MISSING, Kind.MOVED}
        spans = sorted(one.source for one in found if one.source)
        assert all(before.end <= after.start for before, after in pairwise(spans))
        named = merged(one.source for one in found if one.source and one.kind is Kind.MISSING)
        assert named == [Span(some.start, some.stop) for some in lost]


@pytest.mark.parametrize("cleaners", [frozenset(), frozenset({Side.DESTINATION})])
def test_batches_that_are_opened_together_have_few_records(
    monkeypatch: pytest.MonkeyPatch, cleaners: Set[Side]
) -> None:
    """
    1. All of 2,000 batches differ, with ten records each: a window may have as many batches.
    2. What is opened of it at a time is less, and all is named. Mutation: it is all of the window.
    3. A chunk that has more is a window all the same. What is not opened may be as large as ever.
    4. Not much is read twice. Mutation: windows are as large as ever, and cut.
    """
    monkeypatch.setattr(reading, "MOST_RECORDS", 1_000)
    opened: list[int] = []

    class Asked(Logs):
        def records(
            self, differing: Mapping[TopicPartition, Pairs], *args: Any, digests: bool
        ) -> dict[TopicPartition, list[RecordDifference]]:
            opened.append(sum(row.records for row in differing[KEY].source.values()))
            return super().records(differing, *args, digests=digests)

    source = plain(2_000, 10)
    there = [tuple(f"{name} by now" for name in batch) if at % 2 else batch for at, batch in enumerate(source)]
    for width, most in ((20, 1_000), (4_000, 2_000)):
        opened.clear()
        logs = Asked(source, there, width=width, cleaners=cleaners)
        found = logs.audit()
        assert sum(one.batches for one in found) == 1_000
        assert logs.looked < 30
        assert logs.rows_read <= 2 * 2_000 or not cleaners
        assert max(opened, default=0) <= most
        assert sum(opened) == (10_000 if cleaners else 0)
