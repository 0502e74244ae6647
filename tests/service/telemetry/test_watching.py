"""What a worker knows of partitions that nobody holds, and for how long."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirror.net.cluster import Cluster
from mirror.net.errors import Unreachable
from mirror.service.group.holders import Holders
from mirror.service.telemetry import watching
from mirror.service.telemetry.watching import Watching
from mirror.service.worker_settings import GroupSettings
from tests.fakes.loop import until
from tests.relay.stage.flows import Log

KEYS = [("t", index) for index in range(4)]


@pytest.mark.parametrize("held", [4, 3])
async def test_a_session_that_is_lost(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    """
    1. The worker holds all partitions, or all but one, which the group says another machine has: nobody lacks an owner.
    2. The source goes away, and with it the session: what was said then says nothing of the partitions of now. (It
       counted on, for 15 s, and nothing was told to be unknown.)
    3. They come back.
    """
    asked: list[Any] = []
    away = False

    async def holders(*told: Any, mark: str) -> Holders:
        asked.append(told)
        if away:
            raise Unreachable("gone")
        return Holders(2, 0)

    monkeypatch.setattr(watching, "holders", holders)
    monkeypatch.setattr(watching, "ASK_GROUP_EVERY_S", 0.01)
    monkeypatch.setattr(watching, "FRESH_FOR", 1e6)
    relay: Any = SimpleNamespace(keys=KEYS, partitions=dict.fromkeys(KEYS[:held]))
    seen = Watching()
    assert seen.unassigned is None
    settings, source, log = GroupSettings(group_id="g"), cast(Cluster, None), Log()
    asking = asyncio.ensure_future(seen.ask_group(relay, source, settings, log))
    try:
        await until(lambda: seen.unassigned == 0)
        away = True
        relay.partitions.clear()
        assert seen.unassigned is None
        before = len(asked)
        await until(lambda: len(asked) > before + 2)
        assert seen.unassigned is None
        relay.partitions.update(dict.fromkeys(KEYS))
        await until(lambda: seen.unassigned == 0)
    finally:
        asking.cancel()
    assert not log.lines


async def test_strangers_in_the_group_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    strangers = ("consumer at 192.0.2.1",)

    async def holders(*_: Any, mark: str) -> Holders:
        asked.append(mark)
        return Holders(2, 1, strangers)

    monkeypatch.setattr(watching, "holders", holders)
    monkeypatch.setattr(watching, "ASK_GROUP_EVERY_S", 0.01)
    relay: Any = SimpleNamespace(keys=KEYS, partitions=dict.fromkeys(KEYS[:3]))
    seen, log = Watching(), Log()
    settings = GroupSettings(group_id="g", flow="west->east")
    asking = asyncio.ensure_future(seen.ask_group(relay, cast(Cluster, None), settings, log))
    try:
        await until(lambda: len(asked) > 3)
        assert seen.unassigned == 1
    finally:
        asking.cancel()
    (told,) = log.of("group_shared")
    assert "not mirrors of flow west->east" in told["detail"]
    assert "consumer at 192.0.2.1" in told["detail"]
    assert set(asked) == {"-group-of-west->east"}
