"""Several flows at the supervisor, whose workers' words are the test's: each starts, waits and fails by itself."""

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mirror.reasons import DELETE
from mirror.service.config import load
from mirror.service.config.resolve import supervision
from mirror.service.flows import flow as flow_module
from mirror.service.flows.changes import changes
from mirror.service.flows.overview import not_ready
from mirror.service.supervisor import Supervisor
from tests.fakes.loop import some_turns
from tests.relay.stage.flows import Log, Logged
from tests.service.config.test_across import text

EAST, HUB = "west->east", "west->hub"


class Lines(Log):
    """A log that takes failures as well."""

    def error(self, event: str, **fields: object) -> None:
        self.lines.append(Logged("error", event, fields))


class Service:
    """A supervisor whose processes are words: what it tells them is kept."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        flows: Mapping[str, Mapping[str, Any]],
        *,
        workers: int | None = None,
        **options: Any,
    ) -> None:
        self._monkeypatch = monkeypatch
        self._path = folder / "mirror.yaml"
        self.told: list[tuple[int, str, str]] = []
        self.supervisor = Supervisor(self._settings(flows, workers=workers, **options))
        self.log = Lines()
        self.flows = self.supervisor.flows
        self.run()

    def _settings(self, flows: Mapping[str, Mapping[str, Any]], **options: Any) -> Any:
        self._path.write_text(text({name: dict(flow) for name, flow in flows.items()}))
        return supervision(load(self._path), **options)

    def run(self) -> None:
        """Every worker that has no process gets one."""
        for flow in self.flows.values():
            self._monkeypatch.setattr(flow, "log", self.log)
        for number, child in self.supervisor._children.items():
            if not child.pid:
                self._monkeypatch.setattr(child, "send", partial(self._send, number))
                child.pid = 1000 + number
                self.supervisor._begun(child)

    def _send(self, number: int, kind: str, *, flow: str = "", **_: object) -> bool:
        self.told.append((number, kind, flow))
        return True

    def say(self, number: int, kind: str, flow: str, **fields: object) -> None:
        message = {"kind": kind, "flow": flow, **fields}
        self.supervisor._hear(self.supervisor._children[number], message)

    def ready(self, number: int, flow: str) -> None:
        self.say(number, "ready", flow, partitions=1, source_id="s", destination_id="d")

    async def reload(self, flows: Mapping[str, Mapping[str, Any]]) -> "asyncio.Task[None]":
        found = changes(self.supervisor.settings, self._settings(flows))
        task = asyncio.get_running_loop().create_task(self.supervisor.apply(found))
        await some_turns()
        return task


async def test_they_share_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten flows need two processes if two are asked for; a flow with workers of its own has them to itself."""
    flows = {f"west->{alias}": {"topics": [alias]} for alias in ("east", "hub", "hub-too")}
    service = Service(tmp_path, monkeypatch, flows | {"east->hub": {"workers": 2, "topics": ["x"]}}, workers=2)
    children = service.supervisor._children
    assert sorted(children) == [1, 2, 3, 4]
    assert [sorted(child.flows) for child in children.values()] == [sorted(flows)] * 2 + [["east->hub"]] * 2
    assert [child.flows["east->hub"].number for child in (children[3], children[4])] == [3, 4]


async def test_each_has_commands_about_its_own_destination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(tmp_path, monkeypatch, {EAST: {}, HUB: {}})
    service.supervisor._show_commands()
    typed = {name: flow.commands.rendered(f"{DELETE}; mirror resume", "t", 0) for name, flow in service.flows.items()}
    for name, flow in service.flows.items():
        at = f"--bootstrap-server {flow.told.destination.bootstrap_servers} --delete --topic t; "
        assert typed[name] == f"kafka-topics.sh {at}mirror resume --flow '{name}' t 0"
    assert len(set(typed.values())) == 2


async def test_each_starts_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One waits for its cluster; the other's workers join their group as soon as they are ready."""
    service = Service(tmp_path, monkeypatch, {EAST: {}, HUB: {}}, workers=2)
    service.say(1, "waiting", HUB, reason="Unreachable", detail="x")
    service.ready(1, EAST)
    assert service.told == []
    service.ready(2, EAST)
    assert service.told == [(1, "join", EAST), (2, "join", EAST)]
    assert [flow.started for flow in service.flows.values()] == [True, False]
    assert [flow.fleet.workers[1].waits for flow in service.flows.values()] == ["", "Unreachable: x"]


async def test_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. A flow has failed in one of two workers, which goes on: the flow is out of its group there, not ready, and says
       why. The other flow notices nothing.
    2. It is ready again: it joins at once, since the flow has started. What it had counted before is kept.
    """
    service = Service(tmp_path, monkeypatch, {EAST: {}, HUB: {}}, workers=2)
    for flow in (EAST, HUB):
        for number in (1, 2):
            service.ready(number, flow)
    service.told.clear()
    service.flows[HUB].fleet.workers[1].counters = {"fetch_requests": 7, "cpu_s": 3.0}
    service.say(1, "failed", HUB, reason="PutOut", detail="d", final=False, again_s=0.25)
    (line,) = service.log.of("flow_failed")
    assert (line["worker"], line["reason"], line["restart_s"]) == (1, "PutOut", 0.25)
    views = [flow.fleet.workers[1] for flow in service.flows.values()]
    assert [(view.ready, view.waits, view.restarts) for view in views] == [(True, "", 0), (False, "PutOut: d", 1)]
    assert service.supervisor.processes.workers[1].restarts == 0
    service.ready(1, HUB)
    assert service.told == [(1, "join", HUB)]
    assert (views[1].counter("fetch_requests"), views[1].counter("cpu_s")) == (7, 0)
    assert service.supervisor._failed is None


async def test_what_each_worker_finds_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is logged once; of topics that come and go for years, the last ones are remembered."""
    monkeypatch.setattr(flow_module, "MOST_TOLD", 2)
    service = Service(tmp_path, monkeypatch, {EAST: {}, HUB: {}}, workers=2)

    def gone(topic: str) -> int:
        for number in (1, 2):
            service.say(number, "log", EAST, level="info", event="topic_gone", fields={"topic": topic})
        return len([line for line in service.log.of("topic_gone") if line["topic"] == topic])

    assert [gone(topic) for topic in ("a", "a", "b", "c", "c", "a")] == [1, 1, 1, 1, 1, 2]
    assert len(service.flows[EAST]._told) == 2


async def test_when_it_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only if no wait helps for any of the flows; with --fail-fast at the first one."""
    refusal = {"reason": "SameCluster", "detail": "d", "final": True}
    service = Service(tmp_path, monkeypatch, {EAST: {}, HUB: {}})
    service.say(1, "failed", HUB, **refusal, again_s=1.0)
    assert service.supervisor._failed is None
    service.say(1, "failed", EAST, **refusal, again_s=1.0)
    assert service.supervisor._end() == 78
    service = Service(tmp_path, monkeypatch, {EAST: {}, HUB: {}})
    service.say(1, "failed", HUB, **refusal, again_s=1.0)
    service.ready(1, HUB)
    service.say(1, "failed", EAST, **refusal, again_s=1.0)
    assert service.supervisor._failed is None
    # Once one has begun, the service stays up, whichever flow is left.
    await reload_alone(service)
    service.say(1, "failed", EAST, **refusal)
    assert service.supervisor._failed is None
    service = Service(tmp_path, monkeypatch, {EAST: {}, HUB: {}}, fail_fast=True)
    service.say(1, "waiting", HUB, reason="Unreachable", detail="d")
    assert service.supervisor._end() == 1


async def reload_alone(service: Service) -> None:
    """The other flow is removed."""
    task = await service.reload({EAST: {}})
    service.say(1, "stopped", HUB, drained=True, pending=0)
    await task


async def test_a_worker_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its member leaves each group: another worker of the flow sees to that."""
    service = Service(tmp_path, monkeypatch, {EAST: {}, HUB: {}}, workers=2)
    for flow in (EAST, HUB):
        for number in (1, 2):
            service.ready(number, flow)
            service.say(number, "joined", flow, member=f"{flow}-{number}")
    service.told.clear()
    for each in service.flows.values():
        each.ended(service.supervisor._children[1])
    assert service.told == [(2, "expel", EAST), (2, "expel", HUB)]


async def test_a_flow_comes_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. Another flow comes: the process runs it as well, and is told nothing about the first.
    2. It goes: the process is told to stop it. Once it has, nothing of it is shown, and what it counted of its clusters
       is still counted.
    """
    service = Service(tmp_path, monkeypatch, {EAST: {}})
    service.ready(1, EAST)
    service.told.clear()
    await (await service.reload({EAST: {}, HUB: {}}))
    service.run()
    assert list(service.flows) == [EAST, HUB]
    assert list(service.supervisor._children) == [1]
    assert {flow.commands.flow for flow in service.flows.values()} == {EAST, HUB}
    service.flows[HUB].fleet.workers[1].counters = {"throttled_s/west": 2.0}
    task = await service.reload({EAST: {}})
    assert service.told == [(1, "remove", HUB)]
    assert not task.done()
    service.say(1, "stopped", HUB, drained=True, pending=0)
    await task
    assert list(service.flows) == [EAST]
    assert service.log.of("flow_stopped")
    fleets = [flow.fleet for flow in service.flows.values()]
    assert service.supervisor.processes.of_clusters("throttled_s", fleets) == {"west": 2.0}
    assert service.flows[EAST].commands.flow == ""
    assert [message for message in service.told if message[2] == EAST] == []


async def test_a_flow_comes_while_a_process_is_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other worker begins it. When that one's process ends as well, there is nobody to see to its member; and the
    dead one has the flow as soon as it has a process again."""
    service = Service(tmp_path, monkeypatch, {EAST: {}}, workers=2)
    for number in (1, 2):
        service.ready(number, EAST)
    service.flows[EAST].ended(service.supervisor._children[2])
    service.supervisor._children[2].pid = 0
    await (await service.reload({EAST: {}, HUB: {}}))
    service.told.clear()
    service.ready(1, HUB)
    assert service.told == [(1, "join", HUB)]
    service.say(1, "joined", HUB, member="m")
    service.flows[HUB].ended(service.supervisor._children[1])
    service.supervisor._children[1].pid = 0
    service.told.clear()
    service.run()
    service.ready(2, HUB)
    assert (2, "expel", HUB) in service.told
    assert (2, "join", HUB) in service.told


async def test_a_flow_is_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops first, with its former settings; then it begins anew, in a process of its own if it asks for one. In
    between, it is shown, and is not ready."""
    service = Service(tmp_path, monkeypatch, {EAST: {}, HUB: {}})
    before = service.flows[EAST]
    service.ready(1, HUB)
    service.told.clear()
    monkeypatch.setattr(
        service.flows[HUB], "close", lambda: seen.append(not_ready([service.flows[HUB]], several=False))
    )
    seen: list[list[str]] = []
    task = await service.reload({EAST: {}, HUB: {"workers": 1}})
    assert service.told == [(1, "remove", HUB)]
    assert list(service.supervisor._children) == [1]
    service.say(1, "stopped", HUB, drained=True, pending=0)
    await task
    assert seen == [["the workers are starting"]]
    service.run()
    assert [sorted(child.flows) for child in service.supervisor._children.values()] == [[EAST], [HUB]]
    assert service.flows[EAST] is before
    # Nobody shares the pool any more.
    task = await service.reload({HUB: {"workers": 1}})
    service.say(1, "stopped", EAST, drained=True, pending=0)
    await task
    assert service.told[-2:] == [(1, "remove", EAST), (1, "stop", "")]
    assert service.supervisor._pool == []


async def test_a_flow_s_limits_are_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers are told, and whichever process follows them has the new ones; nothing else happens."""
    service = Service(tmp_path, monkeypatch, {EAST: {}, HUB: {}}, workers=2)
    service.told.clear()
    await (await service.reload({EAST: {"max.bytes.per.second": "2MiB"}, HUB: {}}))
    assert service.told == [(1, "limit", EAST), (2, "limit", EAST)]
    for number, child in service.supervisor._children.items():
        handover = child.flows[EAST]
        assert handover.number == number
        assert handover.relay.max_bytes_per_second == 2 << 20
        assert child.flows[HUB].relay.max_bytes_per_second == 0
    service.told.clear()
    await (await service.reload({EAST: {"max.bytes.per.second": "2MiB"}, HUB: {}}))
    assert service.told == []


async def test_a_process_dies_while_its_flow_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for it: the flow is gone with it."""
    service = Service(tmp_path, monkeypatch, {EAST: {}, HUB: {}})
    task = await service.reload({EAST: {}})
    for each in list(service.flows.values()):
        each.ended(service.supervisor._children[1])
    await task
    assert list(service.flows) == [EAST]
    assert service.log.of("flow_stopped")[0]["drained"] is False
