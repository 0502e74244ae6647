"""Differences of compacted topics, record by record: the order in which Spark's rows are handed on."""

from itertools import permutations
from typing import Any

from mirror.audit.model import RecordDifference, Side, TopicPartition
from mirror.audit.spark.by_record import in_order


def row(offset: int, at: Side | None, size: int) -> dict[str, Any]:
    side = at.value if at else None
    return {"topic": "t", "partition": 0, "base_offset": offset, "at": side, "excused": True, "size": size}


def test_two_batches_at_one_offset() -> None:
    """One of them is damaged. ``make audit-faults`` found it: seed 1921, two faults in one copy."""
    rows = [row(7, Side.SOURCE, 3), row(88, None, 0), row(88, Side.DESTINATION, 409)]
    for some in permutations(rows):
        assert in_order(some) == {
            TopicPartition("t", 0): [
                RecordDifference(7, Side.SOURCE, True, 3),
                RecordDifference(88, None, False, 0),
                RecordDifference(88, Side.DESTINATION, True, 409),
            ]
        }
