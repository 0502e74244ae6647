"""What `mirror run` must not do is seen, and what is right is not taken for it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.play.conduct import Conduct
from chaos.play.mirrors import MirrorProcess
from lab.evidence import WORKER_KILLED

DIED: dict[str, Any] = {"event": "worker_died", "worker": 1, "pid": 7, "detail": "ended by SIGKILL", "level": "warning"}


def test_a_death_that_was_ordered_is_the_evidence_of_it() -> None:
    conduct = Conduct()
    conduct.order(7)
    assert conduct.event(DIED)
    assert conduct.problems == []
    assert not conduct.event(DIED), "once"
    assert "nobody ordered it" in conduct.problems[0]


@pytest.mark.parametrize(
    "event",
    [
        DIED,
        DIED | {"detail": "ended by SIGSEGV"},
        {"event": "worker_killed", "detail": "did not stop in 55 s"},
        {"event": "worker_failed", "reason": "bug", "detail": "KeyError", "exception": "Traceback ...\nKeyError: 3"},
        {"event": "resync", "reason": "bug", "detail": "?"},
        {"event": "unclosed socket", "logger": "py.warnings", "level": "warning"},
        {"event": "anything", "level": "error"},
        {"event": "located", "level": "info", "exception": "Traceback ...\nValueError: 3"},
        {"event": "log_lines_lost", "level": "warning", "detail": "3 log lines were lost"},
    ],
)
def test_what_must_not_be(event: dict[str, Any]) -> None:
    conduct = Conduct()
    assert not conduct.event(event)
    assert conduct.problems


@pytest.mark.parametrize("event", [{"event": "located", "level": "info"}, {"event": "halted", "reason": "corrupt"}])
def test_what_may_be(event: dict[str, Any]) -> None:
    conduct = Conduct()
    conduct.event(event)
    assert conduct.problems == []


def test_an_ordered_kill_does_not_excuse_another_death() -> None:
    conduct = Conduct()
    conduct.order(7)
    conduct.event(DIED | {"detail": "ended by SIGSEGV"})
    assert len(conduct.problems) == 1


@pytest.mark.parametrize(("code", "halts", "right"), [(0, 0, True), (2, 1, True), (0, 1, True), (2, 0, False), (1, 0, False), (-11, 0, False)])  # fmt: skip  # noqa: E501
def test_exit_codes(code: int, halts: int, right: bool) -> None:
    conduct = Conduct()
    conduct.stopped(code, halts=halts)
    assert (conduct.problems == []) is right


class FakeProcesses:
    """Starts nothing; what it "runs" ends when a test says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code: int | None = None

    def spawn(self, argv: list[str], log_path: Path) -> Any:
        self.code = None
        return SimpleNamespace(pid=4_000_000, poll=lambda: self.code, signal=lambda _: True, wait=lambda _: self.code)


@pytest.fixture
def processes(tmp_path: Path) -> FakeProcesses:
    return FakeProcesses(tmp_path)


@pytest.fixture
def mirror(processes: FakeProcesses) -> MirrorProcess:
    return MirrorProcess(processes.folder / "m.yaml", processes=processes)  # type: ignore[arg-type]


def say(mirror: MirrorProcess, *lines: str | dict[str, Any]) -> None:
    with mirror.log.open("a") as file:
        file.writelines((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    mirror.look()


def test_a_worker_that_crashes_and_is_started_again(mirror: MirrorProcess) -> None:
    say(mirror, "Fatal Python error: Segmentation fault", DIED | {"detail": "ended by SIGSEGV"})
    assert [problem.split(":")[0] for problem in mirror.conduct.problems] == [
        "stray output", "worker 7 died, ended by SIGSEGV",
    ]  # fmt: skip
    assert mirror.record.since(0)[WORKER_KILLED.name] == 0


def test_a_mirror_that_ends_by_itself(mirror: MirrorProcess, processes: FakeProcesses) -> None:
    processes.code = -11
    mirror.look()
    assert mirror.conduct.problems == ["mirror run ended by itself, with exit code -11: nobody ordered it"]
    mirror.look()
    assert len(mirror.conduct.problems) == 1


def test_a_line_that_a_kill_cut_short(mirror: MirrorProcess, processes: FakeProcesses) -> None:
    mirror.log.write_text('{"event": "progr')
    processes.code = -9
    mirror.kill()
    mirror.start()
    say(mirror, {"event": "listening"})
    assert mirror.conduct.problems == []
    say(mirror, "anything else")
    assert len(mirror.conduct.problems) == 1


def test_the_halts_of_a_worker_are_over_with_it(mirror: MirrorProcess) -> None:
    halted = {"event": "halted", "worker": 1, "topic": "t", "partition": 0, "reason": "corrupt"}
    say(mirror, halted)
    assert list(mirror.halts) == [("t", 0)]
    mirror.conduct.order(7)
    say(mirror, DIED)
    assert mirror.halts == {}
    assert mirror.halted_before["t", 0].reason == "corrupt"
    assert mirror.record.since(0)[WORKER_KILLED.name] == 1


def test_who_owns_a_partition(mirror: MirrorProcess) -> None:
    given = {"assignment": {"t": [0]}}
    say(
        mirror,
        {"event": "worker_started", "worker": 1, "pid": 11},
        {"event": "worker_started", "worker": 2, "pid": 12},
        {"event": "assigned", "worker": 1, **given},
    )
    assert (mirror.owner(("t", 0)), mirror.owner(("t", 1))) == (11, None)
    say(mirror, {"event": "assigned", "worker": 2, **given}, {"event": "revoked", "worker": 1, **given})
    assert mirror.owner(("t", 0)) == 12
    say(mirror, {"event": "partitions_lost", "worker": 2, **given})
    assert mirror.owner(("t", 0)) is None


def test_an_error_that_the_act_leads_to() -> None:
    conduct = Conduct()
    conduct.allow("all_halted")
    conduct.event({"event": "all_halted", "level": "error"})
    assert conduct.problems == []
    conduct.event({"event": "other", "level": "error", "detail": "x"})
    assert conduct.problems == ["other, an error: x"]
