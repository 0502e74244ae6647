"""What each batch of a response is: due, or which kind of hole; and what the markers in the log have to say to it."""

from collections.abc import Iterator, Sequence
from unittest.mock import patch

import pytest

from mirror.audit.errors import AuditError
from mirror.audit.model.places import Side
from mirror.audit.model.rows import What
from mirror.audit.prepare.plan import Range
from mirror.audit.read.holes import PLAIN, Rules, judged_batches
from mirror.audit.read.ranges import RangeCoverage, RangePiece, cut_records
from mirror.audit.read.rows import Runs, digester, make_block, read_headers
from mirror.audit.read.witness import Witness, check_chain
from mirror.records.header import CONTROL, HEADER_SIZE, TRANSACTIONAL
from mirror.records.identity import MIRROR_BIT
from mirror.records.scan import scan
from mirror.records.transactions import ABORT, COMMIT
from tests.records.builders import raw_batch

COMMITTED = Rules(committed=True)
DESTINATION = Rules(side=Side.DESTINATION)
MAPPED = Rules(side=Side.DESTINATION, mapped=True)


def data(base: int, count: int = 5, producer: int = 7, flags: int = TRANSACTIONAL, **header: int) -> bytes:
    """A batch of a transaction."""
    fields = {"last_offset_delta": count - 1, "record_count": count, **header}
    return raw_batch(bytes(40), base_offset=base, attributes=flags, producer_id=producer, **fields)


def marker(base: int, kind: int = ABORT, producer: int = 7, epoch: int = 0) -> bytes:
    """A control batch as a broker writes it: length, attributes, two deltas, key length, key, value length, value."""
    key = b"\0\0" + kind.to_bytes(2)
    record = b"\x00\x00\x00\x08" + key + b"\x0c" + bytes(6) + b"\x00"
    payload = bytes([len(record) << 1]) + record
    return raw_batch(
        payload, base_offset=base, attributes=TRANSACTIONAL | CONTROL, producer_id=producer, producer_epoch=epoch,
        last_offset_delta=0, record_count=1,
    )  # fmt: skip


def whats(rules: Rules, log: list[bytes], aborted: list[tuple[int, int]] = []) -> list[What]:  # noqa: B006
    """Of each batch of a log that came in one response."""
    body = memoryview(b"".join(log))
    places = list(scan(body))
    return [What(value) for value in judged_batches(rules, body, places, read_headers(body, places), aborted)]


def test_what_is_due_depends_on_the_isolation_level() -> None:
    log = [data(0), marker(5), data(6, flags=0, producer=-1), data(11, record_count=0), data(16), marker(21, COMMIT)]
    assert whats(COMMITTED, log, [(7, 0)]) == [
        What.ABORTED, What.CONTROL, What.DATA, What.EMPTY, What.DATA, What.CONTROL,
    ]  # fmt: skip
    assert whats(PLAIN, log) == [What.DATA, What.CONTROL, What.DATA, What.EMPTY, What.DATA, What.CONTROL]


def test_transactions_are_told_apart_by_producer_and_by_their_first_offset() -> None:
    log = [
        data(0, producer=1), data(5, producer=2), data(10, producer=1), marker(15, ABORT, 1), data(16, producer=1),
        marker(21, COMMIT, 2), data(22, producer=2), marker(27, COMMIT, 1), marker(28, ABORT, 2),
    ]  # fmt: skip
    found = whats(COMMITTED, log, [(2, 22), (1, 0)])
    assert [index for index, what in enumerate(found) if what is What.ABORTED] == [0, 2, 6]


def test_a_response_that_begins_within_an_aborted_transaction() -> None:
    assert whats(COMMITTED, [data(50), marker(55)], [(7, 3)]) == [What.ABORTED, What.CONTROL]


@pytest.mark.parametrize(
    ("log", "aborted", "says"),
    [([data(0), marker(5)], [], "aborts"), ([data(0), marker(5, COMMIT)], [(7, 0)], "commits")],
)
def test_markers_that_contradict_the_list(log: list[bytes], aborted: list[tuple[int, int]], says: str) -> None:
    with pytest.raises(AuditError, match=f"offset 5 {says} a transaction of producer id 7"):
        whats(COMMITTED, log, aborted)


def test_a_flipped_producer_id_is_no_contradiction() -> None:
    """Committed data that looks like another producer's, which aborts: corrupt, and the markers are right."""
    hit = bytearray(data(0, producer=6))
    hit[50] ^= 1
    log = [bytes(hit), data(5), marker(10), marker(11, COMMIT, 6)]
    assert whats(COMMITTED, log, [(7, 5)]) == [What.DATA, What.ABORTED, What.CONTROL, What.CONTROL]


def test_what_fills_a_hole_at_the_destination() -> None:
    damaged = bytearray(marker(0, producer=MIRROR_BIT, epoch=1))
    damaged[-1] ^= 1
    log = [
        marker(0, producer=MIRROR_BIT + 5, epoch=1), marker(1, producer=MIRROR_BIT + 5, epoch=2), marker(2, epoch=1),
        marker(3, COMMIT, MIRROR_BIT, 1), bytes(damaged), data(5, flags=TRANSACTIONAL), data(10, record_count=0),
    ]  # fmt: skip
    own = [What.CONTROL, What.FOREIGN, What.FOREIGN, What.FOREIGN, What.DAMAGED, What.DATA, What.EMPTY]
    assert whats(DESTINATION, log) == own
    anybodys = Rules(side=Side.DESTINATION, strangers=True)
    assert whats(anybodys, log) == [What.CONTROL] * 3 + own[3:]
    assert anybodys.odd == DESTINATION.odd == set(What) - {What.DATA, What.CONTROL, What.ABORTED}
    assert PLAIN.odd == frozenset()


def test_a_marker_that_the_cleaner_has_emptied() -> None:
    """It keeps the last batch of a producer, without its record: there is nothing that anybody could read."""
    emptied = raw_batch(
        b"", attributes=TRANSACTIONAL | CONTROL, producer_id=MIRROR_BIT + 5, producer_epoch=1, last_offset_delta=0,
        record_count=0,
    )  # fmt: skip
    damaged = bytearray(emptied)
    damaged[50] ^= 1
    for rules in (DESTINATION, Rules(side=Side.DESTINATION, strangers=True)):
        assert whats(rules, [emptied, bytes(damaged)]) == [What.EMPTY, What.DAMAGED]
    assert whats(COMMITTED, [emptied]) == [What.CONTROL]


def test_rules_as_text() -> None:
    for rules in (PLAIN, COMMITTED, DESTINATION, Rules(append_times=True)):
        assert Rules.from_json(rules.to_json()) == rules
    for text in ("", "{}", '{"side": "both"}', "[]"):
        with pytest.raises(ValueError, match="no rules"):
            Rules.from_json(text)


# -- in a range -------------------------------------------------------------------------------------------------------

LOG = [data(0, flags=0), data(5), marker(10), data(14, flags=0), marker(19, COMMIT), marker(20, COMMIT)]
ABORTED = [(7, 5)]


def cut(start: int, end: int, *, first: bool = False) -> RangePiece:
    """One range of LOG."""
    body = memoryview(b"".join(LOG))
    return cut_records(body, 0, len(body), Range("t", 0, start, end, first, 100), start, COMMITTED, ABORTED)


def test_holes_are_in_order_and_of_one_kind_each() -> None:
    piece = cut(0, 21)
    assert piece.holes.tolist() == [
        [5, 10, What.ABORTED], [10, 11, What.CONTROL], [11, 14, What.GAP], [19, 21, What.CONTROL],
    ]  # fmt: skip
    assert piece.headers["base_offset"].tolist() == [0, 14]
    assert piece.offsets == 10
    assert piece.gaps == [(11, 14)]


@pytest.mark.parametrize("border", range(1, 21))
def test_every_offset_is_accounted_for_once_wherever_ranges_meet(border: int) -> None:
    pieces = cut(0, border, first=True), cut(border, 21)
    offsets = [offset for piece in pieces for start, end, _ in piece.holes.tolist() for offset in range(start, end)]
    assert offsets == [5, 6, 7, 8, 9, 10, 11, 12, 13, 19, 20]
    coverage = [RangeCoverage(), RangeCoverage()]
    for piece, found in zip(pieces, coverage, strict=True):
        found.take(piece)
    assert [found.accounted for found in coverage] == [border, 21 - border]
    assert sum(found.batches for found in coverage) == 2
    assert [sum(getattr(found, name) for found in coverage) for name in ("control", "aborted", "gap_offsets")] == [
        3, 5, 3,
    ]  # fmt: skip


def test_rows_of_holes_are_the_same_however_the_log_came() -> None:
    whole = cut(0, 21).holes
    runs = Runs(frozenset())
    rows = [*runs.take(whole[:2]), *runs.take(whole[2:]), *runs.close()]
    assert [row[:3] for row in rows] == [("holes", 5, 14), ("holes", 19, 21)]
    assert rows[0][3] == "[[5, 10, 2], [10, 11, 1], [11, 14, 4]]"
    runs = Runs(frozenset({What.GAP}))
    assert [row[:3] for row in (*runs.take(whole), *runs.close())] == [
        ("odd", 11, 14), ("holes", 5, 11), ("holes", 19, 21),
    ]  # fmt: skip


def test_attributes_that_are_not_compared() -> None:
    body = memoryview(data(0, flags=0x5B))
    places = list(scan(body))
    headers = read_headers(body, places)
    found = [
        int(make_block(body, places, headers, digester("sha256"), rules=rules).headers["attributes"][0])
        for rules in (PLAIN, DESTINATION)
    ]
    assert found == [0x0B, 0x1B]
    assert headers["attributes"].tolist() == [0x5B], "the checksum is over the bytes as they are"


# -- one flipped bit --------------------------------------------------------------------------------------------------

NOT_COVERED = {*range(8), *range(12, 16)}
"""Bytes of base offset and leader epoch: no checksum covers them, and no consumer minds a leader epoch."""
KINDS = {
    "plain": data(10, flags=0, producer=-1),
    "committed": data(10, producer=8),
    "aborted": data(10),
    "empty": data(10, record_count=0, flags=0),
    "abort": marker(10, producer=7) + data(11, 4, flags=0),
    "commit": marker(10, COMMIT, producer=8) + data(11, 4, flags=0),
}


def flipped(kind: str) -> Iterator[tuple[list[bytes], list[tuple[int, int]], int, int]]:
    """Yields logs from offset 0 to 26 with one bit flipped in the header of what stands at 10: each bit that a checksum
    covers. With it: what the broker lists as aborted, where the range begins (before that batch, at it, and inside it),
    and the bit."""
    before = data(0, 10, flags=0)
    behind = data(15, flags=0) + data(20, producer=9) + marker(25, COMMIT, 9)
    aborted = [(7, 10)] if kind in ("aborted", "abort") else []
    for bit in range(8 * HEADER_SIZE):
        if bit >> 3 in NOT_COVERED:
            continue
        hit = bytearray(KINDS[kind])
        hit[bit >> 3] ^= 1 << (bit & 7)
        for start in (0, 10) if kind in ("abort", "commit") else (0, 10, 12):
            yield [before, bytes(hit), behind], aborted, start, bit


@pytest.mark.parametrize(
    "rules", [COMMITTED, PLAIN, DESTINATION, MAPPED], ids=["committed", "plain", "destination", "mapped"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_never_turns_records_into_holes(kind: str, rules: Rules) -> None:
    """Each bit of a header that a checksum covers: what is found is a batch with a wrong checksum, a damaged marker, or
    a log that cannot be read on from there. A mapped destination's markers are not looked at:
    nothing may be taken for one there."""
    for log, aborted, start, bit in flipped(kind):
        body = memoryview(b"".join(log))
        try:
            piece = cut_records(body, 0, len(body), Range("t", 0, start, 26, True, 100), start, rules, aborted)
        except AuditError:
            continue
        block = make_block(body, piece.places, piece.headers, digester("xxh3_128"), rules=rules)
        told = piece.broken or not block.crc_ok.all() or (What.DAMAGED in piece.holes[:, 2] and not rules.mapped)
        assert told or piece.next_offset <= max(start, 10), (bit >> 3, bit & 7, start)


def test_without_the_checksum_it_would() -> None:
    """A mutation: the rule is taken away."""
    with (
        patch("mirror.audit.read.holes._intact", lambda body, places, headers, asked: asked),
        pytest.raises(AssertionError),
    ):
        test_a_flipped_bit_never_turns_records_into_holes("plain", COMMITTED)


def chained(*answers: tuple[list[bytes], list[tuple[int, int]]], ranges: Sequence[int] = ()) -> None:
    """Answers, of one range or, cut at these offsets, of several."""
    witnesses = [Witness(end) for end in (*ranges, 1 << 40)]
    for log, aborted in answers:
        body = memoryview(b"".join(log))
        places = list(scan(body))
        first = next(header for header in read_headers(body, places)["base_offset"])
        for at, witness in enumerate(witnesses):
            if first < witness.end and (not at or first >= witnesses[at - 1].end):
                judged_batches(COMMITTED, body, places, read_headers(body, places), aborted, witness)
                break
    check_chain("t", witnesses)


PLAIN_DATA = [data(5, flags=0, producer=-1)]


@pytest.mark.parametrize("ranges", [(), (10,), (5, 10)], ids=["one range", "at the marker", "all apart"])
def test_a_marker_far_behind_what_it_aborts(ranges: Sequence[int]) -> None:
    """
    1. A transaction's data, much else, its abort marker: the list of none of the answers has it. No verdict.
    2. With the list there is one; and where the transaction was empty: the data is another producer's, or committed.
    """
    with pytest.raises(AuditError, match="offset 10 aborts a transaction of producer id 7"):
        chained(([data(0)], []), (PLAIN_DATA, []), ([marker(10)], []), ranges=ranges)
    chained(([data(0)], [(7, 0)]), (PLAIN_DATA, []), ([marker(10)], [(7, 0)]), ranges=ranges)
    chained(([data(0, producer=8)], []), (PLAIN_DATA, []), ([marker(10)], []), ranges=ranges)
    chained(([data(0)], []), ([marker(5, COMMIT)], []), ([marker(10)], []), ranges=ranges)
    with pytest.raises(AuditError, match="offset 12 aborts"):
        chained(([marker(0)], []), ([data(5)], []), ([data(10, 2), marker(12)], []), ranges=ranges)


@pytest.mark.parametrize("ranges", [(), (10,), (5, 10)], ids=["one range", "at the marker", "all apart"])
def test_a_commit_marker_far_behind_what_is_listed_as_aborted(ranges: Sequence[int]) -> None:
    """
    1. The list of one answer has a transaction that was never aborted: its index has an entry too many, which ends
       before the marker. Read as it says, due data is a hole, at which the copy has markers as well. No verdict.
    2. There is one if an abort marker stands in between, or if the data is another producer's. A damaged producer id
       says nothing. Mutation: only the list of the marker's own answer counts.
    """
    with pytest.raises(AuditError, match="offset 10 commits a transaction of producer id 7"):
        chained(([data(0)], [(7, 0)]), (PLAIN_DATA, []), ([marker(10, COMMIT)], []), ranges=ranges)
    chained(([data(0)], [(7, 0)]), ([marker(5)], [(7, 0)]), ([marker(10, COMMIT)], []), ranges=ranges)
    chained(([data(0, producer=8)], [(8, 0)]), (PLAIN_DATA, []), ([marker(10, COMMIT)], []), ranges=ranges)
    hit = bytearray(data(0, producer=8))
    hit[50] ^= 15
    assert read_headers(memoryview(hit), [*scan(memoryview(hit))])["producer_id"].tolist() == [7]
    chained(([bytes(hit)], [(7, 0)]), (PLAIN_DATA, []), ([marker(10, COMMIT)], []), ranges=ranges)
    with pytest.raises(AuditError, match="offset 12 commits"):
        chained(([marker(0)], [(7, 0)]), ([data(5)], [(7, 5)]), ([data(10, 2), marker(12, COMMIT)], []), ranges=ranges)


def test_what_an_answer_has_behind_its_range_is_the_next_ones() -> None:
    log = [data(0), marker(5)]
    body = memoryview(b"".join(log))
    places = list(scan(body))
    witness = Witness(5)
    judged_batches(COMMITTED, body, places, read_headers(body, places), [], witness)
    assert (witness.due, witness.ended) == ({7}, set())
    found = RangeCoverage(due=[7], ended=[1], unexplained=[(2, 9)], undone=[3], commits=[(4, 8)])
    assert RangeCoverage.from_json(found.to_json()).witness == found.witness
