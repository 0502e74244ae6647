"""The grid names the commit of its beginning, and that of its end if it is another."""

import sys
from pathlib import Path

import pytest

from lab import commit
from tests.grid import __main__ as grid


def test_a_commit_while_the_grid_is_played_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Half an hour is long enough for somebody to go on: what was played at its beginning was of another."""
    now = ["aaa1111"]
    monkeypatch.setattr(commit, "of_now", lambda *_, **__: now[0])
    monkeypatch.setattr(grid, "of_now", lambda *_, **__: now[0])

    def play(_: grid.Pair) -> grid.Played:
        now[0] = "bbb2222"
        return grid.Played({}, {}, "exit 0")

    monkeypatch.setattr(grid, "play", play)
    monkeypatch.setattr(grid, "DOCUMENT", tmp_path / "GRID.md")
    monkeypatch.setattr(sys, "argv", ["grid"])
    grid.main()
    assert "aaa1111 to bbb2222" in (tmp_path / "GRID.md").read_text()
