"""What is written down of where a copy begins: read as it was written, and nothing else is."""

import json
from typing import Any

import pytest

from mirror.offsetmap.entries.entry import StateError, read_entry
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.starting import StartingOffset
from mirror.offsetmap.internal.ledger import Ledger

SIDE = Subject("orders", 3, "orders")
TOPIC_ID, ANOTHER = "0" * 32, "1" * 32


def starting(**changes: Any) -> StartingOffset:
    usual: dict[str, Any] = {
        "subject": SIDE, "source_id": TOPIC_ID, "offset": 14, "batch": 10, "leader_epoch": 2, "start_from": "latest",
        "at_ms": 1_700_000_000_000,
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
