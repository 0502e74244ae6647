"""The shapes in which commands show something."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from mirror.cli import main
from mirror.cli.effective import as_table
from mirror.cli.formats import SHAPES, show, yaml_text
from tests.cli.test_help import EVERY
from tests.service.config.loading import base

DATA: dict[str, Any] = {
    "on": ["no", "Yes", "orders", "west->east", "127.0.0.1:9464", "12e3", "1:30", "", " x", "a: b", "a #b", "~", "-"],
    "topic": "null",
    "none": None,
    "numbers": [1, 2.5, True],
    "rows": [{"a": 1}, {"b": []}],
}
SHOWN = [
    ("status",),
    ("describe",),
    ("trace",),
    ("plan",),
    ("sync",),
    ("config", "show"),
    ("start",),
    ("stop",),
    ("restart",),
]


@pytest.mark.parametrize("version", [(1, 1), (1, 2)])
def test_yaml_is_read_alike_by_all(version: tuple[int, int]) -> None:
    """Text stays text, also for readers that take "no" for a truth value."""
    text = yaml_text(DATA)
    reader = YAML(typ="safe", pure=True)
    reader.version = version
    assert reader.load(text) == DATA
    assert "- orders\n" in text


def test_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for shape, expected in (
        ("json", json.dumps(DATA, indent=2) + "\n"),
        ("yaml", yaml_text(DATA)),
        ("table", "0 columns\n"),
        ("wide", "0 columns\n"),
    ):
        show(shape, DATA, lambda width: f"{width} columns\n")
        assert capsys.readouterr().out == expected


def test_a_table_has_the_terminals_width(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("mirror.cli.options.terminal_width", lambda: 72)
    show("table", DATA, lambda width: f"{width} columns")
    show("wide", DATA, lambda width: f"{width} columns")
    assert capsys.readouterr().out == "72 columns\n0 columns\n"


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_every_command_that_shows_has_them_all(words: tuple[str, ...]) -> None:
    (option,) = [each for each in EVERY[words].params if each.name == "shape"]
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == SHAPES


@pytest.mark.parametrize("shape", SHAPES)
def test_the_configuration(tmp_path: Path, shape: str) -> None:
    """In each of them, it has every key."""
    path = tmp_path / "mirror.yaml"
    path.write_text(base(flow="linger.ms: 7"))
    ran = CliRunner().invoke(main, ["config", "show", "-c", str(path), "--format", shape])
    assert ran.exit_code == 0
    for key in ("linger.ms", "bootstrap.servers", "http.listen"):
        assert key in ran.output


def test_the_configuration_as_a_table(tmp_path: Path) -> None:
    """A line for each key, with its section; defaults are marked."""
    from mirror.service.config import load

    path = tmp_path / "mirror.yaml"
    path.write_text(base(flow="linger.ms: 7\n    topic.max.bytes.per.second: {'b.*': 1MiB}"))
    lines = [line.split() for line in as_table(load(path)).splitlines()]
    assert ["source->destination", "linger.ms", "7"] in lines
    assert [
        "source->destination",
        "settle.ms",
        *next(line[2:3] for line in lines if "settle.ms" in line),
        "default",
    ] in lines
    assert ["source", "bootstrap.servers", "s:1"] in lines
    assert [line[0] for line in lines if "http.listen" in line] == ["-"]
    assert len([line for line in lines if "topic.max.bytes.per.second" in line]) == 1
    given = as_table(load(path), given=True)
    assert "default" not in given
    assert len(given.splitlines()) == 6
