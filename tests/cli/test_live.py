"""``mirror status --watch``: what is on the screen, within its size."""

import time
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from mirror.cli import main, running
from mirror.cli.live import as_screen
from mirror.service.http import client
from tests.service.config.loading import base
from tests.service.telemetry.stage.fleets import fleet, snapshot, told
from tests.service.telemetry.stage.rows import row, stint


def at(seconds: float, *rows: Any, built: float = 0) -> Any:
    """The status of a flow with these partitions, so many seconds after the first."""
    found = fleet(1)
    found.heard(1, snapshot(*rows, built_batches=built))
    return told(found) | {"time": 1_700_000_000 + seconds}


def shown(now: Any, before: Any = None, *, width: int = 80, height: int = 40) -> str:
    return click.unstyle("\n".join(as_screen(now, before, width=width, height=height)))


def copied(records: int, size: int, **changes: Any) -> Any:
    return row(stint=stint(position=records, records=records, batches=10, bytes=size), position=records, **changes)


def test_rates() -> None:
    """Of what was copied between two looks; none at the first, and none for a flow that was not there then."""
    before = at(0, copied(100, 1_000_000))
    now = at(2, copied(300, 5_000_000, lag_records=1_234))
    line = shown(now).splitlines()[3].split()
    assert (line[0], line[1], line[-3:-1]) == ("source->destination", "1,234", ["-", "-"])
    line = shown(now, before).splitlines()[3].split()
    assert line[-4:-1] == ["100", "2.0", "MB"]
    assert "  1 active; 2 in the flow" in shown(now)
    assert shown(now, before | {"flows": []}).splitlines()[3].split()[-3:-1] == ["-", "-"]


def test_the_shallow_ratio() -> None:
    assert shown(at(0, copied(100, 1_000), built=1)).splitlines()[3].endswith("90.00%")
    assert shown(at(0, copied(0, 0, state="locating"))).splitlines()[3].endswith("100.00%")
    assert shown(at(0)).splitlines()[3].endswith(" -")


def test_what_needs_a_look() -> None:
    """Halts come with their remedy, in red; of many, the first ones. What is only unknown is a question mark."""
    halts = [
        row(partition=index, state="halted", reason="corrupt", remedy="do this", lag_records=None) for index in range(7)
    ]
    text = shown(at(0, *halts))
    assert "t-0 halted: corrupt\n  do this" in text
    assert "and 2 more partitions are halted" in text
    assert "t-5 halted" not in text
    assert "not ready: every partition here is halted (7)" in text
    assert text.splitlines()[3].split()[1:3] == ["?", "?"]
    line = next(line for line in as_screen(at(0, *halts), None, width=80, height=40) if "t-0 halted" in line)
    assert line == click.style("t-0 halted: corrupt", fg="red")


def test_what_is_furthest_behind() -> None:
    """Only partitions that are not up to date, those that lag most first, with their own rates."""
    rows = [row(partition=index, lag_records=lag) for index, lag in enumerate((0, 5, 70))]
    now = at(2, *rows, row(partition=3, state="locating", lag_records=None))
    text = shown(now, at(0, *rows))
    table = text[text.index("FURTHEST BEHIND") :].splitlines()[1:]
    assert [line.split()[:3] for line in table] == [
        ["t-2", "active", "70"],
        ["t-1", "active", "5"],
        ["t-3", "locating", "?"],
    ]
    assert table[0].endswith("0 B")
    assert table[2].endswith(" -")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 10), (40, 3), (200, 60)])
def test_it_fits(width: int, height: int) -> None:
    """However many partitions there are, and however long their names."""
    rows = [row("a-topic-with-a-long-name." * 4, index, lag_records=10**12) for index in range(100)]
    lines = shown(at(0, *rows), width=width, height=height).splitlines()
    assert len(lines) <= height - 1
    assert all(len(line) <= width for line in lines[1:])
    if height > 20:
        assert any("…" in line for line in lines)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until Ctrl-C, with exit code 0; a mirror that does not answer is waited for."""
    answers: list[Any] = [at(0, copied(1, 1)), client.NotAnswered("no mirror answers"), at(2, copied(3, 1))]
    config = tmp_path / "mirror.yaml"
    config.write_text(base())

    def fetch(*_: object, **__: object) -> Any:
        if not answers:
            raise KeyboardInterrupt
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    slept: list[float] = []
    monkeypatch.setattr(client, "fetch_status", fetch)
    monkeypatch.setattr(running, "time", type("Clock", (), {"sleep": slept.append, "time": time.time}))
    result = CliRunner().invoke(main, ["status", "-c", str(config), "--watch", "--interval", "0.5"])
    assert result.exit_code == 0
    assert slept == [0.5] * 3
    assert result.output.count("FLOW  ") == 2
    assert "no mirror answers" in result.output
    assert "\x1b" not in result.output
    wrong = CliRunner().invoke(main, ["status", "-c", str(config), "--watch", "--format", "json"])
    assert (wrong.exit_code, "does not go with --format json" in wrong.output) == (64, True)
