"""Records that the source has deleted before they were copied: a halt, or a decision, which is recorded."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from mirror.audit import job
from mirror.audit.model.places import Span
from mirror.audit.model.request import AuditRequest
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import endpoint
from tests.service.runs.holes.test_holes import consumed, plain, wait_for_equal_ends
from tests.service.stage.kafka_side import PATIENCE_S, create_topic, end_of
from tests.service.stage.running import Mirror, config_text, get, mirror, status
from tests.service.telemetry.stage.alerts import firing, samples

pytestmark = pytest.mark.broker


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    """Moves the log's start."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(PATIENCE_S)


def test_retention_overtook(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. Ten records are copied; of the next twenty, the source deletes five while the mirror is stopped.
    2. It halts: nothing is skipped in silence. With ``on.gap: continue`` it goes on, says which, and offsets are equal.
    3. Later processes show the range as well.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(source, topic_name)
    plain(source, topic_name, 10)
    text = config_text(source, destination, [topic_name])
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_for_equal_ends(process, source, destination, topic_name)
        assert process.stop() == 0
    for _ in range(20):
        plain(source, topic_name, 1)
    delete_before(source, topic_name, 15)
    with mirror(tmp_path / "mirror.yaml", text) as process:
        halted = process.wait_event("halted")
        assert halted["reason"] == "retention_overtook"
        assert "offset 10 is due, and the source's log start offset is 15: offsets 10 to 14 cannot" in str(
            halted["detail"]
        )
    assert end_of(destination, topic_name) == 10
    text = config_text(source, destination, [topic_name], flow={"on.gap": "continue"})
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_for_equal_ends(process, source, destination, topic_name)
        assert "offsets 10 to 14" in str(process.wait_event("skipped")["detail"])
        assert process.stop() == 0
    # The internal topic has it: whoever starts later, and shares the work, shows it too, once.
    text = config_text(source, destination, [topic_name], top={"workers": 2})
    with mirror(tmp_path / "mirror.yaml", text) as process:
        process.wait_for(
            lambda: len(status(process)["workers"]) == 2 and skipped_of(process, topic_name), "what was skipped"
        )
        (skipped,) = skipped_of(process, topic_name)
        assert "MirrorOffsetsSkipped" in firing(samples(get(process, "/metrics")[1]))
        assert (skipped["topic"], skipped["partition"], skipped["first"], skipped["next"]) == (topic_name, 0, 10, 15)
        assert not process.of("skipped")
        assert skipped["why"] == "could not be copied; going on without them was accepted"
        assert process.stop() == 0
    request = AuditRequest(
        flow="source->destination",
        source=endpoint(source_cluster, "source"),
        destination=endpoint(destination_cluster, "destination"),
        topics=(topic_name,),
    )
    ((*where, _, at_ms),) = asyncio.run(job._prepare(request)).decisions.ranges
    assert (where, at_ms) == ([topic_name, 0, Span(10, 15)], skipped["at_ms"])
    wanted = consumed(source, topic_name, "read_committed")
    assert [record.offset for record in wanted] == list(range(15, 30))
    for isolation in ("read_committed", "read_uncommitted"):
        assert consumed(destination, topic_name, isolation)[10:] == wanted


def test_a_source_that_begins_inside_a_batch(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """DeleteRecords moved its start there: the batch is copied whole, and the copy begins at the same offset."""
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(source, topic_name)
    plain(source, topic_name, 20)
    plain(source, topic_name, 20)
    delete_before(source, topic_name, 7)
    text = config_text(source, destination, [topic_name])
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_for_equal_ends(process, source, destination, topic_name)
        process.wait_for(lambda: first_of(destination, topic_name) == 7, "the copy to begin where its source does")
        assert process.stop() == 0
    wanted = consumed(source, topic_name, "read_committed")
    assert [record.offset for record in wanted] == list(range(7, 40))
    assert consumed(destination, topic_name, "read_uncommitted") == wanted


def skipped_of(process: Mirror, topic: str) -> list[dict[str, object]]:
    """What ``mirror status`` shows of this topic: the flow's internal topic has those of other tests as well."""
    return [each for each in status(process)["skipped"] if each["topic"] == topic]


def first_of(bootstrap: str, topic: str) -> int:
    """The log's start."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partition = TopicPartition(topic, 0)
    (future,) = admin.list_offsets({partition: OffsetSpec.earliest()}).values()
    return int(future.result(PATIENCE_S).offset)
