"""A planned switch and the way back, on real brokers: a real producer and a real consumer group move, and nothing is
missed and nothing repeated."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from mirror.offsetmap.internal.memory import PREFIX
from mirror.sandbox import SandboxCluster
from tests.service.stage.kafka_side import create_topic, delete_topic, end_of, repeated
from tests.service.stage.running import MIRROR, PATIENCE_S, Mirror, address, cli, config_text, mirror
from tests.service.sync.sides import committed, consumer

pytestmark = pytest.mark.broker
PARTITIONS = 2
FORTH, BACK = "source->destination", "destination->source"


class Application:
    """Writes numbered records to one cluster, and reads them as a member of a group. Both can move."""

    def __init__(self, topic: str, group: str) -> None:
        self.topic, self.group = topic, group
        self.acknowledged: list[int] = []
        self.read: list[int] = []
        self._next = 0
        self._moved = False
        self._acknowledged_at = 0.0
        self.stood_still_s: list[float] = []
        """For how long the producer stood still, each time that it moved."""

    @contextmanager
    def writing(self, cluster: SandboxCluster) -> Iterator[None]:
        """A producer that writes a record every few milliseconds until the block is left."""
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._moved = True

        def write(_: int) -> None:
            number, self._next = self._next, self._next + 1
            producer.produce(
                self.topic, value=str(number), partition=number % PARTITIONS,
                on_delivery=lambda error, _, number=number: self._delivered(error, number),
            )  # fmt: skip
            producer.poll(0)

        with repeated(write, pause_s=0.005):
            yield
        assert producer.flush(PATIENCE_S) == 0

    def _delivered(self, error: object, number: int) -> None:
        assert error is None, error
        now = time.monotonic()
        if self.acknowledged and self._moved:
            self.stood_still_s.append(now - self._acknowledged_at)
        self._moved, self._acknowledged_at = False, now
        self.acknowledged.append(number)

    @contextmanager
    def reading(self, cluster: SandboxCluster) -> Iterator[None]:
        """A consumer that reads and commits; when the block is left, it first reads all that was acknowledged."""
        stop = threading.Event()

        def run(reader: Consumer) -> None:
            deadline = time.monotonic() + PATIENCE_S
            while not stop.is_set() or len(self.read) < len(self.acknowledged):
                assert time.monotonic() < deadline, (len(self.read), len(self.acknowledged))
                message = reader.poll(0.1)
                if message is not None and message.error() is None:
                    self.read.append(int(message.value()))
                    reader.commit(message=message, asynchronous=True)

        reader = consumer(cluster, self.group)
        reader.subscribe([self.topic])
        thread = threading.Thread(target=run, args=(reader,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            reader.close()  # waits for its commits, and leaves the group

    def check(self) -> None:
        """Everything that was acknowledged was read, and once."""
        assert sorted(self.read) == sorted(self.acknowledged) == list(range(self._next))

    def wait_for(self, records: int) -> None:
        """Until so many more were acknowledged."""
        wanted, deadline = len(self.acknowledged) + records, time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, "the producer stands still"
            time.sleep(0.01)


def aborted(cluster: SandboxCluster, topic: str) -> None:
    """A transaction that leaves nothing but what no consumer sees."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"aborts-{topic}", "log_level": 0}
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic, value="nobody reads this", partition=0)
    producer.flush(PATIENCE_S)
    producer.abort_transaction(PATIENCE_S)


def cutover(process: Mirror, config: Path, folder: Path, flow: str, *options: str) -> str:
    """What ``mirror cutover`` about this process says; it has to succeed."""
    command = [
        str(MIRROR), "cutover", "-c", str(config), "--at", address(process), "--out", str(folder), "--window", "500ms",
        *options, flow,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


@contextmanager
def damaged(bootstrap: str, internal_topic: str) -> Iterator[None]:
    """Meanwhile, there is such an internal topic, of which no mirror can make anything."""
    create_topic(bootstrap, internal_topic, cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(
        internal_topic, key=b'{"kind":"checkpoint","topic":"t","partition":0,"into":"t"}', value=b"no JSON"
    )
    assert producer.flush(PATIENCE_S) == 0
    try:
        yield
    finally:
        delete_topic(bootstrap, internal_topic)


def test_there_and_back(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. A producer writes and a group reads at the source, and the mirror copies. The last thing there is a transaction
       that was aborted.
    2. The producer stops, the group has read all and stops: cutover. The same again changes nothing.
    3. The flow is paused; both go on at the destination.
    4. The way back is prepared, beside somebody's internal topic that cannot be read, and a mirror copies in the other
       direction, behind what was there.
    5. Cutover of that flow: both go on at the source. What was acknowledged was read, once.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    config, back, there, again = (tmp_path / name for name in ("mirror.yaml", "back.yaml", "there", "again"))
    app = Application(topic_name, f"g-{topic_name}")
    create_topic(source, topic_name, PARTITIONS)
    flow = {"groups": [app.group], "settle.ms": 1_000, "refresh.topics.interval.ms": 500}
    text = config_text(source, destination, [topic_name], flow=flow)

    def groups(cluster: SandboxCluster) -> list[int]:
        return committed(cluster, app.group, topic_name, PARTITIONS)

    def ends(folder: Path, side: str) -> list[int]:
        certificate = json.loads((folder / "certificate.json").read_text())
        return [row[f"{side}_end"] for row in certificate["partitions"]]

    with ExitStack() as mirrors:
        process = mirrors.enter_context(mirror(config, text))
        with app.reading(source_cluster):
            with app.writing(source_cluster):
                app.wait_for(200)
            aborted(source_cluster, topic_name)
        cutover(process, config, there, FORTH, "--skip-audit")
        assert cli(process, config, "pause", "--all").returncode == 0
        assert groups(destination_cluster) == groups(source_cluster)
        with app.reading(destination_cluster), app.writing(destination_cluster):
            app.wait_for(100)
            assert "written before" in cutover(process, config, there, FORTH, "--skip-audit")
            assert ends(there, "source") == ends(there, "destination")
            assert ends(there, "source") == [end_of(source, topic_name, at) for at in range(PARTITIONS)]
            mirrors.enter_context(damaged(destination, f"{PREFIX}{topic_name}"))
            told = cutover(process, config, there, FORTH, "--reverse", "--skip-audit", "--config-out", str(back))
            assert f"{topic_name}-1: the same up to offset {ends(there, 'source')[1]}" in told
            assert process.stop() == 0
            backwards = mirrors.enter_context(mirror(back, back.read_text()))
            for at in range(PARTITIONS):
                begun = backwards.wait_event("located", topic=topic_name, partition=at)
                assert begun["offset"] == ends(there, "source")[at]
            app.wait_for(100)
        cutover(backwards, back, again, BACK, "--skip-audit")
        assert cli(backwards, back, "pause", "--all").returncode == 0
        assert not [*process.of("halted"), *backwards.of("halted")]
        with app.reading(source_cluster), app.writing(source_cluster):
            app.wait_for(100)
    app.check()
    print(f"\nthe producer stood still for {', '.join(f'{seconds:.1f} s' for seconds in app.stood_still_s)}")
