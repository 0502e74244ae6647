"""``mirror run`` over topics that are not what they were: real brokers, real kills, logs cut on a real disk."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirror.records.header import BatchHeader
from mirror.sandbox import SandboxCluster
from tests.patience import PATIENT
from tests.service.runs.holes.test_gaps import delete_before
from tests.service.stage.kafka_side import assert_identical, create_topic, delete_topic, end_of, produce
from tests.service.stage.running import cli, config_text, mirror

pytestmark = pytest.mark.broker


def empty(bootstrap: str, topic: str) -> int:
    """DeleteRecords up to the end, as Kafka Streams and retention do; the end."""
    end = end_of(bootstrap, topic)
    delete_before(bootstrap, topic, end)
    return end


@pytest.mark.parametrize("seen", [True, False])
def test_a_source_topic_made_anew(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path, *, seen: bool
) -> None:
    """
    1. A topic is copied. Then it is deleted at the source and made again, with more records than before, and the
       destination's records expire: the running mirror halts and is killed (-9), or it was killed before all that.
    2. Started again, it halts ``recreated`` and copies nothing: the first records of the new topic would be missed.
    3. The operator deletes the destination's topic and resumes: the new topic is copied from its first record.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    config, text = tmp_path / "mirror.yaml", config_text(source, destination, [topic_name])
    create_topic(source, topic_name)
    produce(source, topic_name, 300)
    with mirror(config, text) as process:
        process.wait_for(lambda: end_of(destination, topic_name) == 300, "300 records")
        if not seen:
            process.process.kill()
            process.wait()
        delete_topic(source, topic_name)
        create_topic(source, topic_name)
        produce(source, topic_name, 700, seed=1)
        assert empty(destination, topic_name) == 300
        if seen:
            assert process.wait_event("halted")["reason"] in ("recreated", "topic_missing")
            process.process.kill()
    with mirror(config, text) as process:
        halted = process.wait_event("halted")
        assert halted["reason"] == "recreated"
        assert end_of(destination, topic_name) == 300
        assert not process.of("prefix_unproven")
        delete_topic(destination, topic_name)
        create_topic(destination, topic_name, compression_type="producer")
        assert cli(process, config, "resume", topic_name).returncode == 0
        process.wait_for(lambda: end_of(destination, topic_name) == 700, "the new topic")
        assert process.stop() == 0
    assert_identical(source, destination, [topic_name], 1)


def test_a_cluster_is_renamed_in_the_configuration(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. A topic is copied. The source's alias is renamed: another flow by name, and the halt says whose copy it is and
       what to set.
    2. ``flow.id`` is set to that: it goes on where it was.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    config, text = tmp_path / "mirror.yaml", config_text(source, destination, [topic_name])
    create_topic(source, topic_name)
    produce(source, topic_name, 100)
    with mirror(config, text) as process:
        process.wait_for(lambda: end_of(destination, topic_name) == 100, "100 records")
        assert process.stop() == 0
    produce(source, topic_name, 100, seed=1)
    renamed = text.replace('"source"', '"origin"').replace("source->", "origin->")
    with mirror(config, renamed) as process:
        halted = process.wait_event("halted")
        assert halted["reason"] == "other_flow"
        assert 'of flow "source->destination"' in str(halted["detail"])
        assert 'set flow.id: "source->destination"' in str(halted["remedy"])
    with_id = config_text(source, destination, [topic_name], flow={"flow.id": "source->destination"})
    with mirror(
        config, with_id.replace('"source"', '"origin"').replace('"source->destination": {', '"origin->destination": {')
    ) as process:
        process.wait_for(lambda: end_of(destination, topic_name) == 200, "200 records")
        assert "id source->destination" in cli(process, config, "status").stdout
        assert process.stop() == 0
    assert_identical(source, destination, [topic_name], 1)


@pytest.fixture
def cuttable() -> Iterator[SandboxCluster]:
    """A source of one's own, whose log can be cut."""
    with SandboxCluster(name="source", quick=True, properties=PATIENT) as source:
        yield source


def cut(cluster: SandboxCluster, topic: str, offset: int) -> None:
    """The broker's log loses its end from ``offset`` on, as in an unclean election: it is stopped, cut and started."""
    (broker,) = cluster.brokers
    broker.stop()
    (segment,) = (broker.data_dir / f"{topic}-0").glob("*.log")
    data = segment.read_bytes()
    at = 0
    while BatchHeader.read(data[at:]).base_offset < offset:
        at += BatchHeader.read(data[at:]).size
    segment.write_bytes(data[:at])
    for index in segment.parent.glob("*.*index"):
        index.unlink()
    broker.start()


@pytest.mark.parametrize("known", [True, False])
def test_a_source_that_was_truncated_and_grew_again(
    cuttable: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path, *, known: bool
) -> None:
    """
    1. A topic is copied, and the mirror stopped, or killed before it could note anything. The destination's records
       expire. The source's log loses its end, and grows past where it ended: the same topic, other records.
    2. Started again, it halts: what was copied last is not there any more, or nothing shows that it is.
    """
    source, destination = cuttable.bootstrap_servers, destination_cluster.bootstrap_servers
    config, text = tmp_path / "mirror.yaml", config_text(source, destination, [topic_name])
    create_topic(source, topic_name)
    for seed in range(6):
        produce(source, topic_name, 50, seed=seed)
    with mirror(config, text) as process:
        process.wait_for(lambda: end_of(destination, topic_name) == 300, "300 records")
        if known:
            assert process.stop() == 0
        else:
            process.process.send_signal(signal.SIGKILL)
    assert empty(destination, topic_name) == 300
    cut(cuttable, topic_name, 250)
    source = cuttable.bootstrap_servers
    assert end_of(source, topic_name) < 300
    produce(source, topic_name, 100, seed=9)
    assert end_of(source, topic_name) > 300
    with mirror(config, config_text(source, destination, [topic_name])) as process:
        halted = process.wait_event("halted")
        assert halted["reason"] == ("source_truncated" if known else "unproven")
        assert end_of(destination, topic_name) == 300
