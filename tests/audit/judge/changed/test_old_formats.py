"""What is said of messages of old formats, and of damaged batches whose records the other side has one by one. The
findings on real brokers: ``tests/audit/faults/test_old.py``."""

from mirror.audit.judge.changed.old_formats import OLD, in_pieces, spans_of, told
from mirror.audit.judge.kinds import Scene, named
from mirror.audit.model.differences import Pairs
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Side, Span, TopicPartition
from mirror.audit.model.rows import OLD_FORMAT, UNREAD, BatchRow, Hole, What
from mirror.audit.prepare.moving import besides
from mirror.audit.prepare.plan import Range
from mirror.audit.read.ranges import RangeCoverage
from mirror.audit.spark.compare import Compared

KEY = TopicPartition("t", 0)
OTHER = TopicPartition("u", 3)


def coverage(*old: tuple[int, int, int, int, int]) -> RangeCoverage:
    return RangeCoverage(old=list(old))


READ = {
    ("t", 0, 0, 50): coverage((0, 20, 4, 18, 900), (30, 50, 2, 20, 1_000)),
    ("t", 0, 50, 90): coverage((50, 60, 1, 10, 100)),
    ("t", 1, 0, 90): coverage(),
    ("u", 3, 0, 90): coverage((5, 6, 1, 1, 50)),
}


def finding(kind: Kind, source: Span | None, records: int, topic: str = "t") -> Finding:
    return Finding(
        kind=kind, topic=topic, partition=0 if topic == "t" else 3, source=source, destination=source, batches=1,
        records=records, detail="",
    )  # fmt: skip


def test_where_they_are() -> None:
    assert spans_of(READ) == {KEY: [Span(0, 20), Span(30, 60)], OTHER: [Span(5, 6)]}


def test_all_are_counted_whose_records_are_the_same() -> None:
    found = told(READ, [])
    assert [(one.topic, one.partition, one.source, one.batches, one.records, one.bytes) for one in found] == [
        ("t", 0, Span(0, 60), 7, 48, 2_000), ("u", 3, Span(5, 6), 1, 1, 50),
    ]  # fmt: skip
    assert {(one.kind, one.detail) for one in found} == {(Kind.REENCODED, OLD)}


def test_what_is_not_the_same_is_not_counted() -> None:
    some = [
        finding(Kind.MISSING, Span(3, 5), 2),
        finding(Kind.VALUE_CHANGED, Span(31, 32), 1),
        finding(Kind.MISSING, Span(20, 30), 10),
        finding(Kind.MISSING, Span(18, 40), 22),
        finding(Kind.EXTRA, None, 5),
        finding(Kind.UNVERIFIABLE, Span(35, 36), 1),
        finding(Kind.MISSING, Span(5, 6), 1, "u"),
    ]
    (one,) = told(READ, some)
    assert one.records == 48 - 2 - 1 - 12
    for kind in (Kind.WHOLESALE, Kind.UNREADABLE):
        (left,) = told(READ, [finding(kind, Span(10, 11), 0)])
        assert left.topic == "u"


def row(base: int, last: int, *, flags: int = 0, crc_ok: bool = True) -> BatchRow:
    return BatchRow(base, last, 1, flags, 0, 0, 10, crc_ok, b"%d-%d" % (base, last))


def at(*rows: BatchRow) -> dict[int, BatchRow]:
    return {one.base_offset: one for one in rows}


def test_a_damaged_batch_goes_with_the_records_in_its_place() -> None:
    """On either side, and where all has moved."""
    units = [row(base, base) for base in range(10, 20)]
    for shift in (0, 3):
        theirs = [row(base + shift, base + shift) for base in range(10, 20)]
        source, destination = at(*units), at()
        broken: tuple[dict[int, BatchRow], dict[int, BatchRow]] = {}, at(row(12 + shift, 15 + shift, crc_ok=False))
        ((mine, others),) = in_pieces([(0, shift)], source, destination, broken)
        assert [one.base_offset for one in mine] == [12, 13, 14, 15]
        assert [one.base_offset for one in others] == [12 + shift]
        assert sorted(source) == [10, 11, 16, 17, 18, 19]
        source, destination = at(), at(*(one for one in theirs if one.base_offset != 13 + shift))
        broken = at(row(12, 15, crc_ok=False)), at(row(13 + shift, 13 + shift, crc_ok=False))
        ((mine, others),) = in_pieces([(0, shift)], source, destination, broken)
        assert [one.base_offset for one in mine] == [12]
        assert [one.base_offset for one in others] == [base + shift for base in (12, 13, 14, 15)]
        assert broken[0] == {}


def scene(source: dict[int, BatchRow], destination: dict[int, BatchRow], *markers: Hole, equal: bool = False) -> Scene:
    return Scene(
        key=KEY, audited=Span(0, 100), source=source, destination=destination, in_source={}, in_tail={},
        markers=list(markers), looked=[Span(0, 100)],
    )  # fmt: skip


def told_of(what: Scene) -> list[tuple[Kind, Span | None, Span | None, str]]:
    return [(one.kind, one.source, one.destination, one.detail) for one in named(what)]


def test_what_a_damaged_wrapper_holds_is_not_known() -> None:
    """The copy may have markers between its records; elsewhere they are overfilled."""
    spoiled = row(10, 15, flags=OLD_FORMAT, crc_ok=False)
    copied = at(row(10, 10), row(11, 11), row(15, 15))
    why = "checksum does not match the bytes at the source"
    found = told_of(scene(at(spoiled), copied, Hole(12, 15, What.CONTROL), Hole(20, 21, What.CONTROL)))
    assert found == [
        (Kind.CORRUPT, Span(10, 16), Span(10, 16), why),
        (Kind.OVERFILLED, None, Span(20, 21), "a marker where the source has a record"),
    ]
    spoiled = row(10, 15, flags=OLD_FORMAT | UNREAD, crc_ok=False)
    ((kind, _, _, detail),) = told_of(scene(at(spoiled), copied, Hole(12, 15, What.CONTROL)))
    assert (kind, detail) == (Kind.CORRUPT, "it cannot be opened at the source")


def test_a_message_of_an_old_format_at_the_destination() -> None:
    theirs = row(10, 10)._replace(flags=OLD_FORMAT)
    ((kind, _, _, detail),) = told_of(scene(at(row(10, 10)), at(theirs)))
    assert (kind, detail) == (Kind.HEADER_CHANGED, "a format from before Kafka 0.11 at the destination")


def test_ranges_that_are_read_again_replace_what_was_read_before() -> None:
    def chunk(base: int) -> BatchRow:
        return row(base, base + 9)

    ranges = [Range("t", 0, 0, 50, True, 10), Range("t", 0, 50, 90, False, 10), Range("u", 3, 0, 90, True, 10)]
    keys = [("t", 0, 0, 50), ("t", 0, 50, 90), ("u", 3, 0, 90)]
    compared = Compared(
        differing={
            KEY: Pairs(at(chunk(0), chunk(60)), at(chunk(40))), OTHER: Pairs(at(chunk(10)), {}),
        },
        coverage={side: {key: RangeCoverage() for key in keys} for side in Side},
        clusters={side: {"c"} for side in Side}, batches=dict.fromkeys(Side, 0), bytes=dict.fromkeys(Side, 0),
    )  # fmt: skip
    left = besides(compared, [ranges[0], ranges[2]])
    assert {key: pairs.starts for key, pairs in left.differing.items()} == {KEY: [60]}
    assert [list(read) for read in left.coverage.values()] == [[keys[1]], [keys[1]]]
