"""Brokers that forget transactional ids, and clean compacted logs, within seconds: ``offsets: mapped``, mostly."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from mirror.net.coordinator import NOBODY, Coordinator, Ownership
from mirror.offsetmap.internal.memory import state_topic
from mirror.relay.mapped import takeover
from mirror.relay.mapped.fence import Before
from mirror.relay.partition.claim import Committed
from mirror.relay.watch.renewal import Renewal
from mirror.sandbox import SandboxCluster
from tests.net.stage.real import create, log_of, opened, records, transaction
from tests.patience import PATIENT
from tests.relay.stage.mapping import FLOW, MappedFlow, assert_exact, mapping, payloads, written_map
from tests.service.stage.kafka_side import delete_topic

pytestmark = pytest.mark.broker

FORGETFUL = {
    "transactional.id.expiration.ms": "1500",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    "log.cleaner.backoff.ms": "200",
}
SLOWLY_MS = 8_000


@pytest.fixture(scope="module")
def forgetful() -> Iterator[SandboxCluster]:
    """The destination of most."""
    with SandboxCluster(name="forgetful", properties={**PATIENT, **FORGETFUL}, quick=True) as cluster:
        yield cluster


@pytest.fixture
def unrenewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the mirror had been stopped for longer than ids live."""

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Renewal, "keep", never)


def write(sandbox: SandboxCluster, topic: str, first: int, count: int) -> None:
    for number in range(first, first + count):
        records(sandbox, topic, [f"{topic} {number} {at}" for at in range(3)])


async def forgotten(sandbox: SandboxCluster, topic: str) -> None:
    """Until the coordinator knows the partition's transactional id no more."""
    async with opened(sandbox) as cluster:
        coordinator = Coordinator(cluster)
        while await coordinator.describe(f"mirror.{FLOW}.{topic}.0") != NOBODY:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.1)


@pytest.mark.usefixtures("unrenewed")
async def test_every_producer_id_is_known_for_ever(
    source_cluster: SandboxCluster, forgetful: SandboxCluster, topic_name: str
) -> None:
    """
    1. A copy, and no checkpoint behind it. The id is forgotten; a second life finds the copies, and has a new id.
    2. That one is forgotten as well. A third life still finds all of it, and goes on.
    """
    create(source_cluster, topic_name)
    create(forgetful, topic_name)
    write(source_cluster, topic_name, 0, 4)
    ids = set()
    for life in range(3):
        async with mapping(source_cluster, forgetful, topic_name) as flow:
            if life == 2:
                await asyncio.to_thread(write, source_cluster, topic_name, 10, 2)
            await flow.copied(topic_name)
            ids.add(flow.relay.partitions[topic_name, 0].cursor.identity.producer_id)
            assert life < 2 or await flow.relay.drain()
        await forgotten(forgetful, topic_name)
    assert len(ids) == 3
    found = await written_map(forgetful, topic_name)
    assert await assert_exact(source_cluster, forgetful, topic_name, found) == 0


@pytest.mark.parametrize("fenced", [True, False])
@pytest.mark.usefixtures("unrenewed")
async def test_a_new_id_fences_the_old_one_by_its_own(
    source_cluster: SandboxCluster,
    forgetful: SandboxCluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    fenced: bool,
) -> None:
    """
    1. A worker has the partition; its id is forgotten. A second worker, which knows nothing of the first, has another.
    2. Both see the same new records, and each is there once. Without the marker of the old id, both append them.
    """

    async def unfenced(_: object, before: Before, *rest: object) -> Before:
        return before

    if not fenced:
        monkeypatch.setattr(takeover, "fence_others", unfenced)
    create(source_cluster, topic_name)
    create(forgetful, topic_name)
    write(source_cluster, topic_name, 0, 2)
    async with mapping(source_cluster, forgetful, topic_name) as first:
        await first.copied(topic_name)
        await forgotten(forgetful, topic_name)
        async with mapping(source_cluster, forgetful, topic_name) as second:
            await second.copied(topic_name)
            await asyncio.to_thread(write, source_cluster, topic_name, 10, 20)
            await second.copied(topic_name)
            await first.copied(topic_name)
        if fenced:
            assert {"invalid_producer_epoch", "not_owner"} & {*first.relay.stats.resyncs}
    if not fenced:
        monkeypatch.undo()
        async with mapping(source_cluster, forgetful, topic_name) as third:
            assert await third.halted(topic_name) == "not_a_copy"
        return
    async with mapping(source_cluster, forgetful, topic_name) as third:
        await third.copied(topic_name)
        assert await third.relay.drain()
    found = await written_map(forgetful, topic_name)
    assert await assert_exact(source_cluster, forgetful, topic_name, found) == 0


@pytest.fixture(scope="module")
def slowly_forgetful() -> Iterator[SandboxCluster]:
    """A destination that forgets ids after so long that no machine stands still until then."""
    properties = {**PATIENT, **FORGETFUL, "transactional.id.expiration.ms": f"{SLOWLY_MS}"}
    with SandboxCluster(name="slowly", properties=properties, quick=True) as cluster:
        yield cluster


async def test_an_id_in_use_is_not_forgotten(
    source_cluster: SandboxCluster, slowly_forgetful: SandboxCluster, topic_name: str
) -> None:
    """The partition is idle for longer than ids live: its owner stays the same, and goes on under its first epoch."""
    create(source_cluster, topic_name)
    create(slowly_forgetful, topic_name)
    write(source_cluster, topic_name, 0, 1)
    async with mapping(source_cluster, slowly_forgetful, topic_name) as flow, opened(slowly_forgetful) as there:
        await flow.copied(topic_name)
        partition = flow.relay.partitions[topic_name, 0]
        began = partition.claim.ownership
        assert began is not None
        coordinator = Coordinator(there)
        idle_until = time.monotonic() + 1.5 * SLOWLY_MS / 1_000
        while (
            time.monotonic() < idle_until
            or partition.claim.ownership is None
            or partition.claim.ownership.epoch < began.epoch + 4
        ):
            assert await coordinator.describe(f"mirror.{FLOW}.{topic_name}.0") != NOBODY
            await asyncio.sleep(0.2)
        await asyncio.to_thread(write, source_cluster, topic_name, 10, 1)
        await flow.copied(topic_name)
        assert partition.cursor.identity.producer_id == partition.claim.ownership.producer_id == began.producer_id
        assert not flow.relay.stats.resyncs


@pytest.mark.usefixtures("unrenewed")
async def test_nothing_starts_anew_while_the_group_says_otherwise(
    source_cluster: SandboxCluster, forgetful: SandboxCluster, topic_name: str
) -> None:
    """The internal topic is lost, and the id forgotten: what the group committed is the last trace."""
    flow_name = f"a->{topic_name}"
    create(source_cluster, topic_name)
    create(forgetful, topic_name)
    write(source_cluster, topic_name, 0, 2)
    async with mapping(source_cluster, forgetful, topic_name, flow=flow_name) as flow:
        await flow.copied(topic_name)
        assert not flow.log.of("state_lost")
        ((_, committable),) = flow.relay.committable().items()
    delete_topic(forgetful.bootstrap_servers, state_topic(flow_name))
    async with opened(forgetful) as cluster:
        coordinator = Coordinator(cluster)
        while await coordinator.describe(f"mirror.{flow_name}.{topic_name}.0") != NOBODY:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    committed = Committed(*committable)
    async with mapping(source_cluster, forgetful, topic_name, flow=flow_name, committed=committed) as flow:
        assert await flow.halted(topic_name) == "checkpoint_lost"
        (told,) = flow.log.of("state_lost")
        assert told["topic"] == state_topic(flow_name)
        assert await flow.relay.resume((topic_name, 0), accept_gap=True) == ""
        await flow.copied(topic_name)
        assert "be it there or not" in flow.log.of("begun_anew")[0]["detail"]


async def test_a_source_whose_cleaner_took_whole_batches(
    forgetful: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """
    1. A compacted source: a key is written again and again, all of it is copied, and nothing noted behind the start.
    2. Its cleaner takes all but the newest; the next life goes on behind, and has a map of what is left.
    """
    create(forgetful, topic_name, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_ms="100")
    create(destination_cluster, topic_name)
    written = 0

    async def write_one(flow: MappedFlow, value: str, key: str) -> None:
        nonlocal written
        written += 1
        await asyncio.to_thread(records, forgetful, topic_name, [value], key=key)
        await flow.copied(topic_name)

    async with mapping(forgetful, destination_cluster, topic_name) as flow:
        for number in range(4):
            for key in ("key", f"key {number}"):
                await write_one(flow, f"value {number}", key)
        log = await log_of(flow.source, topic_name)
        while {0, 2, 4} & (await payloads(log)).keys():
            await write_one(flow, "roll", "roll")
    async with mapping(forgetful, destination_cluster, topic_name) as flow:
        await flow.copied(topic_name)
        assert await flow.relay.drain()
        originals = await payloads(await log_of(flow.source, topic_name))
        copies = await payloads(await log_of(flow.destination, topic_name))
    found = await written_map(destination_cluster, topic_name)
    assert len(copies) == written, "each was copied once, and those stand there still that the source has not any more"
    for base, (_, content) in originals.items():
        place = found.to_destination(base)
        assert place is not None
        assert place.exact
        assert copies[place.offset][1] == content


# ``offsets: exact``: who may fill holes.


def transactions(sandbox: SandboxCluster, topic: str, first: int, count: int) -> None:
    """So many, each with a marker behind it: a hole of the copy."""
    for number in range(first, first + count):
        values = [f"{topic} {number} {at}" for at in range(3)]
        transaction(sandbox, topic, values, commit=True, transactional_id=f"{topic}-{number}")


@pytest.mark.parametrize("forgotten_is_ours", [False, True])
@pytest.mark.usefixtures("unrenewed")
async def test_what_the_coordinator_has_forgotten_is_not_ours(
    source_cluster: SandboxCluster,
    forgetful: SandboxCluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    forgotten_is_ours: bool,
) -> None:
    """
    1. A worker has the partition, and its transactional id is forgotten. A hole comes: it takes the partition over
       anew, without waiting for anybody, and goes on.
    2. Taken for its own, the hole is filled by whoever thinks so, also by a worker that has lost the partition.
    """
    if forgotten_is_ours:
        describe = Coordinator.describe

        async def naive(coordinator: Coordinator, name: str) -> Ownership | None:
            owner = await describe(coordinator, name)
            return None if owner == NOBODY else owner

    create(source_cluster, topic_name)
    create(forgetful, topic_name)
    await asyncio.to_thread(transactions, source_cluster, topic_name, 0, 2)
    async with mapping(source_cluster, forgetful, topic_name, mapped=False) as flow:
        await flow.copied(topic_name)
        await forgotten(forgetful, topic_name)
        # On a slow machine, the id may have been forgotten before, too, between two holes.
        before = flow.relay.partitions[topic_name, 0].claim.ownership
        taken_over = flow.relay.stats.resyncs.get("not_owner", 0)
        if forgotten_is_ours:
            monkeypatch.setattr(Coordinator, "describe", naive)
        await asyncio.to_thread(transactions, source_cluster, topic_name, 10, 2)
        await flow.copied(topic_name)
        after = flow.relay.partitions[topic_name, 0].claim.ownership
        assert before is not None
        assert after is not None
        assert (after == before) is forgotten_is_ours
        assert (flow.relay.stats.resyncs.get("not_owner", 0) > taken_over) is not forgotten_is_ours
