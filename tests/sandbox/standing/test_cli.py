"""``mirror sandbox``: arguments, and the life of a background sandbox."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mirror.sandbox.children import guardian
from mirror.sandbox.standing import state
from mirror.sandbox.standing.cli import sandbox
from tests.sandbox.support import alive, descendants, environment, eventually


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder and a temp dir of the test's own; whatever a test left up is ended."""
    folder = tmp_path / "runtime"
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("MIRROR_RUNTIME", str(folder))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    yield folder
    left = state.read()
    if left is not None:
        os.kill(left["keeper_pid"], signal.SIGKILL)


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m mirror.sandbox``."""
    return subprocess.run(
        [sys.executable, "-m", "mirror.sandbox", *arguments], capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--brokers", "0"], "0 is not in the range 1<=x<=3"),
        (["--brokers", "4"], "4 is not in the range 1<=x<=3"),
        (["--version", "four"], "'four' is not a version of Apache Kafka"),
        (["--version", "0.8.2.2"], "0.8.2.2 is older than the sandbox can start"),
        (["--clusters", "a=latest"], "'latest' is not a version of Apache Kafka"),
        (["--clusters", ""], "'' is not a cluster's name"),
        (["--clusters", "a,,b"], "'' is not a cluster's name"),
        (["--clusters", "a, b c"], "'b c' is not a cluster's name"),
        (["--clusters", "a,b,a"], "a is named twice"),
        (["--property", "log.retention.ms"], "'log.retention.ms' is not KEY=VALUE"),
        (["--property", "=1"], "'=1' is not KEY=VALUE"),
        (["--heap-mb", "16"], "16 is not in the range x>=256"),
    ],
)
def test_arguments_that_cannot_be(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(sandbox, ["up", *arguments])
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.parametrize("mode", [[], ["--foreground"]])
def test_a_property_that_is_ours(mode: list[str]) -> None:
    done = CliRunner().invoke(sandbox, ["up", "--property", "log.dirs=/tmp/x", *mode])
    assert done.exit_code == 1
    assert done.output == "Error: broker property log.dirs is set by the sandbox\n  remedy: leave it out\n"


def test_nothing_is_up() -> None:
    done = CliRunner().invoke(sandbox, ["status"])
    assert (done.exit_code, done.output) == (1, "no sandbox is up; start one with `mirror sandbox up`\n")
    done = CliRunner().invoke(sandbox, ["status", "--format", "json"])
    assert done.exit_code == 1
    assert json.loads(done.output)["up"] is False
    assert "Error: no sandbox is up" in CliRunner().invoke(sandbox, ["start", "source", "1"]).output
    done = CliRunner().invoke(sandbox, ["down"])
    assert done.exit_code == 1
    assert "Error: no sandbox is up" in done.output
    assert "remedy: start one with `mirror sandbox up`" in done.output


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"keeper_pid": "x"}', "3"])
def test_a_state_file_that_is_none(runtime: Path, text: str) -> None:
    runtime.mkdir()
    (runtime / "sandbox.json").write_text(text)
    done = CliRunner().invoke(sandbox, ["status"])
    (runtime / "sandbox.json").unlink()
    assert done.exit_code == 1
    assert "is not the state of a sandbox" in done.output
    assert "remedy: remove that file" in done.output


def test_the_state_of_a_keeper_that_is_gone_counts_for_nothing(runtime: Path) -> None:
    """Its process id belongs to another process by now: this one."""
    state.write({"keeper_pid": os.getpid(), "keeper_started": "1", "clusters": []})
    assert CliRunner().invoke(sandbox, ["status"]).exit_code == 1
    assert CliRunner().invoke(sandbox, ["down"]).exit_code == 1


def test_a_second_sandbox_is_refused(runtime: Path) -> None:
    state.write({"keeper_pid": os.getpid(), "keeper_started": guardian.start_time(os.getpid()) or "", "clusters": []})
    done = CliRunner().invoke(sandbox, ["up"])
    state.path().unlink()
    assert done.exit_code == 1
    assert "a sandbox is up already" in done.output
    assert "end it with `mirror sandbox down`" in done.output


def test_a_runtime_folder_that_cannot_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with monkeypatch.context() as changed:
        changed.setenv("MIRROR_RUNTIME", str(tmp_path / "file" / "x"))
        done = CliRunner().invoke(sandbox, ["status"])
    assert done.exit_code == 1
    assert "the runtime folder cannot be used" in done.output
    assert "set MIRROR_RUNTIME" in done.output


def test_where_the_state_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as changed:
        changed.delenv("MIRROR_RUNTIME")
        changed.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        assert state.path() == tmp_path / "mirror" / "sandbox.json"


@pytest.mark.broker
def test_the_life_of_a_background_sandbox(runtime: Path, tmp_path: Path) -> None:
    """
    1. ``up`` returns once the clusters serve, and says where; a second ``up`` is refused.
    2. ``status`` shows them, in both formats; a broker that died is shown as down.
    3. ``start`` has a killed broker back with its data and its port, ``restart`` one that runs; what cannot be is said.
    4. ``down`` ends them: no process and no data are left; a second ``down`` is refused.
    """
    done = call("up", "--clusters", "one,two=0.10.2.2", "--heap-mb", "512", "--property", "log.retention.ms=-1")
    assert done.returncode == 0, done.stderr
    assert "one: 127.0.0.1:" in done.stdout
    assert f"state file: {runtime / 'sandbox.json'}" in done.stdout
    assert "is up already" in call("up").stderr

    shown: dict[str, Any] = json.loads(call("status", "--format", "json").stdout)
    assert [(cluster["name"], cluster["version"]) for cluster in shown["clusters"]] == [
        ("one", "4.3.0"), ("two", "0.10.2.2"),
    ]  # fmt: skip
    brokers = [broker for cluster in shown["clusters"] for broker in cluster["brokers"]]
    assert [broker["condition"] for broker in brokers] == ["up", "up"]
    pids = [shown["keeper_pid"], *descendants(shown["keeper_pid"])]
    assert {broker["pid"] for broker in brokers} <= set(pids)
    assert "there is no broker 2 in a cluster one" in call("start", "one", "2").stderr
    assert "the brokers are: one 1, two 1" in call("start", "other", "1").stderr
    assert "broker 1 is running" in call("start", "one", "1").stderr
    for broker, name in zip(brokers, ("one", "two"), strict=True):
        os.kill(broker["pid"], signal.SIGKILL)
        assert eventually(lambda: "down" in call("status").stdout)
        done = call("start", name, "1")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"{name} broker 1: 127.0.0.1:{broker['port']}, process ")
    done = call("restart", "one", "1")
    assert done.returncode == 0, done.stderr
    again = json.loads(call("status", "--format", "json").stdout)
    now = [broker for cluster in again["clusters"] for broker in cluster["brokers"]]
    for before, after in zip(brokers, now, strict=True):
        assert after["pid"] != before["pid"]
        assert after | {"pid": 0} == before | {"pid": 0}
    pids += [broker["pid"] for broker in now]
    os.kill(now[1]["pid"], signal.SIGKILL)
    assert eventually(lambda: "down" in call("status").stdout)

    done = call("down")
    assert (done.returncode, done.stdout) == (0, "ended: one, two\n")
    assert not any(map(alive, pids))
    assert list((tmp_path / "tmp").iterdir()) == []
    assert {each.suffix for each in runtime.iterdir()} <= {".log", ".lock"}
    assert "no sandbox is up" in call("down").stderr


@pytest.mark.broker
def test_kill_9_of_the_keeper_leaves_nothing(tmp_path: Path) -> None:
    assert call("up", "--clusters", "one", "--version", "2.8.2", "--heap-mb", "512").returncode == 0
    kept = state.read()
    assert kept is not None
    pids = descendants(kept["keeper_pid"])
    os.kill(kept["keeper_pid"], signal.SIGKILL)
    assert eventually(lambda: not any(map(alive, pids)) and list((tmp_path / "tmp").iterdir()) == [])
    assert call("status").returncode == 1


@pytest.mark.broker
def test_a_foreground_sandbox_ends_with_ctrl_c(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "mirror.sandbox", "up", "--clusters", "one", "--version", "2.8.2", "--foreground"],
        stdout=subprocess.PIPE, text=True, env=environment(PYTHONUNBUFFERED="1"),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline().startswith("one: 127.0.0.1:")
        assert call("status").returncode == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert list((tmp_path / "tmp").iterdir()) == []
    assert state.read() is None


@pytest.mark.broker
def test_a_start_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    done = call("up", "--clusters", "one", "--version", "2.8.2", "--property", "num.io.threads=abc")
    assert done.returncode == 1
    assert "Error: cluster one (2.8.2): broker 1 ended with exit code 1 while starting" in done.stderr
    assert "Invalid value abc for configuration num.io.threads" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []
    assert state.read() is None


@pytest.mark.broker
def test_an_interrupted_start_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C while ``up`` waits for its keeper."""
    with subprocess.Popen(
        [sys.executable, "-m", "mirror.sandbox", "up", "--clusters", "one", "--version", "2.8.2"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert eventually(lambda: any((tmp_path / "tmp").iterdir()))
        pids = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 1
    assert eventually(lambda: not any(map(alive, pids)) and list((tmp_path / "tmp").iterdir()) == [])
