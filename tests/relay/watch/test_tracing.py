"""A partition that somebody follows: each step of it, in order, without records; and nothing of others."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from mirror.relay.assignment import Key
from mirror.relay.watch import tracing
from mirror.relay.watch.tracing import MOST_KEPT, Step, Told, Trace, Tracer
from mirror.wire.errors import ErrorCode, error_name
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.relay.holes.test_filling import over, transactional
from tests.relay.stage.flows import Flow, batch, batches, clusters, fill, mirroring

LONG_S = 600.0
NOT_LEADER = error_name(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Following:
    """Takes what is told, by partition."""

    def __init__(self) -> None:
        self.steps: dict[Key, list[Step]] = {}
        self.missed = 0

    def tell(self, key: Key, told: Told) -> None:
        self.steps.setdefault(key, []).extend(told.steps)
        self.missed += told.missed

    def of(self, step: str, key: Key = ("t", 0)) -> list[Step]:
        return [each for each in self.steps.get(key, []) if each["step"] == step]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "TELL_EVERY_S", 0.01)


@asynccontextmanager
async def followed(
    source: FakeCluster, destination: FakeCluster, keys: tuple[Key, ...] = (("t", 0),), **options: Any
) -> AsyncIterator[tuple[Flow, Following]]:
    """A relay whose partitions are followed from the beginning."""
    told = Following()
    async with mirroring(source, destination, start=False, **options) as flow:
        flow.relay.tracer._tell = told.tell
        for key in keys:
            flow.relay.tracer.follow(key, LONG_S, None)
        await flow.relay.start()
        yield flow, told


async def handed_on(flow: Flow) -> None:
    """All that was noted is told."""
    traces = flow.relay.tracer._traces.values()
    await until(lambda: not any(trace._steps for trace in traces))


def phases(told: Following) -> Iterator[tuple[str, str]]:
    for step in told.of("phase"):
        yield step["before"], step["phase"]


async def test_each_step_of_one_partition() -> None:
    """
    1. Two partitions are copied, and one of them is followed from the beginning.
    2. Its steps: it is here, it is located, its batches are fetched, sent and acknowledged, each once and in order,
       with the offsets that they have. Of the other one, and of what the records hold, there is nothing.
    """
    async with clusters() as (source, destination):
        fill(source, partitions=2)
        async with followed(source, destination) as (flow, told):
            await flow.copied()
            await handed_on(flow)
            assert told.steps.keys() == {("t", 0)}
            assert told.steps["t", 0][0]["step"] == "here"
            assert list(phases(told)) == [("locating", "active")]
            assert [each["event"] for each in told.of("event")] == ["located"]
            fetched = [each for each in told.of("fetched") if each["batches"]]
            assert sum(each["batches"] for each in fetched) == 20
            assert (fetched[0]["offset"], fetched[-1]["next"]) == (0, 60)
            assert all(one["next"] == other["offset"] for one, other in pairwise(fetched))
            assert fetched[0]["high_watermark"] == 60
            sent, answered = told.of("produce"), told.of("produced")
            assert [each["offset"] for each in sent] == [*range(0, 60, 3)]
            assert {each["records"] for each in sent} == {3}
            assert [each["base_offset"] for each in answered] == [each["offset"] for each in answered] == [
                *range(0, 60, 3)
            ]  # fmt: skip
            assert [each["request"] for each in answered] == [each["request"] for each in sent]
            assert all(each["believed"] and each["acknowledged"] == each["offset"] + 3 for each in answered)
            assert all("error" not in each for each in answered)
            first = b"%d," % 57 * 20
            assert source.log("t").batches[-1].endswith(first)
            assert first.decode() not in json.dumps(told.steps["t", 0])


async def test_a_refusal_is_told_and_what_follows() -> None:
    """
    1. The leader says that it is not the leader: the answer is told with its error, and that it does not count.
    2. The partition comes into doubt, and is located again: each phase with its cause, and why it waits.
    """
    async with clusters() as (source, destination):
        fill(source, count=3)
        destination.next("Produce", faults.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        async with followed(source, destination) as (flow, told):
            await flow.copied()
            await handed_on(flow)
            first = told.of("produced")[0]
            assert (first["error"], first["believed"], first["offset"]) == (NOT_LEADER, False, 0)
            assert "base_offset" not in first
            assert list(phases(told)) == [
                ("locating", "active"), ("active", "doubt"), ("doubt", "locating"), ("locating", "active"),
            ]  # fmt: skip
            assert [each["because"] for each in told.of("phase")] == ["located", "doubted", "emptied", "located"]
            (resync,) = [each for each in told.of("event") if each["event"] == "resync"]
            assert resync["cause"] == "not_leader_or_follower"
            assert any("answers that are due are waited for" in each["reason"] for each in told.of("waits"))
            assert [each["offset"] for each in told.of("produce")] == [0, 0, 3, 6]


async def test_requests_without_an_answer() -> None:
    async with clusters() as (source, destination):
        fill(source, count=3)
        destination.next("Produce", faults.disconnect())
        async with followed(source, destination) as (flow, told):
            await flow.copied()
            source.next("Fetch", faults.disconnect())
            await until(lambda: told.of("not_fetched"))
            await handed_on(flow)
            (lost,) = told.of("unanswered")
            assert lost["offset"] == 0
            assert lost["request"] == told.of("produce")[0]["request"]
            assert lost["error"]
            assert told.of("not_fetched")[0]["offset"] == 9


async def test_an_error_of_the_source() -> None:
    async with clusters() as (source, destination):
        fill(source, count=3)
        async with followed(source, destination) as (flow, told):
            await flow.copied()
            source.next("Fetch", faults.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            await until(lambda: [each for each in told.of("fetched") if "error" in each])
            (refused,) = [each for each in told.of("fetched") if "error" in each]
            assert (refused["error"], refused["batches"], refused["offset"]) == (NOT_LEADER, 0, 9)


async def test_holes() -> None:
    async with clusters() as (source, destination):
        transactional(source)
        async with followed(source, destination) as (flow, told):
            await over(flow)
            await handed_on(flow)
            holes = [(each["offset"], each["next"], each["cause"]) for each in told.of("filled")]
            assert holes == [(at, at + 2, "marker") for at in (2, 6, 10, 14)]


async def test_a_trace_that_nobody_renews_ends() -> None:
    """
    1. A partition is followed for a moment, and nobody renews that.
    2. Nothing is noted any more, and nothing is left of it, while copying goes on.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            tracer, partition, told = flow.relay.tracer, flow.partition(), Following()
            tracer._tell = told.tell
            tracer.follow(("t", 0), LONG_S, partition)
            assert tracer.on
            assert partition.trace is not None
            tracer.follow(("t", 0), 0.0, partition)
            await until(lambda: not tracer.on)
            assert flow.partition().trace is None
            assert tracer._timer is None
            assert told.steps["t", 0][0]["step"] == "here"
            noted = len(told.steps["t", 0])
            source.store("t", 0, *batches(3, first=60))
            await flow.copied()
            assert len(told.steps["t", 0]) == noted


async def test_nothing_is_asked_while_nobody_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("asked, while nobody follows a partition")

    for name in ("sent", "fetched", "unfetched", "event", "committed", "adopted"):
        monkeypatch.setattr(Tracer, name, never)
    async with clusters() as (source, destination):
        fill(source)
        source.next("Fetch", faults.disconnect())
        destination.next("Produce", faults.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        async with mirroring(source, destination) as flow:
            await flow.copied()


async def test_a_partition_that_comes_and_goes() -> None:
    """
    1. A partition is followed before it is here: its first step is that it is here.
    2. It goes to another worker: its last step is that it stops. It comes back while it is followed.
    """
    async with clusters() as (source, destination):
        fill(source, count=2)
        told = Following()
        async with mirroring(source, destination, assigned=True) as flow:
            relay = flow.relay
            relay.tracer._tell = told.tell
            relay.tracer.follow(("t", 0), LONG_S, None)
            assert relay.adopt(("t", 0))
            await flow.copied()
            gone = flow.partition()
            relay.release(gone)
            assert gone.trace is None
            source.store("t", 0, batch(6))
            assert relay.adopt(("t", 0))
            await flow.copied()
            await handed_on(flow)
            assert [each["phase"] for each in told.of("here")] == ["locating", "locating"]
            assert ("active", "stopped") in list(phases(told))
            assert told.of("produce")[-1]["offset"] == 6


def test_what_there_is_no_room_for_is_counted() -> None:
    trace = Trace(LONG_S)
    for number in range(MOST_KEPT + 3):
        trace.note("fetched", offset=number)
    told = trace.take()
    assert (len(told.steps), told.missed) == (MOST_KEPT, 3)
    trace.note("fetched", offset=9)
    assert (len(trace.take().steps), trace.take().missed) == (1, 0)


def test_fields_of_a_log_line_hide_nothing() -> None:
    """A line may have fields of any name: that must not fail, since the relay waits for it."""
    tracer = Tracer()
    trace = tracer._traces["t", 0] = Trace(LONG_S)
    tracer.event("e", {"topic": "t", "partition": 0, "step": "x", "at_ms": 1, "self": 2})
    (step,) = trace.take().steps
    assert (step["step"], step["event"], step["self"]) == ("event", "e", 2)
    assert step["at_ms"] > 1


def test_what_does_not_change_is_noted_once() -> None:
    trace = Trace(LONG_S)
    for reason in ("a", "a", "b", "a"):
        trace.waits(reason)
    for offset in (5, 5, 6):
        trace.committed(offset)
    assert [each.get("reason", each.get("offset")) for each in trace.take().steps] == ["a", "b", "a", 5, 6]
