"""Schedules of nemeses: the same for the same seed, overlapping, each with its evidence; one that misses is seen."""

from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.errors import ChaosError
from chaos.judging.halting import judge
from chaos.nemeses import NEMESES, Nemesis, Strike, brokers, draw, processes
from chaos.nemeses import scenarios as nemesis
from chaos.nemeses.places import GROUP, MIRRORS, SIDES, TOPICS
from chaos.nemeses.play import moments, play
from chaos.play.conduct import Conduct
from chaos.scenario import SCENARIOS
from chaos.suite.plan import Plan, from_environment
from chaos.witness import groups
from lab.evidence import BROKER_KILLED, JOINED_AND_LEFT, STRUCK, WORKER_KILLED, Evidence, Record

SEEDS = range(300)
MENU = list(NEMESES.values())
STRIKES = len(MENU)


def test_the_same_seed_gives_the_same_schedule() -> None:
    assert all(draw(seed, MENU, STRIKES) == draw(seed, MENU, STRIKES) for seed in SEEDS)
    assert len({draw(seed, MENU, STRIKES) for seed in SEEDS}) == len(SEEDS)


def test_a_seed_gives_what_it_gave_on_any_machine() -> None:
    """Nothing of the order of a set or of a hash of this process is in it."""
    drawn = draw(7, [one("a", ("x", "y")), one("b", ("z",))], 3)
    assert [(strike.nemesis, strike.place) for strike in drawn] == [("a", "x"), ("b", "z"), ("a", "x")]


def test_scenarios_of_one_seed_have_schedules_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run has one seed: otherwise eight scenarios would try one order of events. A told seed gives it again."""
    played: dict[str, list[object]] = {}
    monkeypatch.setattr(nemesis, "before_it_is_remade", lambda _: None)
    for name in ("nemeses-exact", "nemeses-mapped", "nemeses-exact"):
        monkeypatch.setattr(nemesis, "play", lambda _, drawn: played.setdefault(name, []).append(drawn))  # noqa: B023
        stage = SimpleNamespace(
            scenario=SCENARIOS[name], draw=338, topics=(), prefix="p", repeat=lambda: [0], recovered=lambda: None,
            start_mirror=lambda **_: None, figure=lambda _: None, halts=SimpleNamespace(expected={}),
            pair=SimpleNamespace(heal=lambda: None),
        )  # fmt: skip
        nemesis._play(stage)  # type: ignore[arg-type]
    assert played["nemeses-exact"][0] == played["nemeses-exact"][1] != played["nemeses-mapped"][0]


def test_strikes_overlap_and_never_at_one_place() -> None:
    for seed in SEEDS:
        overlap(draw(seed, MENU, STRIKES))


def overlap(schedule: tuple[Strike, ...]) -> None:
    assert len(schedule) == STRIKES
    assert [strike.begins_s for strike in schedule] == sorted(strike.begins_s for strike in schedule)
    pairs = [pair for pair in combinations(schedule, 2) if pair[1].begins_s < pair[0].ends_s]
    assert pairs, "several at once"
    for a, b in pairs:
        taken = [NEMESES[strike.nemesis].takes(strike.place) for strike in (a, b)]
        assert not taken[0] & taken[1]


def test_every_kind_at_every_place_is_drawn() -> None:
    drawn = {(strike.nemesis, strike.place) for seed in SEEDS for strike in draw(seed, MENU, STRIKES)}
    assert drawn == {(kind.name, place) for kind in MENU for place in kind.places}


def test_no_kind_comes_again_before_all_have_come() -> None:
    for seed in SEEDS:
        names = [strike.nemesis for strike in draw(seed, MENU, 2 * len(MENU))]
        assert sorted(names[: len(MENU)]) == sorted(names[len(MENU) :]) == sorted(NEMESES)


def test_every_nemesis_names_its_evidence_and_places() -> None:
    for kind in MENU:
        assert kind.struck.name
        assert kind.struck.known
        assert set(kind.places) <= {*SIDES, *MIRRORS, *GROUP, *TOPICS}
    with pytest.raises(ChaosError, match="nemesis blind names no evidence"):
        Nemesis(name="blind", places=("x",), struck=None, act=lambda *_: iter(()))  # type: ignore[arg-type]


def test_every_topic_that_is_struck_is_there() -> None:
    for one in SCENARIOS.values():
        if one.group == nemesis.GROUP:
            names = {plan.name for plan in one.topics}
            menu = nemesis.EVERY if nemesis.LOSING[0] in names else nemesis.USUAL
            assert {place for kind in menu for place in kind.places if place in TOPICS} <= names
            assert one.struck == (STRUCK.times(len(menu)),)
            assert ("on.gap" in one.flow) == (menu is nemesis.EVERY)
            assert one.acknowledged


def test_no_partition_is_moved_whose_topic_is_deleted_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be waited for, and nothing that is to make it again would get its turn."""
    moved: set[tuple[str, int]] = set()
    monkeypatch.setattr(brokers, "_whole", lambda *_: None)
    monkeypatch.setattr(brokers, "move", lambda _, names: moved.update(names))
    monkeypatch.setattr(brokers, "lead_elsewhere", lambda _, name: moved.add(name))
    names = [(plan.name, index) for plan in nemesis.TOPICS for index in range(plan.partitions)]
    stage: Any = SimpleNamespace(topics=nemesis.TOPICS, names=names)
    for chance in range(100):
        for kind in ("reassignment", "leader-move"):
            list(
                NEMESES[kind].act(stage, Strike(nemesis=kind, place=SIDES[0], begins_s=0.0, ends_s=1.0, chance=chance))
            )
    assert moved == {name for name in names if name[0] != "remade"}


@pytest.mark.parametrize(
    ("end", "behind", "right"),
    [
        (101, {}, True),  # the repeated marker
        (102, {}, True),  # repeated twice
        (103, {}, False),
        (101, {100: b"x"}, False),
        (110, {offset + 1: b"%d" % offset for offset in range(100, 109)}, False),  # what follows, moved by one
        (102, {101: b"100"}, False),
        (100, {}, False),  # no marker there
    ],
)
def test_nothing_stands_behind_a_repeated_marker(end: int, behind: dict[int, bytes], right: bool) -> None:
    """It is at offset 100, in the place of a record, and the partition has halted for it."""
    name, detail = ("t", 0), "t-0: the source has a record at offset 100, and the destination a marker; its log ends"
    here = {offset: b"%d" % offset for offset in range(200)}
    there = {offset: one for offset, one in here.items() if offset < 100} | behind
    stage: Any = SimpleNamespace(
        source=SimpleNamespace(ends=lambda names, committed=False: {name: 200}),
        destination=SimpleNamespace(ends=lambda names: {name: end}),
        mirrors=[SimpleNamespace(halts={name: SimpleNamespace(detail=detail)})],
        halts=SimpleNamespace(expected={}), look=lambda: None, figure=lambda _: None,
    )  # fmt: skip
    nemesis._filled(stage, [name])
    assert (judge(name, stage.halts.expected[name], here, there, end) == []) is right


@pytest.mark.parametrize(
    ("detail", "end", "behind"),
    [
        ("t-0: the destination ends at 101 and the source at 100; there are only markers from 90 on", 101, {}),
        (
            "t-0: a marker of producer id 7 at offset 100 stands where the source has a record; the flow's own records "
            "at offsets 101 to 103 stand behind",
            104,
            {offset + 1: b"%d" % offset for offset in range(100, 103)},
        ),
    ],
)
def test_each_wording_of_a_repeated_marker(detail: str, end: int, behind: dict[int, bytes]) -> None:
    """At the source's end, and with what was in flight behind it, which is told."""
    name, figures = ("t", 0), list[str]()
    here = {offset: b"%d" % offset for offset in range(100 if not behind else 200)}
    there = {offset: one for offset, one in here.items() if offset < 100} | behind
    stage: Any = SimpleNamespace(
        source=SimpleNamespace(ends=lambda names, committed=False: {name: 200}),
        destination=SimpleNamespace(ends=lambda names: {name: end}),
        mirrors=[SimpleNamespace(halts={name: SimpleNamespace(detail=detail)})],
        halts=SimpleNamespace(expected={}), look=lambda: None, figure=figures.append,
    )  # fmt: skip
    nemesis._filled(stage, [name])
    assert judge(name, stage.halts.expected[name], here, there, end) == []
    moved = "; 3 offsets of the flow's stand behind it, moved" if behind else ""
    assert figures == [f"t-0: a marker was repeated at offset 100{moved}"]


@pytest.mark.parametrize(
    ("after", "problems"),
    [([], 0), ([{"third-2-1"}], 1), ([None], 0)],  # None: its coordinator does not answer
)
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_mirror_that_stays_in_its_group(
    monkeypatch: pytest.MonkeyPatch, after: list[set[str] | None], problems: int, how: str
) -> None:
    """It joined and it was ended, so the fault struck; that the group still has it then is the mirror's fault."""
    told: list[set[str] | None] = [{"third-2-1"}]
    monkeypatch.setattr(groups, "members", lambda *_: told[-1])
    monkeypatch.setattr(processes, "up", lambda _: [1])
    record, conduct = Record(), Conduct()

    def ended() -> None:
        told.extend(after or [set()])

    third = SimpleNamespace(stop=ended, kill=ended, conduct=conduct)
    stage: Any = SimpleNamespace(
        mirrors=[0, 1], source=None, group="g", start_mirror=lambda **_: third, seen=record.note,
        soon=lambda condition, _: bool(condition()), patience_s=1.0,
    )  # fmt: skip
    drawn = Strike(nemesis="third-mirror", place=GROUP[0], begins_s=0, ends_s=1, chance=int(how == "kill"))
    list(processes.third_mirror(stage, drawn))
    assert record.since(0)[JOINED_AND_LEFT.name] == 1
    assert len(conduct.problems) == problems


def test_moments_are_in_order_and_an_end_comes_before_a_beginning() -> None:
    schedule = (strike("a", 0.0, 5.0), strike("b", 2.0, 4.0), strike("c", 4.0, 9.0))
    assert moments(schedule) == [
        (0.0, 0, True), (2.0, 1, True), (4.0, 1, False), (4.0, 2, True), (5.0, 0, False), (9.0, 2, False)
    ]  # fmt: skip


def one(name: str, places: tuple[str, ...], struck: Evidence = WORKER_KILLED, act: Any = None) -> Nemesis:
    return Nemesis(name=name, places=places, struck=struck, act=act or (lambda *_: iter((None,))))


def strike(name: str, begins_s: float, ends_s: float, place: str = GROUP[0]) -> Strike:
    return Strike(nemesis=name, place=place, begins_s=begins_s, ends_s=ends_s, chance=0)


class FakeStage:
    """Time does not pass: what is waited for has come, or never will."""

    def __init__(self, folder: Path) -> None:
        self.processes = SimpleNamespace(folder=folder)
        self.record = Record()
        self.figures: list[str] = []
        self.said: list[str] = []
        self.pauses: list[float] = []

    def soon(self, condition: Callable[[], object], timeout_s: float) -> bool:
        return bool(condition())

    def look(self) -> None: ...

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def seen(self, what: Evidence, count: int = 1) -> None:
        self.record.note(what, count)

    def figure(self, text: str) -> None:
        self.figures.append(text)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeStage:
    """Of nemeses that strike, one that does not, and one that fails."""
    made = FakeStage(tmp_path)

    def acting(name: str, struck: Evidence, strikes: int = 1, *, fails: bool = False) -> None:
        def act(_: Any, strike: Strike) -> Iterator[None]:
            made.said.append(f"{name} begins")
            if fails:
                raise ChaosError("it fails")
            try:
                yield
            finally:
                made.said.append(f"{name} ends")
            made.record.note(struck, strikes)

        monkeypatch.setitem(NEMESES, name, one(name, GROUP, struck, act))

    acting("killing", WORKER_KILLED)
    acting("breaking", BROKER_KILLED)
    acting("missing", BROKER_KILLED.times(2), 0)
    acting("failing", WORKER_KILLED, fails=True)
    return made


def test_what_strikes_is_counted_and_overlaps(stage: Any) -> None:
    assert play(stage, (strike("killing", 0, 3), strike("breaking", 1, 2))) == 2
    assert stage.record.since(0)[STRUCK.name] == 2
    assert stage.said == ["killing begins", "breaking begins", "breaking ends", "killing ends"]
    assert stage.figures == ["2 of 2 struck, 2 at once"]
    assert stage.pauses == [0, 1, 1, 1], "whatever takes long, no fault is shorter than it was drawn"


def test_what_does_not_strike_is_seen(stage: Any) -> None:
    assert play(stage, (strike("killing", 0, 1), strike("missing", 2, 3))) == 1
    assert stage.record.since(0)[STRUCK.name] == 1
    assert stage.figures[1].startswith("did not strike: missing at the group")
    told = (stage.processes.folder / "nemeses.log").read_text().splitlines()
    assert [line.partition(" ")[2] for line in told][-2:] == [
        "missing at the group ends", "missing at the group was not seen to strike"
    ]  # fmt: skip


def test_when_one_fails_the_others_are_let_go(stage: Any) -> None:
    with pytest.raises(ChaosError, match="it fails"):
        play(stage, (strike("killing", 0, 3), strike("failing", 1, 2)))
    assert stage.said == ["killing begins", "failing begins", "killing ends"]


def test_the_seed_of_a_run() -> None:
    assert from_environment({"CHAOS_SEED": "4711"}).seed == 4711
    assert len({from_environment({}).seed for _ in range(20)}) > 1
    assert Plan().seed == 0
