"""``max.bytes.per.second``: the bucket by a clock that is ours, and the fetches that it holds back."""

import math
import time
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.relay.fetch import limits
from mirror.relay.fetch.limits import FULL_S, URGENT_S, Limit, Limits
from mirror.relay.partition.partition import Partition
from tests.fakes.loop import until
from tests.relay.fetch.test_backlog import MIB, asked, backlog
from tests.relay.fetch.test_current import until_quiet
from tests.relay.stage.flows import batches, clusters, fill, mirroring


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clock that stands still until it is set."""
    made = SimpleNamespace(now=0.0)
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def test_a_bucket(clock: Any) -> None:
    """It is full at first; what is owed is paid back at its rate; it never holds more than a second's worth."""
    limit = Limit(100)
    assert limit.owed_s() == 0
    limit.take(350)
    assert limit.owed_s() == 2.5
    assert limit.owed_s(URGENT_S) == 1.5
    clock.now = 2.0
    assert limit.owed_s() == 0.5
    clock.now = 1_000.0
    limit.take(int(100 * FULL_S))
    assert limit.owed_s() == 0
    limit.take(1)
    assert limit.owed_s() == 0.01


def test_another_rate(clock: Any) -> None:
    """What is owed stays owed, and is paid back at the new rate."""
    limit = Limit(100)
    limit.take(200)
    limit.change(50)
    assert limit.owed_s() == 2.0
    clock.now = 3.0
    limit.change(10)
    assert limit.owed_s() == 0
    limit.take(20)
    assert limit.owed_s() == 1.0


def test_shares(clock: Any) -> None:
    """Of a flow's limit by all partitions, of a topic's by those of the topic; more than all is not possible."""
    made = Limits(1_000, {"a": 100, "b": 0}.__getitem__)
    every = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    made.share(every[:1], every)
    of_a = made.of("a")
    assert made._flow is not None
    assert of_a is not None
    assert (made._flow.rate, of_a.rate, made.of("b")) == (250, 50, None)
    made.share(every, every[:2])
    assert (made._flow.rate, of_a.rate) == (1_000, 100)
    made.share([], every)
    assert made._flow.rate == 1


def test_what_waits(clock: Any) -> None:
    """
    1. A topic over its limit holds back its own partitions, and no others.
    2. A flow over its limit holds back its backlog at once, and fresh data only when it owes more than a second.
    """
    made = Limits(1_000, {"a": 100, "b": 0}.__getitem__)
    a, b = Partition("a", 0), Partition("b", 0)
    assert made.split([a, b]) == ([a, b], math.inf)
    made.came(a, 150)
    assert made.split([a, b]) == ([b], 0.5)
    assert made.split([b]) == ([b], math.inf), "no other topic counts"
    assert made.wait_s(urgent=False) == 0
    made.came(b, 1_350)
    assert (made.wait_s(urgent=False), made.wait_s(urgent=True)) == (0.5, 0)
    made.came(b, 1_000)
    assert (made.wait_s(urgent=False), made.wait_s(urgent=True)) == (1.5, 0.5)


def test_little_is_asked_for_at_a_time() -> None:
    made = Limits(1_000, {"a": 100, "b": 0}.__getitem__)
    assert (made.most_bytes(10_000), made.most_bytes(300)) == (500, 300)
    assert made.most_of(Partition("a", 0), 10_000) == 50
    assert made.most_of(Partition("b", 0), 10_000) == 10_000
    none = Limits(0, None)
    assert not none.any
    assert none.most_bytes(10_000) == none.most_of(Partition("a", 0), 10_000) == 10_000
    assert none.wait_s(urgent=False) == 0


# What is fetched. Times are lower bounds only: a busy machine is slower.


async def test_a_backlog_takes_its_time() -> None:
    """3 MiB at 1 MiB per second, of which the first is in the bucket: not before two seconds are over."""
    async with clusters() as (source, destination):
        fill(source, partitions=4, count=8, size=96 * 1024)
        began = time.monotonic()
        async with mirroring(source, destination, max_bytes_per_second=MIB) as flow:
            await flow.copied()
            took_s = time.monotonic() - began
        assert took_s > 4 * 8 * 96 / 1024 - FULL_S - 0.6  # the last answer may be one that is owed
        assert max(seen.request.max_bytes for seen in backlog(source)) == MIB // 2


async def test_a_topic_takes_its_time_and_holds_up_no_other() -> None:
    """Topic "slow" is not through when "fast", which has more data, is; it is not asked for in a busy loop either."""
    async with clusters() as (source, destination):
        for name in ("slow", "fast"):
            source.add_topic(name, partitions=2)
        for index in range(2):
            source.store("slow", index, *batches(10, size=50_000))
            source.store("fast", index, *batches(60, size=50_000))
        async with mirroring(source, destination, topic_rate={"slow": 50_000, "fast": 0}.__getitem__) as flow:
            await flow.copied(("fast", 0), ("fast", 1))
            slow = [flow.partition("slow", index).queue.acknowledged for index in range(2)]
            assert sum(slow) < 2 * 3 * 10
            flow.relay.limit(0, {"slow": 400_000, "fast": 0}.__getitem__)
            requests = len(source.seen("Fetch"))
            await flow.copied()
            assert len(source.seen("Fetch")) - requests < 200


async def test_fresh_data_comes_before_a_backlog_under_a_limit() -> None:
    """
    1. A backlog has used up the flow's limit, and waits for a while.
    2. Another topic gets a batch, which is copied meanwhile.
    """
    async with clusters() as (source, destination):
        source.add_topic("fresh", partitions=1)
        fill(source, partitions=2, count=100, size=50_000)
        async with mirroring(source, destination, max_bytes_per_second=MIB) as flow:
            await until(lambda: flow.relay.limits.wait_s(urgent=False) > 0)
            source.store("fresh", 0, *batches(1))
            await flow.copied(("fresh", 0))
            assert flow.partition("t", 0).queue.acknowledged < 300


async def test_current_partitions_are_held_back_too() -> None:
    """
    1. A topic that is up to date gets much more than its limit lets through at once.
    2. It leaves the session until its limit lets it on. All is copied in the end.
    """
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=2)
        async with mirroring(source, destination, topic_rate=lambda _: 300_000) as flow:
            await until_quiet(flow)
            for index in range(2):
                source.store("t", index, *batches(8, size=40_000))
            began = time.monotonic()
            await flow.copied()
            assert time.monotonic() - began > (2 * 8 * 40_000 - 300_000) / 300_000 - 0.6
            assert all(most <= 150_000 for seen in backlog(source) for *_, most in asked(source, seen))


@pytest.mark.parametrize(
    "before", [{"max_bytes_per_second": 4_096}, {"topic_rate": lambda _: 4_096}], ids=["flow", "topic"]
)
async def test_limits_are_changed_while_it_copies(before: dict[str, Any]) -> None:
    """
    1. Under a low limit, little is copied, and much is owed.
    2. The limit is taken away, or raised: the rest is copied at once. No partition was located again.
    3. A low limit again, where there was none: it holds.
    """
    async with clusters() as (source, destination):
        fill(source, partitions=2, count=20, size=90_000)
        async with mirroring(source, destination, **before) as flow:
            await until(lambda: flow.copied_batches, what="a batch")
            if "topic_rate" in before:
                flow.relay.limit(0, lambda _: 64 * MIB)
            else:
                flow.relay.limit(0, None)
            await flow.copied()
            assert len(flow.log.of("located")) == 2
            assert not flow.log.of("resync")
            flow.relay.limit(1_024, None)
            for index in range(2):
                source.store("t", index, *batches(20, first=60, size=90_000))
            await until(lambda: flow.copied_batches > 40, what="what comes by the full bucket, or by the first answer")
            assert flow.relay.limits.wait_s(urgent=True) > 0
            assert flow.copied_batches < 80
            flow.relay.limit(0, None)
            await flow.copied()
            assert len(flow.log.of("located")) == 2
