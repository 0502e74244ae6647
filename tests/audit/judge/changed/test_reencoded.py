"""Batches that stand in other batches at the destination: excused if they had to, and hold the very same records."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirror.audit import job
from mirror.audit.judge.changed.cleaned import GONE_HERE
from mirror.audit.judge.changed.reencoded import APPENDED, CUT, RECODED, SPARSE, counted, settled, suspects
from mirror.audit.model.differences import Pairs, RecordDifference
from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Side, Span, TopicPartition
from mirror.audit.model.request import AuditRequest
from mirror.audit.model.result import AuditResult, Verdict
from mirror.audit.model.rows import BatchRow, Hole, What
from mirror.audit.report import verdict
from mirror.records.content.rewriting import rewrite
from mirror.records.header import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, Codec
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import Batches, batches_of, copy, create, delete_before, endpoint, fill
from tests.records.builders import Record, kafka_batch, sealed

Pair = tuple[SandboxCluster, SandboxCluster]
KEY = TopicPartition("t", 0)
BOTH = frozenset(Side)
ALL = Span(0, 1_000)


def row(base: int, last: int, *, records: int | None = None, flags: int = 0, crc_ok: bool = True) -> BatchRow:
    count = last - base + 1 if records is None else records
    return BatchRow(base, last, count, flags, 0, 0, 500, crc_ok, b"%d-%d" % (base, last))


def at(*rows: BatchRow) -> dict[int, BatchRow]:
    return {one.base_offset: one for one in rows}


def missing(offset: int, side: Side | None, *, excused: bool = True) -> RecordDifference:
    return RecordDifference(offset, side, excused, 10)


def judged(
    source: BatchRow,
    *there: BatchRow,
    differences: Sequence[RecordDifference] = (),
    cleaned: frozenset[Side] = frozenset(),
    audited: Span = ALL,
    ended: bool = False,
    passed: Mapping[int, str] | None = None,
    codec: int | None = None,
) -> tuple[list[tuple[Kind, str]], list[Hole], int]:
    """Kinds and details of the findings, the holes, and how many rows are left."""
    ours, theirs = at(source), at(*there)
    found = settled(KEY, ours, theirs, differences, cleaned, audited, ended=ended, passed=passed or {}, codec=codec)
    return [(one.kind, one.detail) for one in found.findings], found.holes, len(ours) + len(theirs)


def test_cut_in_pieces() -> None:
    assert judged(row(10, 19), row(10, 12), row(13, 19)) == ([(Kind.REENCODED, CUT)], [], 0)


def test_the_codec_of_the_flow() -> None:
    """In one batch or several, where the flow asks for it; also such that were copied before it did."""
    ours, told = row(10, 19, flags=3), [(Kind.REENCODED, RECODED)]
    assert judged(ours, row(10, 19, flags=4), codec=4) == (told, [], 0)
    assert judged(ours, row(10, 12, flags=4), row(13, 19, flags=4), codec=4) == (told, [], 0)
    assert judged(row(10, 19, records=6), row(11, 13, flags=4), row(16, 18, flags=4), codec=4)[0] == [
        (Kind.REENCODED, SPARSE)
    ]
    assert judged(ours, row(10, 12, flags=3), row(13, 19, flags=3), codec=3)[0] == [(Kind.REENCODED, CUT)]
    for there, codec in ((row(10, 19, flags=4), None), (row(10, 19, flags=2), 4)):
        assert judged(ours, there, codec=codec)[0] == []
    different = [missing(12, None)]
    assert judged(ours, row(10, 19, flags=4), differences=different, codec=4)[0] == []


def test_a_wrong_max_timestamp_over_the_right_records() -> None:
    """Of the batch that has it, beside what is said of all."""
    ours, theirs = at(row(10, 19)), at(row(10, 12), row(13, 19))
    found = settled(KEY, ours, theirs, [], frozenset(), ALL, ended=False, mistimed=[13]).findings
    assert [(one.kind, one.source, one.destination) for one in found] == [
        (Kind.REENCODED, Span(10, 20), Span(10, 20)),
        (Kind.HEADER_CHANGED, Span(13, 20), Span(13, 20)),
    ]
    assert found[1].detail == "max timestamp 0 is not that of the batch's records"
    assert not ours
    assert not theirs
    rows = at(row(10, 12), row(13, 19))
    found = settled(
        KEY, rows, at(row(10, 19)), [], frozenset(), ALL, ended=False, rebatches=True, mistimed=[10]
    ).findings
    assert [one.kind for one in found] == [Kind.REENCODED, Kind.HEADER_CHANGED]


def test_holes_inside_are_holes_of_the_source() -> None:
    found, holes, left = judged(row(10, 19, records=6), row(11, 13), row(16, 18))
    assert found == [(Kind.REENCODED, SPARSE)]
    assert holes == [Hole(10, 11, What.GAP), Hole(14, 16, What.GAP), Hole(19, 20, What.GAP)]
    assert left == 0


def test_append_times() -> None:
    assert judged(row(10, 19, flags=LOG_APPEND_TIME | 4), row(10, 19, flags=4))[0] == [(Kind.REENCODED, APPENDED)]


@pytest.mark.parametrize(
    ("source", "there", "differences"),
    [
        (row(10, 19), [row(10, 12), row(13, 19)], [missing(15, None, excused=False)]),
        (row(10, 19), [row(10, 12), row(13, 18)], [missing(19, Side.SOURCE, excused=False)]),
        (row(10, 19), [row(10, 12), row(13, 19, flags=4)], []),
        (row(10, 19), [row(10, 12), row(13, 20)], []),
        (row(10, 19), [row(9, 12), row(13, 19)], []),
        (row(10, 19), [row(10, 19)], []),
        (row(10, 19), [row(10, 19, flags=LOG_APPEND_TIME)], []),
        (row(10, 19), [], []),
        (row(10, 19), [row(10, 12), row(13, 19, records=5)], []),
        (row(10, 19), [row(10, 12), row(13, 18)], []),
        (row(10, 19, records=7), [row(10, 12), row(13, 19, records=4)], []),
        (row(10, 19, records=9), [row(9, 12), row(15, 19)], []),
        (row(10, 19, records=9), [row(10, 12), row(15, 20)], []),
    ],
    ids=[
        "another record", "a record too few", "another codec", "beyond its end", "before its beginning", "no cause",
        "append times of the destination's own", "nothing there", "holes in a piece", "a piece too short",
        "as many records as the source, and holes in a piece", "as many, and before its beginning",
        "as many, and beyond its end",
    ],
)  # fmt: skip
def test_what_is_no_rewriting(source: BatchRow, there: list[BatchRow], differences: list[RecordDifference]) -> None:
    assert judged(source, *there, differences=differences) == ([], [], 1 + len(there))


def test_a_batch_with_the_same_borders_was_cleaned_and_not_rewritten() -> None:
    assert judged(row(10, 19, records=6), row(10, 19, records=6), cleaned=BOTH) == ([], [], 2)


def test_what_the_source_s_cleaner_has_taken_since_is_not_proved() -> None:
    gone = [missing(12, Side.DESTINATION)]
    assert judged(row(10, 19, records=5), row(10, 15), differences=gone, cleaned=BOTH)[0] == [
        (Kind.UNVERIFIABLE, GONE_HERE)
    ]
    assert judged(row(10, 19, records=5), row(10, 15), differences=gone)[0] == []


def test_what_the_destination_s_cleaner_has_taken_since_is_no_hole() -> None:
    gone = [missing(12, Side.SOURCE)]
    found, holes, left = judged(row(10, 19, records=6), row(10, 15, records=5), differences=gone, cleaned=BOTH)
    assert [kind for kind, _ in found] == [Kind.CLEANED]
    assert (holes, left) == ([Hole(16, 20, What.GAP)], 0)


def test_a_log_that_begins_or_ends_inside_of_a_batch() -> None:
    """Only what both logs have is compared, and only there are holes due."""
    source = row(10, 19, records=8)
    assert judged(source, row(12, 14), audited=Span(13, 15)) == ([(Kind.REENCODED, SPARSE)], [], 0)
    found, holes, _ = judged(source, row(12, 14), audited=Span(10, 17))
    assert (found, holes) == ([(Kind.REENCODED, SPARSE)], [Hole(10, 12, What.GAP), Hole(15, 17, What.GAP)])
    told = judged(source, row(12, 14), audited=Span(10, 17), ended=True)[0]
    assert [kind for kind, _ in told] == [Kind.REENCODED, Kind.MISSING]
    lost = [missing(16, Side.SOURCE, excused=False)]
    assert judged(source, row(12, 14), differences=lost, audited=Span(10, 17))[0] == []
    assert judged(source, row(12, 14), differences=lost, audited=Span(10, 16))[0] == [(Kind.REENCODED, SPARSE)]


@pytest.mark.parametrize(("end", "pieces", "left"), [(17, [(10, 12), (13, 16)], 3), (13, [(10, 12)], 7)])
def test_how_many_records_the_rest_has(end: int, pieces: list[tuple[int, int]], left: int) -> None:
    found = settled(
        KEY, at(row(10, 19)), at(*(row(*piece) for piece in pieces)), [], frozenset(), Span(0, end), ended=True
    ).findings  # fmt: skip
    told = [(Kind.REENCODED, Span(10, end), 10), (Kind.MISSING, Span(end, 20), left)]
    assert [(one.kind, one.source, one.records) for one in found] == told


def test_batches_and_records_add_up_by_cause() -> None:
    sides = (
        at(row(10, 19), row(20, 29), row(30, 34, records=3)),
        at(row(10, 12), row(13, 19), row(20, 22), row(23, 29), row(31, 32), row(34, 34)),
    )
    found = settled(KEY, *sides, [], frozenset(), ALL, ended=False).findings
    assert counted(found) == {CUT: (2, 20), SPARSE: (1, 3)}


def test_which_batches_are_opened() -> None:
    source = at(
        row(0, 9), row(10, 19), row(20, 29, records=5), row(30, 39, flags=LOG_APPEND_TIME), row(40, 49), row(50, 59)
    )
    there = at(row(0, 9), row(10, 14), row(15, 19), row(20, 24), row(30, 39), row(50, 59, crc_ok=False))
    assert [one.base_offset for one in suspects(Pairs(source, there))] == [10, 20, 30]


PASSED = {15: "dropped", 40: "dropped"}
LOST = (Kind.OVERSIZE, "dropped")


def test_a_record_that_was_passed_over() -> None:
    """It is a finding of its own, whatever the rest of its batch is; its offset is a hole, so that a marker is due."""
    gone = missing(15, Side.SOURCE, excused=False)
    found, holes, left = judged(row(10, 19), row(10, 14), row(16, 19), differences=[gone], passed=PASSED)
    assert (found, holes, left) == ([(Kind.REENCODED, CUT), LOST], [Hole(15, 16, What.GAP)], 0)
    found, holes, left = judged(row(15, 15), differences=[gone], passed=PASSED)
    assert (found, holes, left) == ([LOST], [Hole(15, 16, What.GAP)], 0)


def test_how_many_records_were_passed_over() -> None:
    ours, theirs = at(row(10, 19)), at(row(10, 14), row(16, 19))
    told = settled(KEY, ours, theirs, [missing(15, Side.SOURCE)], frozenset(), ALL, ended=False, passed=PASSED).findings
    assert [(one.source, one.destination, one.records, one.bytes) for one in told] == [
        (Span(10, 20), Span(10, 20), 9, 500), (Span(15, 16), None, 1, 10),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "there", "differences"),
    [
        (row(10, 19), [row(10, 14), row(16, 19)], [missing(15, None, excused=False)]),
        (row(10, 19), [row(10, 14), row(17, 19)], [missing(15, Side.SOURCE), missing(16, Side.SOURCE)]),
        (row(15, 15), [row(15, 15)], [missing(15, None, excused=False)]),
        (row(15, 16), [], [missing(15, Side.SOURCE), missing(16, Side.SOURCE)]),
        (row(15, 15), [], []),
        (row(17, 17), [], [missing(17, Side.SOURCE)]),
    ],
    ids=["another record", "one more", "another batch", "one more of a batch", "not opened", "not said"],
)
def test_what_nobody_says_was_passed_over(
    source: BatchRow, there: list[BatchRow], differences: list[RecordDifference]
) -> None:
    assert judged(source, *there, differences=differences, passed=PASSED) == ([], [], 1 + len(there))


def test_a_log_cleaner_and_a_record_that_was_passed_over() -> None:
    gone = [missing(12, Side.DESTINATION), missing(15, Side.SOURCE)]
    found, holes, left = judged(
        row(10, 19, records=9), row(10, 14), row(16, 19), differences=gone, cleaned=BOTH, passed=PASSED
    )
    assert (found, holes, left) == ([(Kind.UNVERIFIABLE, GONE_HERE), LOST], [Hole(15, 16, What.GAP)], 0)


def test_a_batch_that_reaches_beyond_one_with_such_a_record() -> None:
    gone = [missing(15, Side.SOURCE)]
    there = row(16, 17, records=1)
    assert judged(row(15, 16), there, differences=gone, cleaned=BOTH, passed=PASSED) == ([], [], 2)


def test_batches_of_such_records_are_opened() -> None:
    source = at(row(0, 9), row(15, 15), row(40, 49), row(50, 50))
    assert [one.base_offset for one in suspects(Pairs(source, at(row(0, 9))), [*PASSED])] == [15, 40]


# On real clusters.


@pytest.fixture
def pair(source_cluster: SandboxCluster, destination_cluster: SandboxCluster) -> Pair:
    return source_cluster, destination_cluster


def audit(pair: Pair, spark: SparkSession, *topics: str) -> AuditResult:
    request = AuditRequest(
        flow="source->destination", source=endpoint(pair[0], "source"), destination=endpoint(pair[1], "destination"),
        topics=topics, catch_up_s=0,
    )  # fmt: skip
    return job.run(request, spark=spark)


def pieces(batch: bytes, most: int | None = None) -> Batches:
    made = rewrite(BatchHeader.read(batch), batch[HEADER_SIZE:], most_size=most)
    return [header.pack() + records for header, records in made]


def all_cut(raw: Batches) -> Batches:
    return [piece for batch in raw for piece in pieces(batch, 2 * len(batch) // 3)]


@pytest.mark.broker
@pytest.mark.spark
def test_a_batch_among_others(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    """
    1. Of five copies, each has one batch in pieces: one as the mirror cuts it; one with another value, one without a
       record, one with another time; and one whose batch was compressed anew for no cause.
    2. The first is identical, and the verdict says what was written anew. Each other one differs, there and only there.
    """
    names = [f"{topic_name}-{what}" for what in ("good", "value", "fewer", "time", "codec")]

    def change(what: str, raw: Batches) -> Batches:
        first, *others = pieces(raw[3], 2 * len(raw[3]) // 3)
        assert others
        if what == "value":
            at = first.index(b"none 3")
            first = sealed(first[:at] + b"XXXX" + first[at + 4 :])
        elif what == "time":
            header = BatchHeader.read(first)
            first = sealed(
                header._replace(base_timestamp=header.base_timestamp + 1, max_timestamp=header.max_timestamp + 1).pack()
                + first[HEADER_SIZE:]
            )
        new = [first, *others]
        if what == "fewer":
            new = others
        elif what == "codec":
            header = BatchHeader.read(raw[3])
            read = kafka_batch([Record(0, header.base_timestamp, b"k", b"v" * 400)], codec=Codec.GZIP)
            new = [sealed(BatchHeader.read(read)._replace(base_offset=header.base_offset).pack() + read[HEADER_SIZE:])]
        return [*raw[:3], *new, *raw[4:]]

    for name in names:
        for cluster in pair:
            create(cluster, name)
        fill(pair[0], name)
        copy(*pair, name, change=lambda raw, name=name: change(name.rpartition("-")[2], raw))  # type: ignore[misc]
    good = audit(pair, spark, names[0])
    assert good.findings == ()
    (batch,) = [one for one in batches_of(pair[0], names[0])[3:4]]
    header = BatchHeader.read(batch)
    assert counted(good.reencoded) == {CUT: (1, header.record_count)}
    assert good.verdict is Verdict.IDENTICAL
    told = f"of 1 batch of source, the same {header.record_count} records stand in other batches ({CUT})"
    assert told in verdict(good)
    result = audit(pair, spark, *names[1:])
    assert {one.topic for one in result.findings} == {*names[1:]}
    for name in (names[1], names[3]):
        (finding,) = [one for one in result.findings if one.topic == name]
        assert finding.source == Span(header.base_offset, header.next_offset)


def _as_produced(batch: bytes) -> bytes:
    """With times of its own, which are earlier than that of the append."""
    header = BatchHeader.read(batch)
    new = header._replace(
        attributes=header.attributes & ~LOG_APPEND_TIME,
        base_timestamp=header.base_timestamp - 1_000,
        max_timestamp=header.base_timestamp - 1_000,
    )
    return sealed(new.pack() + batch[HEADER_SIZE:])


@pytest.mark.broker
@pytest.mark.spark
def test_a_source_that_begins_inside_of_such_a_batch(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    """
    1. Of two copies in pieces, both logs of one begin inside of the first batch, and the other one's copy ends inside
       of the last.
    2. The first is identical, the second lacks what is missing, and nothing else.
    """
    begins, ends = f"{topic_name}-begins", f"{topic_name}-ends"
    for name in (begins, ends):
        for cluster in pair:
            create(cluster, name)
        fill(pair[0], name)
    raw = batches_of(pair[0], ends)
    last = BatchHeader.read(raw[-1])
    copy(*pair, begins, change=all_cut)
    copy(*pair, ends, change=lambda found: [*all_cut(found[:-1]), pieces(found[-1], 2 * len(found[-1]) // 3)[0]])
    for cluster in pair:
        delete_before(cluster, begins, 2)
    assert audit(pair, spark, begins).findings == ()
    (finding,) = audit(pair, spark, ends).findings
    assert finding.kind is Kind.MISSING
    assert finding.source is not None
    assert last.base_offset < finding.source.start < finding.source.end == last.next_offset


@pytest.mark.broker
@pytest.mark.spark
def test_a_topic_of_such_batches(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    """
    1. Every batch of two topics was written anew: cut in pieces, and with the times of the append.
    2. Both are identical. With the producers' own times, the second is not.
    """
    cut, times, naive = (f"{topic_name}-{what}" for what in ("cut", "times", "naive"))

    def as_produced(raw: Batches) -> Batches:
        return [_as_produced(batch) for batch in raw]

    later: dict[str, Any] = {"message_timestamp_type": "LogAppendTime"}
    for name, config, change in (
        (cut, {}, all_cut),
        (times, later, lambda raw: [one for each in raw for one in pieces(each)]),
        (naive, later, as_produced),
    ):
        create(pair[0], name, **config)
        create(pair[1], name)
        fill(pair[0], name, batches=30, codec="lz4" if name == times else "none")
        copy(*pair, name, change=change)
    result = audit(pair, spark, cut, times)
    assert result.findings == ()
    assert {cause: batches for cause, (batches, _) in counted(result.reencoded).items()} == {CUT: 30, APPENDED: 30}
    result = audit(pair, spark, naive)
    assert result.verdict is Verdict.DIFFERENT
    assert result.reencoded == ()
