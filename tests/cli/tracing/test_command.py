"""``mirror trace``: what it shows, and its exit codes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mirror.cli import main
from mirror.service.http import client
from tests.service.config.loading import base

HERE = {"step": "here", "phase": "active"}
HALTED = {"step": "event", "event": "halted"}
STOPPED = {"step": "phase", "phase": "halted"}
RESUMED = {"step": "phase", "phase": "locating"}
PAUSED = {"step": "event", "event": "paused"}


def traced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *steps: Any, options: tuple[str, ...] = ()) -> Result:
    """What the command does if the mirror tells these steps, or an error."""

    def trace(*_: object, **asked: object) -> Iterator[dict[str, Any]]:
        assert (asked["seconds"], asked["wait"]) == ((5, True) if options else (60, False))
        for step in steps:
            if isinstance(step, BaseException):
                raise step
            yield {"at_ms": 0, **step}

    monkeypatch.setattr(client, "trace", trace)
    config = tmp_path / "mirror.yaml"
    config.write_text(base())
    return CliRunner().invoke(main, ["trace", "-c", str(config), "orders", "3", *options])


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ((HERE,), 0),
        ((HERE, STOPPED, HALTED), 2),
        ((HERE, STOPPED, HALTED, RESUMED), 0),
        ((HERE, STOPPED, PAUSED), 0),
        ((HERE, STOPPED, HALTED, HERE), 0),
        ((HERE, KeyboardInterrupt()), 0),
        ((HERE, HALTED, KeyboardInterrupt()), 2),
    ],
)
def test_exit_codes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steps: tuple[Any, ...], code: int) -> None:
    """2 only if it has halted by the end."""
    assert traced(monkeypatch, tmp_path, *steps).exit_code == code


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (client.NotAnswered("no mirror answers at x"), 1, "no mirror answers at x\n"),
        (client.NotDone("it is paused"), 1, "nothing is traced: it is paused\n"),
        (client.Halted("it has halted"), 2, "it has halted\n"),
    ],
)
def test_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, code: int, said: str) -> None:
    result = traced(monkeypatch, tmp_path, error)
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", said)


def test_what_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options = ("--seconds", "5", "--wait", "--format", "json")
    result = traced(monkeypatch, tmp_path, HERE, STOPPED, options=options)
    assert [json.loads(line)["step"] for line in result.stdout.splitlines()] == ["here", "phase"]
