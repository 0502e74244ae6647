"""What a partition does with what was read of both logs; with a lock-step that only answers what it is told to."""

from types import SimpleNamespace
from typing import Any

import pytest

from mirror.records.admit import Terms
from mirror.records.identity import Identity
from mirror.relay.halts import PartitionHalted
from mirror.relay.locate.rules import ResyncRules
from mirror.relay.mapped.reading import Reading


async def gone(*, room: int, following: int, rewrites: bool) -> None:
    """Copies may be gone from a gap of ``room`` offsets, and the leader has forgotten the producer. The source's next
    batch takes ``following`` offsets."""
    log: Any = SimpleNamespace(name="t-0 at there")
    nothing: Any = None
    rules = ResyncRules(name="t-0", owner=7, filler=8, settle_s=0, terms=Terms(rewrites=rewrites))
    reading = Reading(nothing, log, log, rules, nothing)

    async def coming() -> Any:
        return SimpleNamespace(length=following)

    step: Any = SimpleNamespace(
        unseen=lambda _: [room], identity=Identity(7, 0, 0), gone_to=lambda _: 5, next_of_source=coming,
        alignment=SimpleNamespace(overtaken=False), source_offset=0,
    )  # fmt: skip
    before: Any = SimpleNamespace(last_sequence=lambda *_: None, final=None, complete=False, end=0)
    await reading.count_gone(step, before, closed=False)


@pytest.mark.parametrize(
    ("room", "following", "rewrites"),
    [
        pytest.param(6, 6, False, id="the next batch"),
        pytest.param(1, 6, True, id="a piece of it"),
    ],
)
async def test_what_is_gone_may_have_been(room: int, following: int, *, rewrites: bool) -> None:
    with pytest.raises(PartitionHalted, match="checkpoint_behind"):
        await gone(room=room, following=following, rewrites=rewrites)


async def test_a_whole_batch_cannot_have_stood_in_less_room() -> None:
    await gone(room=5, following=6, rewrites=False)
