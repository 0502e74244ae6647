"""The commands that messages name can be copied as they are."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from mirror.audit import command
from mirror.audit.errors import AuditError
from mirror.cli import main
from mirror.net.options import ClusterOptions, ConnectionOptions
from mirror.net.security.options import SecurityOptions, TlsOptions
from mirror.offsetmap.internal.memory import StateUnusable
from mirror.reasons import DELETE, HaltReason
from mirror.service.commands import Commands
from mirror.service.http import client
from mirror.service.offsets import translate as offsets
from mirror.service.resume.resumption import Resumed, ResumeOutcome
from mirror.service.selection import Selection
from tests.service.config.loading import base
from tests.service.telemetry.stage.fleets import fleet, snapshot
from tests.service.telemetry.stage.rows import row
from tests.service.telemetry.stage.showing import status_of

HERE = Commands(program="/opt/venv/bin/mirror", config="/etc/my mirrors/a.yaml", at="127.0.0.1:9000")

EAST = ClusterOptions(bootstrap=(("::1", 9092), ("b.example", 9092)))
RENAMED = Selection(topics=("*",), renames=(("orders", "our.orders"),))


def typed(text: str) -> list[list[str]]:
    """The commands that a text shows, as a shell takes them apart."""
    return [shlex.split(each) for each in re.findall(r"`([^`]+)`", text)]


@pytest.mark.parametrize("reason", HaltReason, ids=lambda reason: reason.name.lower())
def test_a_remedy(reason: HaltReason, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    1. It has a command by which the partition goes on, with this file, topic and partition; no placeholder is left.
    2. The command line takes each of its commands, and resumes what is meant.
    3. What is to be deleted is the destination topic, by its name there.
    """
    config = tmp_path / "its config.yaml"
    config.write_text(base())
    shown = Commands(config=str(config)).towards(EAST, RENAMED).remedy(reason.told, reason.slug, "orders", 7)
    assert "TOPIC" not in shown
    assert "PARTITION" not in shown
    assert "DESTINATION" not in shown
    asked: list[tuple[Any, ...]] = []

    def resume(address: tuple[str, int], *of: Any, accept: list[str], flows: object, flow: str, token: str) -> Resumed:
        asked.append((*of, *accept))
        return Resumed([ResumeOutcome("orders", 7, "")], [])

    monkeypatch.setattr(client, "resume", resume)
    for program, *words in typed(shown):
        if program == "kafka-topics.sh":
            assert words == ["--bootstrap-server", "[::1]:9092,b.example:9092", "--delete", "--topic", "our.orders"]
            continue
        assert program == "mirror"
        assert words[words.index("-c") + 1] == str(config)
        if words[0] == "resume":
            with pytest.raises(SystemExit) as ended:
                main(words)
            assert ended.value.code == 0
        else:
            command = main.commands[words[0]]
            command.make_context(words[0], words[1:], parent=click.Context(main))
    assert asked
    assert {of[:2] for of in asked} <= {("orders", 7), ("orders", None)}


def test_what_is_typed() -> None:
    """Program, file, where it listens, quoted for a shell; only commands that ask the mirror are told where it is."""
    text = "see `mirror status`, `mirror audit`, then `mirror resume TOPIC PARTITION --accept-gap`"
    assert typed(HERE.rendered(text, "orders", 3)) == [
        [HERE.program, "status", "-c", HERE.config, "--at", HERE.at],
        [HERE.program, "audit", "-c", HERE.config],
        [HERE.program, "resume", "-c", HERE.config, "--at", HERE.at, "orders", "3", "--accept-gap"],
    ]
    everything = [HERE.program, "resume", "-c", HERE.config, "--at", HERE.at, "--all"]
    assert typed(HERE.rendered("`mirror resume --all`")) == [everything]
    found = typed(replace(HERE, flow="a->b").rendered(text, "orders", 3))
    assert [words[words.index("--flow") + 1] if "--flow" in words else "" for words in found] == ["", "a->b", "a->b"]
    assert typed(replace(HERE, flow="a->b").rendered("`mirror sync --dry-run`")) == [
        [HERE.program, "sync", "-c", HERE.config, "--flow", "a->b", "--dry-run"]
    ]
    assert (
        HERE.rendered("a mirror of the same topic; restart the mirror")
        == "a mirror of the same topic; restart the mirror"
    )


def test_what_deletes_a_topic() -> None:
    """Kafka's own tool is told which cluster, with what, and which topic, where that is known."""
    text = HaltReason.FOREIGN_WRITER.told
    secured = replace(EAST, connection=ConnectionOptions(security=SecurityOptions(tls=TlsOptions())))
    found = [each for each in typed(HERE.towards(secured, RENAMED).rendered(text, "a", 0)) if each[0] != HERE.program]
    there = ["--bootstrap-server", "[::1]:9092,b.example:9092", "--command-config", "FILE"]
    assert found == [["kafka-topics.sh", *there, "--delete", "--topic", "a"]]
    assert DELETE in HERE.rendered(text, "a", 0)
    assert DELETE in HERE.towards(EAST, RENAMED).rendered(text)


def test_halts_of_before() -> None:
    """Written down by a version that named neither topic nor partition."""
    text = "then 'mirror resume --accept-gap' goes on"
    shown = Commands(config="a.yaml").rendered(text, "orders", 0)
    assert shown == "then 'mirror resume -c a.yaml orders 0 --accept-gap' goes on"


def test_log_lines() -> None:
    """What says what to do is rendered, whatever the event; a halt's remedy as everywhere."""
    fields = {"topic": "orders", "partition": 1, "reason": "overfilled", "remedy": "delete it", "detail": "d"}
    line = Commands().line(fields)
    assert line["remedy"] == (
        "delete it; once that is done, run `mirror resume orders 1`. `mirror plan` sees this (P16 prefix)"
    )
    assert Commands().line({"remedy": "see `mirror status`", "detail": "d"}) == {
        "remedy": "see `mirror status`",
        "detail": "d",
    }
    assert Commands().line({"detail": "d"}) == {"detail": "d"}
    told = HERE.line({"detail": "`mirror status` says whether it has halted", "topic": "orders", "partition": 1})
    assert typed(told["detail"]) == [[HERE.program, "status", "-c", HERE.config, "--at", HERE.at]]


def test_what_the_command_line_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Commands in its own errors are about the file that it was given."""
    config = tmp_path / "its config.yaml"
    config.write_text(base())

    async def unusable(*_: Any, **__: Any) -> str:
        raise StateUnusable("lacks a part of the map; `mirror status` says whether it has halted")

    monkeypatch.setattr(offsets, "translate_offset", unusable)
    words = ["offsets", "translate", "-c", str(config), "--topic", "t", "--offset", "1"]
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 1
    assert [each[-3:] for each in typed(told.stderr)] == [["status", "-c", str(config)]]

    def not_proved(*_: Any, **__: Any) -> None:
        raise AuditError("the map is lost", "`mirror status` says how it is made anew")

    monkeypatch.setattr(command, "_audit", not_proved)
    told = CliRunner().invoke(main, ["audit", "-c", str(config)])
    assert told.exit_code == 1
    assert [each[-3:] for each in typed(told.stderr)] == [["status", "-c", str(config)]]


def test_details_are_rendered_as_well() -> None:
    """In the status, as in the log."""
    found = fleet(1)
    text = "`mirror status` says whether it has halted"
    found.heard(1, snapshot(row(state="halted", reason="r", detail=text, waits=text)))
    told = status_of(found, HERE)["partitions"][0]
    for name in ("detail", "waits"):
        assert typed(told[name]) == [[HERE.program, "status", "-c", HERE.config, "--at", HERE.at]]


@pytest.mark.parametrize(
    ("started", "on_path", "shown"),
    [
        ("/opt/v/bin/mirror", "/opt/v/bin/mirror", "mirror"),
        ("/opt/v/bin/mirror", None, "/opt/v/bin/mirror"),
        ("/opt/v/bin/mirror", "/usr/bin/mirror", "/opt/v/bin/mirror"),
        ("/opt/v/mirror/__main__.py", None, "/py thon -m mirror"),
    ],
)
def test_the_program(started: str, on_path: str | None, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name alone where a shell finds this very program by it."""
    monkeypatch.setattr("sys.argv", [started, "run"])
    monkeypatch.setattr("sys.executable", "/py thon")
    monkeypatch.setattr("shutil.which", lambda _: on_path)
    commands = Commands.of(Path("mirror.yaml"))
    assert " ".join(shlex.split(commands.program)) == shown
    assert commands.config == str(Path.cwd() / "mirror.yaml")


def test_rendered_twice() -> None:
    """What is rendered stays as it is: a mirror's answer has commands as they are typed, and may go into a message."""
    here = Commands(program="mirror", config="/a.yaml", at="127.0.0.1:1", flow="a->b")
    for text in ("`mirror pause --all`", "`mirror cutover --reverse`", "`mirror resume TOPIC PARTITION`"):
        once = here.rendered(text, "orders", 3)
        assert here.rendered(once, "orders", 3) == once != text
    assert here.rendered("`mirror cutover`") == "`mirror cutover -c /a.yaml --at 127.0.0.1:1 'a->b'`"
