"""The harness is not blind: each of its comparisons is broken once, and the run fails for that one reason.

A real run, a real stage and a real reader of what a mirror says, between fake brokers and a fake mirror.
"""

import json
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.errors import ChaosError
from chaos.judging.reading import Isolation, Reading
from chaos.play.mirrors import MirrorProcess
from chaos.play.sides import Name, Offsets
from chaos.play.stage import Stage
from chaos.producers.topics import TopicPlan
from chaos.scenario import SCENARIOS, Scenario
from chaos.suite import audits
from chaos.suite.plan import Plan
from chaos.suite.results import Row
from chaos.suite.run import run
from lab.evidence import BROKER_KILLED, Record

TOPICS = (TopicPlan(name="plain", writing="nobody"), TopicPlan(name="halts", writing="nobody"))
WRITTEN = {0: b"a", 1: b"b", 3: b"c", 4: b"d"}
END = 6
HALT_AT = 3


class FakeSide:
    """A cluster: its records by what readers of either isolation level get, and where its logs end."""

    def __init__(self, name: str) -> None:
        self.bootstrap_servers = name
        self.committed: Reading = {}
        self.aborted: Reading = {}
        self.end: dict[Name, int] = {}
        self.start: dict[Name, int] = {}
        self.records: list[Record] = [Record()]
        self.dead: list[str] = []
        self.errors: list[BaseException] = []
        self.silent = 0
        """So many questions for offsets, after what was copied is read, are not answered."""
        self._unanswered = 0

    def ends(self, names: Iterable[Name], *, committed: bool = False) -> dict[Name, int]:
        return self._answer(names, self.end)

    def starts(self, names: Iterable[Name]) -> dict[Name, int]:
        return self._answer(names, self.start)

    def _answer(self, names: Iterable[Name], offsets: dict[Name, int]) -> dict[Name, int]:
        if self._unanswered:
            self._unanswered -= 1
            return {}
        return {name: offsets[name] for name in names}

    def broker_logs(self) -> dict[int, Path]:
        return {}

    def died(self) -> list[str]:
        return self.dead

    def take_errors(self) -> list[BaseException]:
        return self.errors

    def delete(self, topics: object) -> None: ...

    def read(self, names: Iterable[Name], isolation: Isolation) -> Reading:
        self._unanswered, self.silent = self.silent, 0
        return {name: self.committed[name] | (self.aborted.get(name, {}) if isolation == "read_uncommitted" else {})
                for name in names}  # fmt: skip


class World:
    """Two clusters and a mirror, as the act of a healthy run leaves them; ``breaks`` then breaks one thing."""

    def __init__(self) -> None:
        self.source, self.destination = FakeSide("source"), FakeSide("destination")
        self.sides = (self.source, self.destination)
        self.version = "4.3.0"
        self.said: list[str | dict[str, Any]] = []
        self.code = 2
        """The mirror's when it is told to stop: a partition has halted."""
        self.ended: int | None = None
        self.struck = True
        self.went_on = True
        self.verdict = audits.IDENTICAL
        self.strangers: dict[str, int] = {}
        """Records that somebody else wrote to the destination's topics, which ended aborted."""
        self.stray_failure: str = ""
        self.second_says: dict[str, Any] | None = None
        """A second mirror's halt of the partition that halts; with it two reasons are expected, the last is corrupt."""
        self.breaks: Callable[[World], None] = lambda _: None

    def heal(self) -> None: ...

    def play(self, stage: Stage, folder: Path) -> None:
        plain, halts = ((stage.topic(part), 0) for part in ("plain", "halts"))
        for side in self.sides:
            for name in (plain, halts):
                side.committed[name] = deepcopy(WRITTEN)
                side.end[name], side.start[name] = END, 0
        self.destination.committed[halts] = {at: one for at, one in WRITTEN.items() if at < HALT_AT}
        self.destination.end[halts] = HALT_AT
        self.ended = None
        self.said = [{"event": "halted", "topic": halts[0], "partition": 0, "reason": "corrupt"}]
        self.breaks(self)
        stage.check_starts = True
        most = HALT_AT if stage.scenario.exact else sum(at < HALT_AT for at in WRITTEN)
        for part, count in self.strangers.items():
            stage.strangers[stage.topic(part), 0] += count
        if self.second_says is not None:
            stage.halts.announce(halts[0], "unproven", ends=(most, most))
        stage.halts.announce(halts[0], "corrupt", ends=(most, most))
        stage.halts.looked_on = self.went_on
        stage.streams.append(SimpleNamespace(stop=lambda: None, check=self.check))  # type: ignore[arg-type]
        stage.mirrors.append(self.mirror(folder, self.said))
        if self.second_says is not None:
            stage.mirrors.append(self.mirror(folder, [{**self.said[0], **self.second_says}]))  # type: ignore[dict-item]
        for _ in stage.repeat():
            self.destination.records[0].note(BROKER_KILLED, int(self.struck))

    def check(self) -> None:
        if self.stray_failure:
            raise ChaosError(self.stray_failure)

    def mirror(self, folder: Path, said: Iterable[str | dict[str, Any]]) -> MirrorProcess:
        ended = self.ended

        def stopped(_: object) -> bool:
            nonlocal ended
            ended = self.code
            return True

        def process(argv: object, log: Path) -> Any:
            lines = [{"event": "listening"}, *said]
            text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
            log.write_text("".join(f"{line}\n" for line in text))
            return SimpleNamespace(pid=4_000_000, poll=lambda: ended, signal=stopped, wait=lambda _: ended)

        return MirrorProcess(folder / "m.yaml", processes=SimpleNamespace(folder=folder, spawn=process))  # type: ignore[arg-type]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    """Everything is right in it."""
    world = World()

    class FakeClusters:
        current = world

        def pair(self, _: object) -> World:
            return world

        def drop(self) -> None: ...

        def __enter__(self) -> "FakeClusters":
            return self

        def __exit__(self, *_: object) -> None: ...

    def read(servers: str, names: Iterable[Name], isolation: Isolation, *, since: Offsets | None = None) -> Reading:
        return next(side for side in world.sides if side.bootstrap_servers == servers).read(names, isolation)

    def read_together(views: Iterable[tuple[str, Isolation]], names: Iterable[Name]) -> list[Reading]:
        wanted = list(names)
        return [read(servers, wanted, isolation) for servers, isolation in views]

    monkeypatch.setattr("chaos.suite.run.Clusters", FakeClusters)
    monkeypatch.setattr("chaos.play.stage.read", read)
    monkeypatch.setattr("chaos.play.verdict.read", read)
    monkeypatch.setattr("chaos.play.verdict.read_together", read_together)
    monkeypatch.setattr("chaos.play.trials.Trials.__init__.__kwdefaults__", {"settle_s": 0.0})
    monkeypatch.setattr(audits, "audit", lambda *_, **__: (world.verdict, "said"))
    one = Scenario(
        name="fake", group="-", does="-", act=lambda stage: world.play(stage, tmp_path), struck=(BROKER_KILLED,),
        topics=TOPICS, bare=True,
    )  # fmt: skip
    monkeypatch.setitem(SCENARIOS, one.name, one)
    return world


def play(world: World, tmp_path: Path) -> Row:
    told = SimpleNamespace(step=lambda _: None, detail=lambda _: None, line=lambda _: None)
    (row,) = run(Plan(quick=True, only="^fake$", out=tmp_path, tracks=1), told)
    return row


def plain(side: FakeSide) -> dict[int, bytes]:
    return next(held for (topic, _), held in side.committed.items() if topic.endswith("plain"))


def halts(side: FakeSide) -> dict[int, bytes]:
    return next(held for (topic, _), held in side.committed.items() if topic.endswith("halts"))


def end(side: FakeSide, part: str, offset: int) -> None:
    side.end.update({name: offset for name in side.end if name[0].endswith(part)})


def of_aborted(part: str) -> Callable[[World], None]:
    """A record of an aborted transaction came along: only readers of uncommitted records are given it."""

    def breaks(world: World) -> None:
        names = [name for name in world.destination.committed if name[0].endswith(part)]
        world.destination.aborted = {name: {2: b"aborted"} for name in names}

    return breaks


def aborted_beside_strangers(world: World) -> None:
    """Somebody wrote to one topic; a record of an aborted transaction came along in the other."""
    world.strangers = {"halts": 1}
    of_aborted("plain")(world)


def nothing(world: World) -> None:
    for side in world.sides:
        plain(side).clear()


def no_halt(world: World) -> None:
    world.said.clear()
    world.code = 0


def other_reason(world: World) -> None:
    world.said[0] = {**world.said[0], "reason": "unproven"}  # type: ignore[dict-item]


def another_halts(world: World) -> None:
    (name,) = (name for name in world.source.committed if name[0].endswith("plain"))
    world.said.append({"event": "halted", "topic": name[0], "partition": 0, "reason": "corrupt"})


def replaced(world: World) -> None:
    held = halts(world.destination)
    held.update(dict.fromkeys(held, b"x"))


def emptied(world: World) -> None:
    halts(world.destination).clear()
    end(world.destination, "halts", 0)


def ends_elsewhere_and_is_silent(world: World) -> None:
    """The destination's log is longer; the source does not answer when it is asked for its end, the first time."""
    end(world.destination, "plain", END + 1)
    world.source.silent = 1


def starts_elsewhere_and_is_silent(world: World) -> None:
    world.destination.start.update(dict.fromkeys(world.destination.start, 1))
    world.destination.silent = world.source.silent = 2


def set_to(name: str, value: object) -> Callable[[World], None]:
    return lambda world: setattr(world, name, value)


def says(line: str | dict[str, Any]) -> Callable[[World], None]:
    return lambda world: world.said.append(line)


def stops_without_a_drain(world: World) -> None:
    """It says so, and its exit code fits: between brokers that answer, it is wrong all the same."""
    world.said.append({"event": "stopped", "level": "info", "drained": False})
    world.code = 1


BROKEN: dict[str, tuple[Callable[[World], Any], str]] = {
    "lost": (lambda world: plain(world.destination).pop(1), "lost: fake"),
    "doubled": (lambda world: plain(world.destination).update({5: b"d"}), "doubled: fake"),
    "moved": (lambda world: plain(world.destination).update({2: plain(world.destination).pop(1)}), "misplaced: fake"),
    "foreign": (lambda world: plain(world.destination).update({5: b"x"}), "not of the source"),
    "aborted": (of_aborted("plain"), "not of the source"),
    "aborted beside strangers": (aborted_beside_strangers, "not of the source"),
    "prefix aborted": (of_aborted("halts"), "is not the source's up to 3"),
    "end": (lambda world: end(world.destination, "plain", END + 1), "the end of fake"),
    "end, no answer": (ends_elsewhere_and_is_silent, "the end of fake"),
    "start, no answer": (starts_elsewhere_and_is_silent, "the start of fake"),
    "not drained": (stops_without_a_drain, "did not drain, between healthy clusters"),
    "start": (lambda world: world.destination.start.update(dict.fromkeys(world.destination.start, 1)), "the start of"),
    "nothing": (nothing, "nothing was compared"),
    "no halt": (no_halt, "did not halt"),
    "other reason": (other_reason, "corrupt was to be expected"),
    "another halts": (another_halts, "halted: fake"),
    "prefix foreign": (replaced, "is not the source's up to 3"),
    "prefix empty": (emptied, "its copy ends at 0 instead of 3 to 3"),
    "prefix lost": (lambda world: halts(world.destination).pop(1), "is not the source's up to 3"),
    "beyond the halt": (lambda world: end(world.destination, "halts", END), "its copy ends at 6 instead of 3 to 3"),
    "others not looked at": (set_to("went_on", False), "nobody measured whether the others went on"),
    "stray output": (says("Fatal Python error: Segmentation fault"), "stray output: Fatal Python error"),
    "death": (says({"event": "worker_died", "pid": 9, "detail": "ended by SIGSEGV"}), "nobody ordered it"),
    "traceback": (says({"event": "resync", "exception": "Traceback\nKeyError: 3"}), "traceback: KeyError: 3"),
    "bug": (says({"event": "resync", "reason": "bug", "detail": "?"}), "a bug, by its own word"),
    "exit code": (set_to("code", 1), "ended with exit code 1"),
    "crash": (set_to("ended", -11), "ended by itself, with exit code -11"),
    "broker": (lambda world: world.source.dead.append("broker 1 died"), "broker 1 died"),
    "proxy": (lambda world: world.source.errors.append(ValueError("a frame of -1")), "the proxy: ValueError"),
    "producer": (set_to("stray_failure", "the producer failed"), "the producer failed"),
    "no strike": (set_to("struck", False), "the fault did not strike in 5 tries: broker killed"),
    "audit": (set_to("verdict", audits.DIFFERENT), "audit: different"),
    "no audit": (set_to("verdict", "failed"), "audit: failed"),
}


def test_nothing_is_broken(world: World, tmp_path: Path) -> None:
    row = play(world, tmp_path)
    assert row.problems == []
    assert row.held
    assert (row.repetitions, row.tries, row.records, row.prefixes) == (1, 1, 4, 2)
    assert (row.audit, row.audited, row.topics) == ("identical", 1, 2)


@pytest.mark.parametrize("what", BROKEN)
def test_broken(world: World, tmp_path: Path, what: str) -> None:
    """One thing is broken, and that one thing is what the run fails for."""
    world.breaks, expected = BROKEN[what]
    row = play(world, tmp_path)
    assert not row.held
    assert len(row.problems) == 1, row.problems
    assert expected in row.problems[0]
    assert "| **no** |" in (tmp_path / "failures.md").read_text()


@pytest.mark.parametrize(("first", "second", "right"), [("unproven", "corrupt", True), ("corrupt", "unproven", False)])
@pytest.mark.parametrize("in_turn", [True, False])
def test_the_last_word_of_two_mirrors(
    world: World, tmp_path: Path, first: str, second: str, right: bool, in_turn: bool
) -> None:
    """Both halted the same partition: what the later one said counts, whichever of the mirrors that was."""
    words = [
        {"reason": first, "timestamp": "2026-01-01T00:00:01Z"},
        {"reason": second, "timestamp": "2026-01-01T00:00:02Z"},
    ]
    one, other = words if in_turn else words[::-1]
    world.second_says = other

    def says_so(world: World) -> None:
        world.said[0] = {**world.said[0], **one}  # type: ignore[dict-item]

    world.breaks = says_so
    row = play(world, tmp_path)
    assert row.held is right, row.problems
    assert row.problems == [] if right else "halted with unproven instead of corrupt" in row.problems[0]


@pytest.mark.parametrize(("count", "right"), [(1, True), (0, False), (2, False)])
def test_strangers_records_are_left_out_where_as_many_are_there(
    world: World, tmp_path: Path, count: int, right: bool
) -> None:
    """The copy beside them is compared at both isolation levels all the same."""
    world.strangers = {"plain": count}
    world.breaks = of_aborted("plain")
    assert (play(world, tmp_path).problems == []) is right


@pytest.mark.parametrize(
    ("what", "counts"),
    [("prefix lost", (1, 0, 0)), ("prefix foreign", (2, 0, 2)), ("prefix aborted", (0, 0, 1)), ("lost", (1, 0, 0))],
)
def test_what_is_wrong_before_a_halt_is_counted(
    world: World, tmp_path: Path, what: str, counts: tuple[int, int, int]
) -> None:
    world.breaks, _ = BROKEN[what]
    row = play(world, tmp_path)
    assert (row.lost, row.doubled, row.misplaced) == counts
    assert row.uncompared == 0


@pytest.mark.parametrize("what", ["crash", "another halts", "broker"])
def test_a_stage_that_was_not_compared_says_so(world: World, tmp_path: Path, what: str) -> None:
    """It failed before that: no record of it is "0 lost"."""
    world.breaks, _ = BROKEN[what]
    assert play(world, tmp_path).uncompared == 1
    text = (tmp_path / "failures.md").read_text()
    assert "| 0 | not compared | not compared | not compared |" in text


@pytest.fixture
def mapped(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Offsets differ."""
    monkeypatch.setitem(SCENARIOS, "fake", replace(SCENARIOS["fake"], exact=False))
    monkeypatch.setattr("chaos.play.stage.Stage.caught_up", lambda *_: None)
    return world


def later(world: World) -> None:
    """All of it, at other offsets."""
    held = plain(world.destination)
    moved = {10 + at: one for at, one in held.items()}
    held.clear()
    held.update(moved)


def swapped(world: World) -> None:
    held = plain(world.destination)
    held[0], held[1] = held[1], held[0]


@pytest.mark.parametrize(
    ("breaks", "right"),
    [(later, True), (swapped, False), (lambda world: plain(world.destination).pop(1), False), (replaced, False),
     (emptied, False)],
)  # fmt: skip
def test_order(mapped: World, tmp_path: Path, breaks: Callable[[World], Any], right: bool) -> None:
    mapped.breaks = breaks
    assert play(mapped, tmp_path).held is right
