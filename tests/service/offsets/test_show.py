"""What ``mirror offsets`` shows, and what it says of a group: could its consumers go on at the destination now?"""

from typing import Any

import pytest

from mirror.service.offsets.ends import Missing, PartitionEnds, not_covered
from mirror.service.offsets.show import as_data, as_text
from mirror.service.offsets.sides import FlowSides
from mirror.service.selection import Selection
from mirror.service.sync.copies import DestinationPlace
from mirror.service.sync.plan import GroupPlan, GroupState
from tests.service.cutover.worlds import group, row

SIDES: Any = type("Sides", (), {"name": "west->east", "id": "w", "exact": True})


def shown(rows: list[PartitionEnds], plans: list[GroupPlan], *members: str, **more: Any) -> dict[str, Any]:
    flow: FlowSides = SIDES
    return as_data(flow, rows, plans, members, **more)


@pytest.mark.parametrize(
    ("plan", "members", "why"),
    [
        (group(now=7), [], ""),
        (group(now=9, state=GroupState.AHEAD), [], ""),
        (group(now=7), ["billing"], "it has members at the source: stop them first"),
        (group(), [], "its offsets are not at the destination yet: `mirror sync` or `mirror cutover` commits them"),
        (group(state=GroupState.ACTIVE, why="in use there"), [], "in use there"),
        (group(state=GroupState.HELD, why="not copied yet"), ["billing"], "not copied yet"),
    ],
)
def test_could_it_move(plan: GroupPlan, members: list[str], why: str) -> None:
    (found,) = shown([row()], [plan], *members)["groups"]
    assert (found["could_move"], found["why"]) == (not why, why)
    assert (" yes" in as_text(shown([row()], [plan], *members))) == found["could_move"]


def test_offsets_of_a_group() -> None:
    """Committed, translated, committed at the destination; no translation while the copy does not reach that far."""
    (found,) = shown([row()], [group(now=3)])["groups"]
    assert found["offsets"] == [
        {"topic": "orders", "partition": 0, "into": "orders", "source": 7, "translated": 7, "destination": 3, "why": ""}
    ]
    plan = group(state=GroupState.BEHIND, why="later")
    plan.rows = [plan.rows[0]._replace(spot=DestinationPlace(5, behind=True, exact=False))]
    (found,) = shown([row()], [plan])["groups"]
    assert (found["offsets"][0]["translated"], found["offsets"][0]["why"]) == (
        None, "not all that it has read is copied yet",
    )  # fmt: skip


def test_partitions() -> None:
    """What is not known has no number; each line says what is wrong with it."""
    rows = [
        row(0, copied=4), row(1, source_stable=9), row(2, copied=12), row(3, end=0, absent=True),
        PartitionEnds(topic="orders", partition=4, into="orders", why="no leader"),
    ]  # fmt: skip
    data = shown(rows, [], not_covered=["other"], missing=[Missing("gone", "it may not be described")])
    assert [each["lag"] for each in data["partitions"]] == [6, 0, -2, 0, None]
    assert [each.is_behind for each in rows] == [True, False, False, True, True]
    assert data["partitions"][4]["source_end"] is None
    lines = [line for line in as_text(data).splitlines() if line.startswith("orders")]
    for line, told in zip(
        lines,
        ["  6", "a transaction is open", "more than the source", "does not have it yet", "no leader"],
        strict=True,
    ):
        assert line.endswith(told) or told in line
    assert "topics of the source that the flow does not have: other" in as_text(data)
    assert "\nnot looked at: gone: it may not be described" in as_text(data)
    assert data["missing"] == [{"topic": "gone", "why": "it may not be described", "gone": False}]
    assert "no topic of the source" in as_text(shown([], []))


def test_groups_that_are_not_there() -> None:
    """Each is named, and that there may be more."""
    data = shown([row()], [], absent={"biling": "no group of this name"}, unseen="there may be others")
    assert (data["absent"], data["unseen"]) == ({"biling": "no group of this name"}, "there may be others")
    assert as_text(data).splitlines()[-2:] == ["group biling: no group of this name", "there may be others"]


def test_not_covered() -> None:
    """Without those of Kafka and of mirrors."""
    topics = ["orders", "other", "__consumer_offsets", "mirror-internal.a_to_b"]
    assert not_covered(topics, Selection(("orders",))) == ["other"]
