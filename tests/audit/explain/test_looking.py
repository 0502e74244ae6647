"""``mirror audit explain`` on real brokers: batches as librdkafka wrote them, and as a copy has them."""

import json
import subprocess
from pathlib import Path

import pytest

from mirror.records.header import BatchHeader
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import batches_of, copy, create, delete_before, edited, fill
from tests.service.stage.running import MIRROR, config_text

pytestmark = pytest.mark.broker


def explain(
    folder: Path, pair: tuple[str, str], topic: str, *arguments: str
) -> tuple["subprocess.CompletedProcess[str]", dict[str, str]]:
    """The command as its users type it. Returns also what it says of each field that is not the same."""
    config = folder / "mirror.yaml"
    config.write_text(config_text(*pair, [topic]))
    done = subprocess.run(
        [MIRROR, "audit", "explain", "-c", config, "--topic", topic, *arguments, "--format", "json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = json.loads(done.stdout or '{"fields": [], "records": []}')
    rows = [*told["fields"], *told["records"]]
    return done, {row["what"]: row["remark"] for row in rows if row["remark"] not in ("the same", "the writer's own")}


def test_batches_side_by_side(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. A copy is the same at each offset, also in the middle of a batch.
    2. A changed record is named, by its offset; so is a changed time.
    3. At the log's end, behind its start, and in a topic that is not there: said, and no difference is made of it.
    """
    pair = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    for cluster in (source_cluster, destination_cluster):
        create(cluster, topic_name)
    fill(source_cluster, topic_name, codec="none")
    stored = batches_of(source_cluster, topic_name)
    first, second, third = (BatchHeader.read(batch) for batch in stored[:3])

    def tamper(batches: list[bytes]) -> list[bytes]:
        late = edited(batches[2], base_timestamp=third.base_timestamp + 1, max_timestamp=third.max_timestamp + 1)
        return [batches[0], edited(batches[1], at=batches[1].index(b"none 1 0")), late, *batches[3:]]

    copy(source_cluster, destination_cluster, topic_name, change=tamper)

    done, differs = explain(tmp_path, pair, topic_name, "--offset", str(first.last_offset))
    assert (done.returncode, differs) == (0, {}), done
    done, differs = explain(tmp_path, pair, topic_name, "--offset", str(second.base_offset))
    assert done.returncode == 2
    assert differs == {"bytes behind the header": "differs", f"record {second.base_offset}": "differs"}
    done, differs = explain(tmp_path, pair, topic_name, "--offset", str(third.base_offset), "--show-records")
    records = [f"record {offset}" for offset in range(third.base_offset, third.next_offset)]
    assert (done.returncode, differs) == (2, dict.fromkeys(("base timestamp", "max timestamp", *records), "differs"))
    assert "none 2 0" in done.stdout

    end = BatchHeader.read(stored[-1]).next_offset
    delete_before(destination_cluster, topic_name, second.base_offset)
    for offset, note in ((end, f"offset {end} is outside of the log"), (0, "destination: offset 0 is outside")):
        done, _ = explain(tmp_path, pair, topic_name, "--offset", str(offset))
        assert any(note in each for each in json.loads(done.stdout)["notes"]), done
    done, differs = explain(tmp_path, pair, topic_name, "--offset", "0")
    assert (done.returncode, differs) == (2, {"batch": "not there"})
    done, _ = explain(tmp_path, pair, topic_name, "--offset", "0", "--partition", "7")
    assert done.returncode == 1
    assert f"source has no partition 7 of topic {topic_name}" in done.stderr
