"""Captures the vectors anew: ``python -m tests.vectors.capture [--into FOLDER] [VERSION ...]``. See README.md.

Starts one real cluster after the other, has real clients write into it, and keeps the brokers' own answers.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.identity import Identity, producer_id
from mirror.records.restamp import restamp
from mirror.sandbox import Broker, SandboxCluster, logs
from mirror.wire.fetch import READ_COMMITTED, FetchPartition, read_fetch_response
from tests.patience import PATIENT
from tests.records.builders import RECORDS, kafka_batch
from tests.vectors import load
from tests.vectors.client import Client, batches_of
from tests.vectors.describe import describe

HERE = Path(__file__).parent
VERSIONS = ("4.3.0", "3.9.2", "2.8.2")
OLD_FORMATS = "2.8.2"
"""The last of ours that still stores magic 0 and 1 when a topic asks for it."""
FULL_FETCH = (4, 11, 12, 13, 17)
"""These bring every topic; the other versions a few batches, which shows their layout."""
FULL_PRODUCE = (3, 5, 8, 9, 13)
"""Of the newest Kafka every version is kept, of the others these and their last."""
SETTLED_WITHIN_S = 90
MIB = 1 << 20

TOPICS: dict[str, tuple[int, load.Config]] = {
    "librdkafka": (len(load.CODECS), {}),
    "idempotent": (1, {}),
    "transactions": (1, {}),
    **{f"java-{codec}": (1, {}) for codec in load.CODECS},
    "append-time": (1, {"message.timestamp.type": "LogAppendTime"}),
    "compacted": (
        1,
        {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"},
    ),
    "large": (1, {}),
    "copy": (2, {}),
    "other-copy": (1, {"message.timestamp.type": "LogAppendTime"}),
}
OLD_TOPICS: dict[str, tuple[int, load.Config]] = {
    "magic-0": (1, {"message.format.version": "0.9.0"}),
    "magic-1": (2, {"message.format.version": "0.10.2"}),
}
PROPERTIES = {
    **PATIENT,
    "log.cleaner.backoff.ms": "200",
    "auto.create.topics.enable": "false",
}


class UnsettledError(Exception):
    """The broker has not done by itself what the vectors need."""


class Keeper:
    """Writes the vectors of one Kafka version and their index."""

    def __init__(self, folder: Path, kafka: str) -> None:
        self._folder = folder
        self._kafka = kafka
        self.index: list[dict[str, Any]] = []

    def keep(self, api: str, version: int, what: str, data: bytes | memoryview) -> None:
        """One answer: ``api`` is fetch, produce or records (a record set alone)."""
        name = f"{self._kafka}-{api}-v{version:02}-{what.replace(' ', '-')}.bin"
        (self._folder / name).write_bytes(data)
        entry = {"file": name, "kafka": self._kafka, "api": api, "version": version, "holds": what}
        self.index.append({**entry, **describe(api, version, bytes(data))})


def fill(cluster: SandboxCluster, version: str, folder: Path) -> None:
    """Create the topics and have the clients write."""
    servers = cluster.bootstrap_servers
    topics = {**TOPICS, **(OLD_TOPICS if version == OLD_FORMATS else {})}
    load.create_topics(servers, topics)
    for partition, codec in enumerate(load.CODECS):
        load.produce(servers, "librdkafka", 2, partition=partition, compression_type=codec)
    load.produce(servers, "idempotent", 3, enable_idempotence=True, compression_type="lz4")
    load.produce(servers, "append-time", 1)
    load.produce(servers, "large", 1, records=500)
    load.produce_transactions(servers, "transactions")
    load.produce_compactable(servers, "compacted")
    load.produce_with_java(servers, [(f"java-{codec}", codec) for codec in load.CODECS], folder)
    if version == OLD_FORMATS:
        load.produce(servers, "magic-0", 1, headers=False)
        load.produce(servers, "magic-1", 1, headers=False)
        load.produce(servers, "magic-1", 1, partition=1, headers=False, compression_type="gzip")


def partitions_of(topics: dict[str, tuple[int, load.Config]], *left_out: str) -> list[FetchPartition]:
    """Every partition of these topics, from its beginning."""
    return [
        FetchPartition(name, partition, 0, MIB)
        for name, (count, _) in topics.items()
        if name not in left_out
        for partition in range(count)
    ]


def first_batch(client: Client, topic: str) -> tuple[BatchHeader, bytes]:
    """The first batch of a topic's partition 0."""
    version = client.fetch_versions()[-1]
    frame = client.fetch(version, [FetchPartition(topic, 0, 0, MIB)])
    (fetched,) = read_fetch_response(version, frame).partitions
    return batches_of(frame[fetched.start : fetched.end])[0]


def await_settled(client: Client) -> None:
    """Wait until the cleaner has been there (the first batch lacks records) and every transaction has its marker.

    Raises:
        UnsettledError: one of the two did not come.
    """
    version = client.fetch_versions()[-1]
    deadline_at = time.monotonic() + SETTLED_WITHIN_S
    while True:
        frame = client.fetch(version, [FetchPartition("transactions", 0, 0, MIB)])
        (fetched,) = read_fetch_response(version, frame).partitions
        oldest, _ = first_batch(client, "compacted")
        if fetched.last_stable_offset == fetched.high_watermark and not oldest.is_dense:
            return
        if time.monotonic() > deadline_at:
            raise UnsettledError(
                f"after {SETTLED_WITHIN_S} s a transaction is open (last stable offset {fetched.last_stable_offset}, "
                f"high watermark {fetched.high_watermark}) or nothing was compacted (the first batch is {oldest})"
            )
        time.sleep(0.2)


def chosen(spoken: range, kafka: str, full: tuple[int, ...]) -> list[int]:
    """The API versions to keep of this Kafka version, in order."""
    return [one for one in spoken if kafka == VERSIONS[0] or one in full or one == spoken[-1]]


def capture_fetch(client: Client, keeper: Keeper, version: str) -> None:
    """Answers to Fetch requests."""
    everything = partitions_of(TOPICS, "large", "copy", "other-copy")
    sample = partitions_of({"idempotent": TOPICS["idempotent"]})
    versions = chosen(client.fetch_versions(), version, FULL_FETCH)
    for api_version in versions:
        wanted = everything if api_version in FULL_FETCH else sample
        keeper.keep("fetch", api_version, "batches", client.fetch(api_version, wanted))
    for api_version in sorted({versions[0], 11, 12, versions[-1]}):
        transactions = partitions_of({"transactions": TOPICS["transactions"]})
        committed = client.fetch(api_version, transactions, isolation_level=READ_COMMITTED)
        keeper.keep("fetch", api_version, "read committed", committed)
        first = len(first_batch(client, "idempotent")[1])
        partial = [FetchPartition("idempotent", 0, 0, first + 100), FetchPartition("idempotent", 0, 3, 10)]
        keeper.keep("fetch", api_version, "partial tail", client.fetch(api_version, partial[:1]))
        keeper.keep("fetch", api_version, "mid batch", client.fetch(api_version, partial[1:]))
        errors = [FetchPartition("idempotent", 0, 1_000, MIB), FetchPartition("missing", 3, 0, MIB)]
        keeper.keep("fetch", api_version, "errors", client.fetch(api_version, errors))
        end = [FetchPartition("idempotent", 0, 15, MIB)]
        keeper.keep("fetch", api_version, "nothing new", client.fetch(api_version, end))
    if version == VERSIONS[0]:
        keeper.keep("fetch", versions[-1], "large batch", client.fetch(versions[-1], partitions_of({"large": (1, {})})))
    if version == OLD_FORMATS:
        keeper.keep("fetch", 4, "old formats", client.fetch(4, partitions_of(OLD_TOPICS)))
    if version != VERSIONS[0]:
        capture_filler(client, keeper)


def capture_filler(client: Client, keeper: Keeper) -> None:
    """KIP-283: brokers before 4.0 convert batches for an old Fetch, and fill up what markers leave empty."""
    for api_version in (1, 2, 3):
        for max_bytes in (MIB, 1_300):
            data = client.fetch_old(api_version, "transactions", max_bytes)
            keeper.keep("records", api_version, f"filler of {max_bytes}", data)


def capture_produce(client: Client, keeper: Keeper, version: str) -> None:
    """Answers to Produce requests: batches as we forward them, and batches that brokers refuse."""
    versions = chosen(client.produce_versions(), version, FULL_PRODUCE)
    header, batch = first_batch(client, "idempotent")
    sequence = 0
    mine = producer_id(flow="capture", cluster_id="capture", topic="copy", partition=0)

    def restamped(at: int, crc: int = 0) -> bytes:
        stamped = restamp(header, Identity(mine, 0, at), header.attributes)
        return stamped._replace(crc=stamped.crc ^ crc).pack() + batch[HEADER_SIZE:]

    for api_version in versions:
        good = restamped(sequence)
        answer = client.produce(api_version, {"copy": {1: good, 0: good}})
        keeper.keep("produce", api_version, "acknowledged", answer)
        keeper.keep("produce", api_version, "repeated", client.produce(api_version, {"copy": {1: good}}))
        keeper.keep("produce", api_version, "append time", client.produce(api_version, {"other-copy": {0: good}}))
        sequence += header.last_offset_delta + 1
    for api_version in (one for one in versions if one in FULL_PRODUCE or one == versions[-1]):
        refused = {
            "copy": {0: restamped(sequence, crc=1), 1: restamped(sequence + 99), 2: restamped(0)},
            "compacted": {0: kafka_batch() + kafka_batch()},
            "missing": {0: restamped(0)},
        }
        keeper.keep("produce", api_version, "errors", client.produce(api_version, refused))
        null_key = kafka_batch([record._replace(key=None) for record in RECORDS])
        keeper.keep("produce", api_version, "record errors", client.produce(api_version, {"compacted": {0: null_key}}))


def capture_divergence(broker: Broker, keeper: Keeper) -> None:
    """A broker that is started again leads with a new epoch: one that read past the old one's end has diverged.

    With ZooKeeper a lone broker keeps its epoch, so there is nothing to capture.
    """
    broker.stop()
    broker.start()
    load.produce(broker.address, "idempotent", 2)
    with Client(broker.port) as again:
        again.learn({"idempotent": 1})
        versions = again.fetch_versions()
        first, last = leader_epochs(again)
        for api_version in sorted({12, versions[-1]}) if first < last else ():
            diverged = FetchPartition("idempotent", 0, 20, MIB, last, first)
            keeper.keep("fetch", api_version, "diverged", again.fetch(api_version, [diverged]))


def leader_epochs(client: Client) -> tuple[int, int]:
    """Leader epochs of the first and of the last batch of the topic that was written before and after the restart."""
    version = client.fetch_versions()[-1]
    frame = client.fetch(version, [FetchPartition("idempotent", 0, 0, MIB)])
    (fetched,) = read_fetch_response(version, frame).partitions
    found = batches_of(frame[fetched.start : fetched.end])
    return found[0][0].leader_epoch, found[-1][0].leader_epoch


def capture_other_leaders(version: str, keeper: Keeper) -> None:
    """Two brokers, and each is asked for a partition that the other leads (KIP-951 from Fetch v16 and Produce v10)."""
    with SandboxCluster(
        name="two", version=version, brokers=2, properties=PROPERTIES, quick=True, heap_mb=512
    ) as cluster:
        load.create_topics(cluster.bootstrap_servers, {"led": (2, {})})
        first = cluster.brokers[0]
        with Client(first.port) as client:
            client.learn({"led": 2})
            for api_version in sorted({11, 12, 13, client.fetch_versions()[-1]} & set(client.fetch_versions())):
                answer = client.fetch(api_version, [FetchPartition("led", 1, 0, MIB)])
                keeper.keep("fetch", api_version, "not the leader", answer)
            for api_version in sorted({8, 9, 10, client.produce_versions()[-1]} & set(client.produce_versions())):
                answer = client.produce(api_version, {"led": {1: kafka_batch()}})
                keeper.keep("produce", api_version, "not the leader", answer)


def capture_lone(version: str, keeper: Keeper) -> None:
    """One broker, filled by real clients, and asked for everything that one broker can answer.

    Raises:
        UnsettledError: with what its log says.
    """
    with (
        tempfile.TemporaryDirectory() as scratch,
        SandboxCluster(name="vectors", version=version, properties=PROPERTIES, quick=True, heap_mb=512) as cluster,
    ):
        fill(cluster, version, Path(scratch))
        with Client(cluster.brokers[0].port) as client:
            client.learn({name: count for name, (count, _) in TOPICS.items()})
            try:
                await_settled(client)
            except UnsettledError as error:
                raise UnsettledError(f"{error}; its log:\n{logs.excerpt(cluster.brokers[0].log_path)}") from None
            capture_fetch(client, keeper, version)
            capture_produce(client, keeper, version)
        capture_divergence(cluster.brokers[0], keeper)


def capture(version: str, folder: Path) -> list[dict[str, Any]]:
    """All vectors of one Kafka version, written into the folder; their index.

    Raises:
        UnsettledError: neither the first broker nor a second one settled.
    """
    keeper = Keeper(folder, version)
    try:
        capture_lone(version, keeper)
    except UnsettledError as error:
        # Nothing is kept before a broker has settled, so there is nothing to take back.
        print(f"{version}: {error}\nonce more, with a new broker", file=sys.stderr)
        capture_lone(version, keeper)
    capture_other_leaders(version, keeper)
    return keeper.index


def main() -> int:
    """Capture the given versions (all by default); vectors of other versions stay."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=VERSIONS, metavar="VERSION")
    parser.add_argument("--into", type=Path, default=HERE / "captured", metavar="FOLDER")
    arguments = parser.parse_args()
    folder: Path = arguments.into
    folder.mkdir(parents=True, exist_ok=True)
    listed = folder / "index.json"
    index = json.loads(listed.read_text()) if listed.exists() else []
    for version in arguments.versions:
        for old in folder.glob(f"{version}-*.bin"):
            old.unlink()
        index = [entry for entry in index if entry["kafka"] != version] + capture(version, folder)
        listed.write_text("[\n" + ",\n".join(json.dumps(entry) for entry in index) + "\n]\n")
        print(f"{version}: {sum(entry['kafka'] == version for entry in index)} vectors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
