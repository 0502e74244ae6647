"""Differences of batches that were opened: the order of Spark's rows, and how many of them it holds."""

from itertools import permutations
from typing import Any

from mirror.audit.model.differences import RecordDifference
from mirror.audit.model.places import Side, Span, TopicPartition
from mirror.audit.spark.by_record import BLOCK_BITS, MOST_BLOCKS, block_bits, in_order

DIGESTS = {"s_digest": b"ours", "d_digest": None, "differs": True, "mistimed": False}


def row(offset: int, at: Side | None, size: int) -> dict[str, Any]:
    side = at.value if at else None
    return {"topic": "t", "partition": 0, "base_offset": offset, "at": side, "excused": True, "size": size, **DIGESTS}


def test_two_batches_at_one_offset() -> None:
    """One of them is damaged. ``make audit-faults`` found it: seed 1921, two faults in one copy."""
    rows = [row(7, Side.SOURCE, 3), row(88, None, 0), row(88, Side.DESTINATION, 409)]
    for some in permutations(rows):
        assert in_order(some) == {
            TopicPartition("t", 0): [
                RecordDifference(7, Side.SOURCE, True, 3, (b"ours", b"")),
                RecordDifference(88, None, False, 0, (b"ours", b"")),
                RecordDifference(88, Side.DESTINATION, True, 409, (b"ours", b"")),
            ]
        }


def test_a_batch_with_a_wrong_max_timestamp() -> None:
    """Its first record may be the same, or differ as well."""
    same, other = ({**row(at, None, 5), "mistimed": True, "differs": at == 9} for at in (7, 9))
    found = in_order([same, other])[TopicPartition("t", 0)]
    assert [(one.offset, one.mistimed) for one in found] == [(7, True), (9, True), (9, False)]


def test_few_rows_for_many_offsets() -> None:
    """A header may claim two billion offsets: a row for 256 of them each ended Spark's Java process."""
    narrow = [Span(at, at + 100) for at in range(0, 1_000_000, 1_000)]
    assert block_bits(narrow) == BLOCK_BITS
    wide = [*narrow, Span(2_000_000, 2_000_000 + (1 << 31))]
    bits = block_bits(wide)
    assert BLOCK_BITS < bits < 31
    assert sum((span.end - 1 >> bits) - (span.start >> bits) + 1 for span in wide) <= MOST_BLOCKS + 2 * len(wide)
