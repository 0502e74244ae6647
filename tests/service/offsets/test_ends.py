"""Topics that the flow is to mirror and that the source does not tell of: each is named, with the reason."""

from dataclasses import replace

import pytest

from mirror.offsetmap.entries.keys import Subject
from mirror.service.offsets.ends import FlowEnds, Missing
from mirror.service.offsets.translate import Translator
from mirror.service.selection import Selection
from mirror.wire.errors import ErrorCode
from tests.service.offsets.stage import HIDDEN, Sides, hide, sides

ALL = ("t", ".*")


@pytest.fixture(autouse=True)
def as_brokers_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """They leave out what may not be described."""
    hide(monkeypatch)


async def missing(at: Sides) -> list[Missing]:
    async with Translator(at.flow, lazy=True) as translator:
        ends = FlowEnds(at.flow.selection, translator)
        await ends.look()
        return ends.missing


async def copied(at: Sides, *topics: str, into: str = "") -> None:
    """These topics were copied, and the copies stand."""
    at.copied(0)
    for topic in topics:
        at.east.add_topic(into or topic)
    await at.write(*(at.pin(subject=Subject(topic, 0, into or topic), source_id=None) for topic in topics))


async def test_nothing_is_missing() -> None:
    """All that was copied is there; so is what the flow has by name. Of topics that it does not select, or copies into
    other topics by now, or of which the copy was deleted, nothing is due."""
    async with sides(topics=ALL) as at:
        await copied(at, "t", "excluded", "deleted")
        await copied(at, "renamed", into="of-another-name")
        del at.east.topics["deleted"]
        at.flow = replace(at.flow, selection=Selection(ALL, exclude=("excluded",)))
        assert await missing(at) == []


@pytest.mark.parametrize("named", [True, False])
async def test_a_topic_that_is_not_there(*, named: bool) -> None:
    """The flow names it; or it was copied, and a pattern matches it."""
    async with sides(topics=("t", "gone") if named else ALL) as at:
        await (at.write() if named else copied(at, "gone"))
        (found,) = await missing(at)
        assert (found.topic, found.gone) == ("gone", not named)
        assert found.why == (
            "the flow names it, and west has no such topic: take it out of topics, or see that it is there"
            if named
            else "it was copied, and west does not have it any more: see that it is there; or if it was deleted for "
            "good, have the flow exclude it, or delete the copy (gone at east)"
        )


async def test_topics_that_may_not_be_described_any_more() -> None:
    """A list of all topics leaves them out, as if they had never been."""
    async with sides(topics=ALL) as at:
        await copied(at, "hidden")
        at.west.add_topic("hidden").error = HIDDEN
        assert await missing(at) == [
            Missing(
                "hidden",
                "it may not be described: grant the mirror's principal Describe on topic hidden of cluster west",
            )
        ]
        at.flow = replace(at.flow, selection=Selection(("t", "hidden")))
        assert [one.topic for one in await missing(at)] == ["hidden"]


async def test_a_topic_that_is_answered_with_an_error() -> None:
    """For a moment, as while it is being created: whether it was copied or not."""
    async with sides(topics=ALL) as at:
        at.copied(0)
        at.west.add_topic("other").error = ErrorCode.LEADER_NOT_AVAILABLE
        await at.write()
        assert await missing(at) == [Missing("other", "west answers LEADER_NOT_AVAILABLE (5) for it")]
        at.flow = replace(at.flow, selection=Selection(("t",)))
        assert await missing(at) == []


async def test_a_destination_topic_that_may_not_be_described() -> None:
    """It is not known whether the mirror is still to create it: who waits for that waits in vain."""
    async with sides() as at:
        at.copied(9)
        await at.write(at.pin())
        at.east.topics["t"].error = HIDDEN
        async with Translator(at.flow, lazy=True) as translator:
            (row,) = await FlowEnds(at.flow.selection, translator).look()
        assert (row.absent, row.lag) == (False, None)
        assert "east: Metadata of t: TOPIC_AUTHORIZATION_FAILED" in row.why
