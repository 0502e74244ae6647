"""A worker in this process, between two fake clusters: what it is told, what it tells, how it ends.

Its seat in the group is a stand-in that is given every partition: the fakes know no groups.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mirror.offsetmap.fields import id_shown
from mirror.relay.assignment import Committable, Key
from mirror.relay.relay import Relay
from mirror.service.channel import Channel, ChannelLog, Message
from mirror.service.config import Config, load
from mirror.service.config.resolve import cluster_options, handover, relay_settings
from mirror.service.telemetry.rows import Row
from mirror.service.worker import Worker
from mirror.service.worker_settings import Handover
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import some_turns, until
from tests.records.builders import raw_batch
from tests.relay.flows import batches, clusters
from tests.service.running import config_text

FLOW = "source->destination"


class Seat:
    """A membership without a group: everything is assigned at the start, and commits are remembered."""

    def __init__(self, relay: Relay) -> None:
        assert relay.assignment is not None
        self._relay, self._assignment = relay, relay.assignment
        self.committed: dict[Key, int] = {}
        self.counters: dict[str, float] = {"commits/ok": 0}
        self.joined = False
        self.failed: BaseException | None = None
        self.ended = False
        self.topics: set[str] = set()
        self.on_joined: Callable[[str], None] = lambda _: None
        self.on_unknown_topic: Callable[[], None] = lambda: None

    def start(self, topics: Iterable[str]) -> None:
        self.topics = set(topics)
        self._assignment.assign(self._relay.keys)
        self.joined = True
        self.on_joined("seat-1")

    def subscribe(self, topics: Iterable[str]) -> None:
        self.topics = set(topics)

    def commit(self, positions: Mapping[Key, Committable]) -> None:
        self.counters["commits/ok"] += 1
        self.committed |= {key: found.offset for key, found in positions.items()}

    async def stop(self) -> None:
        await self._assignment.revoke(self._assignment.keys, 0.0)
        self.ended = True


class Here(Worker):
    """A worker that does not end this process when its supervisor is gone."""

    abandoned = False

    def abandon(self) -> None:
        self.abandoned = True
        self.stop()


class Running:
    """A worker that runs as a task, and what it said."""

    def __init__(self, worker: Here, task: "asyncio.Task[int]", channel: Channel) -> None:
        self.worker = worker
        self.task = task
        self.said: list[Message] = []
        self.seats: list[Seat] = []
        self.channel = channel

    def of(self, kind: str) -> list[Message]:
        return [message for message in self.said if message["kind"] == kind]

    def lines(self, event: str) -> list[dict[str, Any]]:
        return [message["fields"] for message in self.of("log") if message["event"] == event]

    async def message(self, kind: str) -> Message:
        await until(lambda: self.of(kind), what=f"{kind}; {self.said}")
        return self.of(kind)[0]

    @property
    def rows(self) -> dict[Key, Row]:
        """The partitions as told last."""
        rows: dict[Key, Row] = {}
        for snapshot in self.of("snapshot"):
            rows |= {row.key: row for row in map(Row.read, snapshot["partitions"])}
            for topic, partition, *_ in snapshot["gone"]:
                rows.pop((topic, partition), None)
        return rows

    async def stop(self) -> int:
        self.channel.send("stop")
        return await self.task


def config_for(source: FakeCluster, destination: FakeCluster, folder: Path, **top: object) -> Config:
    path = folder / "mirror.yaml"
    address = [f"127.0.0.1:{cluster.brokers[1].port}" for cluster in (source, destination)]
    path.write_text(config_text(address[0], address[1], ["t", "u"], top=top))
    return load(path)


@asynccontextmanager
async def running(config: Config, *, join: bool = True) -> AsyncIterator[Running]:
    """The worker, told to join; stopped at the end if it still runs."""
    mine, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()
    seats: list[Seat] = []

    def take_seat(relay: Relay, _: Handover, __: ChannelLog) -> Seat:
        seats.append(Seat(relay))
        return seats[-1]

    worker = Here(await Channel.open(theirs), join=take_seat)
    channel = await Channel.open(mine)
    found = Running(worker, loop.create_task(worker.run()), channel)
    found.seats = seats

    async def listen() -> None:
        while (message := await channel.receive()) is not None:
            found.said.append(message)

    listening = loop.create_task(listen())
    channel.send("handover", settings=handover(config.enabled_flow(), config).of_worker(1, 1).pack())
    if join:
        channel.send("join", flow=FLOW)
    try:
        yield found
    finally:
        if not found.task.done():
            found.task.cancel()
        await asyncio.gather(found.task, return_exceptions=True)
        await listening
        await channel.close()
        loop.set_exception_handler(handler)


def scene(source: FakeCluster) -> None:
    source.add_topic("t", partitions=2)
    for index in range(2):
        source.store("t", index, *batches(10))


# Settings.


def test_every_setting_reaches_its_place(tmp_path: Path) -> None:
    """What the configuration says is what connections and relay are told, in their units."""
    path = tmp_path / "mirror.yaml"
    cluster = {
        "bootstrap.servers": "a:1,b:2",
        "client.id": "me",
        "request.timeout.ms": 7_000,
        "socket.connection.setup.timeout.ms": 900,
        "reconnect.backoff.ms": 11,
        "reconnect.backoff.max.ms": 222,
        "socket.receive.buffer.bytes": 65_536,
        "socket.send.buffer.bytes": 32_768,
    }
    flow = {
        "topics": ["orders", "pay\\..*"],
        "exclude": ["pay.x"],
        "fetch.max.bytes": "2MiB",
        "max.partition.fetch.bytes": "300KiB",
        "fetch.min.bytes": 5,
        "fetch.max.wait.ms": 123,
        "buffer.memory": "9MiB",
        "max.in.flight.requests.per.connection": 3,
        "connections.per.broker": 4,
        "max.request.size": "3MiB",
        "topic.create": False,
        "replication.factor": 2,
        "sync.topic.configs": ["retention.ms"],
        "refresh.topics.interval.ms": 4_444,
        "settle.ms": 1_500,
    }
    document = {
        "clusters": {"source": cluster, "destination": cluster | {"bootstrap.servers": "c:3"}},
        "flows": {"source->destination": flow},
        "drain.timeout.ms": 77,
        "group.instance.id": "here",
        "session.timeout.ms": 6_500,
        "offset.commit.interval.ms": 333,
        "progress.interval.ms": 250,
    }
    path.write_text(json.dumps(document))
    config = load(path)
    resolved = config.enabled_flow()
    options = cluster_options(resolved.source)
    assert options.bootstrap == (("a", 1), ("b", 2))
    assert (options.backoff_ms, options.backoff_max_ms) == (11, 222)
    connection = options.connection
    assert (connection.client_id, connection.request_timeout_s, connection.setup_timeout_s) == ("me", 7.0, 0.9)
    assert (connection.receive_buffer, connection.send_buffer) == (65_536, 32_768)
    settings = relay_settings(resolved, config)
    assert settings.flow == "source->destination"
    assert [settings.selects(name) for name in ("orders", "pay.a", "pay.x", "ordersx")] == [True, True, False, False]
    assert list(settings.wanted) == ["orders", "pay\\..*"]
    assert [bool(matches("orders")) for matches in settings.wanted.values()] == [True, False]
    assert (settings.fetch_max_bytes, settings.max_partition_fetch_bytes) == (2 << 20, 300 << 10)
    assert (settings.fetch_min_bytes, settings.fetch_max_wait_ms, settings.buffer_memory) == (5, 123, 9 << 20)
    assert (settings.max_in_flight, settings.connections_per_broker, settings.max_request_size) == (3, 4, 3 << 20)
    assert (settings.create_topics, settings.replication_factor) == (False, 2)
    assert settings.synced_configs == ("retention.ms",)
    assert (settings.refresh_topics_interval_ms, settings.settle_ms, settings.drain_timeout_ms) == (4_444, 1_500, 77)
    assert (settings.request_timeout_ms, settings.backoff_ms, settings.backoff_max_ms) == (7_000, 11, 222)
    assert settings.fixed_configs == {"compression.type": "producer", "message.timestamp.type": "CreateTime"}
    told = handover(resolved, config)
    group = told.of_worker(5, 3).group
    assert (group.group_id, group.instance_id, group.protocol) == ("mirror-source->destination", "here-3", "classic")
    assert (group.session_timeout_ms, group.commit_interval_ms) == (6_500, 333)
    assert told.snapshot_interval_ms == 250


def test_what_is_handed_over_arrives(tmp_path: Path) -> None:
    """Through JSON and back nothing has changed, functions made anew apart."""
    path = tmp_path / "mirror.yaml"
    path.write_text(config_text("[::1]:1", "d:2", ["a", "b.*"], flow={"exclude": ["bx"]}))
    config = load(path)
    given = handover(config.enabled_flow(), config).of_worker(2, 2)
    found = Handover.unpack(json.loads(json.dumps(given.pack())))
    assert found.pack() == given.pack()
    assert (found.source, found.destination, found.group) == (given.source, given.destination, given.group)
    assert [found.relay.selects(name) for name in ("a", "b1", "bx", "__b")] == [True, True, False, False]
    assert list(found.relay.wanted) == ["a", "b.*"]


# Running.


async def test_runs_and_stops(tmp_path: Path) -> None:
    """
    1. It starts, says so, waits to be told, joins, copies, and tells how it fares.
    2. It commits what it copied.
    3. Told to stop: drained, its last word has the partitions as they were. Exit code 0.
    """
    async with clusters() as (source, destination):
        scene(source)
        config = config_for(source, destination, tmp_path, **{"offset.commit.interval.ms": 100})
        async with running(config, join=False) as worker:
            ready = await worker.message("ready")
            assert ready["partitions"] == 2
            assert (ready["source_id"], ready["destination_id"]) == (source.cluster_id, destination.cluster_id)
            assert not worker.seats
            worker.channel.send("join", flow=FLOW)
            assert (await worker.message("joined"))["member"] == "seat-1"
            await until(lambda: all(destination.log("t", index).end == 30 for index in range(2)))
            (seat,) = worker.seats
            await until(lambda: seat.committed == {("t", 0): 30, ("t", 1): 30})
            await until(lambda: [row.committed for row in worker.rows.values()] == [30, 30])
            assert await worker.stop() == 0
            row = worker.rows["t", 1]
            assert (row.state, row.lag_records, row.source_end, row.position) == ("active", 0, 30, 30)
            assert (*row.stint.totals[:2], row.stint.filled, row.reason) == (30, 10, 0, "")
            assert row.stint.bytes == sum(map(len, source.log("t", 1).batches))
            last = worker.of("snapshot")[-1]
            assert last["flow_partitions"] == 2
            assert last["gauges"]["joined"] == 1
            assert last["gauges"]["rss_bytes"] > 1 << 20
            counters = last["counters"]
            assert [each.stint.batches for each in worker.rows.values()] == [10, 10]
            assert counters["opened_batches"] == 0
            assert counters["cpu_s"] > 0
            assert counters["commits/ok"] >= 1
            assert counters["gc_collections/2"] >= 1
            assert worker.of("stopped") == [{"kind": "stopped", "flow": FLOW, "drained": True, "pending": 0}]


async def test_a_halted_partition_is_told_and_can_be_resumed(tmp_path: Path) -> None:
    """
    1. One partition halts, with all that an operator needs; the other is copied.
    2. Resumed as it is, it halts again. What is not halted is not resumed.
    """
    async with clusters() as (source, destination):
        scene(source)
        source.store("t", 0, raw_batch(b"", base_offset=99))
        async with running(config_for(source, destination, tmp_path)) as worker:
            await until(lambda: worker.lines("halted"))
            assert worker.lines("halted")[0]["reason"] == worker.lines("halted")[0]["reason"] != ""
            await until(lambda: destination.log("t", 1).end == 30)
            await until(lambda: ("t", 0) in worker.rows and worker.rows["t", 0].state == "halted")
            row = worker.rows["t", 0]
            assert row.reason
            assert row.detail
            assert row.remedy
            worker.channel.send("keys", flow=FLOW, id=1)
            assert await worker.message("reply") == {"kind": "reply", "flow": FLOW, "id": 1, "keys": {"t": [0, 1]}}
            worker.channel.send("resume", flow=FLOW, id=2, keys=[("t", 1), ("t", 7)], accept=["accept_gap"], remade=[])
            await until(lambda: len(worker.of("reply")) == 2)
            (first, second) = worker.of("reply")[1]["outcomes"]
            assert first == ["t", 1, "it is active, not halted"]
            assert second == ["t", 7, "not copied here"]
            worker.channel.send("resume", flow=FLOW, id=3, keys=[("t", 0)], accept=[], remade=[])
            await until(lambda: len(worker.lines("halted")) == 2)
            await until(lambda: len(worker.of("reply")) == 3)
            ((topic, partition, why_not),) = worker.of("reply")[2]["outcomes"]
            # It goes on for a moment, until the bad batch is fetched again.
            assert (topic, partition) == ("t", 0)
            assert why_not in ("", f"halts again, {row.reason}: {row.detail}")
            assert await worker.stop() == 0
            assert worker.rows["t", 0].state == "halted"
            assert worker.of("snapshot")[-1]["counters"][f"halts/{row.reason}"] == 2


@pytest.mark.parametrize(
    ("prepare", "reason", "detail"),
    [
        (
            lambda source, destination: setattr(destination, "cluster_id", source.cluster_id),
            "SameCluster",
            "are the same cluster",
        ),
        (
            lambda source, destination: destination.versions.update(Produce=(0, 2)),
            "Unsupported",
            "the broker is from before Kafka 0.11 (Produce up to version 2, and 3 is needed); upgrade it",
        ),
        (
            lambda source, destination: source.versions.update(Fetch=(0, 3)),
            "Unsupported",
            "the broker is from before Kafka 0.11 (Fetch up to version 3, and 4 is needed); upgrade it",
        ),
    ],
)
async def test_cannot_run(tmp_path: Path, prepare: Any, reason: str, detail: str) -> None:
    """No wait heals that: it says why, exit code 1."""
    async with clusters() as (source, destination):
        scene(source)
        prepare(source, destination)
        async with running(config_for(source, destination, tmp_path)) as worker:
            assert await worker.task == 1
            await until(lambda: worker.of("failed"))
            (failed,) = worker.of("failed")
            assert failed["reason"] == reason
            assert failed["final"] is True
            assert detail in failed["detail"]
            assert "exception" not in failed
            assert not worker.of("waiting")


WAITS = [
    ("source", lambda cluster: None, "NothingToMirror", "no topic of cluster source matches t, u"),
    (
        "destination",
        lambda cluster: cluster.next("ApiVersions", faults.malformed(b"\x00")),
        "Unreachable",
        "cannot reach cluster destination",
    ),
    (
        "source",
        lambda cluster: cluster.next("ApiVersions", faults.disconnect()),
        "Unreachable",
        "cannot reach cluster source",
    ),
]
"""Where something is wrong at the start that heals by itself or is seen to."""


@pytest.mark.parametrize(("side", "prepare", "reason", "detail"), WAITS)
async def test_cannot_start_yet(tmp_path: Path, side: str, prepare: Any, reason: str, detail: str) -> None:
    """
    1. It says what it waits for, and that its event loop turns.
    2. Once that has healed, it starts and copies, as if nothing had been.
    """
    async with clusters() as (source, destination):
        if reason != "NothingToMirror":
            scene(source)
        prepare(source if side == "source" else destination)
        async with running(config_for(source, destination, tmp_path)) as worker:
            waiting = await worker.message("waiting")
            assert waiting["reason"] == reason
            assert detail in waiting["detail"]
            assert worker.of("alive")
            if reason == "NothingToMirror":
                assert not worker.of("ready")
                await until(lambda: worker.of("alive")[-1]["unmatched"] == ["t", "u"])
                scene(source)
            await until(lambda: [row.position for row in worker.rows.values()] == [30, 30])
            assert await worker.stop() == 0
            assert not worker.of("failed")
            assert len(worker.lines("connecting")) == 2


@pytest.mark.parametrize("side", ["source", "destination"])
@pytest.mark.parametrize("request_name", ["ApiVersions", "Metadata", "DescribeConfigs"])
async def test_who_is_waited_for_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str, request_name: str
) -> None:
    """A broker that is frozen answers neither yes nor no: it is named, with what it was asked."""
    monkeypatch.setattr("mirror.service.telemetry.watching.SILENT_S", 0.0)
    async with clusters() as (source, destination):
        scene(source)
        silent = source if side == "source" else destination
        silent.next(request_name, faults.silence())
        config = config_for(source, destination, tmp_path, **{"progress.interval.ms": 100})
        what = "Connect" if request_name == "ApiVersions" else request_name
        async with running(config) as worker:

            def named() -> bool:
                told = worker.of("alive")
                return bool(told) and any(
                    broker.startswith(f"{side} b") and asked in (what, request_name)
                    for broker, asked, _ in told[-1]["silent"]
                )

            await until(named, what=f"{side}; {worker.of('alive')[-1:]}")
            assert not worker.of("ready")


async def test_a_broker_that_is_down_at_the_start_is_named(tmp_path: Path) -> None:
    """Before it has started, while others of its cluster answer; and in what it tells when it copies."""
    async with clusters(brokers=2) as (source, destination):
        scene(source)
        destination.unnoticed = True
        await destination.stop(2)
        stuck = destination.next("CreateTopics", faults.silence())
        async with running(config_for(source, destination, tmp_path)) as worker:
            await stuck.came.wait()
            name = f"destination broker 2 at 127.0.0.1:{destination.brokers[2].port}"
            await until(lambda: worker.of("alive")[-1]["unreached"] == {name: "Connection refused"})
            assert not worker.of("ready")


async def test_without_waiting_it_would_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, the rule taken away: a pattern that matches nothing yet is the end of the worker."""
    monkeypatch.setattr("mirror.service.flows.run.FINAL", (Exception,))
    async with clusters() as (source, destination), running(config_for(source, destination, tmp_path)) as worker:
        assert await worker.task == 1
        assert (await worker.message("failed"))["reason"] == "NothingToMirror"


@pytest.mark.parametrize("kind", ["ApiVersions", "Metadata", "DescribeConfigs", "CreateTopics"])
async def test_told_to_stop_while_it_starts(tmp_path: Path, kind: str) -> None:
    """Whatever it is waiting for: nothing was begun, so it stops at once, exit code 0."""
    async with clusters() as (source, destination):
        scene(source)
        stuck = destination.next(kind, faults.silence())
        async with running(config_for(source, destination, tmp_path)) as worker:
            await stuck.came.wait()
            assert await worker.stop() == 0
            await until(lambda: worker.of("stopped"))
            assert not worker.of("failed")
            assert not worker.of("ready")


async def test_told_to_stop_before_it_may_join(tmp_path: Path) -> None:
    async with clusters() as (source, destination):
        scene(source)
        async with running(config_for(source, destination, tmp_path), join=False) as worker:
            await worker.message("ready")
            assert await worker.stop() == 0
            assert not worker.seats


async def test_drained_in_part(tmp_path: Path) -> None:
    """A destination that hangs: the drain is bounded and tells what is left. Exit code 0: the log knows the rest."""
    async with clusters() as (source, destination):
        scene(source)
        stuck = destination.next("Produce", faults.Fault(silent=True, only=("t", 0)))
        async with running(config_for(source, destination, tmp_path, **{"drain.timeout.ms": 30})) as worker:
            await stuck.came.wait()
            assert await worker.stop() == 0
            await until(lambda: worker.of("stopped"))
            (stopped,) = worker.of("stopped")
            assert stopped["drained"] is False
            assert stopped["pending"] > 0


async def test_the_supervisor_is_gone(tmp_path: Path) -> None:
    """The end of the channel is the worker's."""
    async with clusters() as (source, destination):
        scene(source)
        async with running(config_for(source, destination, tmp_path)) as worker:
            await worker.message("joined")
            await worker.channel.close()
            await worker.task
            assert worker.worker.abandoned


async def test_a_topic_that_is_gone(tmp_path: Path) -> None:
    """
    1. The group's client finds a topic gone: the data plane looks, and says so, once, with the topic's id.
    2. A topic of that name that is gone later is told again: it is another one.
    """
    async with clusters() as (source, destination):
        scene(source)
        source.add_topic("u")
        async with running(config_for(source, destination, tmp_path)) as worker:
            await worker.message("joined")
            for told in (1, 2):
                gone = source.topics.pop("u")
                assert gone.topic_id is not None
                worker.seats[0].on_unknown_topic()
                await until(lambda: len(worker.lines("topic_gone")) == told)  # noqa: B023
                line = worker.lines("topic_gone")[-1]
                assert (line["topic"], line["topic_id"], line["partitions"]) == ("u", id_shown(gone.topic_id.bytes), 1)
                assert "cluster source has no topic u any more" in line["detail"]
                await until(lambda: worker.seats[0].topics == {"t"})
                source.add_topic("u")
                worker.seats[0].on_unknown_topic()
                await until(lambda: worker.seats[0].topics == {"t", "u"})


async def test_a_topic_that_is_gone_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule taken away: the group takes its partitions, and nobody says why before the topics are listed again."""
    monkeypatch.setattr(Relay, "look_now", lambda _: None)
    async with clusters() as (source, destination):
        scene(source)
        source.add_topic("u")
        async with running(config_for(source, destination, tmp_path)) as worker:
            await worker.message("joined")
            del source.topics["u"]
            worker.seats[0].on_unknown_topic()
            await some_turns()
            assert await worker.stop() == 0
            assert not worker.lines("topic_gone")


# Bugs.


async def test_a_bug_in_a_callback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody expected in a socket's callback ends the worker, with the trace; it does not hang."""
    async with clusters() as (source, destination):
        scene(source)

        def pump_sinks(_: Relay) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(Relay, "pump_sinks", pump_sinks)
        async with running(config_for(source, destination, tmp_path)) as worker:
            assert await worker.task == 1
            await until(lambda: worker.of("failed"))
            failed = worker.of("failed")[0]
            assert (failed["reason"], failed["detail"]) == ("bug", "ZeroDivisionError: a bug")
            assert "pump_sinks" in failed["exception"]


async def test_a_bug_in_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with clusters() as (source, destination):
        scene(source)

        def place(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(Relay, "place", place)
        async with running(config_for(source, destination, tmp_path)) as worker:
            assert await worker.task == 1
            await until(lambda: worker.of("failed"))
            assert worker.of("failed")[0]["reason"] == "bug"


async def test_a_bug_in_the_membership(tmp_path: Path) -> None:
    """Its thread ends where nobody expected it to."""
    async with clusters() as (source, destination):
        scene(source)
        async with running(config_for(source, destination, tmp_path)) as worker:
            await worker.message("joined")
            worker.seats[0].failed = ZeroDivisionError("a bug")
            assert await worker.task == 1
            await until(lambda: worker.of("failed"))
            assert worker.of("failed")[0]["detail"] == "ZeroDivisionError: a bug"


async def test_the_group_never_takes_it_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hanging membership ends the worker with a word, so that it is started again."""
    monkeypatch.setattr("mirror.service.flows.run.FlowRun._join_patience_s", lambda _: 0.1)
    monkeypatch.setattr(Seat, "start", lambda self, topics: None)
    async with clusters() as (source, destination):
        scene(source)
        async with running(config_for(source, destination, tmp_path)) as worker:
            assert await worker.task == 1
            await until(lambda: worker.of("failed"))
            assert worker.of("failed")[0]["reason"] == "NotJoined"
