"""A halt is written down however long that takes, and only as long as the partition is nobody else's."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from mirror.net.errors import NotSent, Unreachable
from mirror.offsetmap.internal.memory import May
from mirror.reasons import HaltReason
from mirror.relay.durable import due
from mirror.relay.durable.due import persistently
from mirror.relay.halts import Halted
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from tests.relay.stage.flows import settings


@pytest.mark.parametrize("ours", [True, False])
async def test_what_has_waited_is_asked_about_anew(monkeypatch: pytest.MonkeyPatch, *, ours: bool) -> None:
    """
    1. A halt is to be written, and other writes take longer than a look counts: it is not sent.
    2. At once, the coordinator is asked. It is written if the partition is still ours, and that was just said.
    """
    clock, asked = [100.0], []
    holds: list[bool] = []
    monkeypatch.setattr(due, "since_boot", lambda: clock[0])
    partition = Partition("t", 0)
    halted = Halted.of(HaltReason.CORRUPT, "as a look would have it")
    partition.stop_with(halted)
    how = settings(settle_ms=1_000, backoff_max_ms=3_600_000)

    async def attempt(may: May) -> None:
        clock[0] += how.fresh_s if holds else how.fresh_s + 0.1
        holds.append(may())
        if not holds[-1]:
            raise NotSent("other writes were waited for")

    async def may_tell(_: Partition) -> bool:
        asked.append(clock[0])
        return ours or not holds

    await persistently(attempt, how, partition, halted, may_tell=may_tell, log=Mock())
    assert (holds, len(asked)) == ([False, True] if ours else [False], 2)


@pytest.mark.parametrize("slow_s", [1.5, 2.5])
async def test_a_coordinator_that_takes_longer_than_its_answer_counts(
    slow_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The halt was let go, and is written all the same: from the fourth time on, the answer counts from when it came.
    In between, the pauses grow."""
    clock, holds, pauses = [100.0], [], []
    monkeypatch.setattr(due, "since_boot", lambda: clock[0])

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(due, "asyncio", SimpleNamespace(sleep=pause, timeout=asyncio.timeout))
    partition = Partition("t", 0)
    halted = Halted.of(HaltReason.CORRUPT, "as a look would have it")
    partition.stop_with(halted)
    partition.stop()
    how = settings(settle_ms=1_000, backoff_max_ms=3_600_000)

    async def attempt(may: May) -> None:
        holds.append(may())
        if not holds[-1]:
            raise NotSent("it was asked too long ago")
        assert len(holds) < 10

    async def may_tell(_: Partition) -> bool:
        clock[0] += slow_s
        return len(holds) < 10

    await persistently(attempt, how, partition, halted, may_tell=may_tell, log=Mock())
    assert holds == ([True] if slow_s < how.fresh_s else [False, False, False, True])
    assert all(after > before * 1.2 for before, after in pairwise(pauses))


@pytest.mark.parametrize("event", ["let go", "resumed"])
async def test_what_was_known_holds_until_the_partition_goes(event: str) -> None:
    """Let go, or resumed, while its halt waits for other writes. Let go: the coordinator has to say whose it is."""
    partition = Partition("t", 0)
    halted = Halted.of(HaltReason.CORRUPT, "as a look would have it")
    partition.stop_with(halted)
    holds: list[bool] = []
    asked: list[Phase] = []

    async def attempt(may: May) -> None:
        if not holds:
            partition.stop() if event == "let go" else partition.resume()
        holds.append(may())
        if not holds[-1]:
            raise NotSent("other writes were waited for")

    async def may_tell(each: Partition) -> bool:
        asked.append(each.phase)
        return True

    await persistently(attempt, settings(settle_ms=60_000), partition, halted, may_tell=may_tell, log=Mock())
    halting, stopped = Phase.HALTED, Phase.STOPPED
    assert (holds, asked) == (([False, True], [halting, stopped]) if event == "let go" else ([False], [halting]))


@pytest.mark.parametrize("answer", ["not ours", "away", "none in time"])
@pytest.mark.parametrize("let_go", [False, True])
async def test_the_first_try_asks_whose_the_partition_is(
    answer: str, monkeypatch: pytest.MonkeyPatch, *, let_go: bool
) -> None:
    """A worker that stood still halts a partition that another one has by now: that is not written. A coordinator that
    does not answer holds up nothing while the partition is here: without the halt, the next owner would go on."""
    monkeypatch.setattr(due, "ANSWER_S", 0.01)
    partition, written, asked = Partition("t", 0), [], []
    halted = Halted.of(HaltReason.CORRUPT, "as a look would have it")
    partition.stop_with(halted)
    if let_go:
        partition.stop()

    async def attempt(may: May) -> None:
        written.append(may())

    async def may_tell(_: Partition) -> bool:
        asked.append(answer)
        if answer == "not ours" or len(asked) == 3:
            return False
        await asyncio.sleep(0 if answer == "away" or let_go else 60)
        raise Unreachable("away")

    log = Mock()
    await persistently(attempt, settings(settle_ms=60_000), partition, halted, may_tell=may_tell, log=log)
    assert [call.args for call in log.info.call_args_list] == ([] if written else [("halt_not_written",)])
    assert written == ([] if answer == "not ours" or let_go else [True])
