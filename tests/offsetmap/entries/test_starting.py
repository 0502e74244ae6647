"""What is written down of where a copy begins: read as it was written, and nothing else is."""

import json
from typing import Any

import pytest

from mirror.offsetmap.entries.entry import StateError, read_entry
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.starting import StartingOffset
from mirror.offsetmap.internal.ledger import Ledger
from tests.offsetmap.entries.test_entry import checkpoint

SIDE = Subject("orders", 3, "orders")
TOPIC_ID, ANOTHER = "0" * 32, "1" * 32


def starting(**changes: Any) -> StartingOffset:
    usual: dict[str, Any] = {
        "subject": SIDE, "writer": "one", "source_id": TOPIC_ID, "offset": 14, "batch": 10, "leader_epoch": 2,
        "start_from": "latest", "at_ms": 1_700_000_000_000,
    }  # fmt: skip
    return StartingOffset(**(usual | changes))


@pytest.mark.parametrize("entry", [starting(), starting(batch=14), starting(source_id=None, leader_epoch=-1)])
def test_read_as_written(entry: StartingOffset) -> None:
    assert read_entry(entry.key(), entry.value()) == entry


@pytest.mark.parametrize(
    "changes", [{"batch": 15}, {"offset": -1}, {"leader_epoch": -2}, {"start_from": 3}, {"source_id": "x"}]
)
def test_what_no_mirror_writes(changes: dict[str, object]) -> None:
    value = json.loads(starting().value()) | changes
    with pytest.raises(StateError):
        read_entry(starting().key(), json.dumps(value).encode())


def test_in_the_ledger() -> None:
    """It is about one source topic, however that is named; without ids, about any."""
    ledger = Ledger(lean=True)
    assert ledger.starting(SIDE, TOPIC_ID) is None
    ledger.put(starting())
    assert ledger.starting(SIDE, TOPIC_ID) == ledger.starting(SIDE, None) == starting()
    assert ledger.starting(SIDE, ANOTHER) is None
    assert ledger.starting(Subject("orders", 4, "orders"), TOPIC_ID) is None
    ledger.apply(starting().key(), None)
    assert ledger.starting(SIDE, TOPIC_ID) is None


def test_the_first_of_several_decisions_counts() -> None:
    """In the order of the topic. What a worker has written is read again, behind what others had written before."""
    ledger = Ledger(lean=True)
    first, second = starting(), starting(writer="two", offset=20, batch=20)
    for each in (second, first, second):
        ledger.put(each)
    assert ledger.starting(SIDE, TOPIC_ID) == first
    assert set(map(str, ledger.about({SIDE}))) == {str(first), str(second)}
    assert ledger.has(first.key())
    ledger.forget(first.key())
    assert ledger.starting(SIDE, TOPIC_ID) == second


@pytest.mark.parametrize(
    ("source_id", "offset", "counts"), [(TOPIC_ID, 13, False), (TOPIC_ID, 14, True), (ANOTHER, 13, True)]
)
def test_what_came_when_the_copy_had_begun(source_id: str, offset: int, counts: bool) -> None:
    """``offsets: mapped``: a checkpoint before it shows that the copy was begun elsewhere."""
    ledger = Ledger(lean=True)
    ledger.put(starting())
    ledger.put(checkpoint(subject=SIDE, source=offset, source_id=source_id))
    assert (ledger.starting(SIDE, TOPIC_ID) is not None) is counts
