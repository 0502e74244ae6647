"""A worker in this process, between two fake clusters: what it is told, what it tells, how it ends."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from mirror.net.cluster import Cluster
from mirror.offsetmap.fields import id_shown
from mirror.relay.relay import Relay
from mirror.service.flows import run
from mirror.service.telemetry.snapshot import Snapshots
from tests.fakes import faults
from tests.fakes.loop import some_turns, until
from tests.records.builders import raw_batch
from tests.relay.stage.flows import clusters
from tests.service.stage.worker_here import FLOW, Seat, config_for, running, scene


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


async def test_the_order_of_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told to stop: drained before the commit, the last report while the group still gives it the partitions, and
    connections closed last."""
    order: list[str] = []

    def noted(owner: Any, name: str, what: str) -> None:
        before = getattr(owner, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            order.append(what)
            return before(*args, **kwargs)

        monkeypatch.setattr(owner, name, called)

    async with clusters() as (source, destination):
        scene(source)
        async with running(config_for(source, destination, tmp_path)) as worker:
            await worker.message("ready")
            await until(lambda: all(destination.log("t", index).end == 30 for index in range(2)))
            noted(Relay, "drain", "drain")
            noted(Seat, "commit", "commit")
            noted(run, "send_snapshot", "report")
            noted(Seat, "stop", "leave the group")
            noted(Relay, "close", "close the relay")
            noted(Cluster, "close", "close a cluster")
            assert await worker.stop() == 0
    ended = order[order.index("drain") :]
    first = ["drain", "commit", "report", "leave the group", "close the relay", "close a cluster"]
    assert list(dict.fromkeys(ended)) == first, order
    assert ended.count("close a cluster") == 2


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


async def test_a_supervisor_that_does_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. The supervisor is frozen, and the channel to it is full. A partition halts meanwhile, and a topic is let go.
    2. No more waits for it than before, however long that lasts. Once it reads again, it learns of both, although
       reports have only what has changed.
    """
    monkeypatch.setattr("mirror.service.channel.UNSENT_MAX", 1 << 16)
    async with clusters() as (source, destination):
        scene(source)
        source.add_topic("u")
        config = config_for(source, destination, tmp_path)
        async with running(config) as worker:
            await until(lambda: [row.position for row in worker.rows.values()] == [30, 30, 0])
            reading = worker.channel._writer.transport
            assert isinstance(reading, asyncio.ReadTransport)
            reading.pause_reading()
            sending = worker.worker._channel
            while not sending.dropped:
                sending.send("log", level="info", event="filler", fields={"text": "x" * 1_000})
            waits = sending._writer.transport.get_write_buffer_size()
            (seat,) = worker.seats
            relay = seat._relay
            source.store("t", 0, raw_batch(b"", base_offset=99))
            await until(lambda: relay.partitions["t", 0].halted)
            await seat._assignment.revoke({("u", 0)}, 0.0)
            await asyncio.sleep(5 * config.progress_interval_ms / 1000)
            assert worker.rows["t", 0].state == "active"
            assert sending._writer.transport.get_write_buffer_size() == waits
            reading.resume_reading()
            await until(lambda: worker.rows["t", 0].state == "halted", what=str(worker.rows))
            await until(lambda: worker.rows.keys() == {("t", 0), ("t", 1)})
            assert await worker.stop() == 0


async def test_the_kernel_does_not_say_what_it_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many files are open, for a while: it copies and reports on, without these figures."""
    async with clusters() as (source, destination):
        scene(source)
        async with running(config_for(source, destination, tmp_path)) as worker:
            assert {"rss_bytes", "open_files"} <= (await worker.message("snapshot"))["gauges"].keys()
            with monkeypatch.context() as patch:
                patch.setattr("mirror.service.telemetry.usage.resources.open", no_more_files, raising=False)
                patch.setattr("mirror.service.telemetry.usage.resources.os.listdir", no_more_files)
                said = len(worker.of("snapshot"))
                await until(lambda: len(worker.of("snapshot")) > said + 2 or worker.task.done())
                gauges = worker.of("snapshot")[-1]["gauges"]
                assert not {"rss_bytes", "open_files"} & gauges.keys()
                assert gauges["most_files"] > 0
            await until(lambda: "open_files" in worker.of("snapshot")[-1]["gauges"])
            assert await worker.stop() == 0


# Bugs.


def no_more_files(*_: object, **__: object) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


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


async def test_a_bug_in_the_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of which nothing is heard any more would look stuck: it ends with the trace instead."""
    async with clusters() as (source, destination):
        scene(source)
        async with running(config_for(source, destination, tmp_path)) as worker:
            await worker.message("snapshot")

            def take(*_: object, **__: object) -> None:
                raise ZeroDivisionError("a bug")

            monkeypatch.setattr(Snapshots, "take", take)
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
