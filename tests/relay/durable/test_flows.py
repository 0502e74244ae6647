"""Two flow ids that copy the same partition into the same one, begun at the same moment: at least one of them halts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from mirror.net.cluster import Cluster
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import HALTED, FlowEntry, KeptHalt, LastCopied, Note, Pin
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.relay.durable.flows import Flows, digest_of
from mirror.relay.durable.pins import Pins
from mirror.sandbox import SandboxCluster
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.net.stage.real import create, log_of, opened, records
from tests.relay.stage.flows import clusters, fill, mirroring
from tests.relay.stage.mapping import mapping, payloads
from tests.service.stage.kafka_side import delete_topic

OTHER = "other"
SIDE = Subject("t", 0, "t")
ONLY_T: dict[str, Any] = {"selects": lambda name: name == "t"}


async def write(destination: FakeCluster, *entries: Entry) -> None:
    """The other flow writes this down at the destination."""
    async with await Cluster.open("destination", destination.options()) as cluster:
        state = InternalTopic(cluster, OTHER)
        await state.open()
        await state.save(entries)


def ids(source: FakeCluster, destination: FakeCluster) -> dict[str, Any]:
    """Of the topics, as the other flow finds them."""
    told = [cluster.topics["t"].topic_id for cluster in (source, destination)]
    return dict(zip(("source_id", "destination_id"), (each.hex if each else None for each in told), strict=True))


def begun(source: FakeCluster, destination: FakeCluster, **changes: str) -> list[Entry]:
    """What the other flow writes before its first batch."""
    told: dict[str, Any] = {"source_cluster": source.cluster_id, **ids(source, destination)} | changes
    who = FlowEntry(flow=OTHER, source_cluster=told["source_cluster"], destination_cluster=destination.cluster_id)
    return [who, Pin(subject=SIDE, **told)]


def halt_of(source: FakeCluster, destination: FakeCluster) -> KeptHalt:
    """It has halted, too."""
    return KeptHalt(subject=SIDE, reason="other_flow", detail="", remedy="", at_ms=1, **ids(source, destination))


@pytest.mark.parametrize("behind", [True, False])
async def test_exact_begun_at_the_same_moment(monkeypatch: pytest.MonkeyPatch, *, behind: bool) -> None:
    """
    1. The other flow pins the partition when we have looked, and before our own pin.
    2. We look once more behind that: halt, and nothing is written. Mutation: without, both would write.
    """
    check, pin = Flows.check_new, Pins.pin

    async def first_only(self: Flows, partition: Any, *, begun: bool = False) -> None:
        if not begun:
            await check(self, partition)

    async with clusters() as (source, destination):
        fill(source)
        destination.add_topic("t")

        async def at_the_same_moment(self: Pins, *args: Any, **options: Any) -> None:
            await write(destination, *begun(source, destination))
            await pin(self, *args, **options)

        monkeypatch.setattr(Pins, "pin", at_the_same_moment)
        if not behind:
            monkeypatch.setattr(Flows, "check_new", first_only)
        async with mirroring(source, destination, **ONLY_T) as flow:
            if not behind:
                await flow.copied(("t", 0))
                return
            assert await flow.halted() == "other_flow"
            (told,) = flow.log.of("halted")
            assert 't-0 is, from now on, copied into t by flow "other" (mirror-internal.other)' in told["detail"]
            assert 'set flow.id: "other"' in told["remedy"]
            assert destination.log("t").end == 0


def test_a_digest() -> None:
    """It changes with what was copied, and not with when that was written down: a flow that is paused writes it down
    again when it is stopped, and an operator has accepted it meanwhile."""
    pin = Pin(subject=SIDE, source_id=None, destination_id=None, at_ms=1)
    note = Note(subject=SIDE, writer="w", source_id=None, destination_id=None, copied=LastCopied(5, 0), at_ms=1)
    known = digest_of([pin, None, note])
    assert digest_of([replace(pin, at_ms=9), None, replace(note, at_ms=9)]) == known
    assert digest_of([pin, None, replace(note, copied=LastCopied(6, 0))]) != known


@pytest.mark.parametrize("case", ["another destination", "another partition", "halted"])
async def test_what_is_no_other_flow_of_it(case: str) -> None:
    """A destination topic that is no more, another partition, and one that has halted before it copied anything."""
    async with clusters() as (source, destination):
        fill(source)
        destination.add_topic("t")
        entries = begun(source, destination, **({"destination_id": "00" * 16} if case == "another destination" else {}))
        if case == "another partition":
            entries = [entries[0], Pin(subject=Subject("t", 1, "t"), **ids(source, destination))]
        if case == "halted":
            entries.append(halt_of(source, destination))
            entries.append(Note(subject=SIDE, writer=HALTED, copied=LastCopied(3), **ids(source, destination)))
        await write(destination, *entries)
        async with mirroring(source, destination, **ONLY_T) as flow:
            await flow.copied(("t", 0))


async def test_halted_behind_a_copy() -> None:
    """A flow that has copied something may have more under way, and its copy is not ours."""
    async with clusters() as (source, destination):
        fill(source)
        destination.add_topic("t")
        note = Note(subject=SIDE, writer="w", copied=LastCopied(3), **ids(source, destination))
        await write(destination, *begun(source, destination), halt_of(source, destination), note)
        async with mirroring(source, destination, **ONLY_T) as flow:
            assert await flow.halted() == "other_flow"


async def test_an_operator_decides() -> None:
    """
    1. Resumed while the other flow is as it was: halts again. What is accepted is written down, and it goes on.
    2. The other flow copies something after that: so long as we have copied nothing, that is not accepted.
    """
    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t")
        await write(destination, *begun(source, destination))
        async with mirroring(source, destination, **ONLY_T) as flow:
            assert await flow.halted() == "other_flow"
            assert await flow.relay.resume(("t", 0)) == ""
            assert await flow.halted() == "other_flow"
            assert await flow.relay.resume(("t", 0), accept_unproven=True) == ""
            await until(lambda: flow.log.of("located"))
        async with mirroring(source, destination, **ONLY_T) as flow:
            await until(lambda: flow.log.of("located"))
        await write(destination, Note(subject=SIDE, writer="w", copied=LastCopied(3), **ids(source, destination)))
        async with mirroring(source, destination, **ONLY_T) as flow:
            assert await flow.halted() == "other_flow"


@asynccontextmanager
async def two(
    source: SandboxCluster, destination: SandboxCluster, topic: str, **changes: Any
) -> AsyncIterator[tuple[Any, Any]]:
    """Both flows, and what they look for before their first entry is there by then in neither."""
    async with (
        mapping(source, destination, topic, flow=f"{topic}->one", **changes) as one,
        mapping(source, destination, topic, flow=f"{topic}->two", **changes) as other,
    ):
        yield one, other


@pytest.mark.broker
@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "exact"])
@pytest.mark.parametrize("rule", [True, False])
async def test_two_mirrors(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    mapped: bool,
    rule: bool,
) -> None:
    """
    1. Both look, write down what they copy, and look again: one halts, or both, and nothing is there twice.
    2. Where both have, one that is resumed goes on. Mutation: without the second look, both copy.
    """
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    records(source_cluster, topic_name, [f"record {at}" for at in range(20)])
    looked = asyncio.Barrier(2)
    check = Flows.check_new

    async def together(self: Flows, partition: Any, *, begun: bool = False) -> None:
        if not begun:
            await check(self, partition)
            await looked.wait()
        elif rule:
            await check(self, partition, begun=True)

    monkeypatch.setattr(Flows, "check_new", together)
    async with two(source_cluster, destination_cluster, topic_name, mapped=mapped) as flows:
        partitions = [each.relay.partitions[topic_name, 0] for each in flows]
        if not rule:
            if mapped:
                for each in flows:
                    await each.copied(topic_name)
                copies = await payloads(await log_of(flows[0].destination, topic_name))
                assert sum(content.length for _, content in copies.values()) == 40
            else:
                await until(lambda: any(each.log.of("halted") or each.log.of("resync") for each in flows))
            return
        await until(lambda: all(each.halted or each.queue.acknowledged >= 20 for each in partitions))
        halted = [each for each in partitions if each.halted]
        assert halted
        assert {each.halted.reason for each in halted if each.halted} == {"other_flow"}
        monkeypatch.setattr(Flows, "check_new", check)
        if len(halted) == 2:
            await until(lambda: all(each.relay.pins.state.ledger.halts for each in flows))
            assert await flows[0].relay.resume((topic_name, 0)) == ""
            await flows[0].copied(topic_name)
    async with opened(destination_cluster) as there:
        copies = await payloads(await log_of(there, topic_name))
    assert sum(content.length for _, content in copies.values()) == 20


@pytest.mark.broker
@pytest.mark.parametrize("exact", [True, False])
async def test_mapped_into_an_exact_copy(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, *, exact: bool
) -> None:
    """A flow keeps an exact copy of some topic of that name: nobody appends to it, from whatever topic. Two flows that
    both append do not mind each other."""
    into = f"into-{topic_name}"
    create(source_cluster, topic_name)
    create(destination_cluster, into)
    records(source_cluster, topic_name, [f"record {at}" for at in range(20)])
    async with opened(destination_cluster) as there:
        await there.refresh([into])
        topic_id = there.topics[into].topic_id
        assert topic_id is not None
        state = InternalTopic(there, OTHER)
        await state.open()
        side = Subject(into, 0, into) if exact else Subject("else", 0, into)
        offsets = "exact" if exact else "mapped"
        await state.save(
            [
                FlowEntry(flow=OTHER, source_cluster="elsewhere", destination_cluster=there.cluster_id),
                Pin(subject=side, source_id="00" * 16, destination_id=topic_id.hex(), offsets=offsets),
            ]
        )
    try:
        async with mapping(source_cluster, destination_cluster, topic_name, into={topic_name: into}) as flow:
            if not exact:
                await flow.copied(topic_name)
                return
            assert await flow.halted(topic_name) == "other_flow"
            halted = flow.relay.partitions[topic_name, 0].halted
            assert halted is not None
            assert halted.detail.startswith(
                f'flow "other" (mirror-internal.other) copies into {into}-0 with offsets: exact'
            )
    finally:
        delete_topic(destination_cluster.bootstrap_servers, "mirror-internal.other")
