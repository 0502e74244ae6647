"""The steps of a cutover: what each one refuses, and how a run goes on where another one ended."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mirror.service.cutover.certificate import Audit
from mirror.service.cutover.command import Cutover, Options, Refused
from mirror.service.cutover.obstacles import Obstacle
from mirror.service.cutover.state import StateUnreadable
from mirror.service.cutover.world import Found
from mirror.service.offsets.ends import Missing
from mirror.service.sync.plan import GroupsPlan, GroupState
from tests.service.cutover.worlds import SUBJECT, Fake, group, row


class Run:
    """Runs of the command in one folder, on a clock that only rests move."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[str] = []
        self.now = 0.0

    async def rest(self, seconds: float) -> None:
        self.now += seconds

    def of(self, world: Fake, **options: Any) -> Cutover:
        self.told = []
        return Cutover(
            world, Options(**options), self.folder, tell=self.told.append, rest=self.rest, clock=lambda: self.now
        )

    async def __call__(self, world: Fake, **options: Any) -> int:
        return await self.of(world, **options).run(lambda data: [f"next of {data['flow']}"])

    async def refused(self, world: Fake, **options: Any) -> Refused:
        with pytest.raises(Refused) as caught:
            await self(world, **options)
        return caught.value

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "state.json").read_text())
        return found

    def certificate(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "certificate.json").read_text())
        return found


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


async def test_all_steps(run: Run) -> None:
    """All steps in order, then the certificate says what was moved."""
    world = Fake(looks=[[row(0), row(1, end=5)]], not_covered=["other"])
    assert await run(world, version="1.2.3", window_s=3.0) == 0
    assert world.did == ["audit", "commit"]
    assert [line.split()[0] for line in run.told if line[:1].isdigit()] == ["1", "1", "2", "3", "3", "4", "5"]
    assert run.told[-1] == "next of west->east"
    assert run.now == 3.0
    data = run.certificate()
    assert {name: data[name] for name in ("mirror", "offsets", "stood_still_s", "not_covered", "audit")} == {
        "mirror": "1.2.3", "offsets": "exact", "stood_still_s": 3.0, "not_covered": ["other"],
        "audit": {"verdict": "identical", "exit_code": 0},
    }  # fmt: skip
    assert data | SUBJECT.data() == data
    assert [(each["partition"], each["source_end"], each["destination_end"]) for each in data["partitions"]] == [
        (0, 10, 10), (1, 5, 5),
    ]  # fmt: skip
    assert data["groups"] == [
        {
            "group": "billing", "kind": "classic", "state": "in_step",
            "offsets": [{"topic": "orders", "partition": 0, "source": 7, "into": "orders", "destination": 7}],
        }
    ]  # fmt: skip
    for name in ("state.json", "certificate.json"):
        assert (run.folder / name).stat().st_mode & 0o777 == 0o600


async def test_producers_that_write(run: Run) -> None:
    """The partitions are named, the busiest first, with their rates; nothing is noted."""
    world = Fake(looks=[[row(0), row(1), row(2)], [row(0), row(1, end=30), row(2, end=110)]])
    told = str(await run.refused(world, window_s=4.0))
    assert "orders-2: 100 records, 25.0 a second, orders-1: 20 records, 5.0 a second. Stop the producers" in told
    assert world.did == []
    assert not (run.folder / "state.json").exists()


async def test_an_open_transaction(run: Run) -> None:
    told = str(await run.refused(Fake(looks=[[row(source_stable=4)]])))
    assert "a transaction is open" in told
    assert "orders-0 (stable up to 4, ends at 10)" in told


async def test_waiting_for_the_copy(run: Run) -> None:
    """As long as something is to be copied, or to be created."""
    world = Fake(looks=[[row(copied=2)], [row(copied=2)], [row(copied=5)], [row(absent=True)], [row()]])
    assert await run(world) == 0
    assert "2 drained: 8 records of 1 partition to go" in run.told
    assert world.looks == [[row()]]


async def test_a_copy_that_does_not_come(run: Run) -> None:
    told = str(await run.refused(Fake(looks=[[row(copied=3)]]), timeout_s=20.0))
    assert "not copied within 20 s: 7 records of orders-0 (7)" in told


async def test_no_mirror_runs(run: Run) -> None:
    """That matters only while something is to be copied."""
    told = str(await run.refused(Fake(looks=[[row(copied=3)]], running="nobody answers at 1.2.3.4")))
    assert told.endswith("to be copied, and no mirror does that: nobody answers at 1.2.3.4")
    assert await run(Fake(running="nobody answers")) == 0


@pytest.mark.parametrize(("reason", "code"), [("not_a_copy", 2), ("paused", 1)])
async def test_what_is_not_copied(run: Run, reason: str, code: int) -> None:
    """Halted and paused partitions are listed, with what to do."""
    found = Obstacle(topic="orders", partition=3, reason=reason, detail="they differ", remedy="do this")
    error = await run.refused(Fake(obstacles=[found]))
    assert error.code == code
    assert "orders-3" in str(error)
    assert "do this" in str(error)


async def test_a_halt_says_most(run: Run) -> None:
    """Of a partition that somebody else writes to, the halt has a remedy; that its copy is longer follows from it."""
    halted = Obstacle(topic="orders", partition=0, reason="foreign_writer", remedy="do this")
    error = await run.refused(Fake(looks=[[row(copied=12)]], obstacles=[halted]))
    assert (error.code, "do this" in str(error)) == (2, True)
    error = await run.refused(Fake(looks=[[row(why="the partition has halted")]], obstacles=[halted]))
    assert (error.code, "do this" in str(error)) == (2, True)


@pytest.mark.parametrize(
    ("world", "told"),
    [
        (Fake(looks=[[]]), "mirrors no topic"),
        (
            Fake(missing=[Missing("payments", "it is hidden"), Missing("x", "gone")]),
            "\n  payments: it is hidden\n  x: gone",
        ),
        (Fake(looks=[[row(why="no leader")]]), "orders-0: no leader"),
        (Fake(looks=[[row(copied=12)]]), "orders-0 ends at 10, its copy at 12"),
    ],
)
async def test_what_cannot_be_cut_over(run: Run, world: Fake, told: str) -> None:
    assert told in str(await run.refused(world))
    assert world.did == []


@pytest.mark.parametrize(
    ("verdict", "options", "code", "told"),
    [
        (Audit("different", 2), {}, 2, "found differences"),
        (Audit("not finished", 1), {}, 1, "could not finish"),
        (Audit("unverifiable", 3), {}, 3, "could not prove everything"),
        (Audit("unverifiable", 3), {"accept_unproven": True}, 0, ""),
        (Audit("accepted", 0), {}, 0, ""),
    ],
)
async def test_the_audit(run: Run, verdict: Audit, options: dict[str, Any], code: int, told: str) -> None:
    """Without a good verdict, no group moves. The next run audits again."""
    world = Fake(verdict=verdict)
    if not code:
        assert await run(world, **options) == 0
        assert run.certificate()["audit"]["verdict"] == verdict.verdict
        return
    error = await run.refused(world, **options)
    assert (error.code, world.did) == (code, ["audit"])
    assert told in str(error)
    assert set(run.state()["done"]) == {"stopped", "drained"}


async def test_no_audit(run: Run) -> None:
    """The certificate says so. One that was left out is made up for by a run that wants it."""
    world = Fake(at_source=["billing"])
    await run.refused(world, skip_audit=True)
    assert world.did == []
    for skip, told in ((True, "done before"), (False, "would compare both clusters")):
        await run.of(world, skip_audit=skip).foresee()
        assert f"3 audited: {told}" in run.told
    world.at_source = []
    assert await run(world) == 0
    assert world.did == ["audit", "commit"]
    other = Run(run.folder / "other")
    other.folder.mkdir()
    assert await other(Fake(), skip_audit=True) == 0
    assert other.certificate()["audit"] == {"verdict": "skipped", "exit_code": None}


@pytest.mark.parametrize("state", sorted({*GroupState} - {GroupState.IN_STEP, GroupState.AHEAD}, key=str))
async def test_groups_that_cannot_move(run: Run, state: GroupState) -> None:
    """Nothing is committed, not even of the others; the next run looks again."""
    world = Fake(plans=[group("ok"), group(state=state, why="because of that")])
    error = await run.refused(world)
    assert "group billing: because of that" in str(error)
    assert world.did == ["audit"]
    world.plans = [group("ok"), group(now=9, state=GroupState.AHEAD)]
    assert await run(world) == 0
    assert world.did == ["audit", "commit"]
    assert [each["offsets"][0]["destination"] for each in run.certificate()["groups"]] == [7, 9]


async def test_groups_that_are_not_known(run: Run) -> None:
    """A broker does not list its groups: they would be missing in the certificate. Nothing is committed."""
    world = Fake(unlisted="broker 2 of west: no answer")
    told = str(await run.refused(world))
    assert told == "broker 2 of west: no answer, so groups may be left behind; start it, then run this again"
    assert world.did == [], "the audit may take hours"
    assert await run.of(world).foresee() == 1
    assert [line[0] for line in run.told if "would refuse: broker 2" in line] == ["4"]
    world.unlisted = ""
    assert await run(world) == 0


@dataclass
class Failing(Fake):
    """A broker fails when the offsets are committed."""

    async def groups(self, *, apply: bool) -> GroupsPlan:
        self.unlisted = "broker 2 of west: no answer" if apply else ""
        return await super().groups(apply=apply)


async def test_a_broker_that_fails_before_the_commit(run: Run) -> None:
    assert "groups may be left behind" in str(await run.refused(Failing()))
    assert not (run.folder / "certificate.json").exists()


async def test_a_group_that_is_named_and_not_there(run: Run) -> None:
    """A typo: the groups that were meant would stay behind. It is told before there is an audit, and by a dry run."""
    world = Fake(absent={"biling": "no group of this name at west"})
    told = str(await run.refused(world, groups=("billing", "biling")))
    assert told == "group biling: no group of this name at west: check --group, then run this again"
    assert world.did == []
    assert await run.of(world, groups=("biling",)).foresee() == 1
    assert [line[0] for line in run.told if "would refuse: group biling" in line] == ["4"]
    assert await run(world, groups=("billing",)) == 0
    assert await run(Fake(plans=[]), groups=("billing",)) == 0  # certified before: only what is next is told


async def test_a_group_that_may_not_be_described(run: Run) -> None:
    """It could not move, and waiting does not help: it is told before there is an audit."""
    plan = group(state=GroupState.FAILED, why="GROUP_AUTHORIZATION_FAILED")
    plan.remedy = "grant it"
    world = Fake(plans=[plan, group("other")])
    told = str(await run.refused(world))
    assert "\n  group billing: GROUP_AUTHORIZATION_FAILED; grant it\n" in told
    assert world.did == []


async def test_groups_that_the_configuration_names(run: Run) -> None:
    """They are not there, or there may be others: nobody has asked for more, and it is told."""
    world = Fake(absent={"biling": "no group of this name at west"}, unseen="there may be others")
    assert await run(world) == 0
    lines = ["4 groups: group biling: no group of this name at west", "4 groups: there may be others"]
    assert [line for line in run.told if line in lines] == lines
    other = Run(run.folder / "other")
    other.folder.mkdir()
    assert await other.of(world).foresee() == 0
    assert [line for line in other.told if line in lines] == lines


async def test_a_named_group_that_vanishes(run: Run) -> None:
    """It was deleted while the audit ran."""

    @dataclass
    class Vanishing(Fake):
        def audit(self, out: Path) -> Audit:
            self.plans = []
            return super().audit(out)

    assert "group billing: it has no committed offsets" in str(await run.refused(Vanishing(), groups=("billing",)))


async def test_a_group_that_still_reads_at_the_source(run: Run) -> None:
    """Who its members are, is told with a command; likewise where it has members at the destination already."""
    world = Fake(at_source=["billing"])
    told = str(await run.refused(world))
    assert "group billing: it has members at the source" in told
    assert (
        "\n  kafka-consumer-groups.sh WEST --describe --members --group NAME names a group's members at the source"
        in told
    )
    assert "kafka-consumer-groups.sh EAST" not in told
    assert world.did == ["audit"]
    world = Fake(plans=[group(state=GroupState.ACTIVE, why="it has members at the destination")])
    told = str(await run.refused(world))
    assert "group billing: it has members at the destination, which read on there already; stop its consumers" in told
    assert (
        "\n  kafka-consumer-groups.sh EAST --describe --members --group NAME names a group's members at the dest"
        in told
    )
    assert "kafka-consumer-groups.sh WEST" not in told


async def test_many_groups_that_cannot_move(run: Run) -> None:
    world = Fake(at_source=[f"g-{number:02}" for number in range(60)])
    world.plans = [group(name) for name in world.at_source]
    told = str(await run.refused(world))
    assert told.count("it has members at the source") == 50
    assert "and 10 more; `mirror sync --dry-run` has all" in told


async def test_going_on(run: Run) -> None:
    """What was done for the same ends is not done again; groups are, until there is a certificate."""
    world = Fake(at_source=["billing"])
    await run.refused(world, window_s=2.0)
    world.at_source, before = [], run.now
    assert await run(world) == 0
    assert run.now == before
    assert world.did == ["audit", "commit"]
    assert run.told[0] == "going on; done before for the same ends: stopped, drained, audited"


async def test_the_source_has_moved_since(run: Run) -> None:
    """All of it begins again, by the ends of now."""
    world = Fake(at_source=["billing"])
    await run.refused(world)
    world.looks, world.at_source = [[row(end=11)]], []
    assert await run(world) == 0
    assert run.told[0] == "changed since the last run, so it all begins again: orders-0: from 10 to 11"
    assert world.did == ["audit", "audit", "commit"]
    assert run.certificate()["partitions"][0]["source_end"] == 11


async def test_the_source_moves_meanwhile(run: Run) -> None:
    """While the copy is waited for, and after the groups: nothing that was done before counts any more."""
    world = Fake(looks=[[row(copied=2)], [row(copied=2)], [row(end=12, copied=2)]])
    assert "orders-0: from 10 to 12" in str(await run.refused(world))
    assert run.state()["done"] == {}
    world = Fake(looks=[[row()], [row()], [row(end=12)]])
    assert "changed since the producers were seen to have stopped: orders-0: from 10 to 12. Stop them" in str(
        await run.refused(world)
    )
    assert world.did == ["audit", "commit"]
    assert run.state()["done"] == {}
    assert not (run.folder / "certificate.json").exists()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"source_id": "c" * 32}, "orders was deleted and created again at the source"),
        ({"destination_id": "c" * 32}, "orders was deleted and created again at the destination"),
    ],
)
async def test_a_topic_that_is_recreated(run: Run, changes: dict[str, Any], told: str) -> None:
    """Between two runs, or while one is at work; with as many records by chance. Another topic was audited."""
    world = Fake(at_source=["billing"])
    await run.refused(world)
    world.looks, world.at_source = [[row(**changes)]], []
    assert await run(world) == 0
    assert told in run.told[0]
    assert world.did == ["audit", "audit", "commit"]
    (run.folder / "state.json").unlink()
    meanwhile = Fake(looks=[[row()], [row()], [row(**changes)]])
    assert told in str(await run.refused(meanwhile))
    assert run.state()["done"] == {}


async def test_the_destination_loses_records_meanwhile(run: Run) -> None:
    """The audit takes long, or an earlier run was long ago: the certificate would say what is not so any more."""
    lost = Fake(looks=[[row()], [row()], [row(copied=7)]])
    assert "the destination has lost records that were copied, of orders-0 (3)" in str(await run.refused(lost))
    assert run.state()["done"] == {}
    assert not (run.folder / "certificate.json").exists()


async def test_once_it_is_certified(run: Run) -> None:
    """Another run only says what is next: the flow may be paused, and the copies be written to. If somebody writes to
    the source all the same, it begins again."""
    world = Fake()
    await run(world)
    paused = Obstacle(topic="orders", partition=0, reason="paused")
    at_rest = Fake(looks=[[row(copied=50)]], at_source=["billing"], obstacles=[paused])
    assert await run(at_rest) == 0
    assert at_rest.did == []
    written = run.folder / "certificate.json"
    assert await run.of(at_rest).foresee() == 0
    assert run.told == [f"nothing is to be done: {written} was written before, for the same ends"]
    assert await run(at_rest) == 0
    assert run.told[-1] == "next of west->east"
    at_rest.looks = [[row(end=51, copied=51)]]
    assert "is paused" in str(await run.refused(at_rest))


async def test_a_certificate_that_is_gone(run: Run) -> None:
    """It is written again as it was, whatever the clusters hold by now: `--reverse` reads it."""
    await run(Fake(), version="1.2.3")
    path, before = run.folder / "certificate.json", run.certificate()
    path.unlink()
    world = Fake(looks=[[row(copied=50)]], plans=[])
    assert await run.of(world).foresee() == 0
    assert run.told == [f"5 certificate: {path} is gone, and would be written again"]
    assert not path.exists()
    assert await run(world, version="9") == 0
    assert f"5 certificate: {path} was gone, and is written again" in run.told
    assert (run.certificate(), world.did) == (before, [])


async def test_result_files_of_the_audit_that_are_gone(run: Run) -> None:
    """Its verdict is known; that it took hours does not have to be known twice. Who needs the files is told."""
    world = Fake(at_source=["billing"])
    await run.refused(world)
    world.at_source = []
    assert await run(world) == 0
    told = (
        f"3 audited: identical, before; its files are gone from {run.folder / 'audit'}: `mirror audit` makes them again"
    )
    assert told in run.told
    assert world.did == ["audit", "commit"]
    assert await run(world) == 0
    assert told in run.told, "also once it is certified"
    (run.folder / "audit").mkdir()
    assert await run(world) == 0
    assert not any("are gone" in line for line in run.told)


@dataclass
class Interrupted(Fake):
    """Ctrl-C at one of the looks."""

    fails_at: int = 0

    async def look(self) -> Found:
        self.fails_at -= 1
        if not self.fails_at:
            raise KeyboardInterrupt
        return await super().look()


async def test_interrupted_after_each_step(run: Run) -> None:
    """Whichever look fails, the next run goes on, and what it leaves is the same."""
    for fails_at in range(1, 4):
        run.folder = run.folder / "next"
        run.folder.mkdir()
        world = Interrupted(fails_at=fails_at)
        with pytest.raises(KeyboardInterrupt):
            await run(world)
        assert await run(world) == 0
        assert run.certificate()["partitions"][0]["source_end"] == 10
        assert world.did.count("audit") == 1


async def test_dry_run(run: Run) -> None:
    """Says what it would do, writes nothing, commits nothing; a step that would refuse does not end it."""
    world = Fake()
    assert await run.of(world).foresee() == 0
    assert "4 groups: would commit 1 offset of 1 group" in run.told
    assert run.told[-1] == "nothing was changed"
    world = Fake(looks=[[row(copied=2)]], running="nobody answers", at_source=["billing"])
    assert await run.of(world).foresee() == 1
    refusals = [line for line in run.told if "would refuse" in line]
    assert [line[0] for line in refusals] == ["2", "4"]
    assert world.did == []
    halted = Obstacle(topic="orders", partition=0, reason="corrupt")
    assert await run.of(Fake(obstacles=[halted], looks=[[row()], [row(end=11)]])).foresee() == 2
    assert list(run.folder.iterdir()) == []


async def test_a_file_of_something_else(run: Run) -> None:
    (run.folder / "state.json").write_text("[]")
    with pytest.raises(StateUnreadable, match=r"remove it, or name another folder"):
        await run(Fake())
