"""Ids of partitions are used before their coordinator forgets them: which are due, and when."""

from unittest.mock import Mock

import pytest

from mirror.net.coordinator import Ownership
from mirror.relay.partition.partition import Partition
from mirror.relay.watch import renewal
from mirror.relay.watch.renewal import Renewal


def test_what_was_not_used_for_so_long_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """From when it was seen first; another epoch says that it was used. Who has no id uses none."""
    now = [100.0]
    monkeypatch.setattr(renewal, "time", Mock(monotonic=lambda: now[0]))
    one, other, nobody = (Partition("t", index) for index in range(3))
    one.claim.own(Ownership(7, 1))
    other.claim.own(Ownership(8, 1))
    renewing = Renewal(Mock(partitions={("t", each.index): each for each in (one, other, nobody)}))

    def due(at: float) -> list[Partition]:
        now[0] = at
        return renewing._due(10.0)

    assert due(100.0) == []
    other.claim.own(Ownership(8, 2))
    assert due(105.0) == []
    assert due(110.0) == [one]
    one.claim.own(Ownership(7, 2))
    assert due(114.0) == []
    assert due(115.0) == [other]
    assert due(124.0) == [one, other]
