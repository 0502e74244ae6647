"""What `mirror run` must not do is seen, and what is right is not taken for it."""

import json
import signal
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.errors import ChaosError
from chaos.play.conduct import BY_ITSELF, BY_SIGKILL, Conduct
from chaos.play.halts import Halts
from chaos.play.mirrors import MirrorProcess
from chaos.play.stage import Stage
from chaos.witness import kernel
from lab.evidence import MIRROR_KILLED, WORKER_ENDED, WORKER_KILLED
from mirror.service.child import ending

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


def test_a_worker_that_was_to_end_by_itself() -> None:
    """After SIGTERM, it drains and ends with exit code 0; one that was killed instead did not."""
    conduct = Conduct()
    conduct.order(7, BY_ITSELF)
    assert conduct.event(DIED | {"detail": ending(0)})
    assert conduct.problems == []
    conduct.order(7, BY_ITSELF)
    assert not conduct.event(DIED)
    assert "nobody ordered it" in conduct.problems[0]


def test_the_evidence_says_how_a_worker_ended(mirror: MirrorProcess) -> None:
    for pid, end in ((7, BY_ITSELF), (8, BY_SIGKILL)):
        mirror.conduct.order(pid, end)
        say(mirror, DIED | {"pid": pid, "detail": end})
    assert mirror.record.since(0) == {WORKER_ENDED.name: 1, WORKER_KILLED.name: 1}
    assert ending(-signal.SIGKILL) == BY_SIGKILL


def test_an_ordered_kill_does_not_excuse_another_death() -> None:
    conduct = Conduct()
    conduct.order(7)
    conduct.event(DIED | {"detail": "ended by SIGSEGV"})
    assert len(conduct.problems) == 1


@pytest.mark.parametrize(("code", "drained", "right"), [(0, True, True), (1, True, False), (1, False, True), (0, False, False), (2, False, False)])  # fmt: skip  # noqa: E501
def test_a_stop_that_did_not_drain(code: int, drained: bool, right: bool) -> None:
    """Brokers that do not answer may keep it from that. It says so in two ways, and both have to agree."""
    conduct = Conduct()
    conduct.event({"event": "stopped", "level": "info", "drained": drained})
    conduct.stopped(code, halts=0)
    assert (not conduct.problems) is right


@pytest.mark.parametrize("code", [0, 1])
def test_a_stop_between_healthy_clusters_drains(code: int) -> None:
    """Of what is caught up, nothing is under way that could not be brought to an end. The next stop is judged anew."""
    conduct = Conduct()
    conduct.event({"event": "stopped", "level": "info", "drained": False})
    conduct.stopped(code, halts=0, healthy=True)
    assert "did not drain" in conduct.problems[0]
    conduct.problems.clear()
    conduct.stopped(0, halts=0, healthy=True)
    assert conduct.problems == []


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
        return SimpleNamespace(pid=4_000_000, poll=lambda: self.code, signal=self.signal, wait=lambda _: self.code)

    def signal(self, number: int) -> bool:
        """Returns True if it was still there."""
        running = self.code is None
        self.code = -number if running else self.code
        return running


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


def test_a_mirror_that_crashes_just_before_it_is_killed(mirror: MirrorProcess, processes: FakeProcesses) -> None:
    """1. Between two looks. 2. Between the look and the kill."""
    processes.code = -11
    mirror.kill()
    assert mirror.conduct.problems == ["mirror run ended by itself, with exit code -11: nobody ordered it"]
    mirror.start()
    mirror.look = lambda: None  # type: ignore[method-assign]
    processes.code = -6
    mirror.kill()
    assert mirror.conduct.problems[1:] == ["mirror run ended by itself, with exit code -6: nobody ordered it"]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_workers_that_outlive_their_supervisor(
    mirror: MirrorProcess, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Two workers of one partition: the fault struck, and the mirror was wrong."""
    monkeypatch.setattr(kernel, "await_gone", lambda pids: False)
    say(mirror, {"event": "listening"})
    getattr(mirror, how)()
    assert mirror.conduct.problems[0] == "workers of mirror run outlived it: [4000000]"
    assert mirror.record.since(0)[MIRROR_KILLED.name] == int(how == "kill")


def test_a_mirror_that_is_killed_twice(mirror: MirrorProcess) -> None:
    for _ in range(2):
        mirror.kill()
    assert mirror.conduct.problems == []


def test_a_mirror_that_is_still_starting_is_waited_for(processes: FakeProcesses) -> None:
    """
    1. One that was started a moment ago is told to stop, as where a stage killed it last. Until it listens,
       SIGTERM just ends the interpreter. It drains, and nothing is wrong.
    2. So is one that is started again: what it said before its last start does not count.
    3. One that ends by itself meanwhile has done so, and is not waited for. Mutation: it is told at once.
    """
    answered: list[bool] = []
    processes.signal = lambda number: stopped(number)  # type: ignore[method-assign]
    starting = MirrorProcess(processes.folder / "m.yaml", processes=processes)  # type: ignore[arg-type]
    starting.log.touch()

    def stopped(number: int) -> bool:
        answered.append(starting.log.read_text().endswith('"listening"}\n'))
        processes.code = 0 if answered[-1] else -number
        return True

    def listens() -> None:
        with starting.log.open("a") as file:
            file.write('{"event": "listening"}\n')

    for _ in range(2):
        threading.Timer(0.3, listens).start()
        assert starting.stop(healthy=True) == 0
        say(starting, {"event": "started again"})
        starting.start()
    assert answered == [True, True]
    threading.Timer(0.3, setattr, [processes, "code", -11]).start()
    starting.stop()
    assert starting.conduct.problems == ["mirror run ended by itself, with exit code -11: nobody ordered it"]


HALTED = {"event": "halted", "worker": 1, "topic": "t", "partition": 0, "reason": "corrupt"}


@pytest.mark.parametrize("then", ["located", "worker died", "other reason", "killed"])
def test_a_halt_that_is_over_before_anybody_looks(mirror: MirrorProcess, then: str) -> None:
    """It is judged all the same."""
    stage: Any = SimpleNamespace(mirrors=[mirror], look=mirror.look)
    halts = Halts(stage)
    halts.permitted["t", 0] = {"unproven"}
    ends: dict[str, dict[str, Any]] = {
        "located": {"event": "located", "topic": "t", "partition": 0, "offset": 3},
        "worker died": DIED,
        "other reason": HALTED | {"reason": "unproven"},
        "killed": {"event": "listening"},
    }
    mirror.conduct.order(7)
    with mirror.log.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in (HALTED, ends[then]))
    if then == "killed":
        mirror.kill()
        mirror.start()
    mirror.look()
    with pytest.raises(ChaosError, match="corrupt"):
        halts.check(mirror)
    halts.check(mirror)  # once


def test_a_halt_that_was_permitted_when_it_came(mirror: MirrorProcess) -> None:
    stage: Any = SimpleNamespace(mirrors=[mirror])
    halts = Halts(stage)

    def look() -> None:
        mirror.look()
        halts.check(mirror)

    stage.look = look
    halts.tolerate(("t", 0), "corrupt")
    with mirror.log.open("a") as file:
        file.writelines(
            json.dumps(line) + "\n" for line in (HALTED, {"event": "located", "topic": "t", "partition": 0})
        )
    halts.no_more(("t", 0))
    look()
    say(mirror, HALTED)
    with pytest.raises(ChaosError, match="corrupt"):
        look()


@pytest.mark.parametrize(("starts", "right"), [({("t", 0): 140}, True), ({("t", 0): 139}, False), ({}, True)])
def test_what_was_skipped_is_gone_at_the_source(
    mirror: MirrorProcess, starts: dict[tuple[str, int], int], right: bool
) -> None:
    """A mirror that skips what it could still have read has lost it, whatever else the source deletes later."""
    skipped = {"event": "skipped", "topic": "t", "partition": 0, "detail": "offsets 100 to 139 of the source are gone"}
    say(mirror, skipped)
    stage: Any = SimpleNamespace(
        source=SimpleNamespace(starts=lambda names: starts), gaps={("t", 0): (0, 1_000)}, _skips_seen=Counter()
    )
    if right:
        Stage._judge_skips(stage, mirror)
        assert stage._skips_seen[mirror] == len(starts), "what nobody could tell is looked at again"
    else:
        with pytest.raises(ChaosError, match="t-0 was skipped up to 140, and the source has it from 139 on"):
            Stage._judge_skips(stage, mirror)


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
