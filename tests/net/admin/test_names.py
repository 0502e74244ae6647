"""All topics' names: of a real broker in each form of the answer, and of one that answers with something else."""

from typing import Any

import pytest

from mirror.net.admin import names
from mirror.net.admin.names import topic_codes
from mirror.net.cluster import Cluster
from mirror.net.errors import ConnectionLost
from mirror.net.options import ClusterOptions
from mirror.sandbox import SandboxCluster
from mirror.wire.metadata import METADATA_VERSIONS, read_topic_codes
from tests.fakes.broker import FakeCluster
from tests.service.stage.kafka_side import create_topic


@pytest.mark.broker
@pytest.mark.parametrize("most", [METADATA_VERSIONS[1], 12, 9, 8, 4])
async def test_a_real_broker(
    source_cluster: SandboxCluster, topic_name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same topics as kafka-python reads."""
    create_topic(source_cluster.bootstrap_servers, topic_name, partitions=3)
    monkeypatch.setattr("mirror.net.admin.names.METADATA_VERSIONS", (METADATA_VERSIONS[0], most))
    host, port = source_cluster.bootstrap_servers.split(",")[0].split(":")
    async with await Cluster.open("source", ClusterOptions(bootstrap=((host, int(port)),))) as cluster:
        await cluster.refresh(None)
        codes = await topic_codes(cluster)
        assert codes[topic_name] == 0
        assert codes.keys() >= cluster.topics.keys()


async def test_an_answer_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection ends, and the error says so; the next call has a new connection."""
    async with FakeCluster() as fake, await Cluster.open("source", fake.options()) as cluster:
        fake.add_topic("t", partitions=1)
        assert await topic_codes(cluster) == {"t": 0}

        def malformed(version: int, frame: memoryview) -> Any:
            return read(version, frame[:-1])

        read = read_topic_codes
        with monkeypatch.context() as patch:
            patch.setattr(names, "read_topic_codes", malformed)
            with pytest.raises(ConnectionLost, match="malformed MetadataResponse"):
                await topic_codes(cluster)
        assert await topic_codes(cluster) == {"t": 0}
