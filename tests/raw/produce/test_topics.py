"""What is known of a topic before a batch is sent to it."""

import pytest

from mirror.net.cluster import Cluster
from mirror.raw.errors import NotAuthorized, NotSendable, Unavailable, UnknownTopic
from mirror.raw.leaders import Leaders
from mirror.raw.produce.topics import TopicPolicy, describe
from mirror.records.header import BatchHeader, Codec
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.records.builders import kafka_batch

PATIENCE_S = 60.0


def policy(max_bytes: int | None = None, **configs: str) -> TopicPolicy:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return TopicPolicy(partitions=1, max_bytes=max_bytes, configs=named, at=0.0)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_topics_own_codec(codec: Codec) -> None:
    """Batches of this codec are kept as they are, others recompressed."""
    header = BatchHeader.read(kafka_batch(codec=codec))
    own = "uncompressed" if codec is Codec.NONE else codec.name.lower()
    policy(compression_type=own).check(header)
    policy(compression_type="producer").check(header)
    other = "lz4" if codec is not Codec.LZ4 else "gzip"
    with pytest.raises(NotSendable, match=f"destination_rewrites: the topic has compression.type={other}"):
        policy(compression_type=other).check(header)


def test_what_is_not_known_is_not_refused() -> None:
    header = BatchHeader.read(kafka_batch())
    policy().check(header)
    policy(header.size).check(header)
    with pytest.raises(NotSendable, match="too_large"):
        policy(header.size - 1).check(header)


async def test_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirror.raw.leaders.UNKNOWN_FOR_S", 0.3)
    configs = {"max.message.bytes": "777", "compression.type": "zstd", "message.timestamp.type": "CreateTime"}
    async with FakeCluster() as fake:
        fake.add_topic("t", partitions=3, configs=configs)
        async with await Cluster.open("here", fake.options()) as cluster:
            leaders = Leaders(cluster)
            fake.next("Metadata", faults.disconnect())
            found = await describe(cluster, leaders, "t", timeout_s=PATIENCE_S)
            assert (found.partitions, found.max_bytes, found.configs["compression.type"]) == (3, 777, "zstd")
            with pytest.raises(UnknownTopic, match="here has no topic u; create it"):
                await describe(cluster, leaders, "u", timeout_s=PATIENCE_S)
            with pytest.raises(Unavailable, match="here has no topic v; create it"):
                await describe(cluster, leaders, "v", timeout_s=0)
            fake.topics["t"].error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            with pytest.raises(NotAuthorized, match="Describe on topic t of cluster here"):
                await describe(cluster, leaders, "t", timeout_s=PATIENCE_S)
