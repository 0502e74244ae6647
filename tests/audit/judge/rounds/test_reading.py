"""How windows are read: where the destination has a border of old formats."""

from collections.abc import Sequence

import pytest

from mirror.audit.errors import AuditError
from mirror.audit.judge.rounds import reading
from mirror.audit.judge.rounds.looks import Tails
from mirror.audit.judge.rounds.reading import WindowReader
from mirror.audit.judge.rounds.regions import DifferingChunk, Window, of_bounds
from mirror.audit.model.differences import Pairs
from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Side, Span, TopicPartition
from mirror.audit.prepare.plan import Range
from tests.audit.logs import KEY, Logs, plain, units


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
