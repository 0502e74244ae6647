"""A copy keeps to the settings that decide what is copied: with another one it halts, and says which."""

import json
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.entries.chunks import MapChunk, Order
from mirror.offsetmap.runs import OffsetMap, Run
from mirror.records.identity import Identity
from mirror.relay.durable import pins
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.relay.stage.flows import batch, batches, clusters, fill, mirroring
from tests.relay.stage.noting import FIRST, SIDE, last_copied, ledger, noted, recreate


@pytest.mark.parametrize("before", ["read_committed", "read_uncommitted"])
async def test_another_isolation_level_on_a_copy(before: str) -> None:
    """
    1. All is copied under one isolation level. Under the other one it would be another copy: it halts, and says which.
    2. Set back, it goes on; the halt is not written down.
    """
    now = "read_uncommitted" if before == "read_committed" else "read_committed"
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, committed=before == "read_committed") as flow:
            await noted(flow)
        async with mirroring(source, destination, committed=before != "read_committed") as flow:
            assert await flow.halted() == "settings_changed"
            halted = flow.partition().halted
            assert halted is not None
            assert f"isolation.level: {before}, and the configuration says {now}" in halted.detail
            assert "Set it back" in halted.remedy
            assert await flow.relay.resume(FIRST) == ""
            await until(lambda: flow.partition().halted)
            assert destination.log("t").end == 60
        source.store("t", 0, *batches(5, first=60))
        async with mirroring(source, destination, committed=before == "read_committed") as flow:
            await flow.copied()
        assert ledger(destination).halts == []


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("rule", [True, False])
async def test_another_identity(*, strict: bool, rule: bool) -> None:
    """
    1. Copied with the one ``identity``, then the other is configured: halt, with both; set back, it goes on. What an
       operator accepts of the isolation level does not go over it.
    2. Mutation: without the note, a healthy copy is called somebody else's, or none.
    """
    told = {True: "strict", False: "stamped"}
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, committed=False, strict=strict) as flow:
            await noted(flow)
        if not rule:
            with patch.object(pins, "_under", lambda pin: (pin.offsets, "", pin.isolation_level)):
                async with mirroring(source, destination, committed=False, strict=not strict) as flow:
                    assert await flow.halted() in ("foreign_writer", "not_a_copy")
            return
        async with mirroring(source, destination, committed=strict, strict=not strict) as flow:
            for _ in range(2):
                assert await flow.halted() == "settings_changed"
                halted = flow.partition().halted
                assert halted is not None
                assert f"identity: {told[strict]}, and the configuration says {told[not strict]}" in halted.detail
                assert "Set it back" in halted.remedy
                assert "--accept-settings" not in halted.remedy
                assert await flow.relay.resume(FIRST, accept_settings=True) == ""
        source.store("t", 0, *batches(5, first=60))
        async with mirroring(source, destination, committed=False, strict=strict) as flow:
            await flow.copied()


async def test_without_the_rule_a_copy_lacks_what_was_aborted() -> None:
    """Read committed, then uncommitted: nothing halts, and nothing tells that the levels differ within one copy."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
        with patch.object(pins.Pins, "_changed", lambda *_: []):
            source.store("t", 0, *batches(5, first=60))
            async with mirroring(source, destination, committed=False) as flow:
                await flow.copied()


async def test_another_isolation_level_before_anything_was_copied() -> None:
    """There is nothing to protect: it goes on, under the new one from then on."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        async with mirroring(source, destination) as flow:
            await noted(flow)
        async with mirroring(source, destination, committed=False) as flow:
            source.store("t", 0, *batches(5))
            await flow.copied()
        pin = ledger(destination).pin(SIDE)
        assert pin is not None
        assert (pin.offsets, pin.isolation_level) == ("exact", "read_uncommitted")


async def test_a_pin_from_before_settings_were_noted() -> None:
    """It goes on, whatever is configured, and has the settings from then on."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
        pin = ledger(destination).pin(SIDE)
        assert pin is not None
        pin = replace(pin, copied=last_copied(destination))
        told = json.loads(pin.value())
        del told["offsets"], told["isolation_level"]
        destination.remembered.append((pin.key(), json.dumps(told).encode()))
        old = ledger(destination).pin(SIDE)
        assert old == replace(pin, offsets="", isolation_level="")
        async with mirroring(source, destination, committed=False) as flow:
            await flow.copied()
        new = ledger(destination).pin(SIDE)
        assert new is not None
        assert (new.offsets, new.isolation_level, new.copied) == ("exact", "read_uncommitted", pin.copied)


async def test_another_isolation_level_and_the_copy_given_up() -> None:
    """The operator deletes the destination topic and resumes: it is copied anew, under the new one."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
        async with mirroring(source, destination, committed=False) as flow:
            assert await flow.halted() == "settings_changed"
            recreate(destination)
            assert await flow.relay.resume(FIRST) == ""
            await flow.copied()
        pin = ledger(destination).pin(SIDE)
        assert pin is not None
        assert pin.isolation_level == "read_uncommitted"


def mapped_copy(destination: FakeCluster, **fields: Any) -> None:
    """Topic "t" with a batch, and what a mapped flow has written down of it."""
    destination.add_topic("t")
    destination.store("t", 0, batch(0))
    order = Order(1, 1000, 0)
    checkpoint = Checkpoint(
        subject=SIDE,
        writer="w",
        order=order,
        source_offset=3,
        source_epoch=0,
        destination_offset=3,
        identity=Identity(1000, 0, 3),
        **fields,
    )
    chunk = MapChunk(subject=SIDE, writer="w", order=order, number=0, since=0, map=OffsetMap([Run(0, 0, 3)]))
    destination.remembered += [(chunk.key(), chunk.value()), (checkpoint.key(), checkpoint.value())]


async def test_exact_offsets_on_a_mapped_copy() -> None:
    """By its checkpoint: a mapped copy is no foreign writer's, and nothing has to be deleted."""
    async with clusters() as (source, destination):
        fill(source)
        mapped_copy(destination)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "settings_changed"
            halted = flow.partition().halted
            assert halted is not None
            assert "offsets: mapped, and the configuration says exact" in halted.detail


@pytest.mark.parametrize("before", ["read_committed", "read_uncommitted", "", "of another topic"])
async def test_another_isolation_level_on_a_mapped_copy(before: str) -> None:
    """By its checkpoint; one of a version that did not note it, or of another destination topic, says nothing."""
    async with clusters() as (source, destination):
        fill(source)
        if before == "of another topic":
            mapped_copy(destination, isolation_level="read_uncommitted", destination_id="00" * 16)
        else:
            mapped_copy(destination, isolation_level=before)
        async with mirroring(source, destination, mapped=True) as flow:
            await until(lambda: flow.partition().halted or flow.log.of("located"))
            halted = flow.partition().halted
            expected = {"read_uncommitted": "settings_changed", "of another topic": "recreated"}
            assert (halted.reason if halted else None) == expected.get(before)


async def test_mapped_offsets_on_an_exact_copy() -> None:
    """By its pin. With a checkpoint it is a mapped copy, whatever a pin of before says."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
        async with mirroring(source, destination, mapped=True) as flow:
            assert await flow.halted() == "settings_changed"
            halted = flow.partition().halted
            assert halted is not None
            assert "offsets: exact, and the configuration says mapped" in halted.detail
