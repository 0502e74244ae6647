"""What a log cleaner, the deep path or a destination's clock excuses, and what they do not. Pure."""

from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import types as T

from mirror.audit.judge.changed.cleaned import REWRITTEN
from mirror.audit.judge.changed.rebatched import REBATCHED
from mirror.audit.judge.kinds import Scene, named
from mirror.audit.model.differences import RecordDifference
from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Side, Span
from mirror.audit.model.rows import BatchRow, Hole, What
from mirror.audit.spark.by_record import _excused, _latest
from mirror.audit.spark.options import RECORD, UNOPENED
from tests.audit.judge.changed.test_reencoded import ALL, BOTH, KEY, at, row

THERE = frozenset({Side.DESTINATION})


def gone(*offsets: int, side: Side = Side.SOURCE) -> list[RecordDifference]:
    """Records that only this side has, of which a later one stands."""
    return [RecordDifference(offset, side, True, 9) for offset in offsets]


def stamped(base: int, last: int, at_ms: int, digest: bytes = b"") -> BatchRow:
    """As a reader sees it where append times are allowed: the max timestamp is the base timestamp."""
    return BatchRow(base, last, last - base + 1, 0, at_ms, at_ms, 500, True, digest or b"%d-%d" % (base, last))


def told(scene: Scene) -> list[tuple[Kind, str]]:
    return [(one.kind, one.detail) for one in named(scene)]


@pytest.mark.parametrize(("cleaned", "kind"), [(BOTH, Kind.CLEANED), (THERE, Kind.MISSING)])
def test_what_only_a_cleaner_at_the_destination_takes(cleaned: frozenset[Side], kind: Kind) -> None:
    """If the source is not compacted, its consumers keep what the destination's lack, for ever."""
    scene = Scene(
        key=KEY, audited=ALL, source=at(row(10, 12)), destination={}, in_source={}, in_tail={},
        odd=[Hole(10, 13, What.GAP)], looked=[ALL], cleaned=cleaned, opened=gone(10, 11, 12),
    )  # fmt: skip
    assert [one for one, _ in told(scene)] == [kind]


@pytest.mark.parametrize("mapped", [False, True])
def test_what_was_never_copied_is_not_cleaned(mapped: bool) -> None:
    """Behind the destination's end, tombstones are missing like everything else."""
    scene = Scene(
        key=KEY, audited=Span(0, 96), source=at(row(96, 97)), destination={}, in_source={}, in_tail={},
        looked=[Span(0, 98)], cleaned=BOTH, opened=gone(96, 97), mapped=mapped, ended=True,
    )  # fmt: skip
    assert [one for one, _ in told(scene)] == [Kind.MISSING]


@pytest.mark.parametrize("cleaned", [frozenset(), frozenset({Side.SOURCE}), BOTH])
@pytest.mark.parametrize("rebatches", [False, True])
def test_holes_inside_of_a_batch_are_filled(cleaned: frozenset[Side], rebatches: bool) -> None:
    """The source's cleaner has taken records out of the middle, and the mirror also makes larger batches."""
    scene = Scene(
        key=KEY, audited=ALL, source=at(row(10, 19, records=6)), destination=at(row(11, 13), row(16, 18)), in_source={},
        in_tail={}, looked=[ALL], cleaned=cleaned, opened=[], rebatches=rebatches,
        markers=[Hole(10, 11, What.CONTROL), Hole(14, 16, What.CONTROL), Hole(19, 20, What.CONTROL)],
    )  # fmt: skip
    assert [one for one, _ in told(scene)] == [Kind.REENCODED]


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("mistimed", [(), (12,), (19, 20)])
def test_a_wrong_max_timestamp_of_what_was_cleaned(mistimed: tuple[int, ...], *, copied: bool) -> None:
    """A cleaner writes a batch anew with the times of what is left. By a wrong one, brokers look up offsets by time. If
    the source has it as well, it was copied."""
    theirs = row(10, 19, records=9)
    scene = Scene(
        key=KEY, audited=ALL, source=at(row(10, 19)),
        destination=at(theirs if copied else theirs._replace(max_timestamp=theirs.max_timestamp + 5)), in_source={},
        in_tail={}, looked=[ALL], opened=gone(11), cleaned=BOTH, mistimed=mistimed,
    )  # fmt: skip
    wrong = [Kind.HEADER_CHANGED] if mistimed and not copied else []
    found = named(scene)
    assert [one.kind for one in found] == [Kind.CLEANED, *wrong]
    assert [one.destination for one in found if one.kind in wrong] == [Span(10, 20)] * len(wrong)


@pytest.mark.parametrize("append_times", [True, False])
def test_larger_batches_with_times_of_the_append(append_times: bool) -> None:
    """Their newest time is the broker's. Without that leave, it is a difference."""
    small, larger = at(stamped(0, 0, 1_000), stamped(1, 1, 1_005)), at(stamped(0, 1, 1_000))
    scene = Scene(
        key=KEY, audited=ALL, source=small, destination=larger, in_source={}, in_tail={}, looked=[ALL], opened=[],
        rebatches=True, append_times=append_times,
    )  # fmt: skip
    assert (told(scene) == [(Kind.REENCODED, REBATCHED)]) is append_times


@pytest.mark.parametrize("append_times", [True, False])
def test_a_delete_horizon_with_times_of_the_append(append_times: bool) -> None:
    """A cleaner that marks a batch's tombstones puts another base timestamp in."""
    scene = Scene(
        key=KEY, audited=ALL, source=at(stamped(0, 4, 1_000, b"a")), destination=at(stamped(0, 4, 9_999, b"b")),
        in_source={}, in_tail={}, looked=[ALL], opened=[], cleaned=BOTH, append_times=append_times,
    )  # fmt: skip
    assert (told(scene) == [(Kind.CLEANED, REWRITTEN)]) is append_times


LATER = T.StructType(
    [
        T.StructField("base_offset", T.LongType()),
        T.StructField("key", T.StringType()),
        T.StructField("s_tombstone", T.IntegerType()),
        T.StructField("s_deleted", T.LongType()),
        T.StructField("d_first", T.LongType()),
        T.StructField("d_last", T.LongType()),
        T.StructField("d_unread", T.LongType()),
    ]
)
RECORDS = {
    "a later one stands there": ((5, "k", 0, None, 2, 9, None), True),
    "nothing of its key stands there": ((5, "k", 0, None, None, None, None), False),
    "deleted later, and nothing stands there": ((5, "k", 0, 9, None, None, None), True),
    "deleted later, and an earlier one stands there": ((5, "k", 0, 9, 2, 2, None), False),
    "a tombstone, and nothing stands there": ((5, "k", 1, 5, None, None, None), True),
    "a tombstone, and what it deletes stands there": ((5, "k", 1, 5, 2, 2, None), False),
    "a tombstone, and a later one stands there": ((5, "k", 1, 5, 2, 9, None), True),
    "without a key": ((5, None, 0, None, None, None, None), True),
    "a tombstone, and nobody knows what stands there": ((5, "k", 1, 5, None, None, 4), False),
    "deleted later, and nobody knows what stands there": ((5, "k", 0, 9, None, None, 2), False),
    "a tombstone, and what stands behind it is not known": ((5, "k", 1, 5, None, None, 5), True),
    "a tombstone, and a later one stands there, whatever else does": ((5, "k", 1, 5, None, 9, 2), True),
}


@pytest.mark.spark
def test_records_that_a_cleaner_may_have_taken(spark: SparkSession) -> None:
    """Of records that only the source has. A tombstone is no excuse while its key lives at the destination."""
    rows = [(*values, name) for name, (values, _) in RECORDS.items()]
    frame = spark.createDataFrame(rows, T.StructType([*LATER, T.StructField("name", T.StringType())]))
    found = {row["name"]: row["excused"] for row in frame.withColumn("excused", _excused("s_", "d_")).collect()}
    assert found == {name: excused for name, (_, excused) in RECORDS.items()}


def latest(spark: SparkSession, *rows: tuple[int, int, str | None, int, int | None, str, bool]) -> dict[Any, Row]:
    """What is kept of each key of these rows: partition, offset, key, tombstone, end of the copy, part and sealed. The
    audited offsets begin at 50."""
    fields = {"topic": T.StringType(), "audited": T.LongType(), "partition": T.IntegerType()}
    fields |= {"base_offset": T.LongType(), "s_key": T.StringType(), "s_tombstone": T.IntegerType()}
    fields |= {"copied": T.LongType(), "s_part": T.StringType(), "s_sealed": T.BooleanType()}
    schema = T.StructType([T.StructField(*field) for field in fields.items()])
    frame = spark.createDataFrame([("t", 50, *row) for row in rows], schema)
    return {(row["partition"], row["key"]): row for row in _latest(frame, "s_").collect()}


@pytest.mark.spark
def test_a_tombstone_that_was_never_copied(spark: SparkSession) -> None:
    """It is written behind the destination's end: no cleaner there has removed anything because of it."""
    rows = [
        (0, 50, "a", 0, 100), (0, 120, "a", 1, 100),
        (0, 51, "b", 0, 100), (0, 60, "b", 1, 100), (0, 130, "b", 1, 100),
        (1, 120, "a", 1, None),
    ]  # fmt: skip
    found = latest(spark, *((*row, RECORD, False) for row in rows))
    assert {key: row["s_deleted"] for key, row in found.items()} == {(0, "a"): None, (0, "b"): 60, (1, "a"): 120}


@pytest.mark.spark
def test_what_could_not_be_read_and_has_no_finding(spark: SparkSession) -> None:
    """
    1. In front of the audited offsets, damage has no finding: nobody knows which keys stand there.
    2. Among them it has one, unless its checksum is right: then both sides may have the same.
    3. Records without a key are not unread.
    """
    rows: list[tuple[int, int, str | None, int, int | None, str, bool]] = [(0, 30, None, 0, None, RECORD, False)]
    rows += [(at, offset, None, 0, None, UNOPENED, sealed) for at, offset, sealed in (
        (0, 49, False), (0, 45, False), (1, 50, False), (2, 50, False), (2, 70, True), (2, 80, True),
    )]  # fmt: skip
    rows += [(1, 60, "a", 0, None, RECORD, False)]
    assert {key: row["s_first"] for key, row in latest(spark, *rows).items()} == {
        (0, None): 45, (1, "a"): 60, (2, None): 70
    }  # fmt: skip


@pytest.mark.parametrize("mapped", [False, True])
def test_holes_of_both_sides_excuse_what_only_the_destination_has(mapped: bool) -> None:
    """With offsets of its own, a copy has none of the source's holes: those that seem equal are the source's. Exact, a
    hole that both have is no place for a batch."""
    scene = Scene(
        key=KEY, audited=ALL, source={}, destination=at(row(10, 12)), in_source={}, in_tail={},
        equal=[Hole(10, 13, What.GAP)], looked=[ALL], cleaned=BOTH, mapped=mapped,
        opened=gone(10, 11, 12, side=Side.DESTINATION),
    )  # fmt: skip
    assert [one for one, _ in told(scene)] == [Kind.UNVERIFIABLE if mapped else Kind.EXTRA]
