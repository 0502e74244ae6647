"""Run by test_in_spark.py in a process of its own: what Spark does with the sink.

Arguments: bootstrap servers, topic, the folder of its rows, and which of the functions below to run in one session.
Prints what was seen, in JSON.
"""

import json
import shutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from mirror.spark import FORMAT, in_order
from tests.spark.sessions import session

SCHEMA = "topic string, partition int, base_offset bigint, batch binary"


class Run:
    """A session, the rows, and where they go."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, folder: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.topic = topic
        self.folder = folder
        self.rows = spark.read.schema(SCHEMA).parquet(str(folder / "rows"))

    def write(self, frame: DataFrame, flow: str, **named: str) -> str:
        """Writes rows. Returns why not, or nothing."""
        writer = frame.write.format(FORMAT).option("kafka.bootstrap.servers", self.bootstrap).option("flow", flow)
        for name, value in {"topic": f"{self.topic}-{flow}", **named}.items():
            writer = writer.option(name.replace("_", "."), value)
        return said(lambda: writer.mode("append").save())

    def breaking(self, frame: DataFrame, name: str, after: int) -> DataFrame:
        """The rows; but the first attempt of each task fails after so many of them, when those were written."""
        schema, seen = frame.schema, self.folder / name

        def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None
            count = 0
            for batch in batches:
                for at in range(batch.num_rows):
                    if context.attemptNumber() == 0 and count == after:
                        with seen.open("a") as file:
                            file.write("failed\n")
                        raise ConnectionError("the task is lost")
                    yield batch.slice(at, 1)
                    count += 1

        return frame.mapInArrow(rows, schema)

    def stream(self, flow: str, checkpoint: Path, **named: str) -> str:
        """Writes all that there is by micro-batches. Returns why not, or nothing."""
        files = str(self.folder / "files")
        frame = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").parquet(files)
        writer = frame.writeStream.format(FORMAT).option("kafka.bootstrap.servers", self.bootstrap)
        writer = writer.option("flow", flow).option("topic", f"{self.topic}-{flow}").trigger(availableNow=True)
        for name, value in named.items():
            writer = writer.option(name, value)

        def run() -> None:
            query = writer.option("checkpointLocation", str(checkpoint)).start()
            query.awaitTermination()

        return said(run)


def said(work: Any) -> str:
    """What the sink says, if it raises."""
    try:
        work()
    except StreamingQueryException as error:
        return reason(str(error))
    except Exception as error:
        return reason(str(error))
    return ""


def reason(text: str) -> str:
    """The sink's own line."""
    found = [line for line in text.splitlines() if "SinkError: " in line or "ConnectionError" in line]
    return found[-1].split("SinkError: ")[-1] if found else text


def tasks(run: Run) -> dict[str, Any]:
    """Batch queries."""
    seen: dict[str, Any] = {}
    ordered = in_order(run.rows, 2)
    seen["plain"] = run.write(ordered, "plain")
    seen["again"] = run.write(ordered, "plain")
    seen["exact"] = run.write(in_order(run.rows, 3), "exact", offsets="exact")
    seen["broken"] = run.write(run.breaking(ordered, "broken", 5), "broken")
    seen["broken exact"] = run.write(run.breaking(ordered, "broken-exact", 5), "brokenexact", offsets="exact")
    seen["failures"] = [len((run.folder / name).read_text().split()) for name in ("broken", "broken-exact")]

    def another(_: int) -> str:
        run.spark.createDataFrame(
            [(1,)], "a int"
        )  # makes the session this thread's own: else it knows no Python source
        return run.write(in_order(run.rows, 2), "both")

    with ThreadPoolExecutor(2) as pool:
        seen["side by side"] = list(pool.map(another, range(2)))
    seen["overwritten"] = said(
        lambda: (
            ordered.write.format(FORMAT)
            .options(flow="none", topic="none", **{"kafka.bootstrap.servers": run.bootstrap})
            .mode("overwrite")
            .save()
        )
    )
    seen["columns"] = run.write(ordered.drop("batch"), "none")
    seen["unordered"] = run.write(run.rows.orderBy("base_offset", ascending=False).coalesce(1), "unordered")
    seen["twice"] = run.write(run.rows.unionByName(run.rows).coalesce(1).sortWithinPartitions("topic"), "unordered")
    seen["options"] = run.write(ordered, "none", topics="x")
    return seen


def slowly(run: Run) -> dict[str, Any]:
    """Rows that take their time: the driver is to be killed meanwhile."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in range(batch.num_rows):
                time.sleep(0.05)
                yield batch.slice(at, 1)

    ordered = in_order(run.rows, 2)
    return {"written": run.write(ordered.mapInArrow(rows, ordered.schema), "slow")}


def streams(run: Run) -> dict[str, Any]:
    """Streaming queries."""
    seen: dict[str, Any] = {}
    checkpoint = run.folder / "checkpoint"
    for offsets in ("mapped", "exact"):
        shutil.rmtree(checkpoint, ignore_errors=True)
        flow = f"stream{offsets}"
        seen[f"{offsets} first"] = run.stream(flow, checkpoint, offsets=offsets)
        assert not seen[f"{offsets} first"], seen
        commits = sorted((int(file.name), file) for file in (checkpoint / "commits").iterdir() if file.name.isdigit())
        seen[f"{offsets} micro-batches"] = len(commits)
        # The driver died after the last write, before it was noted.
        commits[-1][1].unlink()
        (checkpoint / "commits" / f".{commits[-1][0]}.crc").unlink(missing_ok=True)
        seen[f"{offsets} replayed"] = run.stream(flow, checkpoint, offsets=offsets)
        # The whole checkpoint is lost.
        shutil.rmtree(checkpoint)
        seen[f"{offsets} from the beginning"] = run.stream(flow, checkpoint, offsets=offsets)
    files = run.spark.readStream.schema(SCHEMA).parquet(str(run.folder / "rows"))
    ordered = said(
        lambda: (
            in_order(files)
            .writeStream.format(FORMAT)
            .options(flow="none", topic="none", **{"kafka.bootstrap.servers": run.bootstrap})
            .option("checkpointLocation", str(run.folder / "none"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )
    )
    seen["sorted stream"] = ordered

    def each(frame: DataFrame, _: int) -> None:
        told = run.write(in_order(frame, 2), "foreach")
        assert not told, told

    files.writeStream.foreachBatch(each).option("checkpointLocation", str(run.folder / "each")).trigger(
        availableNow=True
    ).start().awaitTermination()
    return seen


if __name__ == "__main__":
    bootstrap, topic, folder, *wanted = sys.argv[1:]
    known = {"tasks": tasks, "streams": streams, "slowly": slowly}
    seen: dict[str, Any] = {}
    with session() as spark:
        for name in wanted:
            seen |= known[name](Run(spark, bootstrap, topic, Path(folder)))
    print(json.dumps(seen))
