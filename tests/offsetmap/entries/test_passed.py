"""What is written down of records that were passed over: read as it was written, and nothing else is."""

import json
from typing import Any

import pytest

from mirror.offsetmap import fields
from mirror.offsetmap.entries.entry import StateError, read_entry
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.passed import DROPPED, MOST_OFFSETS, PassedOverOffsets
from mirror.offsetmap.internal.ledger import Ledger

SIDE = Subject("orders", 3, "orders")


def passed(*offsets: int, **changes: Any) -> PassedOverOffsets:
    usual: dict[str, Any] = {
        "subject": SIDE, "writer": "abc", "offsets": offsets or (7, 9, 1_000), "leader_epoch": 4, "source_id": "0" * 32,
        "destination_id": None, "cause": DROPPED, "at_ms": 1_700_000_000_000,
    }  # fmt: skip
    return PassedOverOffsets(**(usual | changes))


OLD = passed(7, 9, leader_epoch=-1, digests=("0" * 16, "f" * 16))


@pytest.mark.parametrize("entry", [passed(), passed(5), passed(*range(MOST_OFFSETS)), passed(leader_epoch=-1), OLD])
def test_read_as_written(entry: PassedOverOffsets) -> None:
    assert read_entry(entry.key(), entry.value()) == entry


def test_borders() -> None:
    assert (passed().start, passed().end) == (7, 1_001)


@pytest.mark.parametrize(
    "steps", [[0], [-1], ["1"], [1] * MOST_OFFSETS, None, "steps", [fields.MOST], [fields.MOST - 7], [True]]
)
def test_what_no_mirror_writes(steps: object) -> None:
    entry = passed()
    value = json.loads(entry.value()) | {"steps": steps}
    with pytest.raises(StateError):
        read_entry(entry.key(), json.dumps(value).encode())


@pytest.mark.parametrize("digests", [["0" * 16], ["0" * 16, "no digest"], ["0" * 16, 1], "digests", {}])
def test_digests_that_no_mirror_writes(digests: object) -> None:
    value = json.loads(OLD.value()) | {"digests": digests}
    with pytest.raises(StateError):
        read_entry(OLD.key(), json.dumps(value).encode())


def test_in_the_ledger() -> None:
    """Of one partition or of all, in order; the newest of a key counts, and a tombstone takes it away."""
    ledger = Ledger(lean=True)
    other = passed(2, subject=Subject("orders", 4, "orders"))
    late, early, grown = passed(50), passed(7), passed(7, 8)
    for each in (other, late, early, grown):
        ledger.apply(each.key(), each.value())
    assert ledger.passed(SIDE) == [grown, late]
    assert ledger.passed() == [grown, late, other]
    assert ledger.about({SIDE}) == [late, grown]
    assert ledger.has(late.key())
    ledger.apply(late.key(), None)
    assert ledger.passed(SIDE) == [grown]
    assert not ledger.has(late.key())
    assert ledger.subjects == []
