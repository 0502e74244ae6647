"""Groups that move over: Java consumers read a part at the source and go on at the destination."""

import asyncio
import json
import subprocess
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from mirror.net.admin.groups import CommittedOffset
from mirror.sandbox import SandboxCluster, start_together
from mirror.service.config import load, resolve
from mirror.service.sync import offsets
from mirror.service.sync.look import Sync
from mirror.service.sync.plan import GroupPlan, GroupState
from tests.service.runs.holes.test_holes import Record, consumed, transactions
from tests.service.runs.test_worker import caught_up
from tests.service.stage.kafka_side import create_topic, delete_topic, end_of, produce
from tests.service.stage.running import MIRROR, config_text, mirror
from tests.service.sync.java import read
from tests.service.sync.sides import SYNC, commit, committed, consumer, flat, groups_of, member, wait_committed

pytestmark = pytest.mark.broker
PROTOCOLS = ("classic", "consumer")
FOREIGN = 12
MAPPED = {**SYNC, "offsets": "mapped", "checkpoint.interval.ms": 300}
UNKNOWN = -1001
OLDEST = "0.11.0.3"


def contents(record: Record) -> tuple[str | None, str | None]:
    """Key and value, as a Java consumer prints them."""
    key, value = record.key, record.value
    return None if key is None else key.decode(), None if value is None else value.decode()


def foreign(cluster: SandboxCluster, topic: str, name: str) -> None:
    """Others write to the topic."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(FOREIGN):
        producer.produce(topic, key=b"foreign", value=b"%s %d" % (name.encode(), number), partition=0)
    assert producer.flush(60) == 0


def text(record: Any) -> tuple[str | None, str | None]:
    return record.key, record.value


def sync(config: Path, *options: str) -> dict[str, Any]:
    """What ``mirror sync`` prints, as an object."""
    command = [str(MIRROR), "sync", "-c", str(config), "--format", "json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def syncing(config: Path) -> Sync:
    loaded = load(config, {})
    flow = loaded.enabled_flow()
    settings = resolve.sync_settings(flow, resolve.group_settings(flow, loaded).group_id)
    return Sync(resolve.flow_sides(flow), settings)


async def look(config: Path, *, blind: bool = False) -> list[GroupPlan]:
    """Looks at the groups once, and carries over. ``blind``: takes every group for one without members."""
    async with syncing(config) as found:
        if blind:
            setattr(found._offsets, "_skip_active", nothing)  # noqa: B010 (a method)
        return (await found.groups(apply=True)).groups


async def nothing(_: list[GroupPlan]) -> None:
    """Instead of a step that is left out."""


def delete_group(cluster: SandboxCluster, *groups: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for deleted in admin.delete_consumer_groups(list(groups)).values():
        deleted.result(60)


def fill(cluster: SandboxCluster, topic: str) -> int:
    """Records among markers, and among those of aborted transactions. Returns how many a consumer gets."""
    produce(cluster.bootstrap_servers, topic, 30)
    transactions(cluster.bootstrap_servers, topic, 10)
    produce(cluster.bootstrap_servers, topic, 30, seed=1)
    transactions(cluster.bootstrap_servers, topic, 6, name="later")
    return len(consumed(cluster.bootstrap_servers, topic, "read_committed"))


def test_exact(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. Two consumers, of either protocol, read a part of a topic each: the one up to an aborted transaction, the other
       one into the next behind it. They stop. (Where it stops is all the same to the protocol.)
    2. Each group gets the same offset at the destination, verbatim.
    3. It goes on there: together, every record once, at its offset.
    4. The group is empty there again, of its own kind: it is carried further.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    parts = {f"{topic_name}-classic": 30 + 3 * 3, f"{topic_name}-consumer": 30 + 3 * 3 + 1}
    total, here = 0, {}
    for topic, protocol in zip(parts, PROTOCOLS, strict=True):
        create_topic(source, topic)
        total = fill(source_cluster, topic)
        here[topic] = read(
            source_cluster, topic, topic, parts[topic], tmp_path, protocol=protocol, isolation_level="read_committed"
        )
    with mirror(tmp_path / "mirror.yaml", config_text(source, destination, list(parts), flow=SYNC)) as process:
        for topic, protocol in zip(parts, PROTOCOLS, strict=True):
            caught_up(process, source, destination, topic, 1)
            (offset,) = committed(source_cluster, topic, topic)
            wait_committed(destination_cluster, topic, topic, offset)
            there = read(destination_cluster, topic, topic, total - parts[topic], tmp_path, protocol=protocol)
            end = end_of(source, topic)
            commit(source_cluster, topic, topic, end)
            wait_committed(destination_cluster, topic, topic, end)
            wanted = consumed(source, topic, "read_committed")
            assert [each.offset for each in here[topic] + there] == [each.offset for each in wanted]
        assert process.stop() == 0


def test_mapped(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """The same where others write to the destination topics as well: their records come between, and none of ours is
    missed or repeated."""
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    protocols = {f"{topic_name}-{protocol}": protocol for protocol in PROTOCOLS}
    total, part, here, wanted = 0, 41, {}, {}
    for topic, protocol in protocols.items():
        create_topic(source, topic)
        create_topic(destination, topic)
        total = fill(source_cluster, topic)
        foreign(destination_cluster, topic, "before")
        here[topic] = read(
            source_cluster, topic, topic, part, tmp_path, protocol=protocol, isolation_level="read_committed"
        )
        wanted[topic] = [contents(each) for each in consumed(source, topic, "read_committed")]
    with mirror(tmp_path / "mirror.yaml", config_text(source, destination, list(protocols), flow=MAPPED)) as process:
        process.wait_event("caught_up")
        process.wait_for(
            lambda: {*flat(line["groups"] for line in process.of("group_offsets_synced"))} >= {*protocols},
            "offsets carried over",
        )
        assert process.stop() == 0
    for topic, protocol in protocols.items():
        foreign(destination_cluster, topic, "after")
        there = read(
            destination_cluster, topic, topic, total - part + FOREIGN, tmp_path, protocol=protocol,
            isolation_level="read_committed",
        )  # fmt: skip
        found = [text(each) for each in here[topic] + there]
        assert [each for each in found if each[0] != "foreign"] == wanted[topic]
        # Those of the others that were there before the copy are behind the group.
        after = [f"after {number}" for number in range(FOREIGN)]
        assert [value for key, value in found if key == "foreign"] == after


@pytest.mark.parametrize("mode", [SYNC, MAPPED], ids=["exact", "mapped"])
def test_an_empty_partition(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    tmp_path: Path,
    mode: dict[str, object],
) -> None:
    """
    1. A partition has no record; a group has read the others, and committed an offset in each.
    2. All of them are at the destination, that of the empty one, too. Each partition gets a record: a consumer that
       goes on there reads these, and no other one.
    """
    source, destination, group = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers, topic_name
    create_topic(source, topic_name, 3)
    produce(source, topic_name, 20, partitions=2)
    first, second = (end_of(source, topic_name, index) for index in (0, 1))
    with mirror(tmp_path / "mirror.yaml", config_text(source, destination, [topic_name], flow=mode)) as process:
        process.wait_event("caught_up")  # offsets are carried over as far as the records before them are copied
        commit(source_cluster, group, topic_name, first, second, 0)
        process.wait_for(
            lambda: min(committed(destination_cluster, group, topic_name, 3)) >= 0, "an offset in each partition"
        )
        new = [f"new {index}".encode() for index in range(3)]
        producer = Producer({"bootstrap.servers": source})
        for index, value in enumerate(new):
            producer.produce(topic_name, value, partition=index)
        assert producer.flush(60) == 0
        reader = consumer(destination_cluster, group)
        reader.assign([TopicPartition(topic_name, index) for index in range(3)])
        found: list[Any] = []

        def all_read() -> bool:
            message = reader.poll(0.1)
            if message is not None and message.error() is None:
                found.append((message.partition(), message.value()))
            return len(found) >= len(new)

        process.wait_for(all_read, "the new records")
        reader.close()
        assert sorted(found) == list(enumerate(new))
        assert process.stop() == 0


def test_a_copy_that_is_behind(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. The mirror copies ten records, and is stopped; the source gets ten more, and a group reads all of them. Another
       one has read two.
    2. The first is taken to the end of the copy, no further: a consumer would be reset to anywhere. It has read all
       that is there. A dry run says so, and changes nothing.
    3. When the mirror runs again, it is taken to its offset.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    fast, slow, config = f"{topic_name}-fast", f"{topic_name}-slow", tmp_path / "mirror.yaml"
    settings = config_text(source, destination, [topic_name], flow={**SYNC, "groups": [f"{topic_name}-.*"]})
    create_topic(source, topic_name)
    produce(source, topic_name, 10)
    with mirror(config, settings) as process:
        caught_up(process, source, destination, topic_name, 1)
        assert process.stop() == 0
    produce(source, topic_name, 10, seed=1)
    commit(source_cluster, fast, topic_name, 20)
    commit(source_cluster, slow, topic_name, 2, metadata="of its own")
    for options, applied in ((["--dry-run"], False), ([], True)):
        told = sync(config, *options)
        states = {fast: "behind", slow: "in_step" if applied else "to_move"}
        assert {each["group"]: each["state"] for each in told["groups"]} == states
        assert flat(each["offsets"] for each in told["groups"])[0] == {
            "topic": topic_name, "partition": 0, "source": 20, "into": topic_name, "destination": 10, "there_now": None,
            "note": f"{'' if applied else 'would be '}committed, as far as it is copied",
        }  # fmt: skip
        assert [each["committed"] for each in told["groups"]] == ([1, 1] if applied else [0, 0])
        there = [committed(destination_cluster, group, topic_name)[0] for group in (fast, slow)]
        assert there == ([10, 2] if applied else [UNKNOWN, UNKNOWN])
    reader = consumer(destination_cluster, slow)
    assert reader.committed([TopicPartition(topic_name, 0)], timeout=60)[0].metadata == "of its own"
    reader.close()
    with mirror(config, settings) as process:
        wait_committed(destination_cluster, fast, topic_name, 20)
        assert process.stop() == 0


def test_what_is_left_alone(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. Groups that have members at the destination, of either protocol: not touched, before they have committed anything
       as well as after. The broker itself refuses what is committed for them (they may join behind our look).
    2. One that has read further at the destination: never backwards.
    3. Those that are not selected, the flow's own, and another mirror's, whatever its name.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    config = tmp_path / "mirror.yaml"
    names = ["classic", "consumer", "ahead", "moved", "not-selected", "excluded", "mirrors"]
    group = {name: f"{topic_name}-{name}" for name in names}
    own = f"mirror-{topic_name}"
    flow = {
        **SYNC,
        "group.id": own,
        "groups": [f"{topic_name}-(?!not-).*", "mirror-.*"],
        "groups.exclude": [group["excluded"]],
    }
    text = config_text(source, destination, [topic_name], flow=flow)
    create_topic(source, topic_name)
    produce(source, topic_name, 10)
    for name in names:
        note = '{"v":1,"id":"","epoch":3,"digest":"0123456789abcdef","at":8,"leader":3}' if name == "mirrors" else ""
        commit(source_cluster, group[name], topic_name, 8, metadata=note)
    with mirror(config, text) as process:
        caught_up(process, source, destination, topic_name, 1)
        process.wait_event("group_offsets_synced")
        assert process.stop() == 0
    commit(destination_cluster, group["ahead"], topic_name, 9)
    delete_group(destination_cluster, group["classic"], group["consumer"])
    with (
        member(destination_cluster, group["classic"], topic_name) as classic,
        member(destination_cluster, group["consumer"], topic_name, **{"group.protocol": "consumer"}) as consumer_,
    ):
        for commits in (False, True):
            if commits:
                for each in (classic, consumer_):
                    each.commit(offsets=[TopicPartition(topic_name, 0, 1)], asynchronous=False)
            for blind in (False, True):
                told = {plan.group: plan for plan in asyncio.run(look(config, blind=blind))}
                assert {name: told[group[name]].state for name in names if group[name] in told} == {
                    "classic": GroupState.ACTIVE, "consumer": GroupState.ACTIVE, "ahead": GroupState.AHEAD,
                    "moved": GroupState.IN_STEP,
                }  # fmt: skip
                assert not any(plan.carried for plan in told.values())
        for each in (classic, consumer_):
            assert each.committed([TopicPartition(topic_name, 0)], timeout=60)[0].offset == 1
    there = {name: committed(destination_cluster, group[name], topic_name)[0] for name in names}
    left = dict.fromkeys(["not-selected", "excluded", "mirrors"], UNKNOWN)
    assert there == {"classic": 1, "consumer": 1, "ahead": 9, "moved": 8} | left
    assert own in groups_of(source_cluster)
    assert own not in groups_of(destination_cluster)


async def test_two_at_once(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    1. Two look at the same groups at the same time, again and again: each time, every group is where it has to be.
    2. One of them is held up between its look at the destination and its commit, while the other one carries the groups
       further. What it knows is too old then: it commits nothing, and no group goes back.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    config, groups = tmp_path / "mirror.yaml", [f"{topic_name}-{number}" for number in range(25)]
    text = config_text(source, destination, [topic_name], flow={**SYNC, "groups": [f"{topic_name}-.*"]})
    create_topic(source, topic_name)
    produce(source, topic_name, 20)
    for group in groups:
        commit(source_cluster, group, topic_name, 1)
    with mirror(config, text) as process:
        caught_up(process, source, destination, topic_name, 1)
        assert process.stop() == 0
    key = (topic_name, 0)
    async with syncing(config) as one, syncing(config) as other:
        here, there = one._offsets._here, one._offsets._there

        async def stand(offset: int) -> bool:
            found = await there.committed(groups)
            return {each[key].offset for each in found.values() if isinstance(each, dict)} == {offset}

        for offset in range(2, 8):
            for group in groups:
                assert await here.commit(group, {key: CommittedOffset(offset)}) == {key: 0}
            both = await asyncio.gather(one.groups(apply=True), other.groups(apply=True))
            assert {plan.state for seen in both for plan in seen.groups} == {GroupState.IN_STEP}
            assert await stand(offset)

        async def advance(offset: int) -> None:
            for group in groups:
                await here.commit(group, {key: CommittedOffset(offset)})

        await advance(8)
        read, asked = here.committed, 0

        async def held_up(names: Collection[str], **how: Any) -> Any:
            """The second time, just before it commits, the other one overtakes."""
            nonlocal asked
            asked, found = asked + 1, await read(names, **how)
            if asked == 2:
                monkeypatch.setattr(offsets, "FRESH_S", 60.0)  # of the other one; the late one's time is set
                await advance(10)
                await other.groups(apply=True)
                await asyncio.sleep(2.0)
            return found

        monkeypatch.setattr(here, "committed", held_up)
        monkeypatch.setattr(offsets, "FRESH_S", 1.0)
        late = (await one.groups(apply=True)).groups
        assert [plan.state for plan in late] == [GroupState.FAILED] * 20 + [GroupState.IN_STEP] * 5
        assert await stand(10)


def test_what_is_no_copy(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. A destination topic of the same name that nobody has copied into: no group is carried over.
    2. A topic that is copied, and then deleted and made again at the source: neither before the mirror has noticed nor
       after it has halted, since an offset there is another record.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    config = tmp_path / "mirror.yaml"
    text = config_text(source, destination, [topic_name], flow={**SYNC, "groups": [topic_name]})
    config.write_text(text)
    create_topic(source, topic_name)
    produce(source, topic_name, 10)
    commit(source_cluster, topic_name, topic_name, 5)
    create_topic(destination, topic_name)
    (told,) = sync(config)["groups"]
    assert (told["state"], told["committed"]) == ("held", 0)
    with mirror(config, text) as process:
        caught_up(process, source, destination, topic_name, 1)
        wait_committed(destination_cluster, topic_name, topic_name, 5)
        assert process.stop() == 0
    delete_topic(source, topic_name)
    create_topic(source, topic_name)
    produce(source, topic_name, 20, seed=1)
    commit(source_cluster, topic_name, topic_name, 8)
    (told,) = sync(config)["groups"]
    assert (told["state"], told["committed"]) == ("held", 0)
    assert "topic id" in told["why"]
    with mirror(config, text) as process:
        process.wait_event("halted", reason="recreated")
        (told,) = sync(config)["groups"]
        assert (told["state"], told["committed"]) == ("held", 0)
        process.stop()
    assert committed(destination_cluster, topic_name, topic_name) == [5]


def test_two_topics_in_one(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """A group that has read of both goes to the lesser place; of one that has read one topic only, nothing is said of
    where it reads the other, so nothing is committed. A dry run has the reason, in words."""
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    config, names = tmp_path / "mirror.yaml", [f"{topic_name}-a", f"{topic_name}-b"]
    merged = f"{topic_name}-all"
    flow = {**MAPPED, "topic.rename": {f"{topic_name}-(a|b)": merged}, "groups": [f"{topic_name}.*"]}
    text = config_text(source, destination, names, flow=flow)
    for topic in names:
        create_topic(source, topic)
        produce(source, topic, 10)
    create_topic(destination, merged)
    both, one = f"{topic_name}-both", f"{topic_name}-one"
    for topic in names:
        commit(source_cluster, both, topic, 10)
    commit(source_cluster, one, names[0], 10)
    with mirror(config, text) as process:
        process.wait_event("caught_up")
        wait_committed(destination_cluster, both, merged, end_of(destination, merged))
        assert process.stop() == 0
    assert committed(destination_cluster, one, merged) == [UNKNOWN]
    command = [str(MIRROR), "sync", "-c", str(config), "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done
    assert f"no offset of {names[1]}-0, which goes into the same partition" in done.stdout
    assert "2 groups (1 held, 1 in step): nothing was committed; 0 offsets would be\n" in done.stdout
    assert "source has no authorizer, and so no ACLs\n" in done.stdout


def test_the_oldest_brokers(topic_name: str, tmp_path: Path) -> None:
    """Before Kafka 2.6, a list of groups does not say who is in use: each is asked about."""
    config, moved, active = tmp_path / "mirror.yaml", f"{topic_name}-moved", f"{topic_name}-active"
    here, there = (SandboxCluster(name=name, quick=True, version=OLDEST) for name in ("source", "destination"))
    start_together(here, there)
    with closing(here), closing(there):
        source, destination = here.bootstrap_servers, there.bootstrap_servers
        create_topic(source, topic_name)
        produce(source, topic_name, 10)
        for group in (moved, active):
            commit(here, group, topic_name, 7)
        with mirror(config, config_text(source, destination, [topic_name])) as process:
            process.wait_event("caught_up")
            assert process.stop() == 0
        with member(there, active, topic_name):
            states = {plan.group: plan.state for plan in asyncio.run(look(config))}
        assert states == {moved: GroupState.IN_STEP, active: GroupState.ACTIVE}
        assert [committed(there, group, topic_name) for group in (moved, active)] == [[7], [UNKNOWN]]
