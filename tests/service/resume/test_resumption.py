"""Halted partitions that an operator wants to go on: by partition, by topic, all at once, wherever they are."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

from mirror.cli import main
from mirror.sandbox import SandboxCluster
from mirror.service.commands import Commands
from mirror.service.http import client
from mirror.service.http.routes import Pages
from mirror.service.resume import resumption
from mirror.service.resume.resumption import NotAsked, Resumed, ResumeOutcome, Resumption
from mirror.service.telemetry.fleet import Fleet
from mirror.service.telemetry.rows import PartitionRow
from tests.service.config.loading import base
from tests.service.http.asking import asked
from tests.service.stage.kafka_side import create_topic, delete_topic, produce
from tests.service.stage.running import Mirror, cli, config_text, get, mirror, status
from tests.service.telemetry.stage import rows
from tests.service.telemetry.stage.alerts import samples

FLOW = {"orders": [0, 1, 2], "users": [0]}


def row(topic: str, partition: int, state: str) -> PartitionRow:
    halted = {"reason": "r", "detail": "d", "remedy": "m"} if state == "halted" else {}
    return rows.row(topic, partition, state=state, **halted)


class Workers:
    """Workers that answer at once; partitions of the topics in ``stays`` stay halted."""

    def __init__(
        self, rows: Mapping[int, list[PartitionRow]], *, ready: bool = True, stays: tuple[str, ...] = ()
    ) -> None:
        self.fleet = Fleet("source->destination")
        self.asked: list[tuple[int, str, Any]] = []
        self.remade: Any = None
        self.stays = stays
        self.deaf: set[int] = set()
        self.gone: set[int] = set()
        for number, held in rows.items():
            worker = self.fleet.started(number, number)
            worker.ready = worker.joined = ready
            worker.rows = {each.key: each for each in held}
        self.resumption = Resumption(self.fleet, {each: Worker(self, each) for each in rows})

    def send(self, number: int, kind: str, **fields: Any) -> bool:
        if number in self.gone:
            return False
        self.asked.append((number, kind, fields.get("keys")))
        self.remade = fields.get("remade")
        if number in self.deaf:
            return True
        answer: dict[str, Any] = {"kind": "reply", "id": fields["id"]}
        if kind == "keys":
            answer["keys"] = FLOW
        else:
            answer["outcomes"] = [[*key, "still bad" if key[0] in self.stays else ""] for key in fields["keys"]]
        asyncio.get_running_loop().call_soon(self.resumption.answered, answer)
        return True


class Worker:
    def __init__(self, workers: Workers, number: int) -> None:
        self._workers, self._number = workers, number

    def send(self, kind: str, **fields: object) -> bool:
        return self._workers.send(self._number, kind, **fields)


def spread(**options: Any) -> Workers:
    """Two halted partitions and an active one, at two workers; orders-2 is on another machine."""
    held = {1: [row("orders", 0, "halted"), row("users", 0, "halted")], 2: [row("orders", 1, "active")]}
    return Workers(held, **options)


async def test_by_partition_topic_and_all() -> None:
    """Each worker is asked for its own, and for what is halted alone, unless one partition is named."""
    workers = spread()
    found = await workers.resumption.resume("orders", None, ())
    assert found == Resumed([ResumeOutcome("orders", 0, "")], [("orders", 2)])
    found = await workers.resumption.resume(None, None, ())
    assert found == Resumed([ResumeOutcome("orders", 0, ""), ResumeOutcome("users", 0, "")], [("orders", 2)])
    found = await workers.resumption.resume("orders", 1, ())
    assert found == Resumed([ResumeOutcome("orders", 1, "")], [])
    assert await workers.resumption.resume("orders", 2, ()) == Resumed([], [("orders", 2)])
    assert [each for each in workers.asked if each[1] == "resume"] == [
        (1, "resume", [("orders", 0)]),
        (1, "resume", [("orders", 0), ("users", 0)]),
        (2, "resume", [("orders", 1)]),
    ]


async def test_partitions_that_nobody_has() -> None:
    """The group gives out none of them while the source is away: that is told, and nobody is sent elsewhere."""
    workers = Workers({1: []})
    workers.fleet.flow_partitions = 4
    workers.fleet.workers[1].joined = False
    everything = [(topic, index) for topic, indices in FLOW.items() for index in indices]
    assert await workers.resumption.resume(None, None, ()) == Resumed([], everything, nobody=True)


async def test_a_topic_that_was_made_anew() -> None:
    """By topic, or all at once: workers with partitions of it that have not halted for that yet are asked as well."""
    held = {
        1: [row("orders", 0, "halted")._replace(reason="recreated"), row("users", 0, "halted")],
        2: [row("orders", 1, "active")],
        3: [row("users", 1, "active")],
    }
    for topic, partition, remade in (("orders", None, ["orders"]), (None, None, ["orders"]), ("orders", 0, [])):
        workers = Workers(held)
        await workers.resumption.resume(topic, partition, ())
        assert workers.remade == remade
        asked = [each[::2] for each in workers.asked if each[1] == "resume"]
        assert ((2, []) in asked) is bool(remade)
        assert 3 not in dict(asked)


@pytest.mark.parametrize(("topic", "partition"), [("none", None), ("orders", 3)])
async def test_what_the_flow_does_not_have(topic: str, partition: int | None) -> None:
    with pytest.raises(NotAsked, match="the flow has no"):
        await spread().resumption.resume(topic, partition, ())


async def test_nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker is ready; one died just now; one does not answer."""
    with pytest.raises(NotAsked, match="no worker is ready"):
        await spread(ready=False).resumption.resume(None, None, ())
    workers = Workers({1: [], 2: [row("orders", 0, "halted")]})
    workers.gone.add(2)
    (outcome,) = (await workers.resumption.resume("orders", 0, ())).outcomes
    assert outcome.why_not == "the worker is not running at the moment; try again"
    workers.gone.clear()
    workers.deaf.add(2)
    monkeypatch.setattr(resumption, "ANSWER_S", 0.01)
    (outcome,) = (await workers.resumption.resume("orders", 0, ())).outcomes
    assert outcome.why_not.startswith("the worker did not answer within")


async def test_a_worker_that_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one says what the flow has. One that was not heard of is not even asked."""
    monkeypatch.setattr(resumption, "KEYS_S", 0.01)
    workers = spread()
    workers.deaf.add(1)
    assert (await workers.resumption.resume("orders", 1, ())).outcomes == [ResumeOutcome("orders", 1, "")]
    workers.asked.clear()
    workers.fleet.workers[1].heard_at -= 11
    assert (await workers.resumption.resume("orders", 1, ())).outcomes == [ResumeOutcome("orders", 1, "")]
    assert [number for number, *_ in workers.asked] == [2, 2]
    workers.deaf.add(2)
    with pytest.raises(NotAsked, match="the worker did not answer within"):
        await workers.resumption.resume("orders", 1, ())
    workers.fleet.workers[2].heard_at -= 11
    with pytest.raises(NotAsked, match=r"no worker was heard of for 1\d s; see `mirror status`, and try again"):
        await workers.resumption.resume("orders", 1, ())
    workers.gone.add(1)
    workers.deaf.clear()
    workers.fleet.workers[2].heard_at += 11
    workers.fleet.workers[1].heard_at += 11
    assert (await workers.resumption.resume("orders", 1, ())).outcomes == [ResumeOutcome("orders", 1, "")]


@pytest.mark.parametrize(
    ("path", "query", "stays", "code", "resumed"),
    [
        (("orders", "0"), {}, (), 200, 1),
        (("orders",), {"accept_gap": "true"}, (), 200, 1),
        ((), {}, (), 200, 2),
        ((), {}, ("users",), 409, 1),
        (("orders", "1x"), {}, (), 400, 0),
        (("orders", "9"), {}, (), 404, 0),
        ((), {"accept_all": "true"}, (), 400, 0),
    ],
)
async def test_over_http(
    path: tuple[str, ...], query: dict[str, str], stays: tuple[str, ...], code: int, resumed: int
) -> None:
    """What comes of it, in the status code and partition by partition."""
    flow = SimpleNamespace(name="a->b", resumption=spread(stays=stays).resumption)
    served: Any = SimpleNamespace(flows={"a->b": flow}, commands=Commands())
    answer = await asked(Pages(served), "POST", f"{'/'.join(('/api/v1/partitions', *path))}/resume?{urlencode(query)}")
    assert answer.status == code
    body = answer.data
    assert ("error" in body) is (code in (400, 404))
    assert sum(not each["why_not"] for each in body.get("partitions", [])) == resumed


@pytest.mark.parametrize("verb", ["pause", "resume"])
async def test_all_flows_of_which_one_cannot_answer(verb: str) -> None:
    """It is named, with the reason: its partitions go on as they are, and whoever paused everything has to know. If
    none can answer, nothing was done."""
    flows = {"a->b": spread(), "b->c": spread(ready=False)}
    served: Any = SimpleNamespace(
        flows={name: SimpleNamespace(name=name, resumption=each.resumption) for name, each in flows.items()},
        commands=Commands(program="mirror", config="/m.yaml"),
    )
    answer = await asked(Pages(served), "POST", f"/api/v1/partitions/{verb}")
    assert answer.status == 409
    assert answer.data["unasked"] == [
        {"flow": "b->c", "why": "no worker is ready; see `mirror status -c /m.yaml`, and try again"}
    ]
    assert {each["flow"] for each in answer.data["partitions"]} == {"a->b"}
    answer = await asked(Pages(served), "POST", f"/api/v1/partitions/users/{verb}?flow=a-%3Eb")
    assert answer.data["unasked"] == []
    flows["a->b"].fleet.workers[1].ready = flows["a->b"].fleet.workers[2].ready = False
    answer = await asked(Pages(served), "POST", f"/api/v1/partitions/{verb}")
    assert (answer.status, "no worker is ready" in answer.data["error"]) == (404, True)


@pytest.mark.parametrize(
    ("arguments", "found", "code", "said"),
    [
        (["t", "0"], Resumed([ResumeOutcome("t", 0, "")], []), 0, "t-0 is resumed"),
        (["t", "0"], Resumed([ResumeOutcome("t", 0, "still bad")], []), 1, "t-0 is not resumed: still bad"),
        (["t", "0"], Resumed([], [("t", 0)]), 1, "no worker here has t-0"),
        (["t", "0"], Resumed([], [("t", 0)]), 1, "ask where they are copied"),
        (
            ["t", "0"],
            Resumed([], [("t", 0)], nobody=True),
            1,
            "perhaps nobody holds them now, and they stay as they are",
        ),
        (["t"], Resumed([ResumeOutcome("t", 0, ""), ResumeOutcome("t", 1, "x")], []), 2, "t-1 is not resumed: x"),
        (["t"], Resumed([ResumeOutcome("t", 0, "")], [("t", 1), ("t", 2)]), 2, "no worker here has t-1, t-2"),
        (["--all"], Resumed([ResumeOutcome("t", 0, "")], [("t", 1)]), 0, "no worker here has t-1: ask where"),
        (["--all"], Resumed([], [("t", 1)]), 0, "no worker here has t-1: ask where"),
        (["--all"], Resumed([], [("t", 1)], nobody=True), 1, "perhaps nobody holds them now"),
        (["--all"], Resumed([ResumeOutcome("t", 0, "")], [("t", 1)], nobody=True), 2, "perhaps nobody holds them now"),
        (["--all"], Resumed([], []), 0, "nothing is halted or paused"),
        (["--all"], Resumed([], [], unasked=(("b->c", "w"),)), 1, "flow b->c: nothing is resumed: w\n"),
        (
            ["--all"],
            Resumed([ResumeOutcome("t", 0, "", "a->b")], [("t", 1)], unasked=(("b->c", "w"),)),
            2,
            "flow b->c: nothing is resumed: w\n",
        ),
        (
            ["--all", "--accept-gap"],
            Resumed([ResumeOutcome("t", 0, "x"), ResumeOutcome("t", 1, "x")], []),
            1,
            "t-0 is not",
        ),
    ],
)
def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], found: Resumed, code: int, said: str
) -> None:
    asked: list[Any] = []

    def resume(_: object, topic: str | None, partition: int | None, *, accept: list[str], **of: object) -> Resumed:
        asked.append((topic, partition, accept))
        flows = {"source->destination": "source->destination"}
        assert of == {"flows": flows, "flow": "", "token": "t0ken"}
        return found

    monkeypatch.setattr(client, "resume", resume)
    config = tmp_path / "mirror.yaml"
    config.write_text(base(top="http.token: t0ken"))
    result = CliRunner().invoke(main, ["resume", "-c", str(config), *arguments])
    assert result.exit_code == code
    assert said in result.output
    names = [each for each in arguments if not each.startswith("--")]
    accept = ["accept_gap"] if "--accept-gap" in arguments else []
    assert asked == [(names[0] if names else None, int(names[1]) if len(names) > 1 else None, accept)]


def lag_of(process: Mirror, partition: int) -> float | None:
    """In records, by /metrics; None where it is absent: not known."""
    lags = samples(get(process, "/metrics")[1])["mirror_replication_lag_records"]
    return next((value for labels, value in lags if labels["partition"] == str(partition)), None)


@pytest.mark.broker
def test_a_service_whose_partitions_have_all_halted(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. Everything halts: it stays up, says so once, is healthy and not ready, and its alert stands.
    2. Resumed as it is, it halts again: told, exit code 1.
    3. The reason is seen to, and all of it is resumed with one command: copied, ready again.
    4. One partition halts behind what was copied: at every scrape its lag is what waits behind the halt, and grows.

    (With --fail-fast the same scene ends the process: ``test_worker_bad_input.test_everything_halts``.)
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    config = tmp_path / "mirror.yaml"
    create_topic(source, topic_name, 2)
    create_topic(destination, topic_name, 2)
    produce(source, topic_name, 20, partitions=2)
    produce(destination, topic_name, 20, partitions=2, seed=1)
    with mirror(config, config_text(source, destination, [topic_name])) as process:
        process.wait_event("all_halted", partitions=2)
        assert get(process, "/-/healthy")[0] == 200
        code, why = get(process, "/-/ready")
        assert (code, why.splitlines()[0]) == (503, "every partition here is halted (2)")
        assert f"mirror status -c {config}" in why
        assert "every partition here is halted (2)\n" in cli(process, config, "status").stdout
        assert get(process, "/metrics")[1].count("\nmirror_partition_halted{") == 2
        assert cli(process, config, "status").returncode == 2
        assert len(process.of("all_halted")) == 1
        told = cli(process, config, "resume", "--all")
        assert told.returncode == 1
        assert f"{topic_name}-1 is not resumed: halts again, foreign_writer" in told.stderr
        delete_topic(destination, topic_name)
        create_topic(destination, topic_name, 2)
        told = cli(process, config, "resume", topic_name)
        assert (told.returncode, told.stderr) == (0, "")
        assert told.stdout == f"{topic_name}-0 is resumed\n{topic_name}-1 is resumed\n"
        process.wait_for(lambda: status(process)["states"] == {"active": 2}, "both to be active")
        assert get(process, "/-/ready")[0] == 200
        process.wait_for(lambda: lag_of(process, 0) == lag_of(process, 1) == 0, "both to be copied")
        produce(destination, topic_name, 1)
        produce(source, topic_name, 1, seed=2)
        process.wait_for(lambda: status(process)["states"] == {"active": 1, "halted": 1}, "one to halt")
        assert lag_of(process, 0) == 1
        produce(source, topic_name, 300, seed=3)
        seen: list[float | None] = []

        def known() -> bool:
            seen.append(lag_of(process, 0))
            return seen[-1] == 301

        process.wait_for(known, "the lag behind the halt")
        assert not {None, 0} & set(seen), seen
        assert process.stop() == 2
