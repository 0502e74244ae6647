"""Share groups that move over, as far as brokers tell where they are."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirror.net.admin.groups import NOT_READY, CommittedOffset, Offsets
from mirror.net.admin.share import ShareGroups
from mirror.net.cluster import Cluster as Net
from mirror.net.errors import NetworkError
from mirror.net.options import ClusterOptions
from mirror.sandbox import SandboxCluster
from mirror.service.sync.plan import GroupState
from tests.patience import PATIENT
from tests.service.runs.holes.test_holes import consumed, transactions
from tests.service.runs.test_worker import caught_up
from tests.service.stage.kafka_side import create_topic, end_of, produce
from tests.service.stage.running import config_text, mirror
from tests.service.sync.java import SHARE_CONSUMER, read
from tests.service.sync.sides import SYNC, commit
from tests.service.sync.test_offsets import look

pytestmark = pytest.mark.broker
SHARING = {
    **PATIENT,
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[SandboxCluster, SandboxCluster]]:
    """Two clusters with share groups."""
    with (
        SandboxCluster(name="source", quick=True, properties=SHARING) as source,
        SandboxCluster(name="destination", quick=True, properties=SHARING) as destination,
    ):
        yield source, destination


async def starts(cluster: SandboxCluster, group: str, **wanted: int) -> Offsets | NetworkError:
    """Where the group is, by the mirror's own client. ``wanted``: topic -> where it has to begin from now on."""
    options = ClusterOptions(bootstrap=(("127.0.0.1", cluster.brokers[0].port),))
    async with await Net.open(cluster.name, options) as net:
        await net.refresh(None)
        groups = ShareGroups(net)
        offsets = {(topic.replace("_", "-"), 0): CommittedOffset(offset) for topic, offset in wanted.items()}
        await groups.committed([group])  # waits for the coordinator
        while wanted and (codes := set((await groups.commit(group, offsets)).values())) != {0}:
            assert codes <= NOT_READY, codes  # of share groups, there is a second one
            await asyncio.sleep(0.2)
        return (await groups.committed([group]))[group]


def test_none_missed_none_repeated(
    both: tuple[SandboxCluster, SandboxCluster], topic_name: str, tmp_path: Path
) -> None:
    """
    1. A share group has finished with all records, those of transactions among them, aborted ones as well. The brokers
       say that it begins at the first one, and that it lags by none.
    2. At the destination it begins behind the last one. What is written later is read there: together, each once.
    """
    source, destination = both
    servers, there, group = source.bootstrap_servers, destination.bootstrap_servers, topic_name
    create_topic(servers, topic_name)
    produce(servers, topic_name, 20)
    transactions(servers, topic_name, 5)
    total = len(consumed(servers, topic_name, "read_uncommitted"))  # the default of share groups
    first = read(source, topic_name, group, total, tmp_path, main=SHARE_CONSUMER)
    with mirror(tmp_path / "mirror.yaml", config_text(servers, there, [topic_name], flow=SYNC)) as process:
        caught_up(process, servers, there, topic_name, 1)
        process.wait_event("group_offsets_synced")
        # The first time, what was copied by then; once more when the rest is.
        place = {(topic_name, 0): (end_of(servers, topic_name), "")}
        process.wait_for(lambda: asyncio.run(starts(destination, group)) == place, "its place")
        produce(servers, topic_name, 15, seed=1)
        caught_up(process, servers, there, topic_name, 1)
        second = read(destination, topic_name, group, 15, tmp_path, main=SHARE_CONSUMER)
        assert process.stop() == 0
    assert sorted(each.offset for each in first + second) == [
        each.offset for each in consumed(servers, topic_name, "read_uncommitted")
    ]


def test_what_is_left_alone(both: tuple[SandboxCluster, SandboxCluster], topic_name: str, tmp_path: Path) -> None:
    """
    1. A share group that has records before it begins where the brokers say it does: none is missed.
    2. Never backwards; and not at all if a group of another kind has its name at the destination, or the other way.
    """
    source, destination = both
    servers, there, config = source.bootstrap_servers, destination.bootstrap_servers, tmp_path / "mirror.yaml"
    names = [f"{topic_name}-{name}" for name in ("moved", "ahead", "share-here", "share-there")]
    moved, ahead, share_here, share_there = names
    create_topic(servers, topic_name)
    produce(servers, topic_name, 20)
    text = config_text(
        servers, there, [topic_name], flow={"groups": [f"{topic_name}-.*"], "refresh.topics.interval.ms": 500}
    )
    with mirror(config, text) as process:
        caught_up(process, servers, there, topic_name, 1)
        assert process.stop() == 0
    of_topic = topic_name.replace("-", "_")
    for group in (moved, ahead, share_here):
        asyncio.run(starts(source, group, **{of_topic: 7}))
    commit(source, share_there, topic_name, 7)
    asyncio.run(starts(destination, ahead, **{of_topic: 9}))
    asyncio.run(starts(destination, share_there, **{of_topic: 3}))
    commit(destination, share_here, topic_name, 3)
    for _ in range(2):
        assert {plan.group: plan.state for plan in asyncio.run(look(config))} == {
            moved: GroupState.IN_STEP, ahead: GroupState.AHEAD, share_here: GroupState.HELD,
            share_there: GroupState.HELD,
        }  # fmt: skip
    found = {group: asyncio.run(starts(destination, group)) for group in (moved, ahead, share_there)}
    assert found == {group: {(topic_name, 0): (at, "")} for group, at in ((moved, 7), (ahead, 9), (share_there, 3))}
