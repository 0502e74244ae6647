"""Partitions that are not copied: as a running mirror shows them, and as they are written down."""

from dataclasses import replace

from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import KeptHalt
from mirror.offsetmap.internal.ledger import Ledger
from mirror.reasons import PAUSED
from mirror.service.commands import Commands
from mirror.service.cutover.obstacles import Obstacle, kept, shown, together
from tests.service.cutover.worlds import row
from tests.service.telemetry.stage import rows
from tests.service.telemetry.stage.fleets import fleet, snapshot, told

HERE = Commands(program="mirror", config="/m.yaml")
HALT = KeptHalt(
    subject=Subject("orders", 0, "orders"), reason="corrupt", detail="d", remedy="see it", at_ms=0,
    source_id="a" * 32, destination_id="b" * 32,
)  # fmt: skip


def test_shown() -> None:
    """Those that run are none."""
    found = fleet(1)
    found.heard(
        1,
        snapshot(
            rows.row(), rows.row(partition=1, state="paused"), rows.row(partition=2, state="halted", reason="corrupt")
        ),
    )
    seen = shown(told(found), HERE)
    assert [(each.partition, each.reason, each.is_paused) for each in seen] == [
        (2, "corrupt", False), (1, "paused", True),
    ]  # fmt: skip
    assert seen[1].told() == "t-1 is paused: `mirror resume -c /m.yaml t 1`"


def test_kept() -> None:
    """By topic ids: what is written down of topics that are gone says nothing. Commands are as they are typed."""
    ledger = Ledger()
    ledger.put(HALT)
    ledger.put(replace(HALT, subject=Subject("orders", 1, "orders"), reason=PAUSED))
    ledger.put(replace(HALT, subject=Subject("orders", 2, "orders"), source_id="c" * 32))
    found = kept([row(at) for at in range(4)], ledger, HERE)
    assert [(each.partition, each.reason) for each in found] == [(0, "corrupt"), (1, PAUSED)]
    assert "`mirror resume -c /m.yaml orders 0`" in found[0].told()
    assert found[1].remedy == "`mirror resume -c /m.yaml orders 1`"


def test_kept_before_topics_had_ids() -> None:
    """The clusters were upgraded to Kafka 2.8 since: an id that was not known is of no other topic."""
    ledger = Ledger()
    ledger.put(replace(HALT, source_id=None, destination_id=None))
    assert [each.reason for each in kept([row(0)], ledger, HERE)] == ["corrupt"]


def test_together() -> None:
    one, other = (Obstacle(topic="t", partition=1, reason=each) for each in ("a", "b"))
    before = Obstacle(topic="t", partition=0, reason="c")
    assert together([one], [other, before]) == [before, one]
