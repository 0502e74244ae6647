"""``mirror start``, ``stop`` and ``restart`` of a process in the background."""

import errno
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from mirror.cli import main
from mirror.cli.lifecycle.verbs import drain_text
from mirror.sandbox import SandboxCluster
from mirror.service.exits import EXIT_CONFIG, EXIT_FAILED, EXIT_OK, EXIT_USAGE
from mirror.service.instance.asking import Asked
from mirror.service.instance.place import STATE_HOME, Place
from tests.cli.lifecycle.verbs import Verbs, children, session, until, verbs
from tests.service.stage.kafka_side import assert_identical, create_topic, produce
from tests.service.stage.running import PATIENCE_S, config_text

UNHELD = """
import os
def pidfd_open(pid, flags=0):
    raise OSError({error}, os.strerror({error}))
os.pidfd_open = pidfd_open
from mirror.cli import main
main(prog_name="mirror")
"""
"""The command line where no process can be held."""


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Verbs]:
    with verbs(tmp_path) as found:
        yield found


def test_start_and_stop(mirror: Verbs) -> None:
    """
    1. It starts, and says where it listens and logs; brokers are away, and that is no failure.
    2. The process is nobody's.
    3. Again: the same process.
    4. It stops, and says what was drained. Again: it does not run, and that is no failure.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(PATIENCE_S)  # somebody has it
        os.set_inheritable(theirs.fileno(), True)
        process = mirror.begin("start", "--format", "json", close_fds=False, NOTIFY_SOCKET="/nowhere")
        told, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, errors) == (0, "")
        theirs.close()
        assert ours.recv(1) == b"", "nobody else has the other end"
    started = json.loads(told)
    assert (started["outcome"], started["ready"], started["unit"]) == ("started", False, None)
    assert started["status"].startswith("not ready: Unreachable: cannot reach cluster source")
    assert mirror.processes() == [started["pid"]]
    assert started["log"] == str(mirror.folder / "log")
    assert mirror.log()[0]["event"] == "listening"
    assert mirror.log()[0]["address"] == started["address"]
    _check_process(mirror, started["pid"])
    assert mirror.told("start") == started | {"outcome": "already running"}
    stopped = mirror.told("stop")
    assert (stopped["outcome"], stopped["pid"]) == ("stopped", started["pid"])
    assert stopped["drained"]["drained"] is True
    assert mirror.processes() == []
    assert mirror.run("stop").stdout.startswith("mirror: not running\n")


def _check_process(mirror: Verbs, pid: int) -> None:
    """It has a session of its own, and neither a terminal nor anything of ours. Nobody else can read its files, or
    connect to it. Its workers do not have its announcement: it ends with the supervisor."""
    assert session(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    opened = [os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)]
    assert opened == ["/dev/null", *[str(mirror.folder / "log")] * 2]
    assert "Umask:\t0077" in Path(f"/proc/{pid}/status").read_text()
    assert b"NOTIFY_SOCKET" not in Path(f"/proc/{pid}/environ").read_bytes()
    for name in ("", "log", "lock", "control"):
        assert stat.S_IMODE((mirror.folder / name).stat().st_mode) & 0o077 == 0, name
    assert _announcements() & _descriptors(pid)
    workers = children(pid)
    assert workers
    assert not [worker for worker in workers if _announcements() & _descriptors(worker)]


def _descriptors(pid: int) -> set[str]:
    return {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}


def _announcements() -> set[str]:
    """Names of descriptors of the announcements on this machine."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    return {f"socket:[{line.split()[6]}]" for line in lines if "@mirror-run/" in line}


@pytest.mark.parametrize("name", ["lock", "log"])
def test_a_folder_that_cannot_be_used(mirror: Verbs, name: str) -> None:
    """It says which, why, and what to do."""
    mirror.told("stop")
    for each in ("lock", "log"):
        (mirror.folder / each).unlink(missing_ok=True)
    (mirror.folder / name).mkdir()
    ran = mirror.run("start")
    assert ran.returncode == EXIT_FAILED
    assert ran.stderr.startswith(f"{mirror.folder} cannot be used: Is a directory: {name}; mirror start keeps")


def test_two_at_once(mirror: Verbs) -> None:
    """Exactly one starts; the others wait for it, and say that it runs."""
    begun = [mirror.begin("start") for _ in range(3)]
    said = [process.communicate(timeout=PATIENCE_S)[0] for process in begun]
    assert [process.returncode for process in begun] == [0, 0, 0]
    (pid,) = mirror.processes()
    assert sorted(text.splitlines()[0] for text in said) == [
        *[f"mirror: already running, process {pid}"] * 2,
        f"mirror: started, process {pid}",
    ]


def test_after_a_kill(mirror: Verbs) -> None:
    """What a killed mirror leaves behind fools neither start nor stop; the log goes on where it was."""
    first = mirror.told("start")["pid"]
    os.kill(first, signal.SIGKILL)
    until(lambda: not mirror.processes())
    assert (mirror.folder / "control").exists()
    assert mirror.told("stop")["outcome"] == "not running"
    second = mirror.told("start")
    assert second["outcome"] == "started"
    assert mirror.processes() == [second["pid"]]
    assert len([line for line in mirror.log() if line["event"] == "listening"]) == 2
    os.kill(second["pid"], signal.SIGTERM)
    until(lambda: not mirror.processes())
    assert mirror.log()[-1]["event"] == "stopped"


def test_a_mirror_in_a_terminal(mirror: Verbs, tmp_path: Path) -> None:
    """
    1. Beside ``mirror run``, whatever the file is called, and whoever starts it: no second copy, and no stop.
    2. A second ``mirror run`` is legal, on purpose.
    3. Once both have ended, it starts.
    """
    begun = [mirror.begin("run"), mirror.begin("run")]
    until(lambda: len(mirror.processes()) == 2)
    other = Verbs(tmp_path)
    other.config = tmp_path / "link.yaml"
    other.config.symlink_to(mirror.config)
    other.environment[STATE_HOME] = str(tmp_path / "another user's")
    others = ", ".join(map(str, sorted(process.pid for process in begun)))
    for commands, verb, done in ((other, "start", "started"), (mirror, "stop", "stopped")):
        ran = commands.run(verb)
        assert ran.returncode == EXIT_FAILED
        assert ran.stderr.startswith(f"not {done}: `mirror run` runs {mirror.config} already (process {others})")
    for process in begun:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
    assert mirror.told("start")["outcome"] == "started"


def test_a_wrong_configuration(mirror: Verbs) -> None:
    """It is told as by every command, and so is a file that is not there. A mirror that runs goes on as it is."""
    pid = mirror.told("start")["pid"]
    mirror.config.write_text("clusters: [")
    ran = mirror.run("restart")
    assert ran.returncode == EXIT_CONFIG
    assert ran.stderr.startswith(f"{mirror.config}:1")
    assert ran.stderr.endswith("\nnot restarted: what runs goes on as it is\n")
    assert ran.stdout == ""
    assert mirror.processes() == [pid]
    assert mirror.told("stop")["outcome"] == "stopped", "a wrong file can be stopped"
    ran = mirror.run("start")
    assert ran.returncode == EXIT_CONFIG
    assert "not restarted" not in ran.stderr
    mirror.config.unlink()
    assert mirror.run("start").returncode == EXIT_CONFIG
    assert mirror.processes() == []


def test_a_start_that_fails(mirror: Verbs, tmp_path: Path) -> None:
    """Its own words, and its exit code; nothing runs. What an earlier one has logged is not told again."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        mirror.config.write_text(
            config_text("127.0.0.1:1", "127.0.0.1:2", ["orders"], top={"http.listen": f"127.0.0.1:{port}"})
        )
        for _ in range(2):
            ran = mirror.run("start")
            assert ran.returncode == EXIT_FAILED
            assert ran.stderr.startswith("the mirror ended with exit code 1:\nListenFailed: ")
            assert ran.stderr.count("ListenFailed") == 1
    assert mirror.processes() == []


@pytest.mark.parametrize(
    ("committed", "said"), [(0, "0 of 4 partitions, the rest while it left"), (4, "4 of 4 partitions")]
)
def test_offsets_that_are_committed_as_it_leaves(committed: int, said: str) -> None:
    """What is not committed before is no failure."""
    told = {"drained": True, "pending": 0, "records": 1, "batches": 1, "bytes": 1, "halted": 0, "partitions": 4}
    assert drain_text(told | {"committed": committed}).endswith(f"before it left: {said}")


def test_restart(mirror: Verbs) -> None:
    """
    1. Nothing runs: it starts.
    2. It runs: it is stopped, with what was drained, and started with the options of this time.
    """
    first = mirror.told("restart")
    assert (first["outcome"], first["drained"]) == ("started", None)
    second = mirror.told("restart", "--workers", "2")
    assert (second["outcome"], second["drained"]["drained"]) == ("restarted", True)
    assert mirror.processes() == [second["pid"]] != [first["pid"]]
    until(lambda: len(children(second["pid"])) == 2)


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EPERM, errno.EMFILE], ids=errno.errorcode.get)
def test_restart_where_no_process_can_be_held(mirror: Verbs, error: int) -> None:
    """An old kernel, or a sandbox that forbids pidfd_open: the end of the former process is waited for all the same."""
    first = mirror.told("start")["pid"]
    command = [sys.executable, "-c", UNHELD.format(error=error), "restart", "-c", str(mirror.config)]
    ran = subprocess.run(
        [*command, "--format", "json"], env=mirror.environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (ran.returncode, ran.stderr) == (EXIT_OK, "")
    told = json.loads(ran.stdout)
    assert (told["outcome"], told["drained"]["drained"]) == ("restarted", True)
    assert mirror.processes() == [told["pid"]] != [first]


def test_a_process_that_is_not_held_and_does_not_end(mirror: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It announces itself for as long as it runs."""

    def pidfd_open(_: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    mirror.told("start")
    monkeypatch.setattr(os, "pidfd_open", pidfd_open)
    found = Asked.of(Place(mirror.config, mirror.folder))
    assert found is not None
    with found as asked:
        assert not asked.wait_ended(0.2)
        os.kill(asked.pid, signal.SIGKILL)
        assert asked.wait_ended(PATIENCE_S)


def test_one_that_does_not_answer(mirror: Verbs) -> None:
    """A frozen mirror is neither started a second time nor taken for stopped; nothing is killed."""
    pid = mirror.told("start")["pid"]
    os.kill(pid, signal.SIGSTOP)
    for verb in ("start", "stop"):
        ran = mirror.run(verb, "--timeout", "1")
        assert ran.returncode == EXIT_FAILED
        assert ran.stderr.startswith(f"process {pid} has not answered for 1 s: it is stopped (SIGSTOP) or stuck")
    assert mirror.processes() == [pid]
    os.kill(pid, signal.SIGCONT)
    started = mirror.told("start")
    assert started["outcome"] == "started", "the one that was asked to stop has stopped, and is replaced"
    assert mirror.processes() == [started["pid"]] != [pid]


@pytest.mark.parametrize(
    "words", [["start", "--timeout", "0"], ["restart", "--workers", "0"], ["stop", "--workers", "1"]], ids=" ".join
)
def test_wrong_usage(words: list[str]) -> None:
    assert CliRunner().invoke(main, [*words, "-c", "west.yaml"]).exit_code == EXIT_USAGE


@pytest.mark.broker
def test_a_mirror_that_copies(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. ``start`` returns once it is ready, and ``status`` shows it.
    2. ``stop`` waits for the drain, and says what was drained; the copy is the source's.
    3. ``start`` goes on from there.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(source, topic_name, 2)
    produce(source, topic_name, 400, partitions=2)
    with verbs(tmp_path, config_text(source, destination, [topic_name])) as mirror:
        started = mirror.told("start")
        assert (started["ready"], started["status"].partition(";")[0]) == (True, "ready")
        until(lambda: mirror.run("status", "--at", started["address"]).returncode == EXIT_OK)
        until(lambda: [line for line in mirror.log() if line["event"] == "caught_up"])
        ran = mirror.run("stop")
        assert ran.returncode == EXIT_OK
        assert "drained:  all that was sent is acknowledged; " in ran.stdout
        assert re.search(r"group offsets committed before it left: [012] of 2 partitions", ran.stdout)
        assert_identical(source, destination, [topic_name], 2)
        produce(source, topic_name, 100, partitions=2, seed=1)
        assert mirror.told("start")["ready"] is True
        until(lambda: len([line for line in mirror.log() if line["event"] == "caught_up"]) == 2)
        mirror.told("stop")
        assert_identical(source, destination, [topic_name], 2)
