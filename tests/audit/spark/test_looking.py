"""What stands behind the batches that a log cleaner changed is read once, and is not used where it has not all."""

from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock

from mirror.audit.model import Side, TopicPartition
from mirror.audit.spark.by_record import LaterRecords
from mirror.audit.spark.looking import Looking
from mirror.audit.spark.progress import JobProgress

KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class Counting(Looking):
    """Reads nothing, and keeps what it was asked to read."""

    def __init__(self) -> None:
        scope = Mock()
        scope.frozen.compacted = {Side.SOURCE: {"t"}}
        super().__init__(Mock(), scope, (), Mock(), 1, JobProgress())
        self.read: list[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]] = []
        self.kept: list[Any] = []

    def _read_later(self, starts: Mapping[TopicPartition, int], shifts: Mapping[TopicPartition, int]) -> LaterRecords:
        self.read.append((dict(starts), dict(shifts)))
        self.kept.append(Mock())
        one: LaterRecords = self.kept[-1]
        return one

    def looked(self, starts: Mapping[TopicPartition, int], shift: int = 0) -> Any:
        """One look from there, at that shift; what it got."""
        with self._later(starts, dict.fromkeys(starts, shift)) as later:
            assert later is not None
            assert not later.forget.called  # type: ignore[attr-defined]
        return later


def test_read_once_for_all_rounds() -> None:
    """
    1. All partitions that differ, from where they do; for every look from there on.
    2. Begun anew, because a log's start has moved: read again, and what was read before is let go.
    """
    looking = Counting()
    looking.begin({KEY: 10, OTHER: 5, TopicPartition("plain", 0): 3})
    assert looking.looked({KEY: 10}) is looking.looked({KEY: 700, OTHER: 5})
    assert looking.read == [({KEY: 10, OTHER: 5}, {})]
    looking.begin({KEY: 20})
    assert looking.kept[0].forget.called
    looking.looked({KEY: 20})
    assert looking.read[1:] == [({KEY: 20}, {})]
    looking.end()
    assert looking.kept[1].forget.called


def test_read_for_itself() -> None:
    """What has moved, or begins before the first chunk that differs, is not all in what is kept: it is read, and let go
    behind the look."""
    looking = Counting()
    looking.begin({KEY: 10})
    kept = looking.looked({KEY: 10})
    moved, before = looking.looked({KEY: 50}, shift=3), looking.looked({KEY: 8})
    assert looking.read[1:] == [({KEY: 50}, {KEY: 3}), ({KEY: 8}, {KEY: 0})]
    assert moved.forget.called
    assert before.forget.called
    assert not kept.forget.called
    assert looking.looked({KEY: 11}) is kept
