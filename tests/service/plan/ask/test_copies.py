"""Where a copy would begin by what a group has committed. ``tests/service/plan/test_command.py`` asks real brokers for
what is written down, and for both logs."""

from types import SimpleNamespace
from typing import Any

import pytest

from mirror.net.cluster import Cluster
from mirror.relay.partition.claim import Committed
from mirror.service.plan.ask import copies as module
from mirror.service.plan.ask.copies import CopyChecks
from mirror.service.plan.ask.readonly import ReadOnlyCluster, ReadOnlyState
from mirror.service.plan.model import PartitionFacts
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import pytest_pyfunc_call  # noqa: F401 - a hook
from tests.relay.stage.flows import FLOW, batch, settings
from tests.service.plan.facts import topic

OLD = "old"


async def looked(
    committed: dict[tuple[str, int], Committed], monkeypatch: pytest.MonkeyPatch, *, down: str = "",
    forbidden: bool = False,
) -> PartitionFacts:  # fmt: skip
    """What is found of a partition with 30 records that was never copied, where the group has committed that."""

    async def of_group(_: Cluster, group_id: str) -> dict[tuple[str, int], Committed]:
        assert group_id == OLD
        return committed

    async def rights(_: Cluster, group_id: str) -> tuple[None, bool]:
        return None, forbidden

    monkeypatch.setattr(module, "committed", of_group, raising=False)
    monkeypatch.setattr(module, "group_rights", rights, raising=False)
    async with FakeCluster() as here, FakeCluster() as there:
        log = here.add_topic("t").logs[0]
        for base in (0, 10, 20):
            log.store(batch(base, 10))
        async with (
            await ReadOnlyCluster.open("source", here.options()) as source,
            await ReadOnlyCluster.open("destination", there.options()) as destination,
        ):
            await source.refresh(None)
            state = ReadOnlyState(destination, FLOW, lean=True)
            await state.open()
            wanted = settings(start_from="committed", start_group=OLD, mapped=True)
            expiry: Any = SimpleNamespace(forgets_before_ms=lambda: 0.0)
            checks = CopyChecks(source, destination, wanted, state, expiry, {})
            if down:
                source.down[7] = down
            pair = {"source": source.topics["t"], "partitions_there": 0}
            found, _ = await checks.look(topic(exists=False, partitions_there=0, pair=pair), 0, None)
            return found


async def test_a_group_that_has_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its coordinator is not looked for, which a plan must not do: that ended with a traceback."""
    found = await looked({("t", 0): Committed(20)}, monkeypatch)
    assert (found.halted, found.unknown) == (None, "")
    assert (found.start, found.due, found.left_out) == (20, 20, 20)


async def test_a_group_that_has_committed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await looked({}, monkeypatch)
    assert found.halted is not None
    assert found.halted.reason == "start_unknown"


@pytest.mark.parametrize("why", [{"down": "broker 7 hangs"}, {"forbidden": True}])
async def test_a_group_of_which_nobody_tells(why: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have committed: that is not known, and no verdict."""
    found = await looked({}, monkeypatch, **why)
    assert found.halted is None
    assert ("GROUP_AUTHORIZATION_FAILED" if "forbidden" in why else "broker 7 hangs") in found.unknown
