"""A copy that goes on under another ``isolation.level``, by an operator's word, on real brokers."""

from typing import Any

import pytest

from mirror.offsetmap.compare.lockstep import LockStep
from mirror.relay.durable.pins import Pins
from mirror.sandbox import SandboxCluster
from tests.fakes.loop import until
from tests.net.stage.real import create, log_of, opened, records, transaction
from tests.relay.stage.mapping import MappedFlow, mapping, payloads

pytestmark = pytest.mark.broker
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


async def accepted(flow: MappedFlow, topic: str, before: str) -> None:
    """It halts, says so, and goes on when an operator says so."""
    assert await flow.halted(topic) == "settings_changed"
    halted = flow.relay.partitions[topic, 0].halted
    assert halted is not None
    assert f"isolation.level: {before}, and the configuration says" in halted.detail
    assert "--accept-settings" in halted.remedy
    assert await flow.relay.resume((topic, 0), accept_gap=True, accept_unproven=True) == ""
    assert await flow.halted(topic) == "settings_changed"
    assert await flow.relay.resume((topic, 0), accept_settings=True) == ""
    await until(lambda: flow.log.of("settings_accepted"), what=f"{flow.log.lines[-10:]}")


async def copied_records(destination: SandboxCluster, topic: str) -> list[bytes]:
    """What a consumer of the destination gets, in order."""
    async with opened(destination) as there:
        found = await payloads(await log_of(there, topic))
    return [content.records for _, (_, content) in sorted(found.items())]


@pytest.mark.parametrize("mapped", [False, True], ids=["exact", "mapped"])
@pytest.mark.parametrize("before", [COMMITTED, UNCOMMITTED])
@pytest.mark.parametrize("drained", [True, False])
async def test_it_goes_on_under_another_level(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    *,
    before: str,
    mapped: bool,
    drained: bool,
) -> None:
    """
    1. The copy ends with an aborted transaction, left out or not. Under the other level it halts, until that is
       accepted.
    2. Killed before the next data: the next start goes on, under the new level from there on. What was copied before
       stays as it was.
    """
    first = before == COMMITTED
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)

    def flow(*, committed: bool) -> Any:
        return mapping(source_cluster, destination_cluster, topic_name, mapped=mapped, reads_committed=committed)

    records(source_cluster, topic_name, ["plain"])
    transaction(source_cluster, topic_name, ["aborted before"], commit=False, transactional_id=topic_name)
    async with flow(committed=first) as one:
        await one.copied(topic_name)
        if drained:
            assert await one.relay.drain()
    async with flow(committed=not first) as one:
        await accepted(one, topic_name, before)
    transaction(source_cluster, topic_name, ["aborted after"], commit=False, transactional_id=topic_name)
    transaction(source_cluster, topic_name, ["kept"], commit=True, transactional_id=topic_name)
    async with flow(committed=not first) as one:
        await one.copied(topic_name)
        assert not one.log.of("halted")
        assert await one.relay.drain()
    found = b"".join(await copied_records(destination_cluster, topic_name))
    # With offsets: mapped, it goes on behind what was copied last, or what was written down.
    before_too = not first or (mapped and not drained)
    assert [each in found for each in (b"aborted before", b"aborted after", b"kept")] == [before_too, first, True]
    async with flow(committed=first) as one:
        assert await one.halted(topic_name) == "settings_changed", "what was accepted is the level of now"


@pytest.mark.parametrize("mapped", [False, True], ids=["exact", "mapped"])
async def test_without_the_level_of_before(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    mapped: bool,
) -> None:
    """The mutation: what was copied before is judged by the level of now, and a good copy halts."""

    def flow(*, committed: bool) -> Any:
        return mapping(source_cluster, destination_cluster, topic_name, mapped=mapped, reads_committed=committed)

    first = not mapped
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    records(source_cluster, topic_name, ["plain"])
    transaction(source_cluster, topic_name, ["aborted"], commit=False, transactional_id=topic_name)
    async with flow(committed=first) as one:
        await one.copied(topic_name)
    step = LockStep.__init__

    def by_the_level_of_now(self: LockStep, *logs: Any, committed: bool, **rest: Any) -> None:
        step(self, *logs, committed=not first, **rest)

    monkeypatch.setattr(LockStep, "__init__", by_the_level_of_now)
    monkeypatch.setattr(Pins, "aborted_to", lambda *_: 0)
    async with flow(committed=not first) as one:
        reason = await one.halted(topic_name)
        if not mapped:
            assert reason == "settings_changed"
            assert await one.relay.resume((topic_name, 0), accept_settings=True) == ""
            reason = await one.halted(topic_name)
        assert reason == ("not_a_copy" if mapped else "overfilled")
