"""How windows are read: where the destination has a border of old formats."""

from collections.abc import Sequence

import pytest

from mirror.audit.judge.rounds import reading
from mirror.audit.judge.rounds.reading import WindowReader
from mirror.audit.judge.rounds.regions import DifferingChunk, Window, of_bounds
from mirror.audit.model.differences import Pairs
from mirror.audit.model.places import TopicPartition
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
