"""What a real cluster tells of itself."""

import pytest
from kafka.protocol.admin import AlterClientQuotasRequest

from mirror.sandbox import SandboxCluster
from mirror.service.plan.ask.clusters import cluster_facts, ids_forbidden, owners, topic_rights
from mirror.service.plan.ask.readonly import ReadOnlyCluster
from mirror.service.plan.model import Quota
from tests.fakes.loop import pytest_pyfunc_call  # noqa: F401 - a hook
from tests.net.stage.real import opened
from tests.service.runs.holes.test_holes import transactional
from tests.service.stage.kafka_side import create_topic, produce

pytestmark = pytest.mark.broker


async def asking(cluster: SandboxCluster) -> ReadOnlyCluster:
    async with opened(cluster) as found:
        return await ReadOnlyCluster.open(cluster.name, found.options)


async def test_a_cluster(source_cluster: SandboxCluster, topic_name: str) -> None:
    """Versions, rights, disks, and the size of each partition."""
    create_topic(source_cluster.bootstrap_servers, topic_name, 2)
    produce(source_cluster.bootstrap_servers, topic_name, 100, partitions=2)
    async with await asking(source_cluster) as cluster:
        await cluster.refresh([topic_name])
        found = await cluster_facts(cluster, [topic_name], "")
        assert found.cluster_id == source_cluster.cluster_id
        assert (found.brokers, found.down) == (1, {})
        assert found.apis[0] >= 11
        assert found.rights is not None
        assert {"Alter", "DescribeConfigs"} <= found.rights
        assert found.sizes is not None
        assert found.sizes.keys() == {(topic_name, 0), (topic_name, 1)}
        assert all(size > 1_000 for size in found.sizes.values())
        assert found.disks is not None
        assert 0 < found.disks[1].usable <= found.disks[1].total
        assert 0 < found.round_trip_s < 30
        assert found.defaults["min.insync.replicas"] == "1"
        rights, entries = await topic_rights(cluster, [topic_name, f"{topic_name}-nowhere"])
        assert rights.keys() == entries.keys() == {topic_name}
        known = rights[topic_name]
        assert known is not None
        assert {"Read", "Write", "Delete", "AlterConfigs"} <= known


async def test_quotas(source_cluster: SandboxCluster) -> None:
    """Those of this client and of everybody; not those of others."""
    kind = AlterClientQuotasRequest.EntryData
    async with opened(source_cluster) as cluster:
        client_id = cluster.options.connection.client_id

        async def limit(entity: dict[str, str | None], value: float, *, remove: bool = False) -> None:
            parts = [kind.EntityData(entity_type=name, entity_name=of) for name, of in entity.items()]
            ops = [kind.OpData(key="producer_byte_rate", value=value, remove=remove)]
            request = AlterClientQuotasRequest(entries=[kind(entity=parts, ops=ops)], validate_only=False)
            (row,) = (await cluster.call(request)).entries
            assert row.error_code == 0, row

        limits: list[tuple[dict[str, str | None], float]] = [
            ({"client-id": client_id}, 1e9),
            ({"client-id": "somebody"}, 2e9),
            ({"user": None}, 3e9),
            ({"user": "me", "client-id": client_id}, 4e9),
            ({"user": "somebody", "client-id": client_id}, 5e9),
        ]
        for entity, value in limits:
            await limit(entity, value)
        try:
            async with await ReadOnlyCluster.open("source", cluster.options) as own:
                expected = {
                    Quota(f"client-id {client_id}", "producer_byte_rate", 1e9),
                    Quota("user (default)", "producer_byte_rate", 3e9),
                    Quota(f"client-id {client_id}, user me", "producer_byte_rate", 4e9),
                }
                while set((await cluster_facts(own, [], "me")).quotas or ()) != expected:  # brokers hear of it soon
                    pass
        finally:
            for entity, value in limits:
                await limit(entity, value, remove=True)


async def test_transactional_ids(source_cluster: SandboxCluster, topic_name: str) -> None:
    """The owner of one that was used; none of one that was not."""
    producer = transactional(source_cluster.bootstrap_servers, f"id-{topic_name}")
    async with await asking(source_cluster) as cluster:
        found = await owners(cluster, [f"id-{topic_name}", f"other-{topic_name}"])
        assert found.keys() == {f"id-{topic_name}"}
        assert found[f"id-{topic_name}"] >= 0
        assert await ids_forbidden(cluster, f"id-{topic_name}") is False
        assert await owners(cluster, []) == {}
    del producer
