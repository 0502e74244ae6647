"""What a user can get wrong: one clear message with a remedy, the right exit code, no traceback; others go on."""

import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from mirror.sandbox import SandboxCluster
from tests.patience import PATIENT
from tests.service.stage.kafka_side import assert_identical, create_topic, delete_topic, end_of, produce, read_log
from tests.service.stage.running import Line, Mirror, config_text, get, mirror, status

pytestmark = pytest.mark.broker


class Two:
    """Both clusters and a place for the configuration."""

    def __init__(self, source: SandboxCluster, destination: SandboxCluster, folder: Path) -> None:
        self.source, self.destination = source.bootstrap_servers, destination.bootstrap_servers
        self.config = folder / "mirror.yaml"

    def fails(self, text: str, *, code: int = 1, options: Sequence[str] = ("--fail-fast",)) -> Line:
        """Runs it to its end, which is the first failure's: one line that says why."""
        with mirror(self.config, text, *options) as process:
            assert process.wait() == code, process.told()
            process.check_clean()
            (line,) = process.of("failed")
            assert not process.of("started")
            return line

    def copy(self, *topics: str, stop: bool = True) -> None:
        """Mirrors these topics until they are equal."""
        with mirror(self.config, config_text(self.source, self.destination, list(topics))) as process:
            self.wait_equal(process, topics)
            assert process.stop() == 0

    def wait_equal(self, process: Mirror, topics: tuple[str, ...], partition: int = 0) -> None:
        def equal() -> bool:
            return all(
                end_of(self.source, topic, partition) == end_of(self.destination, topic, partition) for topic in topics
            )

        process.wait_event("started")
        process.wait_for(equal, "equal ends")

    def halts(self, bad: str, good: str, *, partition: int = 0, others: tuple[int, ...] = ()) -> Line:
        """Mirrors a bad topic beside a good one: the bad one halts, the good one is copied, exit code 2. ``others``:
        partitions of the bad one that are copied as well."""
        with mirror(self.config, config_text(self.source, self.destination, [bad, good])) as process:
            line = process.wait_event("halted", topic=bad, partition=partition)
            self.wait_equal(process, (good,))
            produce(self.source, good, 50, seed=9)
            self.wait_equal(process, (good,))
            for each in others:
                self.wait_equal(process, (bad,), each)
            assert process.stop() == 2
            assert {one["topic"] for one in process.of("halted")} == {bad}
        assert_identical(self.source, self.destination, [good])
        assert line["level"] == "warning"
        assert line["detail"]
        assert line["remedy"]
        return line


@pytest.fixture
def two(source_cluster: SandboxCluster, destination_cluster: SandboxCluster, tmp_path: Path) -> Two:
    return Two(source_cluster, destination_cluster, tmp_path)


@pytest.fixture
def good(two: Two, topic_name: str) -> str:
    """A topic with nothing wrong."""
    name = f"{topic_name}-good"
    create_topic(two.source, name)
    produce(two.source, name, 100)
    return name


# Clusters.


def test_unreachable(two: Two) -> None:
    """Nobody listens at the address, on either side."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"127.0.0.1:{server.getsockname()[1]}"
    for source, destination, name in ((nobody, two.destination, "source"), (two.source, nobody, "destination")):
        line = two.fails(config_text(source, destination, ["t"]))
        assert line["reason"] == "Unreachable"
        assert f"cannot reach cluster {name}: {name} bootstrap {nobody}: Connection refused" in line["detail"]
        assert "check bootstrap.servers" in line["detail"]


def test_no_kafka_there(two: Two) -> None:
    """Something else listens at the address: it is told from a broker, with what it sent."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with suppress(OSError):  # what the shutdown below makes of ``accept``
                while True:
                    sock, _ = server.accept()
                    with sock, suppress(ConnectionError):
                        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                        sock.recv(1 << 16)

        answering = threading.Thread(target=answer)
        answering.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        try:
            line = two.fails(config_text(address, two.destination, ["t"]))
        finally:
            server.shutdown(socket.SHUT_RDWR)
            answering.join()
        assert f"cannot reach cluster source: source bootstrap {address}: malformed response" in line["detail"]


def test_the_same_cluster(two: Two, good: str) -> None:
    """Under two names, which the configuration cannot know: found by the cluster's id."""
    other_name = two.source.replace("127.0.0.1", "localhost")
    line = two.fails(config_text(two.source, other_name, [good]), code=78)
    assert line["reason"] == "SameCluster"
    assert "check bootstrap.servers of both" in line["detail"]


# Topics.


def test_unknown_topic(two: Two, good: str) -> None:
    """
    1. No topic at all matches: with --fail-fast it ends, with the names and what to check.
    2. One of two does: the other is told of, and the one is copied.
    """
    line = two.fails(config_text(two.source, two.destination, ["no-such-topic", r"nor\..*"]))
    assert line["reason"] == "NothingToMirror"
    assert r"no topic of cluster source matches no-such-topic, nor\..*; check topics and exclude" in line["detail"]
    with mirror(two.config, config_text(two.source, two.destination, ["no-such-topic", good])) as process:
        unknown = process.wait_event("topic_unknown", pattern="no-such-topic")
        assert unknown["remedy"]
        two.wait_equal(process, (good,))
        assert process.stop() == 0


def test_fewer_partitions_at_the_destination(two: Two, topic_name: str) -> None:
    """
    1. ``topic.create: false``: the partitions that are there are copied, and the one that is not halts.
    2. The destination may be changed: the partition is added before its first record is copied.
    3. The source gets one more partition while the mirror runs: so does the destination.
    """
    create_topic(two.source, topic_name, 3)
    create_topic(two.destination, topic_name, 2)
    produce(two.source, topic_name, 300, partitions=3)
    fixed = config_text(two.source, two.destination, [topic_name], flow={"topic.create": False})
    with mirror(two.config, fixed) as process:
        line = process.wait_event("halted", topic=topic_name, partition=2)
        assert line["reason"] == "fewer_partitions"
        assert f"{topic_name}-2: the destination has 2 partitions" in line["detail"]
        for partition in (0, 1):
            two.wait_equal(process, (topic_name,), partition)
        assert process.stop() == 2
    grows = config_text(two.source, two.destination, [topic_name], flow={"refresh.topics.interval.ms": 1_000})
    with mirror(two.config, grows) as process:
        assert process.wait_event("partitions_added")["partitions"] == 3
        two.wait_equal(process, (topic_name,), 2)
        admin = AdminClient({"bootstrap.servers": two.source})
        for future in admin.create_partitions([NewPartitions(topic_name, 4)]).values():
            future.result(30)
        process.wait_event("partitions_added", partitions=4)
        produce(two.source, topic_name, 400, partitions=4, seed=1)
        for partition in range(4):
            two.wait_equal(process, (topic_name,), partition)
        assert process.stop() == 0
    assert_identical(two.source, two.destination, [topic_name], 4)


def test_a_foreign_writer(two: Two, good: str, topic_name: str) -> None:
    """Somebody else has written to the destination topic: not a byte is added."""
    create_topic(two.source, topic_name)
    create_topic(two.destination, topic_name)
    produce(two.source, topic_name, 100)
    produce(two.destination, topic_name, 30, seed=5)
    before = read_log(two.destination, topic_name)
    line = two.halts(topic_name, good)
    assert line["reason"] == "foreign_writer"
    assert "producer id -1" in line["detail"]
    assert read_log(two.destination, topic_name) == before


def test_a_foreign_writer_in_the_middle(two: Two, good: str, topic_name: str) -> None:
    """
    1. The topic is mirrored; then somebody writes to the destination.
    2. The next batch does not land where it belongs: the partition halts, and names the other writer. The mirror is
       ready all the same, and says that something is halted.
    """
    create_topic(two.source, topic_name)
    produce(two.source, topic_name, 100)
    with mirror(two.config, config_text(two.source, two.destination, [topic_name, good])) as process:
        two.wait_equal(process, (topic_name, good))
        produce(two.destination, topic_name, 7, seed=5)
        produce(two.source, topic_name, 50, seed=6)
        line = process.wait_event("halted", topic=topic_name)
        assert line["reason"] == "foreign_writer"
        assert "producer id -1 (a producer without idempotence)" in line["detail"]
        produce(two.source, good, 50, seed=9)
        two.wait_equal(process, (good,))
        process.wait_for(lambda: "1 partition is halted: " in get(process, "/-/ready")[1], "the halt in /-/ready")
        assert get(process, "/-/ready")[0] == 200
        assert process.stop() == 2


def test_other_content(two: Two, good: str, topic_name: str) -> None:
    """
    1. A topic is mirrored. Its source is deleted and made anew under the name, with other content.
    2. It is another topic, by its id, and what the destination holds stays.
    """
    create_topic(two.source, topic_name)
    produce(two.source, topic_name, 100)
    two.copy(topic_name)
    before = read_log(two.destination, topic_name)
    delete_topic(two.source, topic_name)
    create_topic(two.source, topic_name)
    produce(two.source, topic_name, 200, seed=77)
    line = two.halts(topic_name, good)
    assert line["reason"] == "recreated"
    assert read_log(two.destination, topic_name) == before


def test_a_shorter_source(two: Two, good: str, topic_name: str) -> None:
    """The same, with a source that is shorter than what was copied."""
    create_topic(two.source, topic_name)
    produce(two.source, topic_name, 100)
    two.copy(topic_name)
    delete_topic(two.source, topic_name)
    create_topic(two.source, topic_name)
    produce(two.source, topic_name, 10)
    line = two.halts(topic_name, good)
    assert line["reason"] == "recreated"
    assert end_of(two.destination, topic_name) == 100


@pytest.mark.parametrize("side", ["source", "destination"])
def test_recreated_while_it_runs(two: Two, good: str, topic_name: str, side: str) -> None:
    """A topic that is deleted and made anew on either side is another topic: its id says so."""
    create_topic(two.source, topic_name)
    produce(two.source, topic_name, 100)
    # So long that it is not given up as missing before it is there again.
    slow = {name: {"reconnect.backoff.max.ms": 10_000} for name in ("source", "destination")}
    with mirror(two.config, config_text(two.source, two.destination, [topic_name, good], clusters=slow)) as process:
        two.wait_equal(process, (topic_name, good))
        there = two.source if side == "source" else two.destination
        delete_topic(there, topic_name)
        create_topic(there, topic_name)
        produce(two.source, topic_name, 10, seed=1)
        line = process.wait_event("halted", topic=topic_name)
        assert line["reason"] == "recreated"
        assert f"cluster {side}" in line["detail"]
        produce(two.source, good, 50, seed=9)
        two.wait_equal(process, (good,))
        assert process.stop() == 2


def test_deleted_while_it_runs(two: Two, good: str, topic_name: str) -> None:
    """A source topic that is gone for good halts, after it was looked for."""
    create_topic(two.source, topic_name)
    produce(two.source, topic_name, 100)
    with mirror(two.config, config_text(two.source, two.destination, [topic_name, good])) as process:
        two.wait_equal(process, (topic_name, good))
        delete_topic(two.source, topic_name)
        line = process.wait_event("halted", topic=topic_name)
        assert line["reason"] == "topic_missing"
        assert process.stop() == 2


def shown_gone(process: Mirror, topic: str) -> tuple[bool, bool]:
    """Whether the topic has a remark, and a series."""
    series = f'mirror_topic_gone{{source="source",target="destination",topic="{topic}"}} 1.0'
    remarks = [each for each in status(process)["remarks"] if f"no topic {topic} any more" in each]
    return bool(remarks), series in get(process, "/metrics")[1]


def test_deleted_among_others(two: Two, good: str, topic_name: str) -> None:
    """A source topic that a pattern has matched, among others, is gone: said once, as what it is. It is shown, and a
    series, until its copy is deleted, too."""
    create_topic(two.source, topic_name)
    produce(two.source, topic_name, 100)
    flow = {"refresh.topics.interval.ms": 500}
    with mirror(two.config, config_text(two.source, two.destination, [f"{topic_name}.*"], flow=flow)) as process:
        two.wait_equal(process, (topic_name, good))
        delete_topic(two.source, topic_name)
        line = process.wait_event("topic_gone", topic=topic_name)
        assert (line["level"], line["partitions"]) == ("warning", 1)
        process.wait_for(lambda: shown_gone(process, topic_name) == (True, True), "shown as gone")
        produce(two.source, good, 50, seed=9)
        two.wait_equal(process, (good,))
        assert end_of(two.destination, topic_name) == 100  # nothing that happens at the source is repeated there
        delete_topic(two.destination, topic_name)
        process.wait_for(lambda: shown_gone(process, topic_name) == (False, False), "not shown any more")
        assert process.stop() in (0, 2)  # its partition may have halted before the group took it away
        assert {line["reason"] for line in process.of("halted")} <= {"topic_missing"}
        assert len(process.of("topic_gone")) == 1
        assert not process.of("group_trouble")


def test_a_destination_that_is_too_old(two: Two) -> None:
    """It is called that, whatever request would fail first, and no wait heals it: it ends, exit code 1."""
    with SandboxCluster(name="old", version="0.10.2.2", properties=PATIENT, quick=True, heap_mb=512) as cluster:
        old = cluster.bootstrap_servers
        line = two.fails(config_text(two.source, old, ["t"]), options=())
    assert line["reason"] == "Unsupported"
    assert f"destination bootstrap {old}: the broker is from before Kafka 0.11 (" in line["detail"]


def test_a_destination_that_rewrites(two: Two, good: str, topic_name: str) -> None:
    """Settings with which the destination's broker would change the batches: nothing is sent."""
    create_topic(two.source, topic_name)
    create_topic(two.destination, topic_name, compression_type="gzip")
    produce(two.source, topic_name, 100)
    line = two.halts(topic_name, good)
    assert line["reason"] == "destination_rewrites"
    assert "compression.type=gzip" in line["detail"]
    assert end_of(two.destination, topic_name) == 0


def test_too_large_for_the_destination(two: Two, good: str, topic_name: str) -> None:
    """A batch over the destination topic's limit halts before it is sent; what was before it is there."""
    create_topic(two.source, topic_name)
    create_topic(two.destination, topic_name, max_message_bytes="20000")
    produce(two.source, topic_name, 40)
    before = end_of(two.source, topic_name)
    produce(two.source, topic_name, 2, size=900_000, least=100_000, seed=3)
    line = two.halts(topic_name, good)
    assert line["reason"] == "too_large"
    # As it stands there, in a shell: the value is the source's, which takes more than this batch has.
    assert f"`kafka-configs --bootstrap-server {two.destination} --alter" in line["remedy"]
    assert f"--entity-name {topic_name} --add-config max.message.bytes=" in line["remedy"]
    # The first of the two has no value; on a busy machine it gets a batch of its own, which is not too large.
    assert end_of(two.destination, topic_name) in (before, before + 1)


def test_everything_halts(two: Two, topic_name: str) -> None:
    """Nothing is left that could run: with --fail-fast it ends by itself, exit code 2."""
    create_topic(two.source, topic_name)
    create_topic(two.destination, topic_name)
    produce(two.source, topic_name, 10)
    produce(two.destination, topic_name, 10, seed=1)
    with mirror(two.config, config_text(two.source, two.destination, [topic_name]), "--fail-fast") as process:
        assert process.wait() == 2
        process.check_clean()
        assert process.of("failed")[0]["reason"] == "all_halted"
        assert len(process.of("halted")) == 1


def test_two_machines_with_one_instance_id(two: Two, topic_name: str) -> None:
    """The second to join puts out the first (KIP-345), whose worker says so, with what to do, and is started again."""
    create_topic(two.source, topic_name, 1)
    produce(two.source, topic_name, 10)
    text = config_text(two.source, two.destination, [topic_name], top={"group.instance.id": "here"})
    with mirror(two.config, text) as first:
        first.wait_event("caught_up")
        with mirror(two.config, text) as second:
            failed = first.wait_event("worker_failed")
            assert failed["reason"] == "PutOut"
            assert (
                "somebody else has joined as here-1: two machines have the same group.instance.id" in failed["detail"]
            )
            second.stop()
        first.stop()
