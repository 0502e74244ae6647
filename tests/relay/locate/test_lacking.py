"""A right that is missing while a partition is located: named, waited for, and not told over and over."""

from typing import Any
from unittest.mock import patch

import pytest

from mirror.net.cluster import Cluster
from mirror.offsetmap.internal.memory import PREFIX
from mirror.relay.locate import seeking
from mirror.relay.partition.phases import Phase
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.loop import some_turns, until
from tests.relay.stage.flows import clusters, fill, mirroring

OFTEN: dict[str, Any] = {"selects": lambda name: name == "t", "refresh_topics_interval_ms": 20}
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeking, "LACKING_PAUSE_S", 0.01)


async def test_named_once_and_waited_for() -> None:
    """
    1. Several tries of three partitions are refused: one line names the right; what waits says so, too.
    2. It is there: all are copied.
    """
    async with clusters() as (source, destination):
        fill(source, partitions=3)
        for _ in range(12):
            source.next("ListOffsets", faults.refuse(DENIED))
        async with mirroring(source, destination, **OFTEN) as flow:
            await until(lambda: flow.log.of("not_authorized"))
            waits = [each.waiting.reason for each in flow.relay.partitions.values() if each.waiting is not None]
            assert any("lacks Describe on topic t of cluster source" in wait for wait in waits)
            await flow.copied()
            (told,) = flow.log.of("not_authorized")
            assert told["remedy"].startswith("grant the mirror's principal Describe on topic t of cluster source; ")
            assert not flow.log.of("position_unknown")


async def test_told_again_after_it_was_there() -> None:
    """A minute between two lines is for one lack."""
    async with clusters() as (source, destination):
        fill(source)
        source.next("ListOffsets", faults.refuse(DENIED))
        async with mirroring(source, destination, **OFTEN) as flow:
            await flow.copied()
            assert len(flow.log.of("not_authorized")) == 1
            source.next("ListOffsets", faults.refuse(DENIED))
            flow.relay.doubt_now(flow.partition(), "tested", "a doubt without a cause")
            await until(lambda: len(flow.log.of("not_authorized")) == 2)
            await until(lambda: flow.partition().phase is Phase.ACTIVE)


async def test_a_topic_that_may_not_be_described() -> None:
    """It is not taken for one that is gone: at the source it is hidden, at the destination it is waited for."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, **OFTEN) as flow:
            await flow.copied(("t", 0))
            source.topics["t"].error = DENIED
            await until(lambda: flow.log.of("topic_hidden"))
            (told,) = flow.log.of("topic_hidden")
            assert "Describe on topic t of cluster source" in told["remedy"]
            assert not flow.log.of("topic_gone")
            source.topics["t"].error = 0
        destination.topics["t"].error = DENIED
        async with mirroring(source, destination, **OFTEN) as flow:
            assert await flow.halted() == "authorization"
            halted = flow.partition().halted
            assert halted is not None
            assert "lacks Describe on topic t of cluster destination" in halted.detail


async def test_an_entry_that_may_not_be_described() -> None:
    """It is asked for by name, and told again when that is over and it is gone once more."""
    async with clusters() as (source, destination):
        fill(source)
        source.add_topic("hidden")
        source.topics["hidden"].error = DENIED
        wanted = {name: (lambda topic, name=name: topic == name) for name in ("t", "hidden")}
        often = OFTEN | {"selects": lambda name: name in wanted, "wanted": wanted}
        async with mirroring(source, destination, **often) as flow:
            await flow.copied(("t", 0))
            (told,) = flow.log.of("topic_unknown")
            assert "lacks Describe on topic hidden of cluster source" in told["detail"]
            source.topics["hidden"].error = 0
            await until(lambda: ("hidden", 0) in flow.relay.partitions)
            source.topics["hidden"].error = DENIED
            await until(lambda: len(flow.log.of("topic_unknown")) == 2)


async def test_internal_topics_that_may_not_be_described() -> None:
    """A list of all topics leaves them out, so nobody could tell; a name that does not exist shows it."""

    async def check(self: Cluster, topics: list[str]) -> None:
        if any(name.startswith(PREFIX) for name in topics):
            self.denied.update(topics)

    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, **OFTEN) as flow:
            await flow.copied(("t", 0))
            assert not flow.log.of("loops_not_seen")
            with patch.object(Cluster, "check_denied", check):
                await until(lambda: flow.log.of("loops_not_seen"))
                await flow.relay.loops.renew()
            (told,) = flow.log.of("loops_not_seen")
            assert "Describe on topic mirror-internal.* of cluster source" in told["detail"]
            await flow.relay.loops.renew()
            await some_turns()
            with patch.object(Cluster, "check_denied", check):
                await until(lambda: len(flow.log.of("loops_not_seen")) == 2)


async def test_what_lasts_is_a_warning() -> None:
    """New topics have no leader for a moment: that is told, and is nothing to look at."""
    async with clusters() as (source, destination):
        fill(source)
        for _ in range(seeking.WARN_AFTER_TRIES + 2):
            source.next("ListOffsets", faults.refuse(ErrorCode.LEADER_NOT_AVAILABLE))
        async with mirroring(source, destination, **OFTEN) as flow:
            await flow.copied()
            levels = [line.level for line in flow.log.lines if line.event == "position_unknown"]
            assert levels == [*["info"] * seeking.WARN_AFTER_TRIES, "warning", "warning"]
