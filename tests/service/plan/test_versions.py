"""``mirror plan`` with brokers of other versions."""

from pathlib import Path

import pytest

from mirror.sandbox import SandboxCluster
from tests.legacy.logs import consumed
from tests.patience import PATIENT
from tests.service.plan.planning import now_ms, plan, run, stamped
from tests.service.stage.kafka_side import create_topic, produce
from tests.service.stage.running import config_text, mirror

pytestmark = pytest.mark.broker
OLD_FORMAT = {"inter.broker.protocol.version": "0.10.2", "log.message.format.version": "0.10.2"}


@pytest.mark.parametrize("version", ["2.8.2", "0.10.2.2"])
def test_a_source_that_stores_an_old_format(
    version: str, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. A source of Kafka 0.10, or of 2.8 that stores batches as that did: it is told that they are made anew.
    2. The mirror copies them. Of 0.10, configs cannot be asked for, so it creates no topic.
    3. To 0.10, nothing can be copied, and waiting does not help.
    """
    oldest = version.startswith("0.10")
    properties = PATIENT if oldest else {**PATIENT, **OLD_FORMAT}
    with SandboxCluster(name="source", version=version, properties=properties, quick=True, heap_mb=512) as source:
        create_topic(source.bootstrap_servers, topic_name)
        stamped(source.bootstrap_servers, topic_name, now_ms())  # with headers, it would be refused
        text = config_text(source.bootstrap_servers, destination_cluster.bootstrap_servers, [topic_name])
        (tmp_path / "a.yaml").write_text(text)
        if oldest:
            assert plan(tmp_path / "a.yaml").code == 2
            with mirror(tmp_path / "run.yaml", text) as process:
                assert process.wait_event("halted", topic=topic_name)["reason"] == "create_failed"
                assert "before Kafka 0.11" in process.wait_event("configs_unknown")["detail"]
            create_topic(destination_cluster.bootstrap_servers, topic_name)
        found = plan(tmp_path / "a.yaml")
        assert found.code == 0, found.document
        row = found.rows(topic_name, least="told")["P08"]
        assert "would be opened and rewritten (old_format)" in row["detail"]
        assert "topics have no ids" in found.rows(None)["P03"]["detail"]
        with mirror(tmp_path / "run.yaml", text) as process:
            process.wait_event("caught_up")
            assert process.stop() == 0
        expected = consumed(source.bootstrap_servers, topic_name)
        assert consumed(destination_cluster.bootstrap_servers, topic_name) == expected
        assert expected
        if oldest:
            text = config_text(destination_cluster.bootstrap_servers, source.bootstrap_servers, [topic_name])
            (tmp_path / "b.yaml").write_text(text)
            done = run(tmp_path / "b.yaml")
            assert (done.returncode, done.stdout) == (2, "")
            assert "P03 versions (no_common_version)" in done.stderr
            assert "from before Kafka 0.11" in done.stderr


# 1.1 can be asked for the least, 3.9 for what the newest can; what lies between has a part of what they have.
@pytest.mark.parametrize("version", ["1.1.1", "3.9.2"])
def test_other_versions(version: str, topic_name: str, tmp_path: Path, source_cluster: SandboxCluster) -> None:
    """Brokers that cannot be asked for this or that are no error: all is well, as far as they tell."""
    create_topic(source_cluster.bootstrap_servers, topic_name, 2)
    produce(source_cluster.bootstrap_servers, topic_name, 20, partitions=2)
    with SandboxCluster(name="other", version=version, properties=PATIENT, quick=True, heap_mb=512) as other:
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
