"""``mirror run`` while something is not there yet: it waits, says so once, is not ready, and goes on by itself."""

import ctypes
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from mirror.sandbox import SandboxCluster
from mirror.sandbox.children.ports import Reservation
from tests.patience import PATIENT
from tests.service.stage.kafka_side import create_topic, end_of, produce
from tests.service.stage.running import Mirror, cli, config_text, get, mirror, status
from tests.service.stage.workers import Workers
from tests.service.telemetry.stage.alerts import firing, samples


@pytest.fixture
def nobody() -> Iterator[Callable[[], str]]:
    """Makes addresses at which nobody listens, and nobody else may in the meantime."""
    with ExitStack() as stack:

        def made() -> str:
            reserved = Reservation()
            stack.callback(reserved.release)
            return f"127.0.0.1:{reserved.port}"

        yield made


def test_a_cluster_that_is_away_at_the_start(nobody: Callable[[], str], tmp_path: Path) -> None:
    """
    1. The source cannot be reached: one warning for both workers and all tries. Not ready, and every page says why;
       healthy all the same. No worker is started anew.
    2. Told to stop: exit code 0.
    """
    config = tmp_path / "mirror.yaml"
    where = nobody()
    with mirror(config, config_text(where, nobody(), ["t"], top={"workers": 2})) as process:
        line = process.wait_event("waiting", reason="Unreachable")
        assert line["level"] == "warning"
        assert f"cannot reach cluster source: source bootstrap {where}: Connection refused" in line["detail"]
        process.wait_for(lambda: all(each["waits"] for each in status(process)["workers"]), "both to wait")
        code, text = get(process, "/-/ready")
        assert (code, text.count("\n")) == (503, 1)
        assert text.startswith("Unreachable: cannot reach cluster source")
        assert get(process, "/-/healthy")[0] == 200
        told = status(process)
        assert (told["ready"], told["not_ready"]) == (False, [text.strip()])
        assert [(each["up"], each["restarts"]) for each in told["workers"]] == [(True, 0)] * 2
        shown = cli(process, config, "status")
        assert shown.returncode == 1
        assert "not ready:  Unreachable: cannot reach cluster source" in shown.stdout
        assert process.stop() == 0
        assert len(process.of("waiting")) == 1
        assert not process.of("failed")


def test_a_worker_that_crashes_while_it_is_to_stop(nobody: Callable[[], str], tmp_path: Path) -> None:
    """The log tells how it ended, and where: every thread's stack is among its lines."""
    with mirror(tmp_path / "mirror.yaml", config_text(nobody(), nobody(), ["t"])) as process:
        process.wait_event("waiting")
        pid = process.of("worker_started")[0]["pid"]
        os.kill(pid, signal.SIGSTOP)
        process.process.send_signal(signal.SIGTERM)
        process.wait_event("stopping")
        # To its main thread: another one that took it would write stacks while that one ends the process.
        assert ctypes.CDLL(None).tgkill(pid, pid, signal.SIGSEGV) == 0
        os.kill(pid, signal.SIGCONT)
        process.wait()
    (died,) = process.of("worker_died")
    assert (died["pid"], died["detail"], died["level"]) == (pid, "ended by SIGSEGV", "warning")
    assert "Fatal Python error: Segmentation fault" in "".join([*process.noise, process.errors])


@pytest.mark.broker
def test_a_topic_that_comes_later(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """Nothing matches the pattern yet: it waits, and copies the topic once it is there."""
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    with mirror(tmp_path / "mirror.yaml", config_text(source, destination, [topic_name])) as process:
        assert "check topics and exclude" in process.wait_event("waiting", reason="NothingToMirror")["detail"]
        assert get(process, "/-/ready")[0] == 503
        process.wait_for(lambda: "MirrorTopicUnmatched" in firing(samples(get(process, "/metrics")[1])), "the alert")
        create_topic(source, topic_name)
        produce(source, topic_name, 50)
        assert process.wait_event("waiting_over")["duration_s"] > 0
        process.wait_event("started")
        process.wait_event("caught_up")
        process.wait_for(lambda: end_of(destination, topic_name) == end_of(source, topic_name), "equal ends")
        assert get(process, "/-/ready") == (200, "ready\n")
        assert "MirrorTopicUnmatched" not in firing(samples(get(process, "/metrics")[1]))
        assert process.stop() == 0


@pytest.mark.broker
@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_cluster_that_is_away_for_a_while(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path, side: str
) -> None:
    """
    1. A cluster's only broker is frozen: one warning that names the cluster, and not ready. A few lines more.
    2. It goes on: one line that says so, with how long it was away; what was written meanwhile is copied.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    partitions = 20
    create_topic(source, topic_name, partitions)
    produce(source, topic_name, 200, partitions=partitions)
    (broker,) = (source_cluster if side == "source" else destination_cluster).brokers

    def lines() -> int:
        return sum(line["event"] != "progress" for line in process.lines)

    with mirror(tmp_path / "mirror.yaml", config_text(source, destination, [topic_name])) as process:
        process.wait_event("caught_up")
        before = lines()
        broker.pause()
        try:
            if side == "destination":
                produce(source, topic_name, 200, partitions=partitions, seed=1)
            line = process.wait_event("cluster_lost", cluster=side)
            assert line["level"] == "warning"
            assert f"cluster {side} does not answer" in line["detail"]
            assert f"cluster {side} does not answer" in get(process, "/-/ready")[1]
        finally:
            broker.resume()
        assert process.wait_event("cluster_back", cluster=side)["duration_s"] > 5
        if side == "source":
            produce(source, topic_name, 200, partitions=partitions, seed=1)
        process.wait_for(
            lambda: all(end_of(destination, topic_name, each) == 20 for each in range(partitions)), "equal ends"
        )
        assert lines() - before < 30, process.told()
        assert process.stop() == 0
        assert [len(process.of(event)) for event in ("cluster_lost", "cluster_back")] == [1, 1]
        assert not process.of("halted")


async def test_they_begin_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. Nobody joins before all are ready.
    2. One that dies at its start again and again does not keep the others from it; it joins when it is ready.
    """
    workers = Workers(tmp_path, monkeypatch, workers=3)
    workers.ready(1)
    workers.ready(2)
    workers.say(3, "failed", reason="bug", detail="ZeroDivisionError", final=False)
    assert workers.told == []
    workers.dies(3)
    assert workers.flow.started
    assert workers.told == [(1, "join"), (2, "join")]
    workers.flow.fleet.started(3, 9)
    workers.ready(3)
    assert workers.told[2:] == [(3, "join")]
    assert workers.supervisor._failed is None


@pytest.mark.parametrize(
    ("kind", "fields", "patient", "impatient"),
    [
        ("waiting", {"reason": "Unreachable", "detail": "x"}, None, 1),
        ("failed", {"reason": "bug", "detail": "x", "final": False}, None, 1),
        ("failed", {"reason": "Unsupported", "detail": "x", "final": True}, 1, 1),
        ("failed", {"reason": "SameCluster", "detail": "x", "final": True}, 78, 78),
    ],
)
async def test_when_it_gives_up(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    fields: dict[str, Any],
    patient: int | None,
    impatient: int,
) -> None:
    """Where no wait helps; with --fail-fast at once; and never once it has begun."""
    for fail_fast, code in ((False, patient), (True, impatient)):
        workers = Workers(tmp_path, monkeypatch, workers=2, fail_fast=fail_fast)
        workers.say(1, kind, **fields)
        assert (workers.supervisor._failed is None) is (code is None)
        if code is not None:
            assert workers.supervisor._end() == code
        workers = Workers(tmp_path, monkeypatch, workers=1, fail_fast=fail_fast)
        workers.ready(1)
        workers.say(1, kind, **fields)
        assert workers.supervisor._failed is None


def ends_of(bootstrap: str, topic: str, leading: Iterable[int]) -> list[int]:
    """Where the logs of these partitions end, as librdkafka hears it from their leaders."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "log_level": 0})
    try:
        return [consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=60)[1] for index in leading]
    finally:
        consumer.close()


def waiting(process: Mirror, why: str) -> list[int]:
    """The partitions that wait for this reason, as `status` has them."""
    return [one["partition"] for one in status(process)["partitions"] if why in (one["waits"] or "")]


@pytest.mark.broker
def test_started_while_one_of_three_brokers_is_down(
    source_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. The first of the destination's bootstrap servers is stopped, which has the only replica of one partition. The
       mirror starts and copies the two others; `status` says which broker the third waits for.
    2. That broker comes back: so does its partition.
    """
    source, config = source_cluster.bootstrap_servers, tmp_path / "mirror.yaml"
    with SandboxCluster(name="three", brokers=3, quick=True, properties=PATIENT) as three:
        destination, down = three.bootstrap_servers, three.brokers[0]
        create_topic(source, topic_name, partitions=3)
        create_topic(destination, topic_name, partitions=3)
        produce(source, topic_name, 900, partitions=3)
        found = AdminClient({"bootstrap.servers": destination}).list_topics(topic_name, timeout=60).topics[topic_name]
        (waits,) = (index for index, one in found.partitions.items() if one.replicas == [down.node_id])
        others = sorted({0, 1, 2} - {waits})
        why = f"its replicas are on broker {down.node_id}, and {down.node_id} is down"
        down.stop()
        with mirror(config, config_text(source, destination, [topic_name])) as process:
            process.wait_for(lambda: ends_of(destination, topic_name, others) == [300, 300], "the others' copies")
            process.wait_for(lambda: waiting(process, why) == [waits], "the third to say what it waits for")
            down.start()
            process.wait_for(lambda: ends_of(destination, topic_name, [waits]) == [300], "the third's copy")
            assert process.stop() == 0
            assert not process.of("worker_died")
