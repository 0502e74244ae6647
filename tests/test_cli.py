"""The command line: what it offers, what it refuses, and with which exit code."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from mirror.audit import command as audit_command
from mirror.audited import read
from mirror.cli import main
from mirror.relay.hot.native import loop_form
from mirror.service import program, supervisor
from mirror.service.commands import Commands
from mirror.service.config import ResolvedFlow, load
from mirror.service.config.resolve import supervision
from mirror.service.exits import EXIT_CONFIG, EXIT_USAGE
from mirror.service.log import logs
from mirror.service.offsets import translate
from mirror.service.worker_settings import Supervision
from tests.service.config.loading import base
from tests.service.config.test_across import text
from tests.service.stage.running import MIRROR, Mirror, without_stdout


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A correct configuration, for clusters that do not exist."""
    path = tmp_path / "mirror.yaml"
    path.write_text(base())
    return path


def test_help() -> None:
    """Each command has a line; exit codes are told."""
    result = CliRunner().invoke(main, ["-h"])
    assert result.exit_code == 0
    for command in ("run", "status", "pause", "resume", "audit", "validate", "demo", "sandbox"):
        assert command in result.output
    assert "64 wrong usage; 78 the configuration is wrong" in " ".join(result.output.split())
    for command in ("run", "audit", "validate"):
        result = CliRunner().invoke(main, [command, "--help"])
        assert result.exit_code == 0
        assert "--config" in result.output


def test_version() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("mirror, version ")
    assert result.output.endswith(f", inner loop {loop_form()}\n")


@pytest.mark.parametrize("command", ["run", "validate", "audit", "status"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clusters: [", "mirror.yaml:"),
        ("", "mirror.yaml"),
        (base(top="no.such.key: 1"), "mirror.yaml:10: no.such.key: is unknown"),
        (base(flow="use.raw.bytes: false"), "mirror.yaml:9: "),
        (base(flow="fetch.raw.bytes: false"), "go together"),
    ],
)
def test_a_wrong_configuration(tmp_path: Path, command: str, text: str, message: str) -> None:
    """The place, what is wrong and what to do, on stderr; exit code 78; nothing is begun."""
    path = tmp_path / "mirror.yaml"
    path.write_text(text)
    result = CliRunner().invoke(main, [command, "-c", str(path)])
    assert result.exit_code == EXIT_CONFIG == 78
    assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["run", "validate", "audit"])
def test_no_such_file(tmp_path: Path, command: str) -> None:
    result = CliRunner().invoke(main, [command, "-c", str(tmp_path / "none.yaml")])
    assert result.exit_code == 78
    assert "none.yaml" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "-c", "."],
        ["run", "--nonsense"],
        ["audit", "--limit", "-1", "-c", "x"],
        ["validate", "x"],
        ["--nonsense"],
        ["no-such-command"],
        ["config", "no-such-command"],
        ["demo", "--nonsense"],
        ["sandbox", "no-such-command"],
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    """Not exit code 2, which means a difference or a halted partition, nor that of a wrong configuration."""
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == EXIT_USAGE == 64
    assert "Usage: " in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--at", "here"],
        ["resume"],
        ["resume", "t", "--all"],
        ["offsets", "translate", "--topic", "t"],
    ],
)
def test_wrong_combinations(config: Path, arguments: list[str]) -> None:
    """What is wrong only together, with a correct configuration."""
    result = CliRunner().invoke(main, [*arguments, "-c", str(config)])
    assert result.exit_code == 64
    assert "Error: " in result.stderr


def test_validate(config: Path) -> None:
    result = CliRunner().invoke(main, ["validate", "-c", str(config)])
    assert result.exit_code == 0
    assert result.output == f"{config}: flow source->destination is valid\n"


@pytest.mark.parametrize(
    "arguments", [["audit"], ["offsets", "translate", "--topic", "a", "--offset", "1"]], ids=lambda each: each[0]
)
def test_one_of_several_flows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    """A command about one flow asks which, and takes the one that is named; its commands in messages name it, too."""
    path = tmp_path / "mirror.yaml"
    path.write_text(text({"west->east": {}, "west->hub": {"flow.id": "x"}}))
    result = CliRunner().invoke(main, [*arguments, "-c", str(path)])
    assert result.exit_code == EXIT_USAGE
    assert "2 flows are enabled: name one of them with --flow (west->east, west->hub)" in result.stderr
    result = CliRunner().invoke(main, [*arguments, "-c", str(path), "--flow", "west->west"])
    assert result.exit_code == EXIT_USAGE
    assert "flow west->west is not in this configuration; enabled: west->east, west->hub" in result.stderr
    asked: list[str] = []

    def audit(request: Any, *, typed: Any, **_: object) -> int:
        asked.append(request.flow)
        assert "--flow 'west->hub'" in typed("`mirror audit`")
        return 3

    async def translated(flow: ResolvedFlow, *_: object, **__: object) -> str:
        asked.append(flow.id)
        raise SystemExit(3)

    monkeypatch.setattr(audit_command, "audit_flow", audit)
    monkeypatch.setattr(translate, "translate_offset", translated)
    assert CliRunner().invoke(main, [*arguments, "-c", str(path), "--flow", "west->hub"]).exit_code == 3
    assert asked == ["x"]


def test_an_audit_that_cannot_be_made_says_so_in_the_file(tmp_path: Path) -> None:
    """Nobody answers. A wrong path is told first, and nobody is asked."""
    cluster = {"bootstrap.servers": "127.0.0.1:1", "socket.connection.setup.timeout.ms": 500}
    config, file = tmp_path / "mirror.yaml", tmp_path / "audit.prom"
    config.write_text(json.dumps({"clusters": {"a": cluster, "b": cluster | {"bootstrap.servers": "127.0.0.1:2"}},
                                  "flows": {"a->b": {"topics": ["t"]}}}))  # fmt: skip
    found = CliRunner().invoke(
        main, ["audit", "-c", str(config), "--metrics-file", str(tmp_path / "absent" / "x.prom")]
    )
    assert (found.exit_code, "127.0.0.1" in found.stderr) == (1, False)
    assert "cannot write" in found.stderr
    assert CliRunner().invoke(main, ["audit", "-c", str(config), "--metrics-file", str(file)]).exit_code == 1
    last = read(file)
    assert last is not None
    assert (last.flow, last.verdict, last.success_at_s) == ("a->b", "unfinished", None)
    # Or the configuration names it, from its own folder.
    file.unlink()
    config.write_text(config.read_text().replace('"topics"', '"audit.metrics.file": "audit.prom", "topics"'))
    assert CliRunner().invoke(main, ["audit", "-c", str(config)]).exit_code == 1
    assert read(file) is not None
    assert supervision(load(config)).audit_files == {"a->b": str(file)}


def test_validate_names_each_flow(tmp_path: Path) -> None:
    path = tmp_path / "mirror.yaml"
    path.write_text(text({"west->east": {}, "west->hub": {}}))
    result = CliRunner().invoke(main, ["validate", "-c", str(path)])
    assert result.output == "".join(f"{path}: flow {name} is valid\n" for name in ("west->east", "west->hub"))


def test_workers_that_nobody_shares(tmp_path: Path) -> None:
    path = tmp_path / "mirror.yaml"
    path.write_text(text({"west->east": {"workers": 2}}))
    result = CliRunner().invoke(main, ["run", "-c", str(path), "--workers", "3"])
    assert result.exit_code == EXIT_USAGE
    assert "--workers is for flows that share workers, and here each has workers of its own" in result.stderr


@pytest.mark.parametrize("workers", [None, 3])
def test_run_goes_on_as_the_supervisor(config: Path, monkeypatch: pytest.MonkeyPatch, workers: int | None) -> None:
    seen: list[Supervision] = []

    def become(told: Supervision, *, commands: Commands, control: str) -> NoReturn:
        assert (commands.config, control) == (str(config), "")
        seen.append(told)
        raise SystemExit(2)  # its end is this process's

    monkeypatch.setattr(program, "become", become)
    arguments = ["run", "-c", str(config), *(["--workers", str(workers), "--fail-fast"] if workers else [])]
    assert CliRunner().invoke(main, arguments).exit_code == 2
    assert ([flow.flow for flow in seen[0].flows], seen[0].pool) == (["source->destination"], workers or 1)
    assert seen[0].fail_fast is bool(workers)


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_supervisors_exit_code_is_the_processs(
    config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    async def run(_: supervisor.Supervisor) -> int:
        return code

    file = tmp_path / "told"
    told = supervision(load(config)).pack()
    file.write_text(json.dumps({"told": told, "commands": asdict(Commands(config=str(config)))}))
    monkeypatch.setattr(supervisor.Supervisor, "run", run)
    monkeypatch.setattr(logs, "configure", lambda _: None)
    with pytest.raises(SystemExit) as ended:
        program.main(os.open(file, os.O_RDONLY))
    assert ended.value.code == code


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", "-c", "{}"],
        ["--help"],
        ["--version"],
        ["status", "--help"],
        ["sandbox", "status"],
        ["resume", "--help"],
        ["no-such-command"],
        ["validate", "-c", "none.yaml"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("stdout", ["full", "closed", "pipe"])
def test_a_stdout_that_takes_nothing(config: Path, tmp_path: Path, arguments: list[str], stdout: str) -> None:
    """A full disk, a closed descriptor, a reader that is gone: one line (none for a pipe, as everywhere), no traceback,
    and an exit code that is not 0. What is said on stderr is said as ever."""
    command = [str(MIRROR), *(each.format(config) for each in arguments)]
    if stdout == "closed":
        command = without_stdout(command)
    reader, writer = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        done = subprocess.run(
            command,
            stdout=writer if stdout == "pipe" else full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=tmp_path,
            timeout=60,
            env=os.environ | {"MIRROR_RUNTIME": str(tmp_path / "runtime")},
        )
    finally:
        os.close(full)
        os.close(writer)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    if arguments[0] == "no-such-command":
        assert (done.returncode, "No such command" in done.stderr) == (EXIT_USAGE, True)
    elif arguments[-1] == "none.yaml":
        assert (done.returncode, "none.yaml" in done.stderr) == (EXIT_CONFIG, True)
    else:
        why = {"full": "No space left on device", "closed": "Bad file descriptor"}
        assert done.returncode == 1
        assert done.stderr == (f"mirror: cannot write to stdout: {why[stdout]}\n" if stdout in why else "")


def test_the_daemon_never_loads_spark(config: Path) -> None:
    """Nor anything else that it does not need: it installs without, and stays small."""
    program = (
        "import sys; from mirror.cli import main; from mirror.service import program; import mirror.service.config\n"
        f"try: main(['validate', '-c', {str(config)!r}])\n"
        "except SystemExit: pass\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}"
        " & {'pyspark', 'pandas', 'pyarrow', 'numpy', 'matplotlib', 'psutil', 'confluent_kafka', 'prometheus_client'}))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_a_worker_is_small() -> None:
    """A worker loads no configuration model, no terminal, no metrics: it runs with what the supervisor hands over."""
    program = (
        "import sys, mirror.service.worker\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'pydantic', 'pydantic_core', 'ruamel', "
        "'click', 'rich', 'structlog', 'prometheus_client', 'pyspark', 'http'}))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("arguments", [["status"], ["resume", "t", "0"]])
def test_no_mirror_runs(config: Path, arguments: list[str]) -> None:
    """Nobody listens: said with the address and what to look at, exit code 1."""
    result = CliRunner().invoke(main, [*arguments, "-c", str(config), "--at", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "no mirror answers at 127.0.0.1:1: [Errno 111] Connection refused" in result.stderr
    assert "http.listen" in result.stderr


@pytest.mark.parametrize(
    ("listen", "at"), [("127.0.0.1:0", "127.0.0.1"), ("0.0.0.0:0", "127.0.0.1"), ("[::]:0", "[::1]")]
)
@pytest.mark.parametrize("arguments", [["status"], ["resume", "t", "0"]])
def test_any_port_that_is_free(config: Path, arguments: list[str], listen: str, at: str) -> None:
    """Only the running mirror knows it: said where to find it, and how to go on."""
    config.write_text(base(top=f'http.listen: "{listen}"'))
    result = CliRunner().invoke(main, [*arguments, "-c", str(config)])
    assert result.exit_code == 1
    assert f"http.listen is {listen} in this configuration" in result.stderr
    assert "in the line `listening`" in result.stderr
    assert f"add --at {at}:PORT" in result.stderr


def test_the_console_script(config: Path) -> None:
    result = subprocess.run([str(MIRROR), "validate", "-c", str(config)], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_run_without_clusters(config: Path) -> None:
    """Nobody there, with --fail-fast: one line that says so, exit code 1."""
    nowhere = base(top='http.listen: "127.0.0.1:0"').replace('"s:1"', '"127.0.0.1:1"')
    config.write_text(nowhere.replace('"d:2"', '"127.0.0.1:2"'))
    with Mirror(config, "--fail-fast") as process:
        assert process.wait() == 1
        process.check_clean()
        (line,) = process.of("failed")
        assert line["reason"] == "Unreachable"
        assert "127.0.0.1:1: Connection refused" in line["detail"]


@pytest.mark.parametrize("text", ["flows: [", None], ids=["broken", "absent"])
def test_an_audit_that_never_begins_leaves_no_earlier_verdict(tmp_path: Path, text: str | None) -> None:
    """Whoever looks at the folder must not take the verdict of yesterday for that of today."""
    config, summary = tmp_path / "mirror.yaml", tmp_path / "out" / "summary.json"
    if text is not None:
        config.write_text(text)
    summary.parent.mkdir()
    summary.write_text("{}")
    result = CliRunner().invoke(main, ["audit", "-c", str(config), "--out", str(summary.parent)])
    assert result.exit_code == EXIT_CONFIG, result.output
    assert list(summary.parent.iterdir()) == []


@pytest.mark.parametrize(
    "typed", [["--digest", "md5", "--out", "{}"], ["--out={}", "--limit", "x"], ["--out", "{}", "-z"]]
)
def test_an_audit_that_is_mistyped_leaves_none_either(tmp_path: Path, typed: list[str]) -> None:
    """Help is no audit: it leaves the folder as it is."""
    summary = tmp_path / "out" / "summary.json"
    summary.parent.mkdir()
    summary.write_text("{}")
    words = ["audit", *(word.format(summary.parent) for word in typed)]
    assert CliRunner().invoke(main, [*words[:1], "--out", str(summary.parent), "--help"]).exit_code == 0
    assert summary.exists()
    assert CliRunner().invoke(main, words).exit_code == EXIT_USAGE
    assert list(summary.parent.iterdir()) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    """A script for the shell; and what it asks the program for: commands, options, also of groups that load late."""
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert f"_MIRROR_COMPLETE={shell}_complete" in result.output

    def completed(*words: str) -> set[str]:
        found = ShellComplete(main, {}, "mirror", "_MIRROR_COMPLETE").get_completions(list(words[:-1]), words[-1])
        return {each.value for each in found}

    assert {"status", "sandbox", "sync"} <= completed("s")
    assert "--watch" in completed("status", "--w")
    assert {"up", "down"} <= completed("sandbox", "")
