"""The sink in Spark, at real brokers: tasks that Spark tries again, and micro-batches that it plays again."""

import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirror.sandbox import SandboxCluster
from tests.audit.clusters import batches_of, create, fill
from tests.raw.real import PATIENCE_S
from tests.spark.rows import arrow, contents, stored
from tests.spark.sessions import run, started

pytestmark = [pytest.mark.broker, pytest.mark.spark]
SCRIPT = Path(__file__).parent / "in_spark.py"
PARTITIONS = 3


@pytest.fixture
def folder(source_cluster: SandboxCluster, topic_name: str, tmp_path: Path) -> Path:
    """Three partitions of 24 batches each, as rows in files: ``rows`` has them all, and each of ``files`` some."""
    create(source_cluster, topic_name, PARTITIONS)
    for at in range(PARTITIONS):
        for codec in ("none", "lz4", "zstd"):
            fill(source_cluster, topic_name, codec=codec, partition=at)
    rows = stored(source_cluster, topic_name, PARTITIONS)
    (tmp_path / "rows").mkdir()
    (tmp_path / "files").mkdir()
    pq.write_table(pa.Table.from_batches([arrow(rows)]), tmp_path / "rows" / "all.parquet")
    for number in range(4):
        part = [each for at in range(PARTITIONS) for each in rows[24 * at :][6 * number : 6 * number + 6]]
        file = tmp_path / "files" / f"{number}.parquet"
        pq.write_table(pa.Table.from_batches([arrow(part)]), file)
        os.utime(file, (1_700_000_000 + number,) * 2)  # Spark takes them in the order of their times
    return tmp_path


def are_copies(source: SandboxCluster, destination: SandboxCluster, topic: str, flows: list[str]) -> bool:
    """Whether each flow's topic has all batches once, in order."""
    return all(
        contents(batches_of(destination, f"{topic}-{flow}", at)) == contents(batches_of(source, topic, at))
        for flow in flows
        for at in range(PARTITIONS)
    )


def test_tasks(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, folder: Path
) -> None:
    """
    1. Rows are written, and written again; with exact offsets, too.
    2. Two queries write the same rows at the same time.
    3. Each task fails after five rows were written, and Spark tries it again. All is there once.
    4. What cannot be written is refused, and Spark shows why.
    """
    flows = ["plain", "exact", "broken", "brokenexact", "both"]
    for flow in [*flows, "unordered"]:
        create(destination_cluster, f"{topic_name}-{flow}", PARTITIONS)
    seen = run(SCRIPT, destination_cluster.bootstrap_servers, topic_name, str(folder), "tasks")
    assert [seen[each] for each in ("plain", "again", "exact", "broken", "broken exact")] == [""] * 5
    assert seen["side by side"] == ["", ""]
    assert all(1 <= count <= 2 for count in seen["failures"]), seen
    assert are_copies(source_cluster, destination_cluster, topic_name, flows)
    for name, told in {
        "overwritten": "options: a topic is appended to",
        "columns": "columns: there is no column batch",
        "unordered": "not_in_order: ",
        "twice": "not_in_order: ",
        "options": "options: topics: is unknown; did you mean topic?",
    }.items():
        assert seen[name].startswith(told), seen[name]


def test_a_driver_that_dies(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, folder: Path
) -> None:
    """Spark is killed, with all that belongs to it, in the middle of a query. Another one writes the same rows."""
    create(destination_cluster, f"{topic_name}-plain", PARTITIONS)
    arguments = (destination_cluster.bootstrap_servers, topic_name, str(folder), "slowly")
    with started(SCRIPT, *arguments) as spark:
        until = time.monotonic() + PATIENCE_S
        while sum(len(batches_of(destination_cluster, f"{topic_name}-plain", at)) for at in range(PARTITIONS)) < 8:
            assert time.monotonic() < until
            assert spark.is_running()
    there = [len(batches_of(destination_cluster, f"{topic_name}-plain", at)) for at in range(PARTITIONS)]
    assert min(there) < 24, there
    assert run(SCRIPT, *arguments) == {"written": ""}
    assert are_copies(source_cluster, destination_cluster, topic_name, ["plain"])


def test_streams(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, folder: Path
) -> None:
    """
    1. A streaming query of four micro-batches.
    2. The note of the last one is lost, and it is played again; then the whole checkpoint is.
    3. All is there once. Spark sorts no stream; ``foreachBatch`` can.
    """
    flows = ["streammapped", "streamexact", "foreach"]
    for flow in flows:
        create(destination_cluster, f"{topic_name}-{flow}", PARTITIONS)
    seen = run(SCRIPT, destination_cluster.bootstrap_servers, topic_name, str(folder), "streams")
    for offsets in ("mapped", "exact"):
        assert [seen[f"{offsets} {each}"] for each in ("first", "replayed", "from the beginning")] == [""] * 3
        assert seen[f"{offsets} micro-batches"] == 4
    assert "sort" in seen["sorted stream"].lower()
    assert are_copies(source_cluster, destination_cluster, topic_name, flows)
