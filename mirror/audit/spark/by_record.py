"""Compares batches record by record, with Spark. Returns the offsets that differ.

A cleaner removes a record only if there is a later record of its key, or if it is an old tombstone. So in compacted
topics, a record that only one side has is excused in these cases:

* It has no key, or the other side has a later record of its key.
* It is a tombstone, or its own side has a later tombstone of its key, and the other side has no earlier record of the
  key. The other side's cleaner may have removed the tombstone since. But with an earlier record, the consumers of that
  side would see a value that was deleted. A place in front of the record that cannot be read counts as such an earlier
  record, unless there is a finding about that place.

A tombstone at the source that was written behind the destination's end excuses nothing: no cleaner there has seen it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from mirror.audit.model.differences import RecordDifference
from mirror.audit.model.places import Side, Span, TopicPartition
from mirror.audit.read.opened import MISTIMED, SEALED, TOMBSTONE
from mirror.audit.spark.compare import dicts, read_side
from mirror.audit.spark.options import COVERAGE, RECORD, RECORDS, UNOPENED, SourceOptions

BLOCK_BITS = 8
"""The minimum number of bits of an offset within its block: a block has at least 256 offsets."""
MOST_BLOCKS = 100_000
"""Maximum number of blocks that all spans together touch, besides one for each span: some tens of MB. If there would be
more, blocks are larger."""
_AT = ["topic", "partition", "base_offset"]
_KEY = ["topic", "partition", "key"]
_DIGESTS = ("s_digest", "d_digest")
_LIMITS = pa.schema({"topic": pa.string(), "partition": pa.int32(), "copied": pa.int64(), "audited": pa.int64()})
_SPANS = pa.schema({"topic": pa.string(), "partition": pa.int32(), "start": pa.int64(), "end": pa.int64()})


class Limits(NamedTuple):
    """Two source offsets of a partition. ``copied``: where the destination's log ends. ``audited``: from this offset
    on, each place that cannot be read has a finding."""

    copied: int
    audited: int


class LaterRecords(NamedTuple):
    """The offsets of the first record, the last record and the last tombstone of each key of some partitions, at source
    and destination. To find them, both logs are read completely, once. The row without a key has the first offset that
    could not be read (``_latest``)."""

    source: DataFrame
    destination: DataFrame

    @classmethod
    def read(
        cls,
        spark: SparkSession,
        source: SourceOptions,
        destination: SourceOptions,
        limits: Mapping[TopicPartition, Limits],
    ) -> "LaterRecords":
        """Returns the later records of both sides. Nothing is read before the result is first used, and then only once.

        Args:
            spark: the session.
            source: what to read of the source, with records as rows: everything up to the logs' ends.
            destination: what to read of the destination, likewise.
            limits: the limits of each of these partitions.
        """
        assert source.rows == destination.rows == RECORDS, "records are compared with records"
        rows = [(*key, *each) for key, each in limits.items()]
        known = F.broadcast(spark.createDataFrame(pa.table([*zip(*rows, strict=True)], schema=_LIMITS)))
        ours, theirs = (
            _columns(_unread_told(read_side(spark, options)), prefix).join(known, ["topic", "partition"])
            for options, prefix in ((source, "s_"), (destination, "d_"))
        )
        theirs = theirs.withColumn("copied", F.lit(None).cast("long"))
        return cls(_latest(ours, "s_").persist(), _latest(theirs, "d_").persist())

    def forget(self) -> None:
        """Frees the rows that Spark keeps."""
        with suppress(Exception):  # py4j may raise anything if the JVM is gone
            self.source.unpersist()
            self.destination.unpersist()


def record_differences(
    spark: SparkSession,
    source: SourceOptions,
    destination: SourceOptions,
    looked: Mapping[TopicPartition, Iterable[Span]],
    later: LaterRecords | None,
    *,
    digests: bool = False,
) -> tuple[dict[TopicPartition, list[RecordDifference]], dict[Side, list[TopicPartition]]]:
    """Returns the offsets within ``looked`` at which the sides do not have the same record, in order; and the
    partitions of each side that could not be read to the end of ``looked``.

    Args:
        spark: the session.
        source: what to read of the source, with records as rows: everything in ``looked``.
        destination: what to read of the destination, likewise.
        looked: the offsets of the batches that differ.
        later: the first and last records of each key; None: nothing is excused.
        digests: fill in ``RecordDifference.digests``.

    Raises:
        PySparkException: a task failed; ``AuditError.unmarked`` finds our error in its text.
    """
    assert source.rows == destination.rows == RECORDS, "records are compared with records"
    spans = [(*key, *span) for key, some in looked.items() for span in some]
    wanted = spark.createDataFrame(pa.table([*zip(*spans, strict=True)], schema=_SPANS))
    seen = {side: Observation(f"records of the {side.value}") for side in Side}
    ours, theirs = (
        _side(spark, options, prefix, seen[side])
        for options, prefix, side in ((source, "s_", Side.SOURCE), (destination, "d_", Side.DESTINATION))
    )
    joined = ours.join(theirs, _AT, "full_outer")
    differs = (
        ~F.col("s_digest").eqNullSafe(F.col("d_digest"))
        | (F.col("s_part").eqNullSafe(UNOPENED))
        | (F.col("d_part").eqNullSafe(UNOPENED))
    )
    joined = joined.withColumn("differs", differs).where(F.col("differs") | _holds(F.col("d_mistimed")))
    inside = (F.col("base_offset") >= F.col("start")) & (F.col("base_offset") < F.col("end"))
    # By blocks of offsets, so that each record is compared with the few spans of its block, not with all spans of its
    # partition.
    bits = block_bits(span for some in looked.values() for span in some)
    blocks = F.sequence(F.shiftright(F.col("start"), bits), F.shiftright(F.col("end") - 1, bits))
    by_block = wanted.withColumn("block", F.explode(blocks))
    blocked = joined.withColumn("block", F.shiftright(F.col("base_offset"), bits))
    differing = blocked.join(F.broadcast(by_block), ["topic", "partition", "block"]).where(inside)
    differing = differing.withColumn("key", F.coalesce("s_key", "d_key"))
    for latest, prefix in zip(later or (), ("s_", "d_"), strict=False):
        differing = differing.join(latest, _KEY, "left")
        differing = differing.join(F.broadcast(_unread(latest, prefix)), ["topic", "partition"], "left")
    table = differing.select(
        *_AT,
        "differs",
        _holds(F.col("d_mistimed")).alias("mistimed"),
        F.coalesce("s_size", "d_size").alias("size"),
        _at().alias("at"),
        (
            F.lit(False)
            if later is None
            else F.when(F.col("d_digest").isNull(), _excused("s_", "d_")).otherwise(_excused("d_", "s_"))
        ).alias("excused"),
        *(F.col(name) if digests else F.lit(None).cast("binary").alias(name) for name in _DIGESTS),
    ).toArrow()
    broken = {side: _named(seen[side].get["broken"]) for side in Side}
    return in_order(dicts(table)), {side: where for side, where in broken.items() if where}


def _named(text: str | None) -> list[TopicPartition]:
    """Returns the partitions in the text that ``_side`` observes, in order."""
    some = (line.rpartition("/") for line in (text or "").split("\n") if line)
    return sorted(TopicPartition(topic, int(partition)) for topic, _, partition in some)


def in_order(rows: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, list[RecordDifference]]:
    """Returns the differences of Spark's rows by partition, in the order of their offsets.

    A damaged log may have two batches at one offset, of which only one can be opened. The other one comes first.
    """
    found: dict[TopicPartition, list[RecordDifference]] = defaultdict(list)
    for row in rows:
        key = TopicPartition(row["topic"], row["partition"])
        if row["mistimed"]:
            found[key].append(RecordDifference(row["base_offset"], None, False, row["size"], mistimed=True))
        if not row["differs"]:
            continue
        at = Side(row["at"]) if row["at"] else None
        digests = (row["s_digest"] or b"", row["d_digest"] or b"")
        excused = at is not None and bool(row["excused"])
        found[key].append(RecordDifference(row["base_offset"], at, excused, row["size"], digests))
    for some in found.values():
        some.sort(key=lambda one: (one.offset, one.at.value if one.at else "", one.size))
    return found


def block_bits(spans: Iterable[Span]) -> int:
    """Returns the number of bits of an offset within its block, such that there are not too many blocks. A header may
    claim two billion offsets for a few records."""
    sizes = [span.offsets for span in spans]
    bits = BLOCK_BITS
    while sum(size >> bits for size in sizes) > MOST_BLOCKS:
        bits += 1
    return bits


def _side(spark: SparkSession, options: SourceOptions, prefix: str, seen: Observation) -> DataFrame:
    """Returns one side's records. ``seen`` gets a value ``broken``: a line for each partition that could not be read
    completely."""
    where = F.concat_ws("/", "topic", "partition")
    rows = read_side(spark, options).observe(
        seen, F.array_join(F.collect_set(F.when(_is_broken(), where)), "\n").alias("broken")
    )
    return _columns(rows, prefix)


def _is_broken() -> Column:
    """Returns the condition for the coverage row of a range that could not be read to its end."""
    return (F.col("part") == COVERAGE) & F.get_json_object("note", "$.broken").isNotNull()


def _unread_told(rows: DataFrame) -> DataFrame:
    """Returns these rows. The coverage row of a range whose reading ended early is replaced by an UNOPENED row at the
    offset where it ended."""
    stopped = F.get_json_object("note", "$.next_offset").cast("long")
    columns = {
        "base_offset": F.when(_is_broken(), stopped).otherwise(F.col("base_offset")),
        "note": F.when(~_is_broken(), F.col("note")),
        "part": F.when(_is_broken(), F.lit(UNOPENED)).otherwise(F.col("part")),
    }
    return rows.withColumns(columns)


def _columns(rows: DataFrame, prefix: str) -> DataFrame:
    """Returns the rows of a side's records and of its batches that could not be opened, with ``prefix`` before the
    names of columns."""
    rows = rows.where(F.col("part").isin(RECORD, UNOPENED))
    columns = {"part": "part", "note": "key", "size": "size", "digest": "digest"}
    return rows.select(
        *_AT,
        *[F.col(name).alias(prefix + alias) for name, alias in columns.items()],
        F.col("flags").bitwiseAND(TOMBSTONE).alias(prefix + "tombstone"),
        (F.col("flags").bitwiseAND(MISTIMED) != 0).alias(prefix + "mistimed"),
        _holds(F.col("flags").bitwiseAND(SEALED) != 0).alias(prefix + "sealed"),
    )


def _latest(side: DataFrame, prefix: str) -> DataFrame:
    """Returns the first and the last offset of each key, and that of its last tombstone (only before ``copied``, if
    that is not null). The row without a key is about places that cannot be read and have no finding, because they lie
    in front of the audited offsets or their checksum is right. A record of any key may be there."""
    is_unread = (F.col(prefix + "part") == UNOPENED) & (
        (F.col("base_offset") < F.col("audited")) | F.col(prefix + "sealed")
    )
    records = side.where(F.col(prefix + "key").isNotNull() | is_unread).withColumnRenamed(prefix + "key", "key")
    is_tombstone = (F.col(prefix + "tombstone") == TOMBSTONE) & (
        F.col("copied").isNull() | (F.col("base_offset") < F.col("copied"))
    )
    return records.groupBy(*_KEY).agg(
        F.min("base_offset").alias(prefix + "first"),
        F.max("base_offset").alias(prefix + "last"),
        F.max(F.when(is_tombstone, F.col("base_offset"))).alias(prefix + "deleted"),
    )


def _unread(latest: DataFrame, prefix: str) -> DataFrame:
    """Returns for each partition the first offset that could not be read."""
    return latest.where(F.col("key").isNull()).select(
        "topic", "partition", F.col(prefix + "first").alias(prefix + "unread")
    )


def _at() -> Column:
    """Returns the side that has the record; null if both have one, or if a batch could not be opened."""
    unopened = F.col("s_part").eqNullSafe(UNOPENED) | F.col("d_part").eqNullSafe(UNOPENED)
    return (
        F.when(unopened, F.lit(None))
        .when(F.col("d_digest").isNull(), F.lit(Side.SOURCE.value))
        .when(F.col("s_digest").isNull(), F.lit(Side.DESTINATION.value))
    )


def _excused(here: str, there: str) -> Column:
    """Returns the condition that the cleaner of side ``there`` may have removed a record that only ``here`` has."""
    offset = F.col("base_offset")
    deleted = _holds(F.col(here + "tombstone") == TOMBSTONE) | _holds(F.col(here + "deleted") > offset)
    lives_there = _holds(F.col(there + "first") < offset) | _holds(F.col(there + "unread") < offset)
    return F.col("key").isNull() | _holds(F.col(there + "last") > offset) | (deleted & ~lives_there)


def _holds(condition: Column) -> Column:
    """Returns the condition with False in place of null, which means that there is no such record."""
    return F.coalesce(condition, F.lit(False))
