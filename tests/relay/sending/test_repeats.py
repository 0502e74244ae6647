"""What real brokers say of a repeat, and what becomes of one with other records (scripted: ``test_sink_answers``)."""

from typing import Any

import pytest

from mirror.relay.sink import Lane
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import fill
from tests.net.stage.real import create
from tests.records.builders import Record, kafka_batch
from tests.relay.stage.flows import copies
from tests.relay.stage.mapping import mapping
from tests.vectors.client import Client

pytestmark = pytest.mark.broker


def send(destination: SandboxCluster, topic: str, batch: bytes) -> None:
    """As a worker of the flow would: one batch, which the broker appends behind what is there."""
    with Client(int(destination.bootstrap_servers.rpartition(":")[2])) as client:
        client.learn({topic: 1})
        client.produce(min(client.produce_versions()), {topic: {0: batch}})


@pytest.mark.parametrize("rule", [True, False])
async def test_another_worker_has_sent_other_records_there(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    rule: bool,
) -> None:
    """
    1. All is copied. A worker that has lost the partition sends three records of an end that the source has lost.
    2. The source goes on with three others. The broker takes the owner's batch for a repeat, with an append time.
    3. The partition halts. (Without the rule the owner believes it, and goes on behind it.)
    """
    if not rule:
        monkeypatch.setattr(Lane, "_is_unread_repeat", lambda *_: False)
    for sandbox in (source_cluster, destination_cluster):
        create(sandbox, topic_name)
    async with mapping(source_cluster, destination_cluster, topic_name, mapped=False) as flow:
        fill(source_cluster, topic_name, batches=2)
        await flow.copied(topic_name)
        queue: Any = flow.relay.partitions[topic_name, 0].queue
        end = queue.acknowledged
        assert end == 7
        lost = kafka_batch([Record(at, 0, None, b"lost") for at in range(3)])
        (sent,) = copies([lost], topic=topic_name, cluster_id=flow.source.cluster_id, sequence=end)
        send(destination_cluster, topic_name, sent)
        fill(source_cluster, topic_name, batches=1)
        if not rule:
            await flow.copied(topic_name)
            assert queue.acknowledged == end + 3
            return
        assert await flow.halted(topic_name) == "not_a_copy"
        assert flow.relay.stats.resyncs == {"repeated": 1}
