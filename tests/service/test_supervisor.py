"""``mirror run`` with several workers, between two real clusters: shared, killed, joined, watched, resumed, stopped."""

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from prometheus_client.parser import text_string_to_metric_families

from mirror.relay.assignment import read_committed
from mirror.sandbox import SandboxCluster
from mirror.service.http.guard import GUARD
from tests.service.stage.kafka_side import assert_identical, create_topic, end_of, produce, read_log, writing
from tests.service.stage.running import PATIENCE_S, Mirror, address, cli, config_text, get, mirror, status

pytestmark = pytest.mark.broker
PARTITIONS = 4


class Two:
    """Both clusters, a topic, and a configuration for it."""

    def __init__(self, source: SandboxCluster, destination: SandboxCluster, topic: str, folder: Path) -> None:
        self.source, self.destination = source.bootstrap_servers, destination.bootstrap_servers
        self.topic = topic
        self.group = f"group-{topic}"
        self.folder = folder

    def create(self, records: int = 400) -> None:
        create_topic(self.source, self.topic, PARTITIONS)
        self.produce(records)

    def produce(self, records: int, seed: int = 0) -> None:
        produce(self.source, self.topic, records, partitions=PARTITIONS, seed=seed)

    def mirror(
        self, name: str = "mirror", *, workers: int = 2, top: Mapping[str, object] | None = None, **flow: object
    ) -> Any:
        top = {"group.id": self.group, "workers": workers, "session.timeout.ms": 6_000, **(top or {})}
        named = {key.replace("_", "."): value for key, value in flow.items()}
        text = config_text(self.source, self.destination, [self.topic], flow=named, top=top)
        return mirror(self.folder / f"{name}.yaml", text)

    def wait_equal(self, process: Mirror) -> None:
        def equal() -> bool:
            return all(
                end_of(self.source, self.topic, each) == end_of(self.destination, self.topic, each)
                for each in range(PARTITIONS)
            )

        process.wait_for(equal, "equal ends")

    def identical(self) -> int:
        return assert_identical(self.source, self.destination, [self.topic], PARTITIONS)

    def committed(self) -> list[TopicPartition]:
        """What any admin client sees of the group, by partition."""
        wanted = [TopicPartition(self.topic, each) for each in range(PARTITIONS)]
        admin = AdminClient({"bootstrap.servers": self.source})
        (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.group, wanted)]).values()
        return sorted(future.result(PATIENCE_S).topic_partitions, key=lambda one: int(one.partition))


@pytest.fixture
def two(source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path) -> Two:
    return Two(source_cluster, destination_cluster, topic_name, tmp_path)


def shared_out(process: Mirror, *counts: int, halted: int = 0) -> bool:
    """Whether the workers have these numbers of partitions, so many of them halted and all others active: nothing moves
    any more."""
    now = status(process)
    found = sorted(each["partitions"] for each in now["workers"])
    states = Counter(one["state"] for one in now["partitions"])
    return found == sorted(counts) and states == Counter(halted=halted, active=sum(counts) - halted)


def samples(process: Mirror) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample of /metrics; parsing them checks the format, and none may be there twice."""
    code, text = get(process, "/metrics")
    assert code == 200
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


def total(process: Mirror, name: str, **labels: str) -> float:
    return sum(value for (each, has), value in samples(process).items() if each == name and labels.items() <= has)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def worker_pids(process: Mirror) -> list[int]:
    return [line["pid"] for line in process.of("worker_started")]


def test_workers_share_the_partitions(two: Two) -> None:
    """
    1. Two workers, four partitions: two each. Everything is copied.
    2. Metrics, status page, status on the command line: they agree with what was copied.
    3. The group's offsets say what is copied, to any admin client, with evidence of the last batch.
    4. SIGTERM: drained, exit code 0, both sides identical, what came last is committed, no process is left.
    """
    two.create()
    with two.mirror(top={"offset.commit.interval.ms": 100}) as process:
        assert process.wait_event("started")["partitions"] == PARTITIONS
        process.wait_event("caught_up")
        process.wait_for(lambda: shared_out(process, 2, 2), "two partitions each")
        two.wait_equal(process)
        process.wait_for(lambda: total(process, "mirror_replicated_records_total") == 400, "400 records in metrics")
        assert get(process, "/-/healthy")[0] == get(process, "/-/ready")[0] == 200

        logs = [read_log(two.source, two.topic, each) for each in range(PARTITIONS)]
        for each, log in enumerate(logs):
            of = {"partition": str(each), "topic": two.topic, "source": "source", "target": "destination"}
            assert total(process, "mirror_replicated_batches_total", **of) == len(log)
            assert total(process, "mirror_replicated_bytes_total", **of) == sum(map(len, log))
            assert total(process, "mirror_target_end_offset", **of) == end_of(two.destination, two.topic, each)
        assert total(process, "mirror_partitions", state="active") == PARTITIONS
        assert total(process, "mirror_replication_lag_records") == total(process, "mirror_replication_lag_seconds") == 0
        assert total(process, "mirror_worker_up") == 2
        for name in ("process_cpu_seconds_total", "process_resident_memory_bytes", "python_gc_collections_total"):
            assert all(total(process, name, worker=worker) > 0 for worker in ("1", "2", "supervisor"))
        assert total(process, "mirror_gc_pause_seconds_count", generation="2") >= 2
        assert total(process, "mirror_batches_total", path="deep") == 0

        told = cli(process, two.folder / "mirror.yaml", "status")
        assert (told.returncode, told.stderr) == (0, "")
        assert f"partitions: {PARTITIONS} active; {PARTITIONS} in the flow" in told.stdout
        assert "in group" in told.stdout
        told = cli(process, two.folder / "mirror.yaml", "status", "--format", "json")
        assert json.loads(told.stdout)["replicated_records"] == 400
        assert f"<td>{two.topic}</td>" in get(process, "/status")[1]

        def evident() -> bool:
            return [one.offset for one in two.committed()] == [end_of(two.source, two.topic, p) for p in range(4)]

        process.wait_for(evident, "committed offsets")
        for one in two.committed():
            found = read_committed(one.offset, one.metadata)
            assert len(found.topic_id) == 32
            assert (found.epoch, len(found.digest), found.digest_at) == (0, 16, one.offset)
        with writing(two.source, two.topic, PARTITIONS):
            process.wait_for(lambda: total(process, "mirror_replicated_records_total") > 500, "more records")
            process.process.send_signal(signal.SIGTERM)
            assert process.wait() == 0
        process.check_clean()
        assert process.of("stopped")[0]["drained"] is True
        assert not any(map(alive, worker_pids(process)))
        ends = [end_of(two.destination, two.topic, each) for each in range(PARTITIONS)]
        assert [one.offset for one in two.committed()] == ends
    with two.mirror() as process:
        process.wait_event("caught_up")
        two.wait_equal(process)
        assert process.stop() == 0
    assert two.identical() > 10


def test_a_worker_is_killed(two: Two) -> None:
    """
    1. One of two workers is killed (-9) while a producer writes: the other takes its partitions over at once, without
       waiting for the session; it is started again, and gets its share.
    2. Counters go on from where they were: all records are counted, also those that the killed one could not tell of.
       Nothing is lost, nothing is there twice.
    """
    two.create()
    with two.mirror(top={"session.timeout.ms": 60_000}) as process:
        process.wait_for(lambda: shared_out(process, 2, 2), "two partitions each")
        process.wait_for(lambda: total(process, "mirror_replicated_records_total") == 400, "400 records")
        with writing(two.source, two.topic, PARTITIONS):
            os.kill(worker_pids(process)[0], signal.SIGKILL)
            died = process.wait_event("worker_died")
            assert (died["worker"], died["level"]) == (1, "warning")
            assert "SIGKILL" in died["detail"]
            process.wait_for(lambda: len(worker_pids(process)) == 3, "another worker")
            process.wait_for(lambda: shared_out(process, 2, 2), "two partitions each again")
        two.wait_equal(process)
        records = sum(end_of(two.source, two.topic, each) for each in range(PARTITIONS))
        process.wait_for(lambda: total(process, "mirror_replication_lag_records") == 0, "no lag")
        process.wait_for(lambda: total(process, "mirror_replicated_records_total") >= records, "all records in metrics")
        assert total(process, "mirror_replicated_records_total") == records
        assert total(process, "mirror_worker_restarts_total", worker="1") == 1
        assert process.stop() == 0
    assert two.identical() > 10


def test_the_supervisor_is_killed(two: Two) -> None:
    """kill -9: its workers end with it, also one that is stopped and could not see it go."""
    two.create()
    with two.mirror() as process:
        process.wait_event("caught_up")
        pids = worker_pids(process)
        os.kill(pids[0], signal.SIGSTOP)
        process.process.kill()
        process.wait()
        deadline = time.monotonic() + PATIENCE_S
        while any(map(alive, pids)):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_second_machine_joins(two: Two) -> None:
    """
    1. A second supervisor with the same configuration joins while a producer writes: the partitions are shared out
       between the two. At a quiet moment, the records that both have counted are all that there are.
    2. It leaves: the first has all of them again, and counts what comes from then on. Both sides are identical.
    """
    two.create()
    counted = "mirror_replicated_records_total"

    def written() -> int:
        return sum(end_of(two.source, two.topic, each) for each in range(PARTITIONS))

    with two.mirror("first", workers=1) as first:
        first.wait_event("caught_up")
        with two.mirror("second", workers=1) as second:
            with writing(two.source, two.topic, PARTITIONS):
                second.wait_for(lambda: shared_out(first, 2) and shared_out(second, 2), "two partitions each")
                second.wait_for(lambda: total(second, counted) > 0, "its first records")
            two.wait_equal(first)
            second.wait_for(
                lambda: total(first, counted) + total(second, counted) >= written(), "all records in metrics"
            )
            of_second = total(second, counted)
            assert total(first, counted) + of_second == written()
            assert second.stop() == 0
        first.wait_for(lambda: shared_out(first, 4), "all partitions")
        assert first.of("revoked")
        two.produce(100, seed=7)
        two.wait_equal(first)
        first.wait_for(lambda: total(first, counted) + of_second >= written(), "the rest in metrics")
        assert total(first, counted) + of_second == written()
        first.wait_for(lambda: total(first, "mirror_rebalances_total", event="revoked") >= 1, "rebalances in metrics")
        assert first.stop() == 0
        assert not first.of("halted")
    assert two.identical() > 10


@pytest.mark.parametrize(
    "top",
    [{"group.protocol": "consumer"}, {"group.instance.id": "here", "session.timeout.ms": 60_000}],
    ids=["KIP-848", "static"],
)
def test_other_kinds_of_membership(two: Two, top: dict[str, object]) -> None:
    """The new group protocol, and static membership: a restart within the session moves nothing."""
    two.create()
    with two.mirror(top=top) as process:
        process.wait_event("caught_up")
        process.wait_for(lambda: shared_out(process, 2, 2), "two partitions each")
        if "group.instance.id" in top:
            before = {one["partition"]: one["worker"] for one in status(process)["partitions"]}
            os.kill(worker_pids(process)[1], signal.SIGKILL)
            process.wait_for(lambda: len(worker_pids(process)) == 3 and shared_out(process, 2, 2), "its own again")
            assert {one["partition"]: one["worker"] for one in status(process)["partitions"]} == before
        two.produce(100, seed=1)
        two.wait_equal(process)
        assert process.stop() == 0
    assert two.identical() > 4


def test_a_halted_partition_is_told(two: Two) -> None:
    """
    1. Somebody else has written to the destination: one partition halts. Status, metrics and the command line say why
       and what to do; exit code 2.
    2. What is not halted is not resumed, and nothing is done for a web page of another site.
    """
    two.create()
    create_topic(two.destination, two.topic, PARTITIONS)
    produce(two.destination, two.topic, 30, seed=5)
    with two.mirror() as process:
        process.wait_event("halted", topic=two.topic, partition=0)
        process.wait_for(lambda: shared_out(process, 2, 2, halted=1), "one halted")
        told = cli(process, two.folder / "mirror.yaml", "status")
        assert told.returncode == 2
        assert f"{two.topic}-0: foreign_writer" in told.stdout
        assert "remedy: The destination topic holds what others wrote" in told.stdout
        assert total(process, "mirror_partition_halted", partition="0", reason="foreign_writer") == 1
        # Its last line is the remedy, and the command in it is typed as it stands, wherever one is.
        (remedy,) = [line for line in told.stdout.splitlines() if "remedy:" in line]
        assert process.of("halted")[0]["remedy"] in remedy
        after_a_cutover, deletes, command, beforehand = re.findall(r"`([^`]+)`", remedy)
        assert deletes == f"kafka-topics.sh --bootstrap-server {two.destination} --delete --topic {two.topic}"
        assert after_a_cutover == f"{command} 0", "after a cutover, nothing is deleted"
        assert " plan -c " in beforehand
        typed = subprocess.run(command, shell=True, cwd="/", capture_output=True, text=True, timeout=90, check=False)
        assert typed.returncode == 1, typed
        assert f"{two.topic}-0 is not resumed: halts again, foreign_writer" in typed.stderr
        # It may have moved to the second worker, and have halted there once more.
        assert total(process, "mirror_halts_total", reason="foreign_writer") >= 1

        told = cli(process, two.folder / "mirror.yaml", "resume", two.topic, "1")
        assert told.returncode == 1
        assert "is not resumed: it is " in told.stderr
        told = cli(process, two.folder / "mirror.yaml", "resume", "nothing", "0")
        assert told.returncode == 1
        assert "nothing is resumed: the flow has no partition nothing-0" in told.stderr
        path = f"http://{address(process)}/api/v1/partitions/{two.topic}/0/resume"
        for headers, said in (({}, GUARD), ({GUARD: "x", "Host": "mirror.example"}, "127.0.0.1")):
            request = urllib.request.Request(path, method="POST", headers=headers)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=30)
            with refused.value as answer:
                assert answer.code == 403
                assert said in answer.read().decode()

        assert process.stop() == 2


def test_resumed_in_place(two: Two) -> None:
    """A destination topic with too few partitions: they are added, and the partition is resumed without a restart."""
    two.create()
    create_topic(two.destination, two.topic, PARTITIONS - 1)
    with two.mirror(topic_create=False) as process:
        process.wait_event("halted", topic=two.topic, partition=PARTITIONS - 1)
        process.wait_for(lambda: shared_out(process, 2, 2, halted=1), "one halted")
        last = str(PARTITIONS - 1)
        told = cli(process, two.folder / "mirror.yaml", "resume", two.topic, last)
        assert told.returncode == 1
        assert "still fewer_partitions" in told.stderr
        admin = AdminClient({"bootstrap.servers": two.destination})
        for future in admin.create_partitions([NewPartitions(two.topic, PARTITIONS)]).values():
            future.result(PATIENCE_S)

        def resumed() -> bool:
            told = cli(process, two.folder / "mirror.yaml", "resume", two.topic, last)
            # The mirror may have seen by itself that the reason is gone.
            return told.returncode == 0 or ", not halted" in told.stderr

        process.wait_for(resumed, "the partition to be resumed")
        two.wait_equal(process)
        process.wait_for(lambda: shared_out(process, 2, 2), "all active")
        assert process.stop() == 0
    assert two.identical() > 4


def test_a_port_in_use(two: Two) -> None:
    """Said before anything is begun, with the address and what to do; exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        with two.mirror(top={"http.listen": where}) as process:
            assert process.wait() == 1
            process.check_clean()
            (line,) = process.of("failed")
            assert line["detail"].startswith(f"cannot listen at {where}: Address already in use; another mirror")
            assert not process.of("worker_started")
