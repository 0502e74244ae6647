"""A partition that is followed: what keeps a trace from beginning, how it ends, whoever dies; and on real brokers."""

import asyncio
import http.client
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.sandbox import SandboxCluster
from mirror.service.channel import TRACE, TRACED
from mirror.service.commands import Commands
from mirror.service.http.guard import GUARD
from mirror.service.http.routes import Pages
from mirror.service.resume.resumption import NotAsked
from mirror.service.tracing import following
from mirror.service.tracing.following import LEASE_S, NotTraced, Step, Traces, begin
from tests.fakes.loop import until
from tests.service.http.asking import address_of, asked, serving
from tests.service.resume.test_resumption import Workers, row
from tests.service.stage.kafka_side import create_topic, produce
from tests.service.stage.running import MIRROR, Mirror, address, cli, config_text, mirror, status

KEY = ("orders", 1)
HELD = {
    1: [row("orders", 0, "halted"), row("users", 0, "paused")],
    2: [row("orders", 1, "active")],
}
"""By worker; orders-2 is on another machine."""


class Line:
    """To a worker: what it is told."""

    def __init__(self) -> None:
        self.told: list[float] = []

    def send(self, kind: str, **fields: Any) -> bool:
        assert (kind, fields["topic"], fields["partition"]) == (TRACE, *KEY)
        self.told.append(fields["for_s"])
        return True


def traces() -> tuple[Traces, dict[int, Line]]:
    lines = {1: Line(), 2: Line()}
    return Traces(lines), lines


def heard(at: Traces, *names: str, key: tuple[str, int] = KEY, worker: int = 2, missed: int = 0) -> None:
    steps = [{"at_ms": 5, "step": name} for name in names]
    at.heard(worker, {"kind": TRACED, "topic": key[0], "partition": key[1], "steps": steps, "missed": missed})


async def some(steps: AsyncIterator[list[Step]]) -> list[Step]:
    """The next ones, if there are any."""
    async for found in steps:
        if found:
            return found
    raise AssertionError("it has ended")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "RENEW_S", 0.02)


async def test_steps_and_whose_they_are() -> None:
    """Every worker is told to follow it, wherever it is or comes to. Steps of other partitions are not of this one."""
    at, lines = traces()
    async with aclosing(at.follow(KEY, 60)) as steps:
        first = asyncio.ensure_future(some(steps))
        await until(lambda: lines[1].told)
        heard(at, "fetched", key=("orders", 0))
        heard(at, "fetched", "produce")
        assert await first == [{"at_ms": 5, "step": each, "worker": 2} for each in ("fetched", "produce")]
        assert [line.told for line in lines.values()] == [[LEASE_S], [LEASE_S]]
    assert [line.told[-1] for line in lines.values()] == [0.0, 0.0]


@pytest.mark.usefixtures("quick")
async def test_it_is_renewed_and_ends() -> None:
    at, lines = traces()
    found = [each async for each in at.follow(KEY, 0.2)]
    assert found[-1][0]["step"] == "ended"
    assert not any(found[:-1])
    assert lines[1].told[0] == lines[1].told[1] == LEASE_S
    assert lines[1].told[-1] == 0.0
    assert not at._listeners


async def test_two_follow_one_partition() -> None:
    """Both get every step. When one of them ends, the other goes on."""
    at, lines = traces()
    async with aclosing(at.follow(KEY, 60)) as one, aclosing(at.follow(KEY, 60)) as other:
        both = asyncio.gather(some(one), some(other))
        await until(lambda: len(at._listeners.get(KEY, ())) == 2)
        heard(at, "fetched")
        assert [[each["step"] for each in got] for got in await both] == [["fetched"]] * 2
        await one.aclose()
        assert 0.0 not in lines[1].told
        heard(at, "produce")
        assert (await some(other))[0]["step"] == "produce"


async def test_what_there_was_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a worker, or here since nobody takes it: it is told how many steps are missing, and the newest are kept."""
    monkeypatch.setattr(following, "MOST_WAITING", 3)
    at, _ = traces()
    async with aclosing(at.follow(KEY, 60)) as steps:
        first = asyncio.ensure_future(some(steps))
        await until(lambda: at._listeners.get(KEY))
        heard(at, "a", "b", "c", "d", missed=5)
        found = await first
    assert (found[0]["step"], found[0]["steps"]) == ("missed", 6)
    assert [each["step"] for each in found[1:]] == ["b", "c", "d"]


def flows(*names: str, held: Any = HELD) -> dict[str, Any]:
    """Flows with these partitions."""
    return {name: SimpleNamespace(name=name, resumption=Workers(held).resumption, traces=traces()[0]) for name in names}


@pytest.mark.parametrize(
    ("partition", "said", "halted"),
    [
        (("orders", 0), "orders-0 of flow a->b has halted, r: d; `mirror describe` shows the remedy; --wait", True),
        (("users", 0), "users-0 of flow a->b is paused by an operator: `mirror resume TOPIC PARTITION`; --wait", False),
        (("orders", 2), "no worker here has orders-2 of flow a->b: another instance of this mirror copies it", False),
    ],
)
async def test_nothing_happens_with_it_here(partition: tuple[str, int], said: str, *, halted: bool) -> None:
    with pytest.raises(NotTraced) as refused:
        await begin(flows("a->b"), *partition, 60, wait=False)
    assert str(refused.value).startswith(said)
    assert refused.value.halted is halted
    assert await begin(flows("a->b"), *partition, 60, wait=True)


async def test_nobody_holds_it() -> None:
    of = flows("a->b", held={1: []})
    fleet = of["a->b"].resumption._fleet
    fleet.flow_partitions = 4
    fleet.workers[1].joined = False
    with pytest.raises(NotTraced, match="perhaps nobody holds it now"):
        await begin(of, *KEY, 60, wait=False)


@pytest.mark.parametrize(
    ("names", "partition", "said"),
    [
        (("a->b",), ("orders", 9), "the flow has no partition orders-9"),
        (("a->b",), ("none", 0), "the flow has no partition none-0"),
        (("a->b", "a->c"), ("orders", 1), "2 flows have topic orders, or may have it: name one with --flow"),
        (("a->b", "a->c"), ("none", 0), "no flow has topic none"),
        ((), ("orders", 1), "no flow runs at the moment"),
    ],
)
async def test_not_found(names: tuple[str, ...], partition: tuple[str, int], said: str) -> None:
    with pytest.raises(NotAsked) as refused:
        await begin(flows(*names), *partition, 60, wait=True)
    assert str(refused.value).startswith(said)


async def test_not_more_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MOST_TRACES", 1)
    of = flows("a->b")
    async with aclosing(of["a->b"].traces.follow(KEY, 60)) as steps:
        taking = asyncio.ensure_future(some(steps))
        await until(lambda: of["a->b"].traces.full)
        with pytest.raises(NotTraced, match="has 1 traces already: wait until one of them ends"):
            await begin(of, *KEY, 60, wait=False)
        heard(of["a->b"].traces, "fetched")
        await taking


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("orders/1/trace?seconds=0", 400, "seconds must be 1 to 3600, not 0"),
        ("orders/1/trace?seconds=4000", 400, "not 4000"),
        ("orders/1/trace?seconds=x", 400, "not x"),
        ("orders/x/trace", 400, "x is not the number of a partition"),
        ("orders/9/trace", 404, "the flow has no partition orders-9"),
        ("orders/1/trace?flow=x", 404, "runs no flow x"),
        ("orders/0/trace", 409, "`mirror describe` shows the remedy"),
        ("users/0/trace", 409, "`mirror resume users 0`"),
    ],
)
async def test_refused_over_http(path: str, code: int, said: str) -> None:
    served: Any = SimpleNamespace(flows=flows("a->b"), commands=Commands())
    answer = await asked(Pages(served), "POST", f"/api/v1/partitions/{path}")
    assert answer.status == code
    assert said in answer.data["error"]
    if code == 409:
        assert answer.data.keys() == {"error", "halted"}


async def test_a_client_that_dies() -> None:
    """
    1. A client follows a partition, and takes its steps as they come.
    2. It goes away without a word: the workers are told at once, and nobody follows the partition any more.
    """
    of = flows("a->b")
    at = of["a->b"].traces
    served: Any = SimpleNamespace(flows=of, commands=Commands())
    async with serving(Pages(served)) as server:
        connection = http.client.HTTPConnection(*address_of(server), timeout=60)

        def ask() -> http.client.HTTPResponse:
            connection.request("POST", "/api/v1/partitions/orders/1/trace?seconds=600", headers={GUARD: "test"})
            return connection.getresponse()

        asking = asyncio.get_running_loop().run_in_executor(None, ask)
        await until(lambda: at._listeners)
        heard(at, "fetched")
        answer = await asking
        assert answer.getheader("content-type") == "application/x-ndjson; charset=utf-8"
        line = b"\n"
        while line == b"\n":
            line = await asyncio.to_thread(answer.readline)
        assert json.loads(line) == {"at_ms": 5, "step": "fetched", "worker": 2}
        answer.close()
        connection.close()
        await until(lambda: not at._listeners)
        assert at._lines[1].told[-1] == 0.0


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.broker
@pytest.mark.parametrize("offsets", ["exact", "mapped"])
def test_on_real_brokers(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path, offsets: str
) -> None:
    """
    1. One of two partitions is followed while records come to both: its steps, and no record's contents.
    2. Its worker is killed meanwhile: the next process goes on with the trace.
    3. A partition that is not there, and one that is paused: exit code 1, and a line that says what to do.
    4. A trace that is killed leaves nothing behind: the worker notes nothing more, and there is room for others.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    config = tmp_path / "mirror.yaml"
    create_topic(source, topic_name, 2)
    produce(source, topic_name, 20, partitions=2)
    text = config_text(source, destination, [topic_name], flow={"offsets": offsets})

    def caught_up(process: Mirror) -> bool:
        return [each["lag_records"] for each in status(process)["partitions"]] == [0, 0]

    with mirror(config, text) as process:
        process.wait_for(lambda: caught_up(process), "both to be copied")
        command = [str(MIRROR), "trace", topic_name, "1", "-c", str(config), "--at", address(process)]
        out = tmp_path / "steps.jsonl"

        def steps(name: str) -> list[dict[str, Any]]:
            whole = out.read_text().rpartition("\n")[0]
            return [each for each in lines_of(whole) if each["step"] == name]

        with (
            out.open("w") as file,
            subprocess.Popen(
                [*command, "--seconds", "3000", "--format", "json"], stdout=file, stderr=subprocess.PIPE
            ) as tracing,
        ):
            process.wait_for(lambda: steps("here"), "the trace to begin")
            produce(source, topic_name, 20, partitions=2, seed=1)
            process.wait_for(lambda: sum(each["records"] for each in steps("produce")) == 10, "what came to be sent")
            process.wait_for(lambda: len(steps("produced")) == len(steps("produce")), "the answers")
            (worker,) = status(process)["workers"]
            os.kill(worker["pid"], signal.SIGKILL)
            process.wait_for(lambda: any(each["event"] == "located" for each in steps("event")), "the next process")
            process.wait_for(lambda: caught_up(process), "all to be copied")
            for name in ("committed", "phase"):
                process.wait_for(lambda: steps(name), name)  # noqa: B023
            tracing.kill()
        assert next(each["offset"] for each in steps("fetched") if each["batches"]) == 10
        assert {each["worker"] for each in steps("produced")} == {1}
        assert steps("produced")[0]["offset"] == 10
        if offsets == "exact":
            assert all(each["base_offset"] == each["offset"] for each in steps("produced"))
        assert all(each["believed"] for each in steps("produced"))
        assert len(steps("here")) == 2

        missing = cli(process, config, "trace", topic_name, "7")
        assert (missing.returncode, missing.stdout) == (1, "")
        assert f"the flow has no partition {topic_name}-7" in missing.stderr
        assert cli(process, config, "pause", topic_name, "0").returncode == 0
        process.wait_for(lambda: status(process)["states"] == {"active": 1, "paused": 1}, "the pause to be told")
        paused = cli(process, config, "trace", topic_name, "0")
        assert (paused.returncode, paused.stdout) == (1, "")
        assert f"{topic_name}-0 of flow source->destination is paused by an operator" in paused.stderr
        assert f"{topic_name} 0`; --wait" in paused.stderr
        whole = cli(process, config, "trace", topic_name, "1", "--seconds", "1")
        assert (whole.returncode, whole.stderr) == (0, "")
        first, *_, last = whole.stdout.splitlines()
        assert " here " in first
        assert last.endswith(" ended")
        process.stop()
