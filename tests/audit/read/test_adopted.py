"""A destination that was there before the flow: what its own producers wrote counts as the copy that it is, where the
source has what a copy of that has. Behind it, and of a later leader, nothing is excused."""

from collections.abc import Sequence

import pytest

from mirror.audit.errors import AuditError
from mirror.audit.model.places import Adopted, Side, TopicPartition
from mirror.audit.model.request import Endpoint
from mirror.audit.model.rows import What
from mirror.audit.prepare.plan import Range
from mirror.audit.read.holes import Rules, judged_batches, were_there
from mirror.audit.read.ranges import RangeCoverage, RangePiece, cut_records
from mirror.audit.read.reader import Reader
from mirror.audit.read.rows import digester, make_block, read_headers
from mirror.audit.read.witness import Witness, check_chain
from mirror.records.header import CONTROL, HEADER_SIZE, TRANSACTIONAL
from mirror.records.identity import MIRROR_BIT
from mirror.records.scan import scan
from mirror.records.transactions import COMMIT
from mirror.wire.fetch import READ_COMMITTED, READ_UNCOMMITTED, Fetched
from tests.audit.read.test_holes import KINDS, data, flipped, marker
from tests.records.builders import raw_batch

DESTINATION = Rules(side=Side.DESTINATION)
LOG = [
    data(0, producer=7),
    data(5, flags=0, producer=-1),
    data(10, producer=8),
    marker(15, producer=7),
    marker(16, COMMIT, producer=8),
    marker(17, producer=MIRROR_BIT + 3, epoch=1),
    data(18, 2, flags=0, producer=MIRROR_BIT + 3),
]
ABORTED = [(7, 0)]
END = 20


def judged(
    adopted: Adopted | None,
    log: Sequence[bytes] = LOG,
    aborted: Sequence[tuple[int, int]] = ABORTED,
    rules: Rules = DESTINATION,
    witness: Witness | None = None,
) -> tuple[list[What], list[int]]:
    """What each batch is, and the bits of its transactions."""
    body = memoryview(b"".join(log))
    places = list(scan(body))
    headers = read_headers(body, places)
    whats = judged_batches(rules, body, places, headers, aborted, witness, adopted)
    return [What(each) for each in whats], [int(each) & TRANSACTIONAL for each in headers["attributes"]]


def test_what_was_there_before_the_flow() -> None:
    """Aborted data and the markers of its producers are holes that are filled; records that consumers get look as a
    copy's do."""
    whats, transactional = judged(Adopted(END))
    assert whats == [
        What.ABORTED, What.DATA, What.DATA, What.CONTROL, What.CONTROL, What.CONTROL, What.DATA,
    ]  # fmt: skip
    assert not any(transactional)
    assert not {What.ABORTED, What.CONTROL} & DESTINATION.odd


def test_nothing_was() -> None:
    for adopted in (None, Adopted(0), Adopted(4)):
        whats, transactional = judged(adopted)
        assert whats == [
            What.DATA, What.DATA, What.DATA, What.FOREIGN, What.FOREIGN, What.CONTROL, What.DATA,
        ]  # fmt: skip
        assert transactional == [16, 0, 16, 16, 16, 16, 0]


def test_behind_that_all_is_as_ever() -> None:
    """A batch that reaches over the end is not of it."""
    whats, transactional = judged(Adopted(16))
    assert whats[3:5] == [What.CONTROL, What.FOREIGN]
    assert transactional[3:5] == [0, 16]
    assert judged(Adopted(14))[0][2:4] == [What.DATA, What.FOREIGN]
    assert judged(Adopted(14))[1][2] == TRANSACTIONAL
    assert judged(Adopted(15))[1][2] == 0


def test_what_a_later_leader_wrote_was_not_there() -> None:
    """It stands in the place of something that was lost."""
    for epoch, leader, there in ((3, 3, True), (3, 4, False), (-1, 4, True)):
        log = [data(0, leader_epoch=leader), marker(5)]
        body = memoryview(b"".join(log))
        headers = read_headers(body, list(scan(body)))
        assert were_there(headers, Adopted(END, epoch)).tolist() == [there, True]
        whats, transactional = judged(Adopted(END, epoch), log)
        assert whats[0] is (What.ABORTED if there else What.DATA)
        assert transactional[0] == (0 if there else TRANSACTIONAL)


def test_uncommitted_data_is_data() -> None:
    whats, transactional = judged(Adopted(END, committed=False), aborted=())
    assert whats == [What.DATA] * 3 + [What.CONTROL] * 3 + [What.DATA]
    assert not any(transactional)


def test_no_marker_but_the_end_of_a_transaction() -> None:
    """Not one of two offsets, not one of another kind, and not one whose bytes are damaged."""
    two = bytearray(marker(0))
    damaged = bytearray(marker(0))
    damaged[-1] ^= 1
    wide = raw_batch(
        bytes(two[HEADER_SIZE:]), attributes=TRANSACTIONAL | CONTROL, producer_id=7, last_offset_delta=1, record_count=1
    )
    for log, what in (
        (wide, What.FOREIGN),
        (marker(0, kind=2), What.FOREIGN),
        (bytes(damaged), What.DAMAGED),
    ):
        assert judged(Adopted(END), [log], ())[0] == [what]


def test_the_markers_are_a_second_witness_here_too() -> None:
    """Also where they are in another range than the data. Of what the mirror itself has written they know nothing."""
    for log, aborted in (([data(0), marker(5)], ()), ([data(0), marker(5, COMMIT)], [(7, 0)])):
        with pytest.raises(AuditError, match=r"offset 5 .* a transaction of producer id 7"):
            judged(Adopted(END), log, aborted)
        judged(Adopted(0), log, aborted)
    ranges = Witness(5), Witness(20)
    judged(Adopted(END), [data(0)], (), witness=ranges[0])
    judged(Adopted(END), [marker(5)], (), witness=ranges[1])
    with pytest.raises(AuditError, match="offset 5 aborts"):
        check_chain("west: t partition 0", ranges)


def piece(log: Sequence[bytes], aborted: Sequence[tuple[int, int]], adopted: Adopted, start: int = 0) -> RangePiece:
    """All of it, as one range."""
    body = memoryview(b"".join(log))
    wanted = Range("t", 0, start, 26, True, 100)
    return cut_records(body, 0, len(body), wanted, start, DESTINATION, aborted, None, adopted)


def test_it_is_counted_and_compared_as_a_copy() -> None:
    """Aborted data for itself; the batches have the bits of those at the source."""
    found = RangeCoverage()
    whole = piece(LOG, ABORTED, Adopted(END))
    found.take(whole)
    assert (found.control, found.aborted, found.odd, found.offsets) == (3, 5, 0, 12)
    block = make_block(
        memoryview(b"".join(LOG)), whole.places, whole.headers, digester("xxh3_128"), rules=DESTINATION
    )  # fmt: skip
    assert block.headers["attributes"].tolist() == [0, 0, 0]
    assert block.crc_ok.all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_never_turns_records_into_holes(kind: str) -> None:
    for log, aborted, start, bit in flipped(kind):
        try:
            found = piece(log, aborted, Adopted(26), start)
        except AuditError:
            continue
        body = memoryview(b"".join(log))
        block = make_block(body, found.places, found.headers, digester("xxh3_128"), rules=DESTINATION)
        told = found.broken or not block.crc_ok.all() or What.DAMAGED in found.holes[:, 2]
        assert told or found.next_offset <= max(start, 10), (bit >> 3, bit & 7, start)


def test_how_it_is_read() -> None:
    """Committed up to its end, since only then brokers list what was aborted; behind it, up to the log's end. An answer
    that shows nothing where the last stable offset was low for a while is asked for again."""
    key = TopicPartition("t", 0)
    wanted = Range("t", 0, 0, 100, True, 100)
    fetched = Fetched("t", 0, 0, 90, 40, 0, [], None, None, -1, 0, 0)
    for committed, levels in ((True, (READ_COMMITTED, READ_UNCOMMITTED)), (False, (READ_UNCOMMITTED,) * 2)):
        reader = Reader(
            Endpoint(alias="west", bootstrap=()), cluster_id="", topic_ids={}, digest="xxh3_128", rules=DESTINATION,
            adopted={key: Adopted(40, committed=committed)},
        )  # fmt: skip
        assert [reader._isolation(wanted, at) for at in (39, 40)] == list(levels)
        assert reader._adopted_at(wanted, 39) == Adopted(40, committed=committed)
        assert reader._adopted_at(wanted, 40) is None
        assert reader._isolation(wanted._replace(partition=1), 0) == READ_UNCOMMITTED
        assert reader._visible(fetched, wanted, 39) == 90
        low = 30 if committed else 90
        assert reader._visible(fetched._replace(last_stable_offset=30), wanted, 35) == low
