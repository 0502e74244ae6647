"""``mirror plan`` on real brokers: what it says of copies that exist, what ``--fix`` does, and what it leaves alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from mirror.sandbox import SandboxCluster
from tests.patience import KEEPING
from tests.service.plan.planning import everything, plan, run
from tests.service.runs.holes.test_holes import transactions
from tests.service.stage.kafka_side import create_topic, delete_topic, end_of, produce, writing
from tests.service.stage.running import Mirror, config_text, mirror, status

pytestmark = pytest.mark.broker


def config(
    path: Path, source: SandboxCluster, destination: SandboxCluster, *topics: str, name: str = "a.yaml",
    group: str = "plan", **flow: object,
) -> Path:  # fmt: skip
    """A configuration with these topics; underscores stand for dots in ``flow``."""
    settings = {key.replace("_", "."): value for key, value in flow.items()}
    text = config_text(
        source.bootstrap_servers,
        destination.bootstrap_servers,
        list(topics),
        flow=settings,
        top={"group.id": f"{group}-{'-'.join(topics)}"},
    )
    (path / name).write_text(text)
    return path / name


def copied(
    process: Mirror, source: SandboxCluster, destination: SandboxCluster, topic: str, partitions: int = 1
) -> None:
    """Until the destination ends where the source does."""
    ends = [end_of(source.bootstrap_servers, topic, index) for index in range(partitions)]
    process.wait_for(
        lambda: (
            {(one["topic"], one["partition"]): one["position"] for one in status(process)["partitions"]}
            == {(topic, index): end for index, end in enumerate(ends)}
        ),
        f"{topic} to {ends}",
    )


def test_from_nothing_to_a_copy(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. Nothing is there: the topic is created; exit code 0.
    2. It is, by the mirror; a plan then has nothing to copy, and still says 0.
    3. Under another isolation.level, it says what the mirror would halt for.
    4. The source's topic is deleted and created again: likewise.
    """
    source, destination = source_cluster, destination_cluster
    create_topic(source.bootstrap_servers, topic_name, 2)
    produce(source.bootstrap_servers, topic_name, 2_000, partitions=2, codec="lz4")
    file = config(tmp_path, source, destination, topic_name)
    first = plan(file)
    assert first.code == 0, first.flow["findings"]
    assert first.state(topic_name) == "created"
    assert first.flow["to_copy"]["offsets"] == 2_000
    assert first.flow["at_least_seconds"] is None or first.flow["at_least_seconds"] > 0
    with mirror(tmp_path / "run.yaml", file.read_text()) as process:
        copied(process, source, destination, topic_name, 2)
        process.stop()
    second = plan(file)
    assert second.code == 0, second.flow["findings"]
    assert (second.state(topic_name), second.flow["to_copy"]["offsets"]) == ("fits", 0)
    assert second.flow["at_least_seconds"] == 0
    changed = plan(config(tmp_path, source, destination, topic_name, isolation_level="read_uncommitted"))
    assert changed.code == 2
    assert changed.rows(topic_name, least="refused")["P20"]["reason"] == "settings_changed"
    delete_topic(source.bootstrap_servers, topic_name)
    create_topic(source.bootstrap_servers, topic_name, 2)
    anew = plan(config(tmp_path, source, destination, topic_name))
    assert anew.rows(topic_name, least="refused")["P21"]["reason"] == "recreated"
    assert anew.rows(topic_name)["P21"]["partitions"] == 2


def test_a_copy_whose_destination_topic_was_deleted(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """It would be created, and the mirror halts, since it was copied before."""
    create_topic(source_cluster.bootstrap_servers, topic_name)
    produce(source_cluster.bootstrap_servers, topic_name, 100)
    file = config(tmp_path, source_cluster, destination_cluster, topic_name)
    with mirror(tmp_path / "run.yaml", file.read_text()) as process:
        copied(process, source_cluster, destination_cluster, topic_name)
        process.stop()
    delete_topic(destination_cluster.bootstrap_servers, topic_name)
    found = plan(file)
    assert found.rows(topic_name, least="refused")["P21"]["reason"] == "recreated"
    with mirror(tmp_path / "run.yaml", file.read_text()) as process:
        process.wait_event("halted", topic=topic_name, reason="recreated")


def test_other_flows(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. A flow has copied the topic. One the other way is told that it would make a loop.
    2. One with another id is told that the copy is another flow's.
    3. The mirrors halt for just that.
    """
    source, destination = source_cluster, destination_cluster
    create_topic(source.bootstrap_servers, topic_name)
    produce(source.bootstrap_servers, topic_name, 100)
    mine = config(tmp_path, source, destination, topic_name)
    with mirror(tmp_path / "run.yaml", mine.read_text()) as process:
        copied(process, source, destination, topic_name)
        process.stop()
    back = config(tmp_path, destination, source, topic_name, name="back.yaml", flow_id=f"back-{topic_name}")
    looping = plan(back)
    assert looping.rows(topic_name, least="refused")["P17"]["reason"] == "loop"
    other = config(tmp_path, source, destination, topic_name, name="other.yaml", flow_id=f"other-{topic_name}")
    found = plan(other)
    assert found.rows(topic_name, least="refused")["P18"]["reason"] == "other_flow"
    for file, reason in ((back, "loop"), (other, "other_flow")):
        with mirror(tmp_path / "run.yaml", file.read_text()) as process:
            process.wait_event("halted", topic=topic_name, reason=reason)


def test_what_others_must_create(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """With topic.create: false, a missing topic and missing partitions are refused, as the mirror does."""
    missing = f"{topic_name}-missing"
    for name in (topic_name, missing):
        create_topic(source_cluster.bootstrap_servers, name, 3)
    create_topic(destination_cluster.bootstrap_servers, topic_name, 1)
    file = config(tmp_path, source_cluster, destination_cluster, topic_name, missing, topic_create=False)
    found = plan(file)
    assert found.code == 2
    assert found.rows(missing, least="refused")["P14"]["reason"] == "topic_missing"
    row = found.rows(topic_name, least="refused")["P15"]
    assert (row["reason"], row["first_partitions"]) == ("fewer_partitions", [1, 2])
    with mirror(tmp_path / "run.yaml", file.read_text()) as process:
        process.wait_event("halted", topic=missing, reason="topic_missing")
        process.wait_event("halted", topic=topic_name, reason="fewer_partitions")


def test_an_entry_that_matches_nothing(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    create_topic(source_cluster.bootstrap_servers, topic_name)
    some = plan(config(tmp_path, source_cluster, destination_cluster, topic_name, f"{topic_name}-nowhere"))
    assert some.code == 0
    assert some.rows(None)["P02"]["level"] == "warns"
    none = plan(config(tmp_path, source_cluster, destination_cluster, f"{topic_name}-nowhere"))
    assert none.code == 2
    assert none.rows(None)["P02"]["level"] == "refused"


def test_a_running_mirror_is_not_disturbed(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. A mirror copies what is written all the time, transactions among it, while plans are made.
    2. They say that all is well; the mirror neither doubts nor rebalances, and copies everything.
    """
    source, destination = source_cluster, destination_cluster
    create_topic(source.bootstrap_servers, topic_name, 2)
    produce(source.bootstrap_servers, topic_name, 100, partitions=2)
    file = config(tmp_path, source, destination, topic_name)
    with mirror(tmp_path / "run.yaml", file.read_text()) as process:
        copied(process, source, destination, topic_name, 2)
        seen = len(process.lines)
        with writing(source.bootstrap_servers, topic_name, 2):
            transactions(source.bootstrap_servers, topic_name, 5)
            for _ in range(2):
                found = plan(file)
                assert found.code == 0, found.flow["findings"]
        copied(process, source, destination, topic_name, 2)
        events = {line["event"] for line in process.lines[seen:]}
        assert events <= {"progress", "caught_up"}, events
        assert process.stop() == 0


def test_fix(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. A topic is missing; another lacks partitions, takes smaller batches, and is empty with settings that rewrite; a
       third has such settings and records.
    2. --dry-run shows what --fix would do, and changes nothing.
    3. --fix does it: what the mirror itself would make, and no more. Whoever has records keeps the settings.
    """
    here, there = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    small, full = f"{topic_name}-small", f"{topic_name}-full"
    create_topic(here, topic_name, 3, segment_bytes="2097152")
    create_topic(here, small, 2, max_message_bytes="2000000")
    create_topic(
        there, small, 1, max_message_bytes="1000", compression_type="lz4", message_timestamp_type="LogAppendTime"
    )
    create_topic(here, full)
    create_topic(there, full, compression_type="lz4")
    produce(there, full, 5)
    file = config(tmp_path, source_cluster, destination_cluster, topic_name, small, full)
    before = _mine(source_cluster, topic_name), _mine(destination_cluster, topic_name)
    shown = plan(file, "--fix", "--dry-run")
    assert (_mine(source_cluster, topic_name), _mine(destination_cluster, topic_name)) == before
    acts = {(act["kind"], act["topic"], act["config"], act["value"]) for act in shown.flow["fix"]["acts"]}
    assert acts == {
        ("create", topic_name, "", ""),
        ("add partitions", small, "", ""),
        ("set", small, "max.message.bytes", "2000000"),
        ("set", small, "compression.type", "producer"),
        ("set", small, "message.timestamp.type", "CreateTime"),
    }
    assert shown.flow["fix"]["done"] is False
    done = plan(file, "--fix")
    assert done.flow["fix"]["done"] is True
    assert not any(act["failed"] for act in done.flow["fix"]["acts"])
    after = _mine(destination_cluster, topic_name)
    assert _mine(source_cluster, topic_name) == before[0]
    assert after["configs"][topic_name]["segment.bytes"] == "2097152"
    assert {index for name, index in after["ends"] if name == topic_name} == {0, 1, 2}
    assert {index for name, index in after["ends"] if name == small} == {0, 1}
    assert after["configs"][small] | {
        "max.message.bytes": "2000000", "compression.type": "producer", "message.timestamp.type": "CreateTime"
    } == after["configs"][small]  # fmt: skip
    assert after["configs"][full] == before[1]["configs"][full]
    assert done.state(topic_name) == done.state(small) == "fits"
    assert done.rows(full, least="refused")["P13"]["reason"] == "destination_rewrites"
    assert set(after["configs"]) == {*before[1]["configs"], topic_name}
    text = run(file, "--fix", "--dry-run").stdout
    assert "--fix would" not in text


def _mine(cluster: SandboxCluster, name: str) -> dict[str, Any]:
    """All topics of this test; others' groups and topics change meanwhile."""
    found = everything(cluster)
    return {
        "configs": {topic: values for topic, values in found["configs"].items() if topic.startswith(name)},
        "ends": {place: end for place, end in found["ends"].items() if place[0].startswith(name)},
    }


@pytest.fixture(scope="module")
def two_brokers() -> Iterator[SandboxCluster]:
    """One of them is killed."""
    with SandboxCluster(
        name="source", brokers=2, quick=True, properties={**KEEPING, "broker.session.timeout.ms": "600000"}
    ) as it:
        yield it


def test_a_broker_that_is_down(
    two_brokers: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. A broker of two hangs, then dies: its partitions are not known, and say why; those of the other one are.
    2. Nothing is refused, and the exit code says that not everything is known.
    """
    create_topic(two_brokers.bootstrap_servers, topic_name, 8)
    produce(two_brokers.brokers[0].address, topic_name, 80, partitions=8)
    file = config(tmp_path, two_brokers, destination_cluster, topic_name)
    assert plan(file).code == 0
    broker = two_brokers.brokers[1]
    broker.pause()
    try:
        _not_known(file, topic_name)
    finally:
        broker.resume()
    broker.kill()
    _not_known(file, topic_name)


def _not_known(file: Path, topic: str) -> None:
    found = plan(file)
    assert found.code == 1, found.flow["findings"]
    row = found.rows(topic)["P35"]
    assert (row["level"], row["partitions"]) == ("unknown", 4)
    assert "not known: " in row["detail"]
    assert found.flow["partitions"]["unknown"] == 4
    assert found.flow["source"]["brokers_down"] == [2]
    assert found.rows(None)["P35"]["level"] == "unknown"


def test_no_cluster(
    destination_cluster: SandboxCluster, source_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """Exit code 1, and the message says which cluster; a wrong configuration is 78, wrong usage 64."""
    text = config_text("127.0.0.1:1", destination_cluster.bootstrap_servers, [topic_name])
    (tmp_path / "a.yaml").write_text(text)
    done = run(tmp_path / "a.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot reach cluster source" in done.stderr
    (tmp_path / "b.yaml").write_text("flows: 1")
    assert run(tmp_path / "b.yaml").returncode == 78
    assert run(tmp_path / "a.yaml", "--dry-run").returncode == 64


def test_the_same_cluster(source_cluster: SandboxCluster, topic_name: str, tmp_path: Path) -> None:
    create_topic(source_cluster.bootstrap_servers, topic_name)
    port = source_cluster.brokers[0].port
    text = config_text(f"127.0.0.1:{port}", f"localhost:{port}", [topic_name])
    (tmp_path / "a.yaml").write_text(text)
    found = plan(tmp_path / "a.yaml")
    assert found.code == 2
    assert found.rows(None)["P01"]["level"] == "refused"
    assert not [row for row in found.flow["findings"] if row["topic"]], "of its topics, as if they were copies"


def test_mapped(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. Others have written to the destination topic: with offsets: mapped, all is well, before and afterwards.
    2. The internal topic is deleted: the checkpoint is missed, as the mirror misses it.
    """
    source, destination = source_cluster, destination_cluster
    for cluster in (source, destination):
        create_topic(cluster.bootstrap_servers, topic_name)
        produce(cluster.bootstrap_servers, topic_name, 100)
    flow_id = f"mapped-{topic_name}"
    file = config(tmp_path, source, destination, topic_name, offsets="mapped", flow_id=flow_id)
    first = plan(file)
    assert (first.code, first.state(topic_name)) == (0, "fits"), first.flow["findings"]
    assert first.flow["to_copy"]["offsets"] == 100
    with mirror(tmp_path / "run.yaml", file.read_text()) as process:
        copied(process, source, destination, topic_name)
        process.stop()
    second = plan(file)
    assert (second.code, second.flow["to_copy"]["offsets"]) == (0, 0), second.flow["findings"]
    delete_topic(destination.bootstrap_servers, f"mirror-internal.{flow_id}")
    lost = plan(file)
    assert lost.rows(topic_name, least="refused")["P32"]["reason"] == "checkpoint_lost"
    with mirror(tmp_path / "run.yaml", file.read_text()) as process:
        process.wait_event("halted", topic=topic_name, reason="checkpoint_lost")


def test_a_copy_that_nothing_shows(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. The destination's records of two topics are deleted, and so is the internal topic; the group is another one.
       Nothing shows that they were copies.
    2. Of one, the source deletes what is due: there the mirror is overtaken.
    3. The mirror halts for just that.
    """
    source, destination = source_cluster, destination_cluster
    flow_id, overtaken = f"shown-{topic_name}", f"{topic_name}-overtaken"
    topics = (topic_name, overtaken)
    for topic in topics:
        create_topic(source.bootstrap_servers, topic)
        produce(source.bootstrap_servers, topic, 100)
    file = config(tmp_path, source, destination, *topics, flow_id=flow_id)
    with mirror(tmp_path / "run.yaml", file.read_text()) as process:
        process.wait_for(
            lambda: (
                {one["topic"]: one["position"] for one in status(process)["partitions"]} == dict.fromkeys(topics, 100)
            ),
            "both topics",
        )
        process.stop()
    for topic in topics:
        _delete_before(destination, topic, 100)
    delete_topic(destination.bootstrap_servers, f"mirror-internal.{flow_id}")
    produce(source.bootstrap_servers, overtaken, 100, seed=1)
    _delete_before(source, overtaken, 150)
    other = config(tmp_path, source, destination, *topics, name="b.yaml", group="another", flow_id=flow_id)
    found = plan(other)
    assert found.rows(topic_name, least="refused")["P28"]["reason"] == "unproven"
    assert found.rows(overtaken, least="refused")["P24"]["reason"] == "retention_overtook"
    with mirror(tmp_path / "run.yaml", other.read_text()) as process:
        process.wait_event("halted", topic=topic_name, reason="unproven")
        process.wait_event("halted", topic=overtaken, reason="retention_overtook")


def _delete_before(cluster: SandboxCluster, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for deleted in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        deleted.result(30)


def test_names_that_collide(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """A controller refuses a name that differs from another topic's by a dot for an underscore: the plan gives the
    reason with which the mirror halts."""
    dotted = f"{topic_name}.v1"
    create_topic(source_cluster.bootstrap_servers, dotted)
    create_topic(destination_cluster.bootstrap_servers, dotted.replace(".", "_"))
    file = config(tmp_path, source_cluster, destination_cluster, dotted)
    found = plan(file, "--sample-bytes", "1MiB")
    row = found.rows(dotted, least="refused")["P14"]
    assert row["reason"] == "create_failed"
    assert "collides" in row["detail"]
    assert plan(file, "--fix", "--dry-run").flow["fix"]["acts"] == []
    with mirror(tmp_path / "run.yaml", file.read_text()) as process:
        process.wait_event("halted", topic=dotted, reason="create_failed")


def test_configs_in_step_and_a_strange_topic(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. With sync.topic.configs.enabled, a row says which configs of a destination topic would be changed; then they are.
    2. Of a topic with others' records, none are, and no partitions are added.
    """
    here, there = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    strange = f"{topic_name}-strange"
    create_topic(here, topic_name, retention_ms="86400000")
    create_topic(there, topic_name, segment_ms="3600000")
    create_topic(here, strange, 2, retention_ms="86400000")
    create_topic(there, strange)
    produce(there, strange, 5)
    file = config(tmp_path, source_cluster, destination_cluster, topic_name, strange, sync_topic_configs_enabled=True)
    found = plan(file)
    told = found.rows(topic_name)["P36"]["detail"]
    assert "gets retention.ms=86400000, segment.ms=(default), as at the source" in told
    assert "P36" not in found.rows(strange)
    assert found.rows(strange)["P15"]["reason"] == "fewer_partitions"
    with mirror(tmp_path / "run.yaml", file.read_text()) as process:
        (line,) = [process.wait_event("topic_configs_changed", topic=topic_name)]
        assert "retention.ms=86400000, segment.ms=(default)" in line["detail"]
        process.wait_event("halted", topic=strange, partition=1, reason="fewer_partitions")
    assert {index for name, index in _mine(destination_cluster, strange)["ends"]} == {0}
