"""Attacks on pausing, each of which has succeeded once: what a pause promises in the worst moment."""

import asyncio
import re
from collections.abc import Iterable
from typing import Any

import pytest

from mirror.net.errors import NetworkError
from mirror.reasons import HaltReason
from mirror.relay import pausing
from mirror.relay.halts import Halted
from mirror.relay.partition.phases import Phase
from mirror.relay.watch import rights, stalls
from mirror.service.plan.checks import partitions
from mirror.service.plan.model import Level
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.loop import some_turns, until
from tests.relay.durable import test_loops as loops
from tests.relay.holes.test_filling import ANOTHER
from tests.relay.stage.flows import Flow, batch, batches, clusters, fill, mirroring
from tests.relay.stage.noting import halted_by_another, ledger
from tests.relay.test_pausing import paused, under_way
from tests.service.plan import facts
from tests.service.resume.test_resumption import Workers, row
from tests.service.telemetry.stage import rows
from tests.service.telemetry.stage.alerts import RULES
from tests.service.telemetry.stage.fleets import fleet, sample, snapshot
from tests.simulation.model.broker import marker_batch

FIRST, SECOND = ("t", 0), ("t", 1)
MIB = 1 << 20


async def test_a_hole_behind_which_more_waits_than_is_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    """``park`` fetches the rest again, and forgets that the partition is to end: the pause never comes."""
    monkeypatch.setattr(pausing, "WATCH_S", 0.5)
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.store("t", 0, batch(0, 2), marker_batch(2, ANOTHER, 0))
        source.store("t", 0, *batches(60, first=3, size=10_000))
        first = destination.next("Produce", faults.held())
        async with mirroring(source, destination) as flow:
            await first.came.wait()
            await until(lambda: len(flow.partition().queue.outbox) > 20)
            pause = asyncio.create_task(flow.relay.pause_all([FIRST]))
            await some_turns()
            first.open()
            await pause
            assert paused(flow)


async def test_a_lane_that_is_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """``set_aside`` fetches the rest again as well: all of the partition is copied, though "it pauses once it has"."""
    monkeypatch.setattr(stalls, "STALL_S", 0.05)
    monkeypatch.setattr(pausing, "WATCH_S", 0.3)
    small: dict[str, Any] = {
        "fetch_max_bytes": MIB,
        "max_partition_fetch_bytes": MIB // 4,
        "buffer_memory": 5 * MIB // 2,
    }
    async with clusters(brokers=2) as (source, destination):
        for cluster in (source, destination):
            cluster.add_topic("t", partitions=4)
        for index in range(4):
            source.log("t", index).leader = 1
            source.store("t", index, *batches(400, size=3_900))
        destination.next("Produce", faults.Fault(), node_id=2)
        destination.next("Produce", faults.Fault(), node_id=2)
        frozen = destination.next("Produce", faults.held(), node_id=2)
        async with mirroring(source, destination, **small) as flow:
            await frozen.came.wait()
            await until(lambda: len(flow.partition("t", 1).queue.outbox) > 1)
            pause = asyncio.create_task(flow.relay.pause_all([SECOND]))
            await some_turns()
            await flow.copied(("t", 0), ("t", 2))
            assert flow.log.of("lane_stalled")
            assert (await pause)[SECOND].startswith("not yet")
            frozen.open()
            await until(lambda: paused(flow, 1) or flow.partition("t", 1).queue.acknowledged == 1_200)
            assert paused(flow, 1)


async def test_a_halt_that_heals_by_itself_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last answer is a refusal that heals by itself. The operator is told that it is paused; then it copies on."""
    may: set[int] = {8}

    async def of_topics(cluster: Any, names: list[str]) -> dict[str, Any]:
        return dict.fromkeys(names, may)

    async def of_cluster(cluster: Any) -> Any:
        return may

    monkeypatch.setattr(rights, "_of_topics", of_topics)
    monkeypatch.setattr(rights, "_of_cluster", of_cluster)
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(
            source, destination, max_in_flight=1, selects=lambda name: name == "t", refresh_topics_interval_ms=20
        ) as flow:
            await flow.copied(FIRST)
            held = destination.next(
                "Produce", faults.Fault(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, only=FIRST, gate=asyncio.Event())
            )
            source.store("t", 0, *batches(2, first=60))
            await held.came.wait()
            pause = asyncio.create_task(flow.relay.pause_all([FIRST]))
            await some_turns()
            held.open()
            told = await pause
            assert flow.partition().halted is not None
            may.add(4)
            await asyncio.sleep(0.5)
            assert told[FIRST] or paused(flow), f"told {told}, and it is {flow.partition().phase}"


async def test_resumed_while_it_waits() -> None:
    """``resume`` is to end a pause that still waits for answers."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, max_in_flight=1) as flow:
            await flow.copied()
            held = await under_way(flow)
            pause = asyncio.create_task(flow.relay.pause_all([FIRST]))
            await some_turns()
            told = await flow.relay.resume(FIRST)
            held.open()
            await pause
            await some_turns()
            assert told == ""
            assert not paused(flow)


async def test_resumed_while_it_waits_in_doubt() -> None:
    """The same in DOUBT."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, max_in_flight=2) as flow:
            await flow.copied()
            one = await under_way(flow)
            flow.relay.doubt_now(flow.partition(), "test", "test")
            assert flow.partition().phase is Phase.DOUBT
            pause = asyncio.create_task(flow.relay.pause_all([FIRST]))
            await some_turns()
            told = await flow.relay.resume(FIRST)
            one.open()
            await pause
            await some_turns()
            assert told == ""
            assert not paused(flow)


async def test_a_halt_that_was_not_recalled_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. A foreign batch: a durable halt, written down.
    2. After a restart the internal topic cannot be read for a while. The operator pauses.
    3. The note of the real halt is overwritten: nobody sees it any more, and offsets are carried over.
    """
    async with clusters() as (source, destination):
        await halted_by_another(source, destination)
        async with mirroring(source, destination, start=False) as flow:
            load, away = flow.relay.pins.state.load, True

            async def loads() -> None:
                if away and flow.relay.partitions:
                    raise NetworkError("away")
                await load()

            monkeypatch.setattr(flow.relay.pins.state, "load", loads)
            await flow.relay.start()
            await until(lambda: flow.log.of("position_unknown"))
            await flow.relay.pause_all([FIRST])
            away = False
            await some_turns()
            assert [halt.reason for halt in ledger(destination).halts] == ["foreign_writer"]


async def test_a_note_of_another_halt_is_taken_for_that_of_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. A partition halts before anything was copied; its destination topic is made anew, and it is copied.
    2. It is paused while nothing can be written down. The old note counts as that of the pause.
    3. After a restart it is copied.
    """
    monkeypatch.setattr(pausing, "WATCH_S", 0.2)
    async with clusters() as (source, destination):
        await halted_by_another(source, destination)
        destination.add_topic("t")
        async with mirroring(source, destination) as flow:
            await flow.copied()

            async def fails(*_: object, **__: object) -> None:
                raise NetworkError("away")

            monkeypatch.setattr(flow.relay.pins.state, "save", fails)
            told = await flow.relay.pause_all([FIRST])
        assert told[FIRST].startswith("it has stopped, but that could not be written down yet"), told


async def test_paused_while_it_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are told that theirs is done, and it goes on, although the pause came last."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert await flow.relay.pause_all([FIRST]) == {FIRST: ""}
            gate, came = asyncio.Event(), asyncio.Event()
            save = flow.relay.pins.state.save

            async def saves(entries: Any, **rest: Any) -> None:
                came.set()
                await gate.wait()
                await save(entries, **rest)

            monkeypatch.setattr(flow.relay.pins.state, "save", saves)
            resume = asyncio.create_task(flow.relay.resume(FIRST))
            await came.wait()
            paused_told = await flow.relay.pause_all([FIRST])
            gate.set()
            resumed_told = await resume
            await some_turns()
            assert paused(flow) or paused_told[FIRST], (paused_told, resumed_told, flow.partition().phase)


async def test_a_topic_that_is_unknown_for_a_moment() -> None:
    """The destination does not know the topic for a moment: the note names no topic, and holds for none."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            topic = destination.topics.pop("t")
            await flow.relay.destination.refresh(["t"])
            assert await flow.relay.pause_all([FIRST]) == {FIRST: ""}
            destination.topics["t"] = topic
            await flow.relay.destination.refresh(["t"])
            await some_turns()
        source.store("t", 0, *batches(2, first=60))
        async with mirroring(source, destination) as flow:
            await until(lambda: flow.partition().phase in (Phase.HALTED, Phase.ACTIVE))
            assert paused(flow), flow.partition().phase


async def test_recreated_while_it_is_paused() -> None:
    """Without the pause it halts ``recreated``, until an operator says that this is meant."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert await flow.relay.pause_all([FIRST]) == {FIRST: ""}
            destination.add_topic("t")
            await flow.relay.resume(FIRST)
            await until(lambda: flow.partition().phase in (Phase.HALTED, Phase.ACTIVE))
            halted = flow.partition().halted
            assert halted is not None
            assert halted.reason == "recreated"


async def test_a_real_halt_that_waits_for_the_last_answers() -> None:
    """A damaged batch was found, and what was fetched before it is waited for. The pause takes the halt's place."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, max_in_flight=1) as flow:
            await flow.copied()
            held = destination.next("Produce", faults.held())
            source.store("t", 0, *batches(1, first=60))
            await held.came.wait()
            flow.relay.halt_when_drained(flow.partition(), Halted.of(HaltReason.CORRUPT, "as an answer would have it"))
            pause = asyncio.create_task(flow.relay.pause_all([FIRST]))
            await some_turns()
            held.open()
            await pause
            halted = flow.partition().halted
            assert halted is not None
            assert halted.reason == "corrupt"


async def stopped(flow: Flow, reason: HaltReason) -> None:
    """The partition stops for this reason; writing that down fails now."""
    if reason is HaltReason.PAUSED:
        told = (await flow.relay.pause_all([FIRST]))[FIRST]
        assert told.startswith("it has stopped, but that could not be")
    else:
        flow.relay.halt(flow.partition(), Halted.of(reason, "as a look would have it"))
        await some_turns()


@pytest.mark.parametrize("reason", [HaltReason.PAUSED, HaltReason.FOREIGN_WRITER])
async def test_resumed_while_the_halt_is_still_being_written(
    monkeypatch: pytest.MonkeyPatch, reason: HaltReason
) -> None:
    """
    1. The first try to write the pause down, or another halt, fails; the resume's note is next in line at the internal
       topic, which takes one write after the other (``InternalTopic.save``).
    2. The second try is behind it: the partition is located, and found to be halted, after every start.
    """
    monkeypatch.setattr(pausing, "WATCH_S", 0.05)
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            lock, gate, begun = asyncio.Lock(), asyncio.Event(), asyncio.Event()
            save, away = flow.relay.pins.state.save, True

            async def saves(entries: Iterable[Any], *, forget: Iterable[bytes] = (), **rest: Any) -> None:
                if away:
                    raise NetworkError("away")
                entries, forget = list(entries), list(forget)
                async with lock:
                    if forget:
                        begun.set()
                        await gate.wait()
                    await save(entries, forget=forget, **rest)

            monkeypatch.setattr(flow.relay.pins.state, "save", saves)
            # Long enough that the resume is first.
            monkeypatch.setattr("mirror.relay.durable.due.Backoff.next_s", lambda _: 0.3)
            await stopped(flow, reason)
            away = False
            resume = asyncio.create_task(flow.relay.resume(FIRST))
            await begun.wait()
            await asyncio.sleep(0.5)  # the second try comes
            gate.set()
            assert await resume == ""
            await until(lambda: flow.partition().phase in (Phase.HALTED, Phase.ACTIVE))
            assert not flow.partition().halted
            assert not ledger(destination).halts


@pytest.mark.parametrize("reason", [HaltReason.PAUSED, HaltReason.FOREIGN_WRITER])
async def test_a_resume_that_fails(monkeypatch: pytest.MonkeyPatch, reason: HaltReason) -> None:
    """It stays halted, and what was not written down of that yet is, once it can be."""
    monkeypatch.setattr(pausing, "WATCH_S", 0.05)
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            save, look, away = flow.relay.pins.state.save, flow.relay.find_topics, True

            async def saves(entries: Iterable[Any], **rest: Any) -> None:
                if away:
                    raise NetworkError("away")
                await save(entries, **rest)

            async def looks() -> int:
                if away:
                    raise NetworkError("away")
                return await look()

            monkeypatch.setattr(flow.relay.pins.state, "save", saves)
            await stopped(flow, reason)
            monkeypatch.setattr(flow.relay, "find_topics", looks)
            with pytest.raises(NetworkError):
                await flow.relay.resume(FIRST)
            halted = flow.partition().halted
            assert halted is not None
            assert halted.reason == reason.slug
            away = False
            await until(lambda: [halt.reason for halt in ledger(destination).halts] == [reason.slug])
            if reason is HaltReason.PAUSED:
                assert await flow.relay.pause_all([FIRST]) == {FIRST: ""}
            assert await flow.relay.resume(FIRST) == ""


@pytest.mark.parametrize("mapped", [False, True])
async def test_a_flow_the_other_way_that_is_paused(*, mapped: bool) -> None:
    """It goes on once it is resumed, so it is a loop all the same: meanwhile its records are copied back."""
    async with clusters() as (source, destination):
        fill(source)
        destination.add_topic("t")
        trace = loops.checkpoint() if mapped else loops.pin(destination)
        stopped = loops.halt_of(source, destination, reason="paused")
        await loops.write(source, loops.opposite(source, destination), trace, stopped)
        async with mirroring(source, destination, **loops.ONLY_T) as flow:
            await until(lambda: flow.partition().phase in (Phase.HALTED, Phase.ACTIVE))
            halted = flow.partition().halted
            assert halted is not None
            assert halted.reason == "loop"


def test_the_alert_for_what_is_stalled() -> None:
    """It needs an age, and a paused partition has none: its records are left on purpose."""
    (expr,) = re.findall(r"alert: MirrorPartitionStalled\n +expr: >-\n((?: {10}.*\n)+)", RULES.read_text())
    found = fleet(1)
    found.heard(1, snapshot(rows.row(state="paused", lag_records=5)))
    assert sample(found, "mirror_replication_lag_records", partition="0") == 5
    assert sample(found, "mirror_replication_lag_seconds", partition="0") is None
    assert "and max by (source, target, topic, partition) (mirror_replication_lag_seconds) > 0" in expr


def test_a_plan_does_not_call_it_a_halt() -> None:
    """`mirror plan` exits with 2 for what is REFUSED."""
    wished = Halted.of(HaltReason.PAUSED, "paused by an operator")
    found = list(partitions.located(facts.flow(), facts.topic(), facts.partition(halted=wished, kept=True)))
    assert not [each for each in found if each.level is Level.REFUSED]


async def test_resumed_before_the_next_report() -> None:
    """The pause is done and told, and the worker's report of a second ago still says ``active``: nobody is asked to
    resume, the command says "nothing is halted or paused" with exit code 0, and the topic stays paused."""
    workers = Workers({1: [row("orders", 0, "active")]})
    assert (await workers.resumption.pause("orders", None)).outcomes
    await workers.resumption.resume("orders", None, ())
    assert [each for each in workers.asked if each[1] == "resume"]


async def test_a_pause_of_a_topic_says_what_it_leaves_out() -> None:
    """ "0 all of them are paused": one that has halted is left out without a word, and may go on by itself."""
    workers = Workers({1: [row("orders", 0, "halted"), row("orders", 1, "active")]})
    found = await workers.resumption.pause("orders", None)
    assert {each.partition for each in found.outcomes} == {0, 1}
