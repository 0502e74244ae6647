"""What a partition does with what was read of both logs; with a lock-step that only answers what it is told to."""

from types import SimpleNamespace
from typing import Any

import pytest

from mirror.records.admit import Terms
from mirror.records.identity import Identity
from mirror.relay.halts import PartitionHalted
from mirror.relay.locate.rules import ResyncRules
from mirror.relay.mapped.reading import Reading
from mirror.relay.partition import clock


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


async def test_an_end_counts_from_when_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process may be stopped before it reads the answer, while the connection lives."""
    now = [1_000.0]
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def answered() -> int:
        return 7

    async def late() -> int:
        now[0] += 60
        return 7

    log: Any = SimpleNamespace(producers=answered, start=answered, true_end=late, visible_end=answered)
    nothing: Any = None
    reading = Reading(nothing, log, log, nothing, nothing)
    assert await reading.begin() == 7
    assert reading.ended_at == 1_000


async def test_a_whole_batch_cannot_have_stood_in_less_room() -> None:
    await gone(room=5, following=6, rewrites=False)
