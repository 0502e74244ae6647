"""What a stop says of itself."""

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.service.flows.draining import Drained, Draining
from mirror.service.telemetry.accounts import Totals
from tests.service.flows.test_flow import Lines


def flow(written: int, *rows: tuple[int, int, str], drained: bool = True, pending: int = 0) -> Any:
    """A flow that has written so much. ``rows``: position, committed, reason of a halt."""
    found = [(None, SimpleNamespace(position=at, committed=to, reason=why)) for at, to, why in rows]
    fleet = SimpleNamespace(replicated=Totals(10 * written, written, 100 * written, 0), rows=found)
    return SimpleNamespace(fleet=fleet, drained=drained, pending=pending)


def test_what_is_told() -> None:
    """Only what was written since it began, of all flows; and how many partitions have nothing left to commit."""
    draining = Draining([flow(5), flow(1)])
    found = draining.over([flow(7, (9, 9, ""), (9, 8, ""), (9, -1, "gone")), flow(2, (3, 3, ""))], drained=True)
    expected = {"drained": True, "pending": 0, "records": 30, "batches": 3, "bytes": 300}
    assert asdict(found) == expected | {"partitions": 4, "committed": 2, "halted": 1}
    lines = Lines()
    found.log(lines)  # type: ignore[arg-type]
    (line,) = lines.of("stopped")
    assert asdict(found).items() <= line.items()


@pytest.mark.parametrize(("workers", "flows"), [(False, True), (True, False)])
def test_not_everything_is_drained(workers: bool, flows: bool) -> None:
    """A worker was killed, or a flow has batches left that are not acknowledged."""
    found: Drained = Draining([]).over([flow(0), flow(0, drained=flows, pending=3)], drained=workers)
    assert (found.drained, found.pending) == (False, 3)
