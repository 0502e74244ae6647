"""The sink in Spark, at real brokers: tasks that Spark tries again, and micro-batches that it plays again."""

import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirror.sandbox import SandboxCluster
from tests.audit.clusters import batches_of, create, fill
from tests.spark.rows import arrow, contents, stored
from tests.spark.sessions import PATIENCE_S, run, started

pytestmark = [pytest.mark.broker, pytest.mark.spark]
SCRIPT = Path(__file__).parent / "in_spark.py"
PARTITIONS = 3
FILES = 2
"""A stream makes a micro-batch of each: one whose note is kept, and one whose note is lost."""
TASKS = ("plain", "exact", "broken", "brokenexact", "both")
STREAMS = ("streammapped", "streamexact", "foreach")


@pytest.fixture(scope="module")
def topic() -> str:
    """The source's topic of all these tests."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def folder(source_cluster: SandboxCluster, topic: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three partitions of 24 batches each, as rows in files: ``rows`` has them all, and each of ``files`` some."""
    folder = tmp_path_factory.mktemp("in-spark")
    create(source_cluster, topic, PARTITIONS)
    for at in range(PARTITIONS):
        for codec in ("none", "lz4", "zstd"):
            fill(source_cluster, topic, codec=codec, partition=at)
    rows = stored(source_cluster, topic, PARTITIONS)
    (folder / "rows").mkdir()
    (folder / "files").mkdir()
    pq.write_table(pa.Table.from_batches([arrow(rows)]), folder / "rows" / "all.parquet")
    size = 24 // FILES
    for number in range(FILES):
        part = [each for at in range(PARTITIONS) for each in rows[24 * at :][size * number : size * number + size]]
        file = folder / "files" / f"{number}.parquet"
        pq.write_table(pa.Table.from_batches([arrow(part)]), file)
        os.utime(file, (1_700_000_000 + number,) * 2)  # Spark takes them in the order of their times
    return folder


class Seen(NamedTuple):
    """``killed_at``: the batches of each partition that the query had written when Spark was killed. ``told``: what the
    next Spark saw, which lived."""

    killed_at: list[int]
    told: dict[str, Any]


@pytest.fixture(scope="module")
def seen(source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic: str, folder: Path) -> Seen:
    """Two sessions, as a session takes longer to start than anything here does: one is killed in the middle of a query,
    and the other one does the same again, and all else."""
    for flow in ("slow", *TASKS, "unordered", *STREAMS):
        create(destination_cluster, f"{topic}-{flow}", PARTITIONS)
    arguments = (destination_cluster.bootstrap_servers, topic, str(folder))

    def there() -> list[int]:
        return [len(batches_of(destination_cluster, f"{topic}-slow", at)) for at in range(PARTITIONS)]

    with started(SCRIPT, *arguments, "slowly") as spark:
        until = time.monotonic() + PATIENCE_S
        while sum(there()) < 8:
            assert time.monotonic() < until
            assert spark.is_running()
            time.sleep(0.1)
    return Seen(there(), run(SCRIPT, *arguments, "slowly", "tasks", "streams"))


def are_copies(source: SandboxCluster, destination: SandboxCluster, topic: str, flows: Sequence[str]) -> bool:
    """Whether each flow's topic has all batches once, in order."""
    return all(
        contents(batches_of(destination, f"{topic}-{flow}", at)) == contents(batches_of(source, topic, at))
        for flow in flows
        for at in range(PARTITIONS)
    )


def test_tasks(source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic: str, seen: Seen) -> None:
    """
    1. Rows are written, and written again; with exact offsets, too.
    2. Two queries write the same rows at the same time.
    3. Each task fails after five rows were written, and Spark tries it again. All is there once.
    4. What cannot be written is refused, and Spark shows why.
    """
    told = seen.told
    assert [told[each] for each in ("plain", "again", "exact", "broken", "broken exact")] == [""] * 5
    assert told["side by side"] == ["", ""]
    assert all(1 <= count <= 2 for count in told["failures"]), told
    assert are_copies(source_cluster, destination_cluster, topic, TASKS)
    for name, why in {
        "overwritten": "options: a topic is appended to",
        "columns": "columns: there is no column batch",
        "unordered": "not_in_order: ",
        "twice": "not_in_order: ",
        "options": "options: topics: is unknown; did you mean topic?",
    }.items():
        assert told[name].startswith(why), told[name]


def test_a_driver_that_dies(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic: str, seen: Seen
) -> None:
    """Spark is killed, with all that belongs to it, in the middle of a query. Another one writes the same rows."""
    assert min(seen.killed_at) < 24, seen.killed_at
    assert seen.told["written"] == ""
    assert are_copies(source_cluster, destination_cluster, topic, ["slow"])


def test_streams(source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic: str, seen: Seen) -> None:
    """
    1. A streaming query of two micro-batches.
    2. The note of the last one is lost, and it is played again; then the whole checkpoint is.
    3. All is there once. Spark sorts no stream; ``foreachBatch`` can.
    """
    told = seen.told
    for offsets in ("mapped", "exact"):
        assert [told[f"{offsets} {each}"] for each in ("first", "replayed", "from the beginning")] == [""] * 3
        assert told[f"{offsets} micro-batches"] == FILES
    assert "sort" in told["sorted stream"].lower()
    assert are_copies(source_cluster, destination_cluster, topic, STREAMS)
