"""Whether a topic of the destination is the flow's copy, by what is written down; and that nobody takes another one of
that name for it."""

from typing import Any

import pytest

from mirror.net.admin.groups import CommittedOffset, Groups
from mirror.offsetmap.entries.pins import KeptHalt
from mirror.service.offsets import translate
from mirror.service.offsets.ends import FlowEnds
from mirror.service.offsets.translate import NotTranslated, Translator
from tests.relay.stage.flows import batch
from tests.service.offsets.stage import SUBJECT, Sides, sides

OTHER = "f" * 32


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group has committed offset 6 at the source, and nothing at the destination."""

    async def committed(self: Groups, names: list[str], **_: Any) -> Any:
        there = {("t", 0): CommittedOffset(6)} if self._cluster.name == "west" else {}
        return dict.fromkeys(names, there)

    monkeypatch.setattr(Groups, "committed", committed)


async def offset_of(at: Sides, *, offset: int = 6, to_source: bool = False) -> str:
    return await translate.translate_offset(at.flow, "t", 0, offset, to_source=to_source)


async def lag(at: Sides) -> Any:
    """The lag that ``mirror offsets show`` and ``mirror cutover`` see; why it is not known."""
    async with Translator(at.flow, lazy=True) as translator:
        (row,) = await FlowEnds(at.flow.selection, translator).look()
        return row.why or row.lag


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (None, "says nothing of it"),
        ({"source_id": OTHER}, "t-0 at west has topic id "),
        ({"destination_id": OTHER}, "t-0 at east has topic id "),
        ({"offsets": "mapped"}, "t-0 at east was copied with offsets: mapped"),
    ],
)
async def test_a_topic_of_that_name_that_is_no_copy(changes: dict[str, Any] | None, told: str) -> None:
    """It is as long as a copy would be. No offset of it is given, no group's either; nobody says that it is copied."""
    async with sides() as at:
        at.copied(9)
        await at.write(*([] if changes is None else [at.pin(**changes)]))
        for to_source in (False, True):
            with pytest.raises(NotTranslated, match=told):
                await offset_of(at, to_source=to_source)
        with pytest.raises(NotTranslated, match=told):
            await translate.translate_group(at.flow, "g", apply=False, tell=lambda _: None)
        assert told in await lag(at)


async def test_nothing_is_written_down_at_all() -> None:
    """The flow has never run, or its internal topic is lost."""
    async with sides() as at:
        at.copied(9)
        with pytest.raises(NotTranslated, match=r"has no topic mirror-internal\.west_to_east"):
            await offset_of(at)
        assert "says nothing of it" in await lag(at)


@pytest.mark.usefixtures("group")
async def test_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets are given as far as it goes. Of a cluster without topic ids, names have to do."""

    async def nobody(*_: object) -> str:
        return ""

    monkeypatch.setattr(Translator, "_members", nobody)
    for changes in ({}, {"source_id": None, "destination_id": None}, {"offsets": "exact"}):
        async with sides() as at:
            at.copied(6)
            await at.write(at.pin(**changes))
            assert await lag(at) == 3
            assert (await offset_of(at)).splitlines()[0] == "6"
            assert (await offset_of(at, offset=9, to_source=True)).splitlines()[0] == "9"
            with pytest.raises(NotTranslated, match="t-0 is copied up to offset 6, not to 7 yet"):
                await offset_of(at, offset=7)
            said = await translate.translate_group(at.flow, "g", apply=False, tell=lambda _: None)
            assert said == "nothing was committed; --apply commits this"
            with pytest.raises(NotTranslated, match="does not mirror topic other"):
                await translate.translate_offset(at.flow, "other", 0, 1, to_source=False)


async def test_an_offset_that_is_deleted_there() -> None:
    """Committed there, it would be before the log's start, where consumers reset to anywhere."""
    for exact in (True, False):
        async with sides(exact=exact) as at:
            at.east.add_topic("t")
            at.east.store("t", 0, *at.copies(9))
            await at.write(*([at.pin()] if exact else at.account(9)))
            at.east.log("t").delete_before(6)
            for offset, told in ((4, "6"), (6, "6"), (7, "7")):
                first, *more = (await offset_of(at, offset=offset)).splitlines()
                assert first == told
                assert ("t-0 at east begins there: what was at offset 4 is deleted" in more) is (offset == 4)


async def test_halted_where_something_else_may_stand() -> None:
    """Then an offset need not be the same record. A cutover has the halt itself to tell, with its remedy."""
    async with sides() as at:
        at.copied(6)
        pin = at.pin()
        ids = {"source_id": pin.source_id, "destination_id": pin.destination_id}
        halt = KeptHalt(subject=SUBJECT, reason="not_a_copy", detail="", remedy="", at_ms=0, **ids)
        await at.write(pin, halt)
        with pytest.raises(NotTranslated, match="t-0 has halted: not_a_copy"):
            await offset_of(at)
        assert await lag(at) == 3


async def test_before_the_copy_begins() -> None:
    """The mirror has created the topic, and has not located the partition: it will be copied. While somebody looks, it
    begins: what was written down by then is read once more."""
    async with sides() as at:
        at.copied(0)
        assert await lag(at) == 9
        async with Translator(at.flow, lazy=True) as translator:
            await at.write()
            ends = FlowEnds(at.flow.selection, translator)
            assert [row.lag for row in await ends.look()] == [9]
            renew = translator.renew

            async def renewed() -> dict[str, int]:
                failed = await renew()
                await at.write(at.pin())
                at.copied(3)
                return failed

            translator.renew = renewed  # type: ignore[method-assign]
            assert [(row.lag, row.why) for row in await ends.look()] == [(6, "")]


# -- offsets: mapped ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "foreign"), [(3, 0), (3, 3), (6, 0)])
async def test_a_destination_that_has_lost_its_end(left: int, foreign: int) -> None:
    """An unclean election: fewer copies are there than were written down, or others' records in their place. Nothing is
    translated by what is gone; a consumer would be reset to anywhere, or read what is not its own."""
    async with sides(exact=False) as at:
        at.east.add_topic("t")
        at.east.store("t", 0, *at.copies(left))
        at.east.store("t", 0, *[batch(left + each, 1) for each in range(foreign)])
        await at.write(*at.account(6))
        if left == 6:
            assert (await offset_of(at, offset=3)).splitlines()[0] == "3"
            assert await lag(at) == 3
            return
        told = "t-0 at east ends at "
        for to_source in (False, True):
            with pytest.raises(NotTranslated, match=told):
                await offset_of(at, offset=3, to_source=to_source)
        assert told in await lag(at)
