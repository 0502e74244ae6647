"""``mirror plan`` with brokers of other versions."""

from pathlib import Path

import pytest

from mirror.sandbox import Cluster
from tests.patience import PATIENT
from tests.service.kafka_side import create_topic, produce
from tests.service.plan.planning import now_ms, plan, run, stamped
from tests.service.running import config_text, mirror

pytestmark = pytest.mark.broker
OLD_FORMAT = {"inter.broker.protocol.version": "0.10.2", "log.message.format.version": "0.10.2"}


def test_a_source_that_stores_an_old_format(destination_cluster: Cluster, topic_name: str, tmp_path: Path) -> None:
    """
    1. A source of 2.8, before topic ids, stores batches as Kafka 0.10 did: each topic of it is refused.
    2. The mirror halts for that.
    """
    with Cluster(
        name="source", version="2.8.2", properties={**PATIENT, **OLD_FORMAT}, quick=True, heap_mb=512
    ) as source:
        create_topic(source.bootstrap_servers, topic_name)
        stamped(source.bootstrap_servers, topic_name, now_ms())  # with headers, it would be refused
        text = config_text(source.bootstrap_servers, destination_cluster.bootstrap_servers, [topic_name])
        (tmp_path / "a.yaml").write_text(text)
        found = plan(tmp_path / "a.yaml")
        assert found.code == 2, found.document
        (row,) = found.rows(topic_name, least="refused").values()
        assert (row["line"], row["reason"]) == ("P08", "old_format")
        assert "topics have no ids" in found.rows(None)["P03"]["detail"]
        with mirror(tmp_path / "run.yaml", text) as process:
            process.wait_event("halted", topic=topic_name, reason="old_format")


@pytest.mark.parametrize("version", ["1.1.1", "2.3.1", "3.9.2"])
def test_other_versions(version: str, topic_name: str, tmp_path: Path, source_cluster: Cluster) -> None:
    """Brokers that cannot be asked for this or that are no error: all is well, as far as they tell."""
    create_topic(source_cluster.bootstrap_servers, topic_name, 2)
    produce(source_cluster.bootstrap_servers, topic_name, 20, partitions=2)
    with Cluster(name="other", version=version, properties=PATIENT, quick=True, heap_mb=512) as other:
        text = config_text(source_cluster.bootstrap_servers, other.bootstrap_servers, [topic_name])
        (tmp_path / "a.yaml").write_text(text)
        found = plan(tmp_path / "a.yaml", "--fix")
        assert found.code == 0, found.flow["findings"]
        assert [act["kind"] for act in found.flow["fix"]["acts"]] == ["create"]
        assert found.state(topic_name) == "fits"
        back = config_text(other.bootstrap_servers, source_cluster.bootstrap_servers, [f"{topic_name}-back"])
        create_topic(other.bootstrap_servers, f"{topic_name}-back")
        produce(other.bootstrap_servers, f"{topic_name}-back", 20)
        (tmp_path / "b.yaml").write_text(back)
        returning = plan(tmp_path / "b.yaml")
        assert returning.code == 0, returning.flow["findings"]
        assert returning.state(f"{topic_name}-back") == "created"


def test_brokers_that_are_too_old(destination_cluster: Cluster, topic_name: str, tmp_path: Path) -> None:
    """Nothing can be copied from there, and waiting does not help."""
    with Cluster(name="old", version="0.10.2.2", properties=PATIENT, quick=True, heap_mb=512) as old:
        text = config_text(old.bootstrap_servers, destination_cluster.bootstrap_servers, [topic_name])
        (tmp_path / "a.yaml").write_text(text)
        done = run(tmp_path / "a.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "P03 versions (no_common_version)" in done.stderr
    assert "from before Kafka 0.11" in done.stderr
