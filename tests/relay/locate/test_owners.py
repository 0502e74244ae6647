"""The transactional id of a partition: its alone, and what it was in earlier versions where that was its alone."""

import asyncio
from itertools import product
from typing import Any
from unittest.mock import Mock, patch

import pytest

from mirror.net.coordinator import NOBODY, Coordinator, Ownership
from mirror.net.errors import Refused, Unreachable
from mirror.reasons import HaltReason
from mirror.relay.halts import Halted
from mirror.relay.locate import owners
from mirror.relay.locate.owners import Owners, former_transactional_id, transactional_id
from mirror.relay.outcome import NotOurs
from mirror.relay.partition.partition import Partition
from mirror.sandbox import SandboxCluster
from mirror.wire.errors import ErrorCode
from tests.fakes.loop import some_turns, until
from tests.net.stage.real import create, records
from tests.relay.durable.restarts.test_kept_halts import owners as owners_of_all
from tests.relay.stage.flows import FLOW, fill, mirroring
from tests.relay.stage.flows import clusters as both
from tests.relay.stage.mapping import assert_exact, mapping, written_map
from tests.relay.stage.noting import FIRST, ledger

NAMES = ["eu", "us", "eu.us", "us.eu", "eu.us.eu", "eu->us", "a.b->c.d"]


def former(flow: str, partition: Partition) -> str:
    """As earlier versions had it, for every flow."""
    return f"mirror.{flow}.{partition.topic}.{partition.index}"


def test_one_id_for_each_flow_and_topic() -> None:
    """Mutation: the former ids are not."""
    pairs = [(flow, Partition(topic, 3)) for flow, topic in product(NAMES, NAMES[:5])]
    assert len({transactional_id(*pair) for pair in pairs}) == len(pairs)
    assert len({former(*pair) for pair in pairs}) < len(pairs)


def test_flows_without_a_dot_keep_theirs() -> None:
    one = Partition("us.pay", 0)
    assert transactional_id("eu->us", one) == former("eu->us", one) == "mirror.eu->us.us.pay.0"
    assert former_transactional_id("eu->us", one) == ""
    assert transactional_id("eu.us", one) == "mirror.eu%2Eus.us.pay.0"
    assert former_transactional_id("eu.us", one) == former("eu.us", one)


@pytest.mark.parametrize(("flow", "known"), [("eu.us", True), ("eu.us", False), (FLOW, True)])
async def test_a_worker_of_an_earlier_version_lets_go(flow: str, *, known: bool) -> None:
    """The former id is taken over before the new one, where anybody has it."""
    taken = []

    async def describe(_: Any, name: str) -> Ownership:
        return Ownership(7, 1) if known else NOBODY

    async def take(_: Any, name: str) -> Ownership:
        taken.append(name)
        return Ownership(8, 0)

    with patch.object(Coordinator, "describe", describe), patch.object(Coordinator, "init_producer_id", take):
        async with both() as (source, destination), mirroring(source, destination, start=False, flow=flow) as one:
            assert await one.relay.locator.owners.take_over(Partition("t", 0)) == Ownership(8, 0)
    own = [transactional_id(flow, Partition("t", 0))]
    assert taken == ([former(flow, Partition("t", 0)), *own] if known and flow == "eu.us" else own)


OURS, RENEWED = Ownership(7, 1), Ownership(7, 2)


@pytest.mark.parametrize(
    ("before", "answer", "after"),
    [
        (None, RENEWED, None),
        (OURS, RENEWED, RENEWED),
        (OURS, Ownership(8, 0), NotOurs),
        (OURS, ErrorCode.PRODUCER_FENCED, NotOurs),
        (OURS, ErrorCode.INVALID_PRODUCER_EPOCH, NotOurs),
        (OURS, ErrorCode.COORDINATOR_NOT_AVAILABLE, Refused),
    ],
)
async def test_an_id_is_used_by_its_owner_alone(
    before: Ownership | None, answer: Ownership | ErrorCode, after: Any
) -> None:
    """Who has none uses none. Another id, or being fenced, tells that somebody else has taken the partition over, or
    that the coordinator had forgotten the id."""
    asked: list[tuple[str, Ownership]] = []

    async def renew(_: Any, name: str, owner: Ownership) -> Ownership:
        asked.append((name, owner))
        if isinstance(answer, ErrorCode):
            raise Refused("there", answer)
        return answer

    partition = Partition("t", 0)
    partition.claim.own(before)
    with patch.object(Coordinator, "renew", renew):
        async with both() as (source, destination), mirroring(source, destination, start=False) as one:
            renewing = one.relay.locator.owners.renew(partition)
            if isinstance(after, type):
                with pytest.raises(after):
                    await renewing
            else:
                await renewing
                assert partition.claim.ownership == after
    assert asked == ([] if before is None else [(transactional_id(FLOW, partition), before)])


class Crossing:
    """A coordinator whose answers come when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *owners: Ownership) -> None:
        """``owners``: what each question for the owner is answered with; the last one for all others."""
        self.asked = 0
        self.described, self.renewed = asyncio.Event(), asyncio.Event()

        async def describe(*_: Any) -> Ownership:
            self.asked += 1
            owner = owners[min(self.asked, len(owners)) - 1]
            await self.described.wait()
            return owner

        async def renew(*_: Any) -> Ownership:
            await self.renewed.wait()
            return RENEWED

        monkeypatch.setattr(Coordinator, "describe", describe)
        monkeypatch.setattr(Coordinator, "renew", renew)


@pytest.mark.parametrize("let_go", [False, True])
@pytest.mark.parametrize("answered", ["first", "last"])
@pytest.mark.parametrize("owner", [OURS, RENEWED])
async def test_answers_that_cross(
    owner: Ownership, answered: str, monkeypatch: pytest.MonkeyPatch, *, let_go: bool
) -> None:
    """While the owner is asked for, the id is renewed over another connection. The coordinator may do either first, and
    either answer may come first: the partition is ours."""
    told = Crossing(monkeypatch, owner, RENEWED)
    partition = Partition("t", 0)
    partition.claim.own(OURS)
    async with both() as (source, destination), mirroring(source, destination, start=False) as one:
        owners = one.relay.locator.owners
        if let_go:
            partition.stop()
        owning = asyncio.create_task((owners.may_tell if let_go else owners.owns)(partition))
        await until(lambda: told.asked)
        renewing = asyncio.create_task(owners.renew(partition))
        await some_turns()
        first, second = (told.described, told.renewed) if answered == "first" else (told.renewed, told.described)
        first.set()
        await some_turns()
        second.set()
        assert await owning
        await renewing
        assert told.asked <= 2


@pytest.mark.parametrize("owner", [Ownership(8, 0), NOBODY])
async def test_another_owner_is_told_all_the_same(owner: Ownership, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the id is renewed, which fails then."""
    told = Crossing(monkeypatch, owner)
    told.described.set()
    partition = Partition("t", 0)
    partition.claim.own(OURS)
    async with both() as (source, destination), mirroring(source, destination, start=False) as one:
        owners = one.relay.locator.owners
        renewing = asyncio.create_task(owners.renew(partition))
        await some_turns()
        owning = asyncio.create_task(owners.owns(partition))
        renewing.cancel()
        assert not await owning
        assert partition.claim.unowned == (owner == NOBODY)


async def test_an_answer_of_before_a_takeover_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was asked for the owner, and then taken over once more here: the answer is of the one before."""
    told = Crossing(monkeypatch, OURS, RENEWED)
    partition = Partition("t", 0)
    partition.claim.own(OURS)
    async with both() as (source, destination), mirroring(source, destination, start=False) as one:
        owning = asyncio.create_task(one.relay.locator.owners.owns(partition))
        await until(lambda: told.asked)
        partition.claim.own(RENEWED)
        told.described.set()
        assert await owning


async def test_paused_while_it_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition is resumed, so it is taken over once more. The coordinator has done that, and its answer is not here
    yet when an operator pauses the partition: that the coordinator names another owner is our own doing."""
    taken = asyncio.Event()

    async def init(*_: Any) -> Ownership:
        taken.set()
        await asyncio.Event().wait()
        raise AssertionError

    with owners_of_all() as epochs:
        async with both() as (source, destination):
            fill(source)
            async with mirroring(source, destination) as flow:
                await flow.copied()
                assert await flow.relay.pause_all([FIRST]) == {FIRST: ""}
                with monkeypatch.context() as patched:
                    patched.setattr(Coordinator, "init_producer_id", init)
                    assert await flow.relay.resume(FIRST) == ""
                    await taken.wait()
                    (name,) = epochs
                    epochs[name] += 1
                    assert await flow.relay.pause_all([FIRST]) == {FIRST: ""}
                assert [halt.reason for halt in ledger(destination).halts] == ["paused"]


@pytest.mark.parametrize(("let_go", "ours"), [(False, True), (True, False)])
@pytest.mark.parametrize("answer", [OURS, None])
async def test_asked_while_it_is_taken_over(
    answer: Ownership | None, monkeypatch: pytest.MonkeyPatch, *, let_go: bool, ours: bool
) -> None:
    """Until the answer is here, nothing is known: as long as the partition is here it is ours, and not for certain once
    it was let go. ``answer``: None before Kafka 3.0."""
    partition = Partition("t", 0)
    partition.claim.own(OURS)
    asked = Owners(Mock(), flow=FLOW, log=Mock())

    async def describe(*_: Any) -> Ownership | None:
        partition.claim.own(None)
        return answer

    monkeypatch.setattr(Coordinator, "describe", describe)
    if let_go:
        partition.stop()
    assert await asked.may_tell(partition) == ours


class Unanswering:
    """A coordinator whose answer to the first renewal is lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, lost: bool) -> None:
        """``lost``: that has not come either, and another worker takes the id over."""
        self.owner, self.former, self.renewals = OURS, NOBODY, 0

        async def describe(*_: Any) -> Ownership:
            return self.owner

        async def renew(_: Any, name: str, owner: Ownership) -> Ownership:
            self.renewals += 1
            if self.renewals == 1:
                self.owner, self.former = RENEWED, NOBODY if lost else owner
                raise Unreachable("no answer")
            if owner not in (self.owner, self.former):
                raise Refused("there", ErrorCode.PRODUCER_FENCED)
            if owner == self.owner:
                self.owner, self.former = Ownership(owner.producer_id, owner.epoch + 1), owner
            return self.owner

        monkeypatch.setattr(Coordinator, "describe", describe)
        monkeypatch.setattr(Coordinator, "renew", renew)


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("let_go", [False, True])
async def test_a_halt_after_a_renewal_without_an_answer(
    monkeypatch: pytest.MonkeyPatch, *, let_go: bool, ours: bool
) -> None:
    """The coordinator names an owner that may be us: it is asked once more for the same, and tells."""
    told = Unanswering(monkeypatch, lost=not ours)
    asked, partition = Owners(Mock(), flow=FLOW, log=Mock()), Partition("t", 0)
    partition.claim.own(OURS)
    with pytest.raises(Unreachable):
        await asked.renew(partition)
    partition.stop_with(Halted.of(HaltReason.CORRUPT, "as a look would have it"))
    if let_go:
        partition.stop()
    assert [*await asyncio.gather(asked.may_tell(partition), asked.may_tell(partition))] == [ours] * 2
    assert told.renewals <= 3


@pytest.mark.broker
async def test_a_copy_of_an_earlier_version_goes_on(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mapped copy under the former id, killed; under the new one, nothing is lost or there twice."""
    flow_id = f"eu.{topic_name}"
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    records(source_cluster, topic_name, [f"record {number}" for number in range(12)])
    with monkeypatch.context() as patched:
        patched.setattr(owners, "transactional_id", former)
        async with mapping(source_cluster, destination_cluster, topic_name, flow=flow_id) as flow:
            await flow.copied(topic_name)
    records(source_cluster, topic_name, [f"record {number}" for number in range(12, 20)])
    async with mapping(source_cluster, destination_cluster, topic_name, flow=flow_id) as flow:
        await flow.copied(topic_name)
        await flow.relay.drain()
    found = await written_map(destination_cluster, topic_name, flow=flow_id)
    assert not await assert_exact(source_cluster, destination_cluster, topic_name, found)
