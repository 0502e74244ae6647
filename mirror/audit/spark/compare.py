"""Reads and joins both sides with Spark. Returns the rows that differ, and what was read.

The join is a full outer join on topic, partition and base offset: first of chunks, then of the batches and holes in the
chunks that differ. Equal rows stay in Spark. Each side's coverage rows are always returned, so that a task whose rows
were lost cannot be mistaken for one that had none.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F

from mirror.audit.errors import AuditError
from mirror.audit.judge.coverage import AGAIN, CoverageKey
from mirror.audit.model.differences import Pairs
from mirror.audit.model.places import Side, TopicPartition
from mirror.audit.model.rows import BatchRow, Hole, What
from mirror.audit.read.ranges import RangeCoverage
from mirror.audit.spark.options import BATCH, CHUNKS, COVERAGE, FORMAT, HOLES, ODD, SourceOptions

KEYS = ("topic", "partition", "base_offset", "part")
COMPARED = ("last_offset", "count", "flags", "base_timestamp", "max_timestamp", "size", "digest")
"""The header fields that identity level ``payload`` promises, and the payload's digest. Magic is not compared: an old
format has the flag ``OLD_FORMAT``. The leader epoch, producer id, producer epoch, base sequence and CRC are the
destination's own."""
ROW = (*COMPARED[:-1], "crc_ok", "digest")
"""The columns of a ``BatchRow`` behind its base offset, in order."""

MOST_LOCATED = 200_000
"""Maximum number of places that a search for batches returns; if there are more, the result says so."""
DICTS = 4096
"""Maximum number of rows of Spark's answer that are Python dicts at the same time."""
MOST_ALIKE = 100
"""Maximum number of places of one payload in one partition that a search returns. These are the first ones: the places
of a payload that is everywhere tell nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The result of a comparison. ``differing``: the rows that differ. ``coverage``: the readers' reports.
    ``clusters``: the clusters that each side's rows name. ``batches`` and ``bytes``: Spark's own counts of each side
    before the join."""

    differing: dict[TopicPartition, Pairs]
    coverage: dict[Side, dict[CoverageKey, RangeCoverage]]
    clusters: dict[Side, set[str]]
    batches: dict[Side, int]
    bytes: dict[Side, int]


def dicts(table: Any) -> Iterator[dict[str, Any]]:
    """Yields an Arrow table's rows as dicts, converted ``DICTS`` at a time: dicts take ten times the memory."""
    for some in table.to_batches(max_chunksize=DICTS):
        yield from some.to_pylist()


def read_side(spark: SparkSession, options: SourceOptions) -> DataFrame:
    """Returns one side's rows, from a ``load`` of its own."""
    return spark.read.format(FORMAT).options(**options.to_options()).load()


def compare(spark: SparkSession, source: SourceOptions, destination: SourceOptions) -> Compared:
    """Reads both sides and joins them. The rows of both must be of the same kind. The rows of a range that only one
    side's tasks have are returned as rows that the other side lacks.

    Raises:
        PySparkException: a task failed; ``AuditError.unmarked`` finds our error in its text.
        AuditError: Spark has the rows of a task twice.
    """
    assert source.rows == destination.rows, "rows of one kind are compared with rows of the same"
    seen = {side: Observation(side.value) for side in Side}
    joined = _side(spark, source, "s_", seen[Side.SOURCE]).join(
        _side(spark, destination, "d_", seen[Side.DESTINATION]), list(KEYS), "full_outer"
    )
    wanted = (F.col("part") == COVERAGE) | _differs()
    if source.rows != CHUNKS:
        wanted |= F.col("part") == HOLES
    table = joined.where(wanted).toArrow()
    differing: dict[TopicPartition, Pairs] = defaultdict(Pairs)
    coverage: dict[Side, dict[CoverageKey, RangeCoverage]] = {side: {} for side in Side}
    clusters: dict[Side, set[str]] = {side: set() for side in Side}
    for row in dicts(table):
        pairs = differing[TopicPartition(row["topic"], row["partition"])]
        match row["part"]:
            case "coverage":
                _take_coverage(row, coverage, clusters)
            case "batch":
                _take_rows(row, pairs)
            case _:
                _take_holes(row, pairs, mapped=source.rules.mapped)
    for pairs in differing.values():
        for found in (pairs.holes, pairs.markers, pairs.odd, pairs.equal):
            found.sort()
    counted = {side: seen[side].get for side in Side}
    return Compared(
        differing={key: pairs for key, pairs in differing.items() if pairs.starts},
        coverage=coverage,
        clusters=clusters,
        batches={side: counted[side]["batches"] or 0 for side in Side},
        bytes={side: counted[side]["bytes"] or 0 for side in Side},
    )


def _side(spark: SparkSession, options: SourceOptions, prefix: str, seen: Observation) -> DataFrame:
    rows = read_side(spark, options)
    is_data = F.col("part") == BATCH
    batches = F.col("count") if options.rows == CHUNKS else F.lit(1)
    return rows.observe(
        seen,
        F.sum(F.when(is_data, batches)).alias("batches"),
        F.sum(F.when(is_data, F.col("size"))).alias("bytes"),
    ).select(
        "topic",
        "partition",
        "base_offset",
        "part",
        *[F.col(name).alias(prefix + name) for name in ROW],
        F.col("note").alias(prefix + "note"),
        F.when(~is_data, F.col("cluster")).alias(prefix + "cluster"),
    )


def _differs() -> Column:
    """Returns the condition for rows that are not equal, absent on one side, or damaged on either side. Rows with a
    wrong checksum on both sides are not proved to be the same.

    Holes and markers have only offsets; their other compared columns are null on both sides.
    """
    condition = F.col("s_last_offset").isNull() | F.col("d_last_offset").isNull()
    condition = condition | F.col("s_crc_ok").eqNullSafe(False) | F.col("d_crc_ok").eqNullSafe(False)
    for name in COMPARED:
        condition = condition | ~F.col("s_" + name).eqNullSafe(F.col("d_" + name))
    return condition


def _take_rows(row: dict[str, Any], pairs: Pairs) -> None:
    for prefix, rows in (("s_", pairs.source), ("d_", pairs.destination)):
        if row[prefix + "size"] is not None:
            rows[row["base_offset"]] = to_batch_row(row, prefix)


def _take_holes(row: dict[str, Any], pairs: Pairs, *, mapped: bool) -> None:
    if row["part"] == HOLES and (mapped or row["s_last_offset"] == row["d_last_offset"]):
        # Only the source's row has the nature of the holes: the destination has just markers, and a mapped copy
        # nothing.
        pairs.equal += [Hole(start, end, What(what)) for start, end, what in json.loads(row["s_note"])]
        return
    for prefix, found in (("s_", pairs.holes), ("d_", pairs.odd if row["part"] == ODD else pairs.markers)):
        if row[prefix + "note"] is not None:
            found += [Hole(start, end, What(what)) for start, end, what in json.loads(row[prefix + "note"])]


def to_batch_row(row: dict[str, Any], prefix: str = "") -> BatchRow:
    """Returns a row of the data source as a ``BatchRow``. ``prefix``: the prefix of the side's columns in a join."""
    return BatchRow(row["base_offset"], *(row[prefix + name] for name in ROW))


def _take_coverage(
    row: dict[str, Any], coverage: dict[Side, dict[CoverageKey, RangeCoverage]], clusters: dict[Side, set[str]]
) -> None:
    for prefix, side in (("s_", Side.SOURCE), ("d_", Side.DESTINATION)):
        if row[prefix + "note"] is None:
            continue
        start, end = row["base_offset"], row[prefix + "last_offset"] + 1
        key = (row["topic"], row["partition"], start, end)
        if key in coverage[side]:
            topic, partition, *_ = key
            raise AuditError(
                f"{side.value}: offsets {start} to {end} of {topic} partition {partition} came twice", AGAIN
            )
        coverage[side][key] = RangeCoverage.from_json(row[prefix + "note"])
        clusters[side].add(row[prefix + "cluster"])


class Located(NamedTuple):
    """The places of payloads. ``all``: False if there were more than ``MOST_LOCATED``. ``alike``: True if one partition
    has a payload more than ``MOST_ALIKE`` times."""

    places: list[tuple[TopicPartition, BatchRow]]
    all: bool
    alike: bool = False


def locate(spark: SparkSession, side: SourceOptions, digests: Iterable[bytes]) -> Located:
    """Returns the places of batches with these payloads on one side. Reads all tasks of ``side`` for that. Of each
    payload, only the first ``MOST_ALIKE`` places in a partition are returned.

    Raises:
        PySparkException: a task failed; ``AuditError.unmarked`` finds our error in its text.
    """
    wanted = [(digest,) for digest in digests]
    if not wanted or not side.tasks:
        return Located([], True)
    few = F.broadcast(spark.createDataFrame(wanted, "digest binary"))
    rows = read_side(spark, side).where(F.col("part") == BATCH).join(few, "digest", "left_semi")
    nth = F.row_number().over(Window.partitionBy("topic", "partition", "digest").orderBy("base_offset"))
    rows = rows.withColumn("nth", nth).where(F.col("nth") <= MOST_ALIKE + 1)
    table = rows.select("topic", "partition", "base_offset", *ROW, "nth").limit(MOST_LOCATED + 1).toArrow()
    return taken(dicts(table))


def taken(rows: Iterable[dict[str, Any]]) -> Located:
    """Returns the places of these rows. The column ``nth`` numbers the rows of the same payload in a partition, from 1
    to ``MOST_ALIKE`` + 1; the last one only shows that there are more."""
    places: list[tuple[TopicPartition, BatchRow]] = []
    left_out = 0
    for row in rows:
        if row["nth"] > MOST_ALIKE:
            left_out += 1
        else:
            places.append((TopicPartition(row["topic"], row["partition"]), to_batch_row(row)))
    return Located(places[:MOST_LOCATED], len(places) + left_out <= MOST_LOCATED, left_out > 0)
