"""``mirror cutover`` on the command line: what it refuses before it asks any cluster, and the audit that it runs."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mirror.cli import main
from mirror.cli.moving import cutover
from mirror.service.commands import Commands
from mirror.service.config import load
from mirror.service.cutover import command
from mirror.service.cutover.certificate import Audit
from mirror.service.cutover.command import Cutover, Options
from mirror.service.cutover.files import only_one
from tests.service.config.loading import base


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For clusters that do not exist."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mirror.yaml"
    path.write_text(base())
    return path


def call(config: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["cutover", "-c", str(config), *options])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["nope"], "there is no flow nope in this configuration; it has: "),
        (["--window", "soon"], "'soon' is no time above 0"),
        (["--window", "0s"], "'0s' is no time above 0"),
        (["--config-out", "x"], "--config-out is for --reverse"),
        (["--reverse", "--group", "g"], "--group is not for --reverse"),
    ],
)
def test_wrong_usage(config: Path, options: list[str], told: str) -> None:
    result = call(config, *options)
    assert result.exit_code == 64
    assert told in result.output
    assert [path.name for path in config.parent.iterdir()] == ["mirror.yaml"]


@pytest.mark.parametrize("words", [["cutover"], ["offsets"], ["status", "--flow"], ["sync", "--flow"]], ids=" ".join)
def test_a_flow_that_a_shell_has_cut_off(config: Path, words: list[str]) -> None:
    """``source->destination`` without quotes is a word and a redirection. No other name is taken for that."""
    command, *option = words
    said = {
        name: CliRunner().invoke(main, [command, "-c", str(config), *option, name]).output
        for name in ("source-", "sour-", "source")
    }
    assert "Quote it, 'source->destination': " in said["source-"]
    assert "has written a file destination" in said["source-"]
    assert "Quote it" not in said["sour-"] + said["source"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("5s", 5.0), ("2m", 120.0), ("1h", 3600.0), ("1.5", 1.5)]
)
def test_times(text: str, seconds: float) -> None:
    assert cutover.Seconds().convert(text, None, None) == seconds


def test_no_way_back_without_a_cutover(config: Path) -> None:
    """Nor of one whose offsets differ."""
    result = call(config, "--reverse")
    assert (result.exit_code, "there is no cutover-" in result.output) == (1, True)
    assert "if it was removed, `" in result.output
    assert f" cutover -c {config} 'source->destination'` writes it again" in result.output
    folder = config.parent / "out"
    folder.mkdir()
    (folder / "certificate.json").write_text("{}")
    result = call(config, "--reverse", "--out", str(folder))
    assert (result.exit_code, "is not the certificate of a cutover" in result.output) == (1, True)
    config.write_text(base().replace("topics:", "offsets: mapped\n    topics:"))
    result = call(config, "--reverse")
    assert (result.exit_code, "offsets differ" in result.output) == (1, True)
    config.write_text(base().replace("topics:", "identity: strict\n    isolation.level: read_uncommitted\n    topics:"))
    result = call(config, "--reverse")
    assert (result.exit_code, "give out the same producer ids" in result.output) == (1, True)


@pytest.mark.parametrize(
    ("code", "summary", "audit"),
    [
        (0, '{"verdict": "identical"}', Audit("identical", 0)),
        (3, '{"verdict": "unverifiable"}', Audit("unverifiable", 3)),
        (1, None, Audit("not finished", 1)),
        (-9, None, Audit("not finished", 1)),
    ],
)
def test_the_audit_is_a_process(
    config: Path, monkeypatch: pytest.MonkeyPatch, code: int, summary: str | None, audit: Audit
) -> None:
    """With this file and flow; its verdict is the summary's, which a killed one does not have."""
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        asked.append(command)
        if summary is not None:
            (config.parent / "summary.json").write_text(summary)
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(subprocess, "run", run)
    loaded = load(config)
    flow = loaded.enabled_flow()
    made = cutover._Run(
        path=config, at=None, config=loaded, flow=flow, commands=Commands(), groups=(), folder=config.parent,
        options=Options(),
    )  # fmt: skip
    assert made._audit(config.parent) == audit
    (words,) = asked
    assert words[1:] == [
        "-m", "mirror", "audit", "-c", str(config), "--flow", flow.name, "--out", str(config.parent),
    ]  # fmt: skip
    if summary is not None:
        assert json.loads(summary)["verdict"] == audit.verdict


def test_the_servers_that_clients_are_told(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they are typed: with brackets around an IPv6 address."""
    config.write_text(base().replace('"d:2"', '"[fd00::1]:9092,d:2"'))
    loaded = load(config)
    made = cutover._Run(
        path=config, at=None, config=loaded, flow=loaded.enabled_flow(), commands=Commands(), groups=(),
        folder=config.parent, options=Options(),
    )  # fmt: skip
    told: list[str] = []

    @asynccontextmanager
    async def world() -> AsyncIterator[Any]:
        yield None

    class Done(Cutover):
        async def run(self, next_steps: Any) -> int:
            told.extend(next_steps({"offsets": "exact", "groups": [], "partitions": [], "not_covered": []}))
            return 0

    monkeypatch.setattr(made, "_world", world)
    monkeypatch.setattr(command, "Cutover", Done)
    assert asyncio.run(made.forward(dry_run=False)) == 0
    assert f"state and certificate are in {config.parent}" in capsys.readouterr().out
    assert "start the producers with bootstrap.servers=[fd00::1]:9092,d:2" in "\n".join(told)


def test_two_at_once(config: Path) -> None:
    """In one folder, each would write over what the other one has noted. Neither cluster is asked; a dry run writes
    nothing, and may."""
    folder = config.parent / "out"
    folder.mkdir()
    with only_one(folder):
        for options in ([], ["--reverse"]):
            result = call(config, "--out", str(folder), *options)
            assert result.exit_code == 1
            assert f"another cutover is at work in {folder}" in result.stderr
        assert "another" not in call(config, "--out", str(folder), "--reverse", "--dry-run").stderr
