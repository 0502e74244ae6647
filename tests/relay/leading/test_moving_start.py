"""A source that deletes its first records while the copy begins, between real clusters: the start is followed until
the first record is copied."""

from dataclasses import replace
from typing import Any

import pytest

from mirror.relay.locate import position
from mirror.relay.locate.position import Locator
from mirror.relay.locate.resync import Resync
from mirror.relay.locate.rules import Rest
from mirror.relay.partition.location import Location
from mirror.relay.partition.partition import Partition
from mirror.relay.relay import Relay
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import delete_before
from tests.net.stage.real import create, log_of, records
from tests.relay.stage.mapping import MappedFlow, mapping, payloads

pytestmark = pytest.mark.broker


class Deleting:
    """Deletes at the source just when a position is sought, and just before the first fetch from one."""

    def __init__(self, source: SandboxCluster, topic: str, *, while_sought: list[int], before_fetch: list[int]) -> None:
        self.source, self.topic = source, topic
        self.while_sought, self.before_fetch = while_sought, before_fetch

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        run, place = Resync.run, Relay.place

        async def deletes_then_runs(resync: Resync, **how: Any) -> Any:
            self._delete(self.while_sought)
            return await run(resync, **how)

        def deletes_then_places(relay: Relay, partition: Partition, location: Location) -> None:
            self._delete(self.before_fetch)
            place(relay, partition, location)

        monkeypatch.setattr(Resync, "run", deletes_then_runs)
        monkeypatch.setattr(Relay, "place", deletes_then_places)

    def _delete(self, offsets: list[int]) -> None:
        if offsets:
            delete_before(self.source, self.topic, offsets.pop(0))


async def assert_copied(flow: MappedFlow, topic: str, start: int) -> None:
    """Both logs begin at ``start``, and hold the same from there on."""
    await flow.copied(topic)
    here, there = await log_of(flow.source, topic), await log_of(flow.destination, topic)
    assert (await here.start(), await there.start()) == (start, start)
    originals, copies = await payloads(here), await payloads(there)
    assert {base: content for base, (_, content) in copies.items()} == {
        base: content for base, (_, content) in originals.items()
    }


def write(source: SandboxCluster, topic: str, first: int, count: int) -> None:
    """So many batches of one record each."""
    for number in range(first, first + count):
        records(source, topic, [f"record {number}"])


@pytest.mark.parametrize("first", [0, 2])
async def test_the_start_is_followed(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    first: int,
) -> None:
    """
    1. The source begins at ``first``, and deletes after the offsets before its start were filled, while the position is
       sought: 4.
    2. It deletes once more before the first fetch: 6. And again, everything: 8, where it ends.
    3. What comes then is copied, and nothing has halted.
    """
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 0, 8)
    if first:
        delete_before(source_cluster, topic_name, first)
    Deleting(source_cluster, topic_name, while_sought=[4], before_fetch=[6, 8]).install(monkeypatch)
    async with mapping(source_cluster, destination_cluster, topic_name, mapped=False) as flow:
        await assert_copied(flow, topic_name, 8)
        write(source_cluster, topic_name, 8, 3)
        await assert_copied(flow, topic_name, 8)
        assert flow.relay.partitions[topic_name, 0].counts.records == 3
        assert not flow.log.of("halted")


async def test_once_a_record_is_copied_it_halts(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rule is for partitions of which nothing was copied: here two records were, and the third is deleted."""
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 0, 2)
    async with mapping(source_cluster, destination_cluster, topic_name, mapped=False) as flow:
        await flow.copied(topic_name)
        Deleting(source_cluster, topic_name, while_sought=[4], before_fetch=[]).install(monkeypatch)
        flow.relay.doubt_now(flow.relay.partitions[topic_name, 0], "test", "as scripted")
        write(source_cluster, topic_name, 2, 4)
        assert await flow.halted(topic_name) == "retention_overtook"


async def test_what_was_due_at_a_halt_is_told(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """The first batch is too large, and the source deletes it and what follows: resumed, the copy begins behind them,
    and they are skipped offsets like any other, and no records that were replicated. A start tells them again, from
    what is written down."""
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name, max_message_bytes="1000")
    records(source_cluster, topic_name, ["large" * 1000])
    write(source_cluster, topic_name, 1, 5)
    for life in range(2):
        async with mapping(source_cluster, destination_cluster, topic_name, mapped=False) as flow:
            if not life:
                assert await flow.halted(topic_name) == "too_large"
                delete_before(source_cluster, topic_name, 4)
                assert await flow.relay.resume((topic_name, 0)) == ""
            await assert_copied(flow, topic_name, 4)
            assert flow.relay.partitions[topic_name, 0].counts.records == (2 if not life else 0)
            skipped = [each for each in flow.relay.stats.skipped if each.topic == topic_name]
            assert [(each.first, each.next, each.reason) for each in skipped] == [(0, 4, "retention_overtook")]
            assert len(flow.log.of("skipped")) == (not life)


async def _left_alone(self: Locator, partition: Partition, here: Any, there: Any, rest: Rest, *, takeover: bool) -> Any:
    return await Resync(here, there, replace(self.rules(partition), rest=rest), self.log).run(settle=takeover)


async def test_without_the_rule_a_new_partition_halts(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Mutation: the first look at the source's start is the last."""
    monkeypatch.setattr(position.Locator, "_resync", _left_alone)
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 0, 4)
    Deleting(source_cluster, topic_name, while_sought=[2], before_fetch=[]).install(monkeypatch)
    async with mapping(source_cluster, destination_cluster, topic_name, mapped=False) as flow:
        assert await flow.halted(topic_name) == "retention_overtook"
