"""What becomes of a group's offsets, decided from what was seen. Pure."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from mirror.net.admin.groups import CommittedOffset
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import Pin
from mirror.offsetmap.entries.starting import StartingOffset
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.runs import OffsetMap, Run
from mirror.offsetmap.translation import Translation
from mirror.service.offsets.copied import NOT_YET
from mirror.service.sync.copies import DestinationPlace, ExactCopy, FlowCopies, MappedCopy, NoCopy
from mirror.service.sync.plan import GroupPlan, GroupState, Key, WantedOffset, decide
from mirror.service.sync.settings import SyncSettings


@pytest.mark.parametrize(
    ("copy", "offset", "wanted"),
    [
        (ExactCopy(0, 10, 0), 7, DestinationPlace(7)),
        (ExactCopy(0, 10, 0), 10, DestinationPlace(10)),
        (ExactCopy(0, 10, 0), 11, DestinationPlace(10, behind=True, exact=False)),
        (ExactCopy(5, 10, 0), 3, DestinationPlace(5, exact=False)),
        (ExactCopy(5, 5, 5), 5, DestinationPlace(5)),
        # The copy of a log that begins at 20 is being filled up to there: nothing of that stays.
        (ExactCopy(0, 19, 20), 25, DestinationPlace(-1, why=NOT_YET)),
        (ExactCopy(20, 20, 20), 25, DestinationPlace(20, behind=True, exact=False)),
        (NoCopy("why"), 3, DestinationPlace(-1, why="why")),
        (NoCopy("why", failed=True), 3, DestinationPlace(-1, why="why", failed=True)),
    ],
)
def test_spots(copy: ExactCopy | NoCopy, offset: int, wanted: DestinationPlace) -> None:
    assert copy.spot(offset) == wanted


@pytest.mark.parametrize(
    ("offset", "wanted"),
    [
        (0, DestinationPlace(100)), (4, DestinationPlace(104)),
        # A hole: the next record. Behind the last copy: the end of what was looked at.
        (5, DestinationPlace(110, exact=False)), (8, DestinationPlace(110)), (10, DestinationPlace(120, exact=False)),
        # Not copied: the group has read all that is.
        (11, DestinationPlace(120, behind=True, exact=False)), (99, DestinationPlace(120, behind=True, exact=False)),
    ],
)  # fmt: skip
def test_mapped_spots(offset: int, wanted: DestinationPlace) -> None:
    known = Translation(
        map=OffsetMap([Run(0, 100, 5), Run(8, 110, 2)]),
        source_end=10,
        destination_end=112,
        noted=112,
        seen=120,
        log_start=0,
    )
    assert MappedCopy(known).spot(offset) == wanted


def test_a_mapped_spot_that_is_deleted() -> None:
    known = Translation(
        map=OffsetMap([Run(0, 100, 5)]), source_end=5, destination_end=105, noted=105, seen=105, log_start=103
    )
    assert MappedCopy(known).spot(1) == DestinationPlace(103, exact=False)


def row(topic: str, spot: DestinationPlace, *, into: str = "all", metadata: str = "m") -> WantedOffset:
    return WantedOffset(topic, 0, 5, into, spot, metadata)


HERE = ("all", 0)
BOTH: Mapping[Key, list[Key]] = {HERE: [("a", 0), ("b", 0)]}


@pytest.mark.parametrize(
    ("rows", "now", "sources", "state", "due"),
    [
        ([row("a", DestinationPlace(5))], -1, {}, GroupState.IN_STEP, [CommittedOffset(5, "m")]),
        ([row("a", DestinationPlace(5))], 4, {}, GroupState.IN_STEP, [CommittedOffset(5, "m")]),
        ([row("a", DestinationPlace(5))], 5, {}, GroupState.IN_STEP, []),
        ([row("a", DestinationPlace(5))], 6, {}, GroupState.AHEAD, []),
        ([row("a", DestinationPlace(4, behind=True, exact=False))], -1, {}, GroupState.BEHIND,
         [CommittedOffset(4, "")]),
        ([row("a", DestinationPlace(-1, why="w"))], -1, {}, GroupState.HELD, []),
        ([row("a", DestinationPlace(-1, why="w", failed=True))], -1, {}, GroupState.FAILED, []),
        # One partition does not hold up the others.
        ([row("a", DestinationPlace(-1, why="w")), row("b", DestinationPlace(7), into="b")], -1, {}, GroupState.HELD,
         [CommittedOffset(7, "m")]),
        # Several into one: the least, and only if each is known.
        ([row("a", DestinationPlace(9)), row("b", DestinationPlace(7))], -1, BOTH, GroupState.IN_STEP,
         [CommittedOffset(7, "")]),
        ([row("a", DestinationPlace(9))], -1, BOTH, GroupState.HELD, []),
        ([row("a", DestinationPlace(9)), row("b", DestinationPlace(-1, why="w"))], -1, BOTH, GroupState.HELD, []),
    ],
)  # fmt: skip
def test_decisions(
    rows: list[WantedOffset], now: int, sources: Mapping[Key, list[Key]], state: GroupState, due: list[CommittedOffset]
) -> None:
    plan = GroupPlan(group="g", rows=rows)
    decide(plan, {HERE: CommittedOffset(now)} if now >= 0 else {}, sources)
    assert (plan.state, [move.to for move in plan.due]) == (state, due)
    assert bool(plan.why) is (state is not GroupState.IN_STEP)


def test_which_groups() -> None:
    settings = SyncSettings(groups=("billing-.*", "a.b"), groups_exclude=("billing-test",), own_group="billing-own")
    names = ("billing-eu", "a.b", "axb", "billing-test", "billing-own", "other", "not-billing-eu")
    assert [name for name in names if settings.selects(name)] == ["billing-eu", "a.b"]
    strange = "billing-\nwith a newline"
    assert settings.selects(strange)
    assert not SyncSettings(groups=(".*",), groups_exclude=("billing-.*",), own_group="").selects(strange)
    assert SyncSettings.unpack({**settings.pack(), "groups": list(settings.groups)}) == settings


@pytest.mark.parametrize(("begins", "wanted"), [(20, DestinationPlace(-1, why=NOT_YET)), (12, DestinationPlace(12))])
async def test_a_copy_that_begins_later_than_its_source(begins: int, wanted: DestinationPlace) -> None:
    """``start.from``: as long as the offsets before it are being filled, a group would be placed on filler."""
    side, ledger = Subject("t", 0, "t"), Ledger(lean=True)
    ledger.put(Pin(subject=side, source_id=None, destination_id=None, source_cluster=""))
    ledger.put(
        StartingOffset(
            subject=side, writer="w", source_id=None, offset=begins, batch=begins, leader_epoch=0, start_from="latest"
        )
    )
    topic: Any = SimpleNamespace(topic_id=None)
    here: Any = SimpleNamespace(topic=topic, start=AsyncMock(return_value=0))
    there: Any = SimpleNamespace(
        topic=topic, start=AsyncMock(return_value=0), visible_end=AsyncMock(return_value=15), name="there"
    )
    translator: Any = SimpleNamespace(
        exact=True,
        state=SimpleNamespace(ledger=ledger, open=AsyncMock(return_value=True)),
        subject=lambda topic, partition: Subject(topic, partition, topic),
        copy=AsyncMock(return_value=(here, there)),
        renew=AsyncMock(),
    )
    copies = FlowCopies(translator)
    await copies.renew()
    await copies.look([("t", 0)])
    assert copies.spot("t", 0, 12) == wanted
