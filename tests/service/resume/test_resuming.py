"""What a worker answers when a halted partition is resumed: whether it really goes on."""

import asyncio
import itertools
from typing import Any

import pytest

from mirror.relay.halts import Halted
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.topics import recreated
from mirror.service.resume.resuming import resume
from tests.relay.stage.flows import Flow, clusters, fill, mirroring

KEY = ("t", 0)


class Resumed:
    """A relay whose one partition is soon located once resumed, and then its next batch acknowledged or refused."""

    def __init__(self, refusal: Halted | None) -> None:
        self._refusal = refusal
        self.partition = Partition(*KEY)
        self.partitions = {KEY: self.partition}

    async def resume_all(self, keys: list[tuple[str, int]], **_: bool) -> dict[tuple[str, int], str]:
        self._going = asyncio.ensure_future(self._go())
        return dict.fromkeys(keys, "")

    async def _go(self) -> None:
        partition = self.partition
        await asyncio.sleep(0.03)
        partition.phase, partition.queue.acknowledged, partition.cursor.high_watermark = Phase.ACTIVE, 10, 20
        await asyncio.sleep(0.1)
        if self._refusal is None:
            partition.queue.acknowledged = 12
        else:
            partition.stop_with(self._refusal)


@pytest.mark.parametrize(
    ("refusal", "said"),
    [(None, ""), (Halted("too_large", "4,000 bytes", "raise it"), "halts again, too_large: 4,000 bytes")],
)
async def test_located_is_not_yet_going_on(refusal: Halted | None, said: str) -> None:
    """What it halted for may be the very next batch: the answer waits for that one."""
    relay: Any = Resumed(refusal)
    assert await resume(relay, [KEY], ()) == {KEY: said}
    assert relay.partition.phase is (Phase.ACTIVE if refusal is None else Phase.HALTED)


async def notice_first(flow: Flow) -> None:
    """The topics' ids are noticed by the first partition alone."""
    await flow.relay.source.refresh(["t"])
    await flow.relay.destination.refresh(["t"])
    flow.relay.doubt_now(flow.partition(), "test", "as scripted")
    assert await flow.halted() == "recreated"
    assert flow.partition(index=1).halted is None


@pytest.mark.parametrize("rule", [True, False])
async def test_partitions_that_halt_only_now(monkeypatch: pytest.MonkeyPatch, *, rule: bool) -> None:
    """
    1. A destination topic of two partitions is made anew; one halts `recreated`, the other has not noticed.
    2. The topic is resumed: both go on. Without the rule (the mutation), the other one halts now.
    """
    monkeypatch.setattr(recreated, "LOOK_EVERY_S", 1e9)
    async with clusters(versions={"Produce": (3, 12), "Fetch": (4, 12)}) as (source, destination):
        fill(source, partitions=2)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            del destination.topics["t"]
            destination.add_topic("t", partitions=2)
            await notice_first(flow)
            found = await resume(flow.relay, [KEY], (), remade=["t"] if rule else [])
            if rule:
                assert found == {KEY: "", ("t", 1): ""}
                await flow.copied()
            else:
                assert found == {KEY: ""}
                assert await flow.halted(index=1) == "recreated"


async def test_a_topic_that_is_made_anew_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator has not seen that one: the partition that halts for it stays so."""
    monkeypatch.setattr(recreated, "LOOK_EVERY_S", 1e9)
    async with clusters() as (source, destination):
        fill(source, partitions=2)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            look, looks = flow.relay.resume_all, 0

            async def looks_then_is_made_anew(*keys: Any, **accept: Any) -> Any:
                nonlocal looks
                looks += 1
                found = await look(*keys, **accept)
                if looks == 1:
                    monkeypatch.setattr(flow.relay.pins, "ids", once_more(flow.relay.pins.ids))
                return found

            monkeypatch.setattr(flow.relay, "resume_all", looks_then_is_made_anew)
            del destination.topics["t"]
            destination.add_topic("t", partitions=2)
            await notice_first(flow)
            found = await resume(flow.relay, [KEY], (), remade=["t"])
            assert ("t", 1) not in found
            assert looks == 1


def once_more(ids_of: Any) -> Any:
    """Other ids with each look."""
    numbers = itertools.count()
    return lambda partition: (ids_of(partition)[0], f"{next(numbers):032x}")
