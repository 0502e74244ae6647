"""``mirror offsets translate``: two source topics in one destination topic, and a group that moves over."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import Consumer, TopicPartition

from mirror.net.admin.groups import groups_tool
from mirror.net.cluster import Cluster
from mirror.net.errors import Refused
from mirror.net.options import ClusterOptions, ConnectionOptions
from mirror.net.security.options import SecurityOptions, TlsOptions
from mirror.offsetmap.runs import MappedOffset
from mirror.sandbox import SandboxCluster
from mirror.service.offsets import translate as translate_module
from mirror.service.offsets.sides import FlowSides
from mirror.service.offsets.translate import GroupError, MovedGroup, NotTranslated, TranslatedRow, Translator
from mirror.wire.errors import ErrorCode
from tests.audit.clusters import delete_before
from tests.service.runs.test_mapped import FLOW, consumer, read_from, translate
from tests.service.stage.kafka_side import create_topic, end_of, produce
from tests.service.stage.running import Mirror, config_text, mirror

RECORDS = 10


def commit(cluster: SandboxCluster, group: str, **offsets: int) -> None:
    reader = consumer(cluster, group)
    reader.commit(offsets=[TopicPartition(topic, 0, offset) for topic, offset in offsets.items()], asynchronous=False)
    reader.close()


def committed(cluster: SandboxCluster, group: str, topic: str) -> int:
    reader = consumer(cluster, group)
    (found,) = reader.committed([TopicPartition(topic, 0)], timeout=60)
    reader.close()
    return int(found.offset)


@pytest.mark.broker
def test_two_topics_in_one(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. All of one topic is copied, then all of another one behind it. What comes next of the first comes behind the
       second's records, and that is what is said.
    2. The group has read all of the first and half of the second. Without --apply it is told what would be committed,
       beside what the group has there now; nothing is. With it, the same is told, and that is committed.
    3. While a consumer of the group runs there, both say so, with a command that names it; nothing is committed.
    4. A topic of which the group has no offset: refused, with a command that has the source's brokers in it.
    """
    first, second, merged = f"{topic_name}-a", f"{topic_name}-b", f"{topic_name}-all"
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    for topic in (first, second):
        create_topic(source, topic)
    create_topic(source, f"{topic_name}-other")
    create_topic(destination, merged)
    flow = {**FLOW, "topic.rename": {f"{topic_name}-(a|b)": merged}}
    config, group = tmp_path / "mirror.yaml", f"group-{topic_name}"
    with mirror(config, config_text(source, destination, [first, second], flow=flow)) as process:
        for topic, end in ((first, RECORDS), (second, 2 * RECORDS)):
            produce(source, topic, RECORDS)
            _wait_for_records(process, destination_cluster, merged, end)
        assert process.stop() == 0
    end = end_of(destination, merged)
    of_second = [at for at, *_ in read_from(destination_cluster, merged, 0)][RECORDS:]
    code, told = translate(config, "--topic", first, "--offset", str(RECORDS))
    assert (code, told.splitlines()[0]) == (0, str(end)), told
    assert "at this offset or behind it" in told

    half = RECORDS // 2
    commit(source_cluster, group, **{first: RECORDS, second: half, f"{topic_name}-other": 0})
    commit(destination_cluster, group, **{merged: 1})
    code, dry = translate(config, "--group", group)
    assert code == 0, dry
    assert f"{merged}  0          {of_second[half]:<6}  1              the least of 2 topics" in dry
    assert f"not of this flow, so not translated: {topic_name}-other" in dry
    assert dry.endswith("\nnothing was committed; --apply commits this\n")
    assert committed(destination_cluster, group, merged) == 1
    code, told = translate(config, "--group", group, "--apply")
    assert code == 0, told
    assert told.splitlines()[:-1] == dry.splitlines()[:-1]
    assert told.endswith(f"\ncommitted 1 offset for group {group}\n")
    assert committed(destination_cluster, group, merged) == of_second[half]

    delete_before(destination_cluster, merged, of_second[half] + 2)
    code, told = translate(config, "--group", group, "--apply")
    assert (code, committed(destination_cluster, group, merged)) == (0, of_second[half] + 2), told
    assert told.count("deleted before there") == 1, "of the first topic, all that is next comes later"

    running = Consumer({"bootstrap.servers": destination, "group.id": group, "enable.auto.commit": False})
    try:
        running.subscribe([merged])
        while not running.assignment():
            running.poll(0.1)
        command = f"kafka-consumer-groups.sh --bootstrap-server {destination} --group {group} --describe --members"
        for options, code, said in (
            ((), 0, f"nothing was committed; --apply would refuse: group {group} has 1 member at destination"),
            (("--apply",), 1, f"nothing was committed: group {group} has 1 member at destination"),
        ):
            found, told = translate(config, "--group", group, *options)
            assert found == code, told
            assert said in told
            assert command in told
    finally:
        running.close()

    commit(source_cluster, f"{group}-2", **{first: 0})
    code, told = translate(config, "--group", f"{group}-2", "--apply")
    assert code == 1, told
    assert f"kafka-consumer-groups.sh --bootstrap-server {source} --group {group}-2 --reset-offsets" in told
    assert "nothing was committed" in told
    assert committed(destination_cluster, f"{group}-2", merged) < 0


def moved(*now: int) -> MovedGroup:
    """A group that gets offset 7 of each partition, and has these there now; -1: none."""
    rows = [TranslatedRow("t", index, 5, "t", MappedOffset(7, exact=True)) for index in range(len(now))]
    return MovedGroup("g", rows, [], [], {("t", index): each for index, each in enumerate(now) if each >= 0})


class Alone(Translator):
    """Of a group that nobody is in."""

    async def _members(self, group: str) -> str:
        return ""


def translator() -> Translator:
    flow = SimpleNamespace(aliases=("west", "east"), exact=True, name="west->east")
    return Alone(cast(FlowSides, flow))


async def test_a_group_that_has_read_further_there() -> None:
    """It moved, and somebody runs the command once more: that would take it back. Refused, unless it is accepted."""
    one = translator()
    for now in ((-1,), (7,), (3, 7)):
        await one.check(moved(*now))
        assert "it would go back" not in "\n".join(one.told(moved(*now)))
    with pytest.raises(NotTranslated) as caught:
        await one.check(moved(7, 8, 30))
    assert str(caught.value) == (
        "group g has read further at east: t-1 (8, back to 7), t-2 (30, back to 7). It has moved already; "
        "--allow-rewind commits the lower offsets all the same, and the group reads these records again"
    )
    assert "\n".join(one.told(moved(7, 8, 30))).count("it would go back") == 2
    await one.check(moved(7, 8, 30), allow_rewind=True)


class DeniedGroups:
    """What a cluster answers to a principal that has no right to the group."""

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED

    def __init__(self, _: object) -> None: ...

    async def committed(self, groups: list[str]) -> dict[str, Refused]:
        return dict.fromkeys(groups, Refused("west: OffsetFetch of group g", self.code))

    async def described(self, _: list[str]) -> None:
        raise Refused("east: DescribeGroups of g", self.code)

    async def commit(self, _: str, offsets: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(offsets, self.code)


async def test_a_missing_right_has_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each error about a group names the right to grant, and where. (Other errors name none.)"""
    monkeypatch.setattr(translate_module, "Groups", DeniedGroups)
    flow = SimpleNamespace(aliases=("west", "east"), exact=True, name="west->east", selection=None)
    one = Translator(cast(FlowSides, flow))
    one.source = one.destination = cast(Cluster, SimpleNamespace(name="west"))
    grant = "grant the mirror's principal"
    with pytest.raises(GroupError, match=f"; {grant} Describe on group g of cluster west$"):
        await one.group("g")
    with pytest.raises(GroupError, match=f"; {grant} Describe on group g of cluster east$"):
        await one.check(moved(-1))
    with pytest.raises(GroupError, match=f"; {grant} Read on group g of cluster east$"):
        await one.apply("g", moved(-1).commits)
    monkeypatch.setattr(DeniedGroups, "code", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(GroupError, match=f"; {grant} Read on topic t of cluster east$"):
        await one.apply("g", moved(-1).commits)
    monkeypatch.setattr(DeniedGroups, "code", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    with pytest.raises(GroupError, match=r"COORDINATOR_LOAD_IN_PROGRESS \(14\)$"):
        await one.group("g")


@pytest.mark.parametrize(
    ("security", "told"),
    [
        (SecurityOptions(), "kafka-consumer-groups.sh --bootstrap-server [::1]:9092,west:9093"),
        (
            SecurityOptions(tls=TlsOptions()),
            "kafka-consumer-groups.sh --bootstrap-server [::1]:9092,west:9093 --command-config FILE",
        ),
    ],
    ids=["plaintext", "secured"],
)
def test_the_tool_that_is_named(security: SecurityOptions, told: str) -> None:
    """It reaches the cluster as it is typed, once FILE has what the mirror's configuration has."""
    options = ClusterOptions(
        bootstrap=(("::1", 9092), ("west", 9093)), connection=ConnectionOptions(client_id="c", security=security)
    )
    assert groups_tool(options) == told


def _wait_for_records(process: Mirror, cluster: SandboxCluster, topic: str, count: int) -> None:
    process.wait_for(lambda: len(read_from(cluster, topic, 0)) == count, f"{count} records")


@pytest.mark.broker
def test_an_exact_offset_that_is_not_copied_yet(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. A topic of that name at the destination that no mirror has written to is no copy, however many records it has.
    2. Half of the source is copied. The group has read all of it: committed at the destination, its offset would be
       behind the log's end, where consumers reset to anywhere.
    3. Once the rest is copied, its offset is committed; a lower one only if that is asked for. One before the log's
       beginning becomes that beginning.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    config, group, other = tmp_path / "mirror.yaml", f"group-{topic_name}", f"other-{topic_name}"
    alone = config_text(source, destination, [topic_name])
    for bootstrap in (source, destination):
        create_topic(bootstrap, topic_name)
        create_topic(bootstrap, other)
        produce(bootstrap, other, RECORDS)
    produce(source, topic_name, RECORDS)
    with mirror(config, alone) as process:
        process.wait_event("caught_up")
        assert process.stop() == 0
    config.write_text(config_text(source, destination, [topic_name, other]))
    commit(source_cluster, other, **{other: RECORDS})
    code, told = translate(config, "--group", other, "--apply")
    assert (code, f"{other}-0 at destination is not known as a copy of this flow" in told) == (1, True), told
    produce(source, topic_name, RECORDS)
    commit(source_cluster, group, **{topic_name: 2 * RECORDS})
    code, told = translate(config, "--group", group, "--apply")
    assert code == 1, told
    assert f"nothing was committed: {topic_name}-0: offset {2 * RECORDS} is not copied yet" in told
    with mirror(config, alone) as process:
        process.wait_event("caught_up")
        assert process.stop() == 0
    code, told = translate(config, "--group", group, "--apply")
    assert (code, committed(destination_cluster, group, topic_name)) == (0, 2 * RECORDS), told
    delete_before(destination_cluster, topic_name, RECORDS - 2)
    commit(source_cluster, group, **{topic_name: 1})
    code, told = translate(config, "--group", group, "--apply")
    assert (code, committed(destination_cluster, group, topic_name)) == (1, 2 * RECORDS), told
    code, told = translate(config, "--group", group, "--apply", "--allow-rewind")
    assert (code, committed(destination_cluster, group, topic_name)) == (0, RECORDS - 2), told
    assert "deleted before there" in told
