"""``mirror run`` with several flows, between real clusters: shared workers, failures of one, and reloads."""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from mirror.sandbox import SandboxCluster
from tests.patience import PATIENT
from tests.service.stage.kafka_side import assert_identical, create_topic, end_of, produce, writing
from tests.service.stage.running import Mirror, cli, get, mirror, status
from tests.service.telemetry.stage.alerts import samples

pytestmark = pytest.mark.broker
PARTITIONS = 2


@pytest.fixture(scope="module")
def third_cluster() -> Iterator[SandboxCluster]:
    with SandboxCluster(name="third", properties=PATIENT, quick=True) as cluster:
        yield cluster


class Several:
    """The clusters by alias, and configurations for flows between them."""

    def __init__(self, folder: Path, **clusters: SandboxCluster) -> None:
        self.clusters = clusters
        self.at = {alias: cluster.bootstrap_servers for alias, cluster in clusters.items()}
        self.config = folder / "mirror.yaml"

    def text(self, flows: Mapping[str, Mapping[str, object]], **top: object) -> str:
        cluster = {"reconnect.backoff.max.ms": 500, "socket.connection.setup.timeout.ms": 5_000}
        return json.dumps(
            {
                "clusters": {alias: {"bootstrap.servers": where} | cluster for alias, where in self.at.items()},
                "flows": {name: {"refresh.topics.interval.ms": 500} | dict(flow) for name, flow in flows.items()},
                "progress.interval.ms": 100,
                "http.listen": "127.0.0.1:0",
                "session.timeout.ms": 6_000,
            }
            | {key.replace("_", "."): value for key, value in top.items()}
        )

    def run(self, flows: Mapping[str, Mapping[str, object]], **top: object) -> Any:
        return mirror(self.config, self.text(flows, **top))

    def reload(self, process: Mirror, flows: Mapping[str, Mapping[str, object]], **top: object) -> None:
        self.config.write_text(self.text(flows, **top))
        process.process.send_signal(signal.SIGHUP)

    def ends(self, alias: str, topic: str) -> list[int]:
        return [end_of(self.at[alias], topic, each) for each in range(PARTITIONS)]

    def wait_equal(self, process: Mirror, topic: str, *aliases: str) -> None:
        """Until the topic ends alike in all these clusters."""
        process.wait_for(
            lambda: len({tuple(self.ends(alias, topic)) for alias in aliases}) == 1, f"equal ends: {aliases}"
        )

    def topics(self, alias: str, part: str) -> set[str]:
        found = AdminClient({"bootstrap.servers": self.at[alias]}).list_topics(timeout=60).topics
        return {name for name in found if part in name and not name.startswith("mirror-internal")}


def total(process: Mirror, name: str, **labels: str) -> float:
    """The sum of a metric's samples with these labels."""
    code, text = get(process, "/metrics")
    assert code == 200
    return sum(value for has, value in samples(text).get(name, []) if labels.items() <= has.items())


def lines(process: Mirror, flow: str, *events: str) -> list[dict[str, Any]]:
    return [line for line in process.lines if line.get("flow") == flow and line["event"] in events]


def test_one_source_two_destinations(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    third_cluster: SandboxCluster,
    topic_name: str,
    tmp_path: Path,
) -> None:
    """
    1. Two flows share a pool of two processes. Both copies are complete, each flow starts and catches up by itself.
    2. Metrics have the flows' clusters as labels, and each process once. Status has both flows, or the one asked for.
    3. A worker is killed: it comes back with both of its flows.
    4. SIGTERM: everything is drained, both copies are identical.
    """
    place = Several(tmp_path, source=source_cluster, destination=destination_cluster, third=third_cluster)
    create_topic(place.at["source"], topic_name, PARTITIONS)
    produce(place.at["source"], topic_name, 400, partitions=PARTITIONS)
    flows = {"source->destination": {"topics": [topic_name]}, "source->third": {"topics": [topic_name]}}
    with place.run(flows, workers=2) as process:
        for flow in flows:
            assert process.wait_event("started", flow=flow)["workers"] == 2
            process.wait_event("caught_up", flow=flow)
        place.wait_equal(process, topic_name, "source", "destination", "third")
        assert len(process.of("worker_started")) == 2
        copied = "mirror_replicated_records_total"
        process.wait_for(lambda: total(process, copied) == 800, "all records in metrics")
        assert [total(process, copied, source="source", target=there) for there in ("destination", "third")] == [
            400
        ] * 2
        assert total(process, "mirror_worker_up") == 2
        assert total(process, "mirror_flow_ready") == 2
        assert get(process, "/-/ready") == (200, "ready\n")

        # On a busy machine, the group may be handing partitions over at any moment.
        process.wait_for(lambda: len(status(process)["partitions"]) == 2 * PARTITIONS, "all partitions in the status")
        now = status(process)
        assert [each["flow"] for each in now["flows"]] == list(flows)
        assert (now["flow"], now["replicated_records"], len(now["partitions"])) == (None, 800, 2 * PARTITIONS)
        assert [each["flows"] for each in now["workers"]] == [list(flows)] * 2
        told = cli(process, place.config, "status")
        assert (told.returncode, told.stderr) == (0, "")
        assert all(f"flow:       {flow} (id {flow}, group mirror-{flow})" in told.stdout for flow in flows)
        told = cli(process, place.config, "status", "--flow", "source->third", "--format", "json")
        assert json.loads(told.stdout)["flow"] == "source->third"
        told = cli(process, place.config, "resume", topic_name)
        assert told.returncode == 1
        assert "name one with --flow (source->destination, source->third)" in told.stderr
        told = cli(process, place.config, "resume", "--flow", "source->third", topic_name)
        assert (told.returncode, told.stdout) == (0, "nothing is halted or paused\n")

        with writing(place.at["source"], topic_name, PARTITIONS):
            os.kill(process.of("worker_started")[0]["pid"], signal.SIGKILL)
            process.wait_for(lambda: len(process.of("worker_started")) == 3, "another worker")
            process.wait_for(
                lambda: [len(each["flows"]) for each in status(process)["workers"] if each["joined"]] == [2, 2],
                "both flows in both workers",
            )
        place.wait_equal(process, topic_name, "source", "destination", "third")
        assert process.stop() == 0
        assert process.of("stopped")[0]["drained"] is True
        assert not process.of("halted")
    for there in ("destination", "third"):
        assert assert_identical(place.at["source"], place.at[there], [topic_name], PARTITIONS) > 4


def test_two_sources_into_one_topic(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    third_cluster: SandboxCluster,
    topic_name: str,
    tmp_path: Path,
) -> None:
    """With ``offsets: mapped`` two flows append to the same topic: it has every record of both, once."""
    place = Several(tmp_path, source=source_cluster, destination=destination_cluster, third=third_cluster)
    both = f"all-{topic_name}"
    flow = {"topics": [topic_name], "offsets": "mapped", "topic.rename": {topic_name: both}}
    create_topic(place.at["destination"], both, PARTITIONS)
    for at, alias in enumerate(("source", "third")):
        create_topic(place.at[alias], topic_name, PARTITIONS)
        produce(place.at[alias], topic_name, 200, partitions=PARTITIONS, seed=at)
    with place.run({"source->destination": flow, "third->destination": flow}) as process:
        for name in ("source->destination", "third->destination"):
            process.wait_event("caught_up", flow=name)
        copied = "mirror_replicated_records_total"
        process.wait_for(lambda: total(process, copied) == 400, "all records in metrics")
        assert len(process.of("worker_started")) == 1
        produce(place.at["third"], topic_name, 100, partitions=PARTITIONS, seed=9)
        process.wait_for(lambda: total(process, copied, source="third") == 300, "the rest in metrics")
        told = cli_here(place, "offsets", "translate", "--topic", topic_name, "--offset", "1")
        assert told[0] == 64
        assert "name one of them with --flow (source->destination, third->destination)" in told[1]
        told = cli_here(
            place, "offsets", "translate", "--flow", "third->destination", *("--topic", topic_name, "--offset", "1")
        )
        assert told[0] == 0, told
        assert process.stop() == 0
        assert not process.of("halted")
    records = sum(end_of(place.at["source"], topic_name, each) for each in range(PARTITIONS)) + sum(
        end_of(place.at["third"], topic_name, each) for each in range(PARTITIONS)
    )
    fences = sum(end_of(place.at["destination"], both, each) for each in range(PARTITIONS)) - records
    # Each flow has put a fence before its first batch of each partition.
    assert 0 <= fences <= 2 * 2 * PARTITIONS


def cli_here(place: Several, *arguments: str) -> tuple[int, str]:
    import subprocess

    from tests.service.stage.running import MIRROR

    command = [str(MIRROR), *arguments, "-c", str(place.config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_both_ways_by_prefix(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. Two clusters mirror each other's topic, by patterns that match copies as well: each gets the other's under its
       prefix.
    2. After many looks for topics, nothing was copied back, and nothing twice.
    """
    place = Several(tmp_path, source=source_cluster, destination=destination_cluster)
    flow = {"topics": [f"(.*\\.)?{topic_name}"], "offsets": "mapped", "replication.policy": "prefix"}
    for at, (alias, records) in enumerate((("source", 100), ("destination", 60))):
        create_topic(place.at[alias], topic_name, PARTITIONS)
        produce(place.at[alias], topic_name, records, partitions=PARTITIONS, seed=at)
    with place.run({"source->destination": flow, "destination->source": flow}) as process:
        for name in ("source->destination", "destination->source"):
            process.wait_event("caught_up", flow=name)
        produce(place.at["source"], topic_name, 50, partitions=PARTITIONS, seed=3)
        copied = "mirror_replicated_records_total"
        process.wait_for(lambda: total(process, copied, source="source") == 150, "all of the source's records")
        process.wait_for(lambda: total(process, copied, source="destination") == 60, "all of the destination's records")
        before = len(process.of("progress"))
        process.wait_for(lambda: len(process.of("progress")) > before + 60, "some looks for topics")
        assert total(process, copied) == 210
        assert place.topics("source", topic_name) == {topic_name, f"destination.{topic_name}"}
        assert place.topics("destination", topic_name) == {topic_name, f"source.{topic_name}"}
        assert not process.of("halted")
        assert process.stop() == 0


def test_one_destination_fails(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. One flow's destination is away at the start: that flow waits, not ready, and the other one starts in the same
       process. The destination comes: the flow starts.
    2. It is killed: one line says so, that flow is not ready; the other goes on, ready, and copies what comes.
    """
    with SandboxCluster(name="fragile", properties=PATIENT, quick=True) as fragile:
        place = Several(tmp_path, source=source_cluster, destination=destination_cluster, fragile=fragile)
        create_topic(place.at["source"], topic_name, PARTITIONS)
        produce(place.at["source"], topic_name, 100, partitions=PARTITIONS)
        flows = {name: {"topics": [topic_name]} for name in ("source->destination", "source->fragile")}
        (broker,) = fragile.brokers
        broker.stop()
        with place.run(flows) as process:
            process.wait_event("waiting", flow="source->fragile", reason="Unreachable")
            process.wait_event("caught_up", flow="source->destination")
            place.wait_equal(process, topic_name, "source", "destination")
            code, text = get(process, "/-/ready")
            assert (code, text.startswith("source->fragile: Unreachable")) == (503, True)
            assert get(process, "/-/ready?flow=source->destination") == (200, "ready\n")
            assert not lines(process, "source->fragile", "started")

            broker.start()
            process.wait_event("caught_up", flow="source->fragile")
            place.wait_equal(process, topic_name, "source", "fragile")
            process.wait_for(lambda: get(process, "/-/ready")[0] == 200, "both to be ready")

            broker.kill()
            process.wait_event("cluster_lost", flow="source->fragile", cluster="fragile")
            produce(place.at["source"], topic_name, 100, partitions=PARTITIONS, seed=1)
            place.wait_equal(process, topic_name, "source", "destination")
            assert get(process, "/-/ready?flow=source->destination") == (200, "ready\n")
            assert total(process, "mirror_flow_ready", target="fragile") == 0
            assert total(process, "mirror_flow_ready", target="destination") == 1
            assert len(process.of("worker_started")) == 1
            broker.start()
            place.wait_equal(process, topic_name, "source", "fragile")
            process.stop()
            assert not lines(process, "source->destination", "revoked", "partitions_lost", "cluster_lost", "waiting")


def test_limits_are_reloaded(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. Under a low limit, a backlog waits. SIGHUP with a higher one for the flow: it is copied.
    2. The same with a limit for the topic, set and taken away.
    3. The flow was not restarted for any of it: one assignment, each partition located once, one process.
    """
    place = Several(tmp_path, source=source_cluster, destination=destination_cluster)
    create_topic(place.at["source"], topic_name, PARTITIONS)
    produce(place.at["source"], topic_name, 2_000, partitions=PARTITIONS, size=2_000)
    name = "source->destination"
    flow: dict[str, object] = {"topics": [topic_name]}
    with place.run({name: flow | {"max.bytes.per.second": "16KiB"}}) as process:
        process.wait_for(lambda: total(process, "mirror_replicated_records_total") > 0, "the first of it")
        assert total(process, "mirror_replication_lag_records") > 0
        place.reload(process, {name: flow | {"max.bytes.per.second": "1GiB"}})
        line = process.wait_event("reloading")
        assert (line["limited"], line["restarted"], line["untouched"]) == ([name], [], [])
        place.wait_equal(process, topic_name, "source", "destination")
        slow: dict[str, object] = {"topic.max.bytes.per.second": {f"{topic_name}.*": "16KiB"}}
        place.reload(process, {name: flow | slow})
        process.wait_for(lambda: len(process.of("reloaded")) == 2, "the second reload")
        produce(place.at["source"], topic_name, 2_000, partitions=PARTITIONS, size=2_000, seed=1)
        process.wait_for(lambda: total(process, "mirror_replication_lag_records") > 1_000, "what waits")
        place.reload(process, {name: flow})
        place.wait_equal(process, topic_name, "source", "destination")
        assert len(process.of("reloaded")) == 3
        assert len(process.of("worker_started")) == len(process.of("started")) == 1
        assert total(process, "mirror_rebalances_total", event="revoked") == 0
        assert sorted(each["partition"] for each in process.of("located")) == list(range(PARTITIONS))
        assert not process.of("resync")
        assert process.stop() == 0


def test_reloaded(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    third_cluster: SandboxCluster,
    topic_name: str,
    tmp_path: Path,
) -> None:
    """
    1. SIGHUP with another flow in the file: it is added in the same process, and copies.
    2. A file that is wrong changes nothing: said with file and line, and in a gauge.
    3. A flow's own setting changes: it alone is restarted. A setting of the service changes: said, and not used yet.
    4. The flow gets workers of its own, and is removed (with `mirror reload`, which waits for the end of it).
    5. All the while, the other flow is not touched: no rebalance, no line, and it has copied everything.
    """
    place = Several(tmp_path, source=source_cluster, destination=destination_cluster, third=third_cluster)
    create_topic(place.at["source"], topic_name, PARTITIONS)
    produce(place.at["source"], topic_name, 100, partitions=PARTITIONS)
    stays, comes = "source->destination", "source->third"
    one = {stays: {"topics": [topic_name]}}
    two = one | {comes: {"topics": [topic_name]}}

    def rebalances(there: str) -> float:
        return total(process, "mirror_rebalances_total", target=there)

    with place.run(one) as process, writing(place.at["source"], topic_name, PARTITIONS):
        process.wait_event("started")
        process.wait_for(lambda: len(status(process)["partitions"]) == PARTITIONS, "its partitions")
        before, worker = rebalances("destination"), process.of("worker_started")[0]["pid"]
        assert before > 0

        place.reload(process, two)
        line = process.wait_event("reloading")
        assert (line["added"], line["removed"], line["restarted"], line["untouched"]) == ([comes], [], [], [stays])
        process.wait_event("started", flow=comes)
        process.wait_for(lambda: total(process, "mirror_replicated_records_total", target="third") > 100, "its copies")
        assert [each["pid"] for each in status(process)["workers"]] == [worker], "\n".join(
            str(x) for x in process.lines if x["event"] != "progress"
        )

        done = total(process, "mirror_config_last_reload_success_timestamp_seconds")
        place.config.write_text(place.text(two).replace(topic_name, "["))
        process.process.send_signal(signal.SIGHUP)
        line = process.wait_event("not_reloaded", level="error")
        assert f"{place.config}:1: flows.{stays}.topics[0]: " in line["detail"]
        process.wait_for(lambda: total(process, "mirror_config_last_reload_successful") == 0, "the gauge")
        assert total(process, "mirror_config_last_reload_success_timestamp_seconds") == done
        assert len(status(process)["flows"]) == 2

        changed = one | {comes: {"topics": [topic_name], "settle.ms": 1_500}}
        place.reload(process, changed, workers=3)
        process.wait_for(lambda: len(process.of("reloaded")) == 2, "another reload")
        line = process.of("reloading")[-1]
        assert (line["added"], line["removed"], line["restarted"], line["untouched"]) == ([], [], [comes], [stays])
        assert process.wait_event("reload_needs_restart")["keys"] == ["workers"]
        assert process.wait_event("flow_stopped", flow=comes)["drained"] is True
        process.wait_for(lambda: len(lines(process, comes, "started")) == 2, "its new start")
        assert total(process, "mirror_config_last_reload_successful") == 1

        own = one | {comes: {"topics": [topic_name], "workers": 1}}
        place.reload(process, own)
        process.wait_for(lambda: len(lines(process, comes, "started")) == 3, "its start in a process of its own")
        assert [each["flows"] for each in status(process)["workers"]] == [[stays], [comes]]

        place.config.write_text(place.text(one))
        told = cli(process, place.config, "reload")
        assert (told.returncode, told.stdout) == (0, f"removed: {comes}\nuntouched: {stays}\n")
        assert len(process.of("reloaded")) == 4
        assert process.of("reloading")[-1]["removed"] == [comes]
        process.wait_event("worker_stopped", worker=2)
        assert [each["pid"] for each in status(process)["workers"]] == [worker], "\n".join(
            str(x) for x in process.lines if x["event"] != "progress"
        )
        assert [each["flow"] for each in status(process)["flows"]] == [stays]

        assert rebalances("destination") == before
        assert {one["worker"] for one in status(process)["partitions"]} == {1}
        assert len(lines(process, stays, "assigned")) == 1
        assert not lines(process, stays, "revoked", "partitions_lost", "resync", "waiting", "worker_died")
        process.process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    assert not process.of("halted")
    with place.run(two) as process:
        place.wait_equal(process, topic_name, "source", "destination", "third")
        assert process.stop() == 0
    for there in ("destination", "third"):
        assert assert_identical(place.at["source"], place.at[there], [topic_name], PARTITIONS) > 4


def test_what_one_flow_refuses(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    third_cluster: SandboxCluster,
    topic_name: str,
    tmp_path: Path,
) -> None:
    """
    1. One flow's internal topic is not what it has to be: that flow says so, by name, and does not start.
    2. Another flow's two aliases are one cluster, which only the clusters show: it says so as well.
    3. The third flow copies, in the same process. All of it is left as soon as the service is told to stop.
    """
    place = Several(tmp_path, source=source_cluster, destination=destination_cluster, third=third_cluster)
    place.at["same"] = place.at["source"].replace("127.0.0.1", "localhost")
    create_topic(place.at["source"], topic_name, PARTITIONS)
    produce(place.at["source"], topic_name, 100, partitions=PARTITIONS)
    ids = {there: f"{topic_name}-{there}" for there in ("destination", "third", "same")}
    create_topic(place.at["third"], f"mirror-internal.{ids['third']}", cleanup_policy="delete")
    flows = {f"source->{there}": {"topics": [topic_name], "flow.id": flow_id} for there, flow_id in ids.items()}
    with place.run(flows) as process:
        line = process.wait_event("waiting", flow="source->third", reason="StateUnusable")
        assert "cleanup.policy" in line["detail"]
        line = process.wait_event("flow_failed", flow="source->same", reason="SameCluster")
        assert "are the same cluster" in line["detail"]
        process.wait_event("caught_up", flow="source->destination")
        place.wait_equal(process, topic_name, "source", "destination")
        ready = {each["flow"]: each["ready"] for each in status(process)["flows"]}
        assert ready == {"source->destination": True, "source->third": False, "source->same": False}
        assert len(process.of("worker_started")) == 1
        assert process.stop() == 0
        assert not process.of("worker_died")
