"""Topic configs kept in step: what is changed, what is left alone, what a refusal says; and on real clusters."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)

from mirror.net.admin.configs import Resource
from mirror.net.errors import Refused, Unreachable
from mirror.relay.topics import syncing
from mirror.relay.topics.syncing import FOR_EVER, MOST_TIMES, ConfigSync, TopicConfigs, changes_of
from mirror.sandbox import SandboxCluster
from mirror.wire.errors import ErrorCode
from tests.fakes.loop import until
from tests.net.stage.real import create, records
from tests.relay.stage.flows import Log, settings
from tests.relay.stage.mapping import mapping
from tests.service.stage.kafka_side import delete_topic

OWN, DEFAULT = 1, 5
SYNCED = ("cleanup.policy", "max.message.bytes", "retention.ms", "segment.ms")
FIXED = {"compression.type": "producer"}


def entries(own: dict[str, str] | None = None, **defaults: str) -> dict[str, Any]:
    """Configs as DescribeConfigs has them: those set on the topic, and others by the broker's defaults."""
    made = {name.replace("_", "."): (value, DEFAULT) for name, value in defaults.items()}
    made |= {name: (value, OWN) for name, value in (own or {}).items()}
    usual = {"cleanup.policy": "delete", "max.message.bytes": "1000", "retention.ms": "7", "segment.ms": "9"}
    made = {name: (value, DEFAULT) for name, value in usual.items()} | made
    return {
        name: SimpleNamespace(name=name, value=value, config_source=source) for name, (value, source) in made.items()
    }


@pytest.mark.parametrize(
    ("here", "there", "changes"),
    [
        pytest.param(entries(), entries(), {}, id="nothing is set"),
        pytest.param(entries({"retention.ms": "5"}), entries(), {"retention.ms": "5"}, id="set here"),
        pytest.param(entries({"retention.ms": "7"}), entries(), {}, id="set here, and the default there"),
        pytest.param(
            entries({"retention.ms": "5"}), entries({"retention.ms": "6"}), {"retention.ms": "5"}, id="another value"
        ),
        pytest.param(entries(), entries({"segment.ms": "5"}), {"segment.ms": None}, id="set there only"),
        pytest.param(entries({"flush.ms": "5"}), entries({"index.x": "5"}), {}, id="not on the list"),
        pytest.param(
            entries({"max.message.bytes": "2000"}), entries(), {"max.message.bytes": "2000"}, id="a larger limit"
        ),
        pytest.param(entries(max_message_bytes="2000"), entries(), {"max.message.bytes": "2000"}, id="by a default"),
        pytest.param(entries({"max.message.bytes": "500"}), entries(), {}, id="a smaller limit"),
        pytest.param(entries(), entries({"max.message.bytes": "5000"}), {}, id="a larger limit there"),
        pytest.param(entries({"segment.ms": "5"}), entries({"retention.ms": FOR_EVER}), {}, id="suspended there"),
        pytest.param(entries({"segment.ms": "5", "retention.ms": FOR_EVER}), entries(), {}, id="suspended here"),
        pytest.param({}, entries({"segment.ms": "5"}), {}, id="may not be described here"),
        pytest.param(entries({"segment.ms": "5"}), {}, {}, id="may not be described there"),
    ],
)
def test_what_is_changed(here: dict[str, Any], there: dict[str, Any], changes: dict[str, str | None]) -> None:
    assert changes_of(TopicConfigs(here, there), SYNCED, FIXED) == changes


def test_what_batches_need_is_never_changed() -> None:
    """Nor is a config that the destination does not know."""
    here = entries({"compression.type": "zstd", "new.config": "1"})
    synced = (*SYNCED, "compression.type", "new.config")
    assert changes_of(TopicConfigs(here, entries(compression_type="producer")), synced, FIXED) == {}


async def test_a_name_that_no_topic_has_is_told_once() -> None:
    """Unless nothing is known of any topic's configs."""
    log = Log()
    made: Any = SimpleNamespace(name="destination")
    sync = ConfigSync(made, settings(synced_configs=("retnetion.ms", "segment.ms")), log)
    await sync.renew({"t": TopicConfigs({}, {})})
    assert log.of("topic_config_unknown") == []
    for _ in range(2):
        await sync.renew({"t": TopicConfigs(entries(), entries())})
    (told,) = log.of("topic_config_unknown")
    assert "names retnetion.ms" in told["detail"]
    assert "did you mean retention.ms?" in told["detail"]


async def test_a_refusal_is_told_once() -> None:
    """
    1. The broker refuses, or does not answer: one line with the change, the cause and what to do; not the same again.
    2. It takes the change: a line says so, and the next refusal is told again.
    """
    log = Log()
    made: Any = SimpleNamespace(name="destination")
    sync = ConfigSync(made, settings(synced_configs=SYNCED, sync_configs=True), log)
    topics = {"t": TopicConfigs(entries({"retention.ms": "5"}), entries({"segment.ms": "3"}))}
    no = Refused("destination: IncrementalAlterConfigs of t", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    results: list[Any] = [no, no, Unreachable("no broker"), None, no]

    async def alter(_: Any, kind: Resource, name: str, values: Any) -> Any:
        assert (kind, name, values) == (Resource.TOPIC, "t", {"retention.ms": "5", "segment.ms": None})
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    with patch.object(syncing, "alter_configs", alter):
        changed = [await sync.renew(topics) for _ in range(5)]
    assert changed == [set(), set(), set(), {"t"}, set()]
    told = [line["detail"] for line in log.of("topic_configs_refused")]
    refused = f"cluster destination does not take retention.ms=5, segment.ms=(default): {no}"
    assert told == [refused, refused.partition(": ")[0] + ": no broker", refused]
    (done,) = log.of("topic_configs_changed")
    assert done["detail"] == "cluster destination: retention.ms=5, segment.ms=(default), as at the source"


async def test_a_config_that_somebody_else_sets_again_is_left_alone() -> None:
    """
    1. Each time that it was set, it has the other value at the next look. After some times it is left alone, and one
       line says so; another config is still kept in step.
    2. The source gets another value: that is set.
    """
    log = Log()
    made: Any = SimpleNamespace(name="destination")
    sync = ConfigSync(made, settings(synced_configs=SYNCED, sync_configs=True), log)
    asked: list[Any] = []

    async def alter(_: Any, kind: Resource, name: str, values: Any) -> None:
        asked.append(values)

    with patch.object(syncing, "alter_configs", alter):
        for _ in range(MOST_TIMES + 3):
            await sync.renew({"t": TopicConfigs(entries({"retention.ms": "5"}), entries({"retention.ms": "6"}))})
        assert asked == [{"retention.ms": "5"}] * MOST_TIMES
        (told,) = log.of("topic_configs_contended")
        assert told["topic"] == "t"
        assert "retention.ms=5 was set 5 times" in told["detail"]
        assert "somebody has set 6 again" in told["detail"]
        here = entries({"retention.ms": "5", "segment.ms": "3"})
        await sync.renew({"t": TopicConfigs(here, entries({"retention.ms": "6"}))})
        assert asked[-1] == {"segment.ms": "3"}
        await sync.renew({"t": TopicConfigs(entries({"retention.ms": "8"}), entries({"retention.ms": "6"}))})
        assert asked[-1] == {"retention.ms": "8"}


# Real clusters.


def set_config(sandbox: SandboxCluster, topic: str, name: str, value: str | None) -> None:
    """Sets a topic's config, or removes it."""
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value or "", incremental_operation=operation)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def own_configs(sandbox: SandboxCluster, topic: str) -> dict[str, str]:
    """Those that are set on the topic."""
    admin = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers})
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: entry.value for name, entry in future.result().items() if entry.source == own}


@pytest.mark.broker
@pytest.mark.parametrize("remade", [False, True])
async def test_what_is_no_copy_is_left_alone(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, remade: bool
) -> None:
    """
    1. Somebody else's topic has the name at the destination; or the source's is made anew, so that the destination has
       the only copy of what it held. By the source's retention, that would be deleted.
    2. Nothing of it is changed: it halts, and the configs stay. Those of another topic are kept in step meanwhile.
    """
    beside = f"{topic_name}-beside"
    create(source_cluster, beside, retention_ms="7200000")
    create(destination_cluster, beside)
    create(destination_cluster, topic_name, retention_ms="-1")
    create(source_cluster, topic_name, retention_ms="-1" if remade else "3600000")
    records(source_cluster, topic_name, ["of the source"])
    if not remade:
        records(destination_cluster, topic_name, ["of others"])
    async with mapping(
        source_cluster, destination_cluster, topic_name, beside, mapped=False, sync_configs=True,
        synced_configs=SYNCED, refresh_topics_interval_ms=200,
    ) as flow:  # fmt: skip
        if remade:
            await flow.copied(topic_name)
            delete_topic(source_cluster.bootstrap_servers, topic_name)
            create(source_cluster, topic_name, retention_ms="3600000")
            records(source_cluster, topic_name, ["of another topic"] * 3)
        assert await flow.halted(topic_name) == ("recreated" if remade else "foreign_writer")
        await until(lambda: own_configs(destination_cluster, beside) == {"retention.ms": "7200000"})
        set_config(source_cluster, beside, "segment.ms", "3600000")
        await until(lambda: "segment.ms" in own_configs(destination_cluster, beside))
        assert own_configs(destination_cluster, topic_name) == {"retention.ms": "-1"}


@pytest.mark.broker
async def test_a_topic_stays_in_step(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """
    1. Both topics exist with other configs: the destination's gets the source's, and keeps what is not on the list.
    2. The source's are changed and removed: so are the destination's, but its limit for batches stays.
    """
    create(source_cluster, topic_name, retention_ms="86400000", max_message_bytes="2000000", flush_ms="9")
    create(destination_cluster, topic_name, segment_ms="3600000", min_insync_replicas="1")
    async with mapping(
        source_cluster, destination_cluster, topic_name, mapped=False, sync_configs=True, synced_configs=SYNCED,
        refresh_topics_interval_ms=200,
    ) as flow:  # fmt: skip
        expected = {"retention.ms": "86400000", "max.message.bytes": "2000000", "min.insync.replicas": "1"}
        await until(lambda: own_configs(destination_cluster, topic_name) == expected)
        set_config(source_cluster, topic_name, "retention.ms", "172800000")
        set_config(source_cluster, topic_name, "max.message.bytes", "1000000")
        await until(lambda: own_configs(destination_cluster, topic_name) == expected | {"retention.ms": "172800000"})
        set_config(source_cluster, topic_name, "retention.ms", None)
        del expected["retention.ms"]
        await until(lambda: own_configs(destination_cluster, topic_name) == expected)
        await until(lambda: len(flow.log.of("topic_configs_changed")) == 3)
        assert not flow.log.of("topic_configs_refused")


@pytest.mark.broker
async def test_two_flows_into_one_topic_do_not_fight_for_ever(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """Each keeps it in step with its own source: after some rounds at least one of them stops, and what the other has
    set stays."""
    one, other = f"{topic_name}-1", f"{topic_name}-2"
    create(source_cluster, one, retention_ms="3600000")
    create(source_cluster, other, retention_ms="7200000")
    create(destination_cluster, topic_name)
    how: dict[str, Any] = {"sync_configs": True, "synced_configs": SYNCED, "refresh_topics_interval_ms": 100}
    async with (
        mapping(source_cluster, destination_cluster, one, into={one: topic_name}, flow="one->there", **how) as first,
        mapping(
            source_cluster, destination_cluster, other, into={other: topic_name}, flow="two->there", **how
        ) as next_,
    ):
        logs = first.log, next_.log
        await until(lambda: any(log.of("topic_configs_contended") for log in logs), what="a warning")
        changed = sum(len(log.of("topic_configs_changed")) for log in logs)
        assert changed <= 2 * MOST_TIMES
        await until(lambda: own_configs(destination_cluster, topic_name)["retention.ms"] in ("3600000", "7200000"))
