"""Rows of small batches that are larger ones at the destination: no difference if these hold the very same records."""

from collections.abc import Callable, Sequence

import pytest
from pyspark.sql import SparkSession

from mirror.audit import job
from mirror.audit.judge.changed.cleaned import GONE_HERE, GONE_THERE
from mirror.audit.judge.changed.rebatched import REBATCHED, rows_of_batches
from mirror.audit.judge.changed.reencoded import SPARSE, counted, settled, suspects
from mirror.audit.judge.kinds import PlacedBatch, Scene, named
from mirror.audit.model.differences import Pairs, RecordDifference
from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Side, Span
from mirror.audit.model.request import AuditRequest
from mirror.audit.model.result import AuditResult, Verdict
from mirror.audit.model.rows import BatchRow
from mirror.audit.report import verdict
from mirror.records.content.rewriting import rebatch
from mirror.records.header import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import Batches, batches_of, copy, create, delete_before, endpoint, fill
from tests.audit.judge.changed.test_reencoded import ALL, BOTH, KEY, at, missing, row
from tests.records.builders import sealed

Pair = tuple[SandboxCluster, SandboxCluster]
ROW = [row(10, 12), row(13, 13), row(14, 19)]


def judged(
    source: Sequence[BatchRow],
    there: Sequence[BatchRow],
    differences: Sequence[RecordDifference] = (),
    *,
    cleaned: frozenset[Side] = frozenset(),
    audited: Span = ALL,
    ended: bool = False,
    codec: int | None = None,
    rebatches: bool = True,
) -> tuple[list[tuple[Kind, str, int]], int]:
    """Kinds, details and batches of the findings, and how many rows are left."""
    ours, theirs = at(*source), at(*there)
    found = settled(
        KEY, ours, theirs, differences, cleaned, audited, ended=ended, codec=codec, rebatches=rebatches
    )  # fmt: skip
    return [(one.kind, one.detail, one.batches) for one in found.findings], len(ours) + len(theirs)


@pytest.mark.parametrize(
    "there",
    [[row(10, 19)], [row(10, 15), row(16, 19)], [row(10, 10), row(11, 14), row(15, 19)]],
)
def test_a_row_in_larger_batches(there: list[BatchRow]) -> None:
    """Wherever these end."""
    assert judged(ROW, there) == ([(Kind.REENCODED, REBATCHED, 3)], 0)
    assert judged(ROW, there, rebatches=False)[0] in ([], [(Kind.REENCODED, "the batch was cut in pieces", 1)] * 2)


def test_the_last_part_may_be_as_long_as_a_batch() -> None:
    assert judged(ROW, [row(10, 13), row(14, 19)]) == (
        [(Kind.REENCODED, REBATCHED, 2), (Kind.REENCODED, REBATCHED, 1)], 0,
    )  # fmt: skip


def test_rows_side_by_side() -> None:
    """Each is judged by itself: the second has a record that differs."""
    found, left = judged([*ROW, row(20, 22), row(23, 25)], [row(10, 19), row(20, 25)], [missing(24, None)])
    assert (found, left) == ([(Kind.REENCODED, REBATCHED, 3)], 3)


def test_the_codec_of_the_flow_or_of_the_batches() -> None:
    ours = [row(10, 12, flags=3), row(13, 19, flags=3)]
    assert judged(ours, [row(10, 19, flags=3)])[1] == 0
    assert judged(ours, [row(10, 19, flags=4)], codec=4)[1] == 0
    assert judged(ours, [row(10, 19, flags=4)]) == ([], 3)


@pytest.mark.parametrize(
    ("there", "differences"),
    [
        ([row(10, 19)], [missing(15, None)]),
        ([row(10, 18)], [missing(19, Side.SOURCE)]),
        ([row(10, 19, records=9)], []),
        ([row(10, 18)], []),
        ([row(10, 19, flags=LOG_APPEND_TIME)], []),
        ([row(10, 20)], [missing(20, Side.DESTINATION)]),
    ],
    ids=["a record differs", "a record is missing", "a hole", "one less", "append time", "one more"],
)
def test_what_is_no_such_row(there: list[BatchRow], differences: list[RecordDifference]) -> None:
    assert judged(ROW, there, differences) == ([], 3 + len(there))


def test_cleaners() -> None:
    """What the source's cleaner has taken is not verified; what the destination's has taken is explained."""
    less = [row(10, 12), row(14, 19, records=4)]
    gone = [missing(offset, Side.DESTINATION) for offset in (13, 15, 16)]
    assert judged(less, [row(10, 19)], gone, cleaned=BOTH) == ([(Kind.UNVERIFIABLE, GONE_HERE, 2)], 0)
    assert judged(less, [row(10, 19)], gone)[1] == 3
    gone = [missing(11, Side.SOURCE)]
    assert judged(ROW, [row(10, 19, records=9)], gone, cleaned=BOTH) == ([(Kind.CLEANED, GONE_THERE, 3)], 0)


def test_a_batch_with_holes_is_not_of_a_row() -> None:
    """It is rewritten for a reason of its own."""
    assert judged([row(10, 12), row(13, 19, records=2)], [row(10, 12), row(14, 15)])[0] == [
        (Kind.REENCODED, REBATCHED, 1), (Kind.REENCODED, SPARSE, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("ended", [True, False])
def test_a_destination_that_ends_inside_of_a_row(ended: bool) -> None:
    """The rest is missing, once nobody else says so."""
    found, left = judged(ROW, [row(10, 16)], audited=Span(0, 17), ended=ended)
    rest = [(Kind.MISSING, "the rest of a batch that the destination ends inside of", 0)]
    assert (found, left) == ([(Kind.REENCODED, REBATCHED, 3), *(rest if ended else [])], 0)


def test_what_only_one_side_has_is_left() -> None:
    assert [*rows_of_batches(at(row(0, 4), row(10, 12)), at(row(20, 29)))] == []
    (one,) = rows_of_batches(at(row(0, 4), row(5, 9)), at(row(0, 9), row(20, 29)))
    assert (len(one.source), one.span, one.records, one.size) == (2, Span(0, 10), 10, 1_000)


def test_they_are_opened() -> None:
    pairs = Pairs(at(*ROW, row(30, 32)), at(row(10, 19)))
    assert [one.base_offset for one in suspects(pairs, rebatches=True)] == [10, 13, 14]
    assert suspects(pairs) == []


@pytest.mark.parametrize("there", [[row(10, 19)], [row(10, 12), row(13, 19)]])
def test_a_max_timestamp_that_no_record_has(there: list[BatchRow]) -> None:
    wrong = [*there[:-1], there[-1]._replace(max_timestamp=99)]
    assert judged(ROW, wrong)[0] == [(Kind.REENCODED, REBATCHED, 1)] * (len(there) - 1)


@pytest.mark.parametrize("ended", [True, False])
def test_a_source_that_ends_inside_of_a_larger_batch(ended: bool) -> None:
    """What only the destination has is not missing there."""
    assert judged(ROW[:1], [row(10, 19)], audited=Span(0, 13), ended=ended) == ([], 2)


def test_a_larger_batch_like_another_one_of_the_source() -> None:
    """Records that are all alike: what is in its place is looked at first."""
    other = row(6, 11)._replace(digest=b"X" * 16)
    scene = Scene(
        key=KEY, audited=Span(0, 12), source=at(*(row(each, each) for each in range(6))),
        destination=at(other._replace(base_offset=0, last_offset=5)), opened=[], rebatches=True,
        in_source={other.content: [PlacedBatch(KEY, other)]}, in_tail={}, looked=[Span(0, 12)],
    )  # fmt: skip
    (found,) = named(scene)
    assert (found.kind, found.detail, found.batches) == (Kind.REENCODED, REBATCHED, 6)


# On real clusters.


@pytest.fixture
def pair(source_cluster: SandboxCluster, destination_cluster: SandboxCluster) -> Pair:
    return source_cluster, destination_cluster


def audit(pair: Pair, spark: SparkSession, *topics: str, rebatches: bool = True) -> AuditResult:
    request = AuditRequest(
        flow="source->destination", source=endpoint(pair[0], "source"), destination=endpoint(pair[1], "destination"),
        topics=topics, catch_up_s=0, rebatches=rebatches,
    )  # fmt: skip
    return job.run(request, spark=spark)


def joined(batches: Batches, most: int | None = None) -> Batches:
    made = rebatch([(BatchHeader.read(one), one[HEADER_SIZE:]) for one in batches], most_size=most)
    return [header.pack() + records for header, records in made]


def copied(pair: Pair, name: str, change: Callable[[Batches], Batches], batches: int = 8) -> None:
    for cluster in pair:
        create(cluster, name)
    fill(pair[0], name, batches=batches)
    copy(*pair, name, change=change)


@pytest.mark.broker
@pytest.mark.spark
def test_copies_in_larger_batches(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    """
    1. Of five copies, one is in one batch, one in several that are cut anywhere, one begins and ends as it is; one has
       another value inside, one lacks its last record.
    2. The first three are identical. The others differ where they do.
    """
    one, cut, among, value, fewer = (f"{topic_name}-{what}" for what in ("one", "cut", "among", "value", "fewer"))

    def changed(raw: Batches) -> Batches:
        (batch,) = joined(raw)
        where = batch.index(b"none 5")
        return [sealed(batch[:where] + b"XXXX" + batch[where + 4 :])]

    copied(pair, one, joined)
    copied(pair, cut, lambda raw: joined(raw, 2 * len(raw[0])))
    copied(pair, among, lambda raw: [*raw[:2], *joined(raw[2:5]), *raw[5:]])
    copied(pair, value, changed)
    copied(pair, fewer, lambda raw: [*joined(raw[:-1]), raw[-1][:0]][:-1])
    good = audit(pair, spark, one, cut, among)
    assert good.findings == ()
    assert good.verdict is Verdict.IDENTICAL
    records = {
        name: [BatchHeader.read(batch).record_count for batch in batches_of(pair[0], name)] for name in (one, cut)
    }
    told = counted(good.reencoded)[REBATCHED]
    assert told[0] == 8 + 8 + 3
    assert told[1] == sum(records[one]) + sum(records[cut]) + sum(records[one][2:5])
    assert f"stand in other batches ({REBATCHED})" in verdict(good)
    bad = audit(pair, spark, value, fewer)
    assert {found.topic for found in bad.findings} == {value, fewer}
    assert bad.verdict is Verdict.DIFFERENT
    shallow = audit(pair, spark, one, rebatches=False)
    assert shallow.verdict is Verdict.DIFFERENT


@pytest.mark.broker
@pytest.mark.spark
def test_logs_that_begin_and_end_inside_of_a_row(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    name = f"{topic_name}-inside"
    copied(pair, name, joined)
    begins = BatchHeader.read(batches_of(pair[0], name)[0]).next_offset + 1
    for cluster in pair:
        delete_before(cluster, name, begins)
    result = audit(pair, spark, name)
    assert result.findings == ()
    assert REBATCHED in counted(result.reencoded)
