"""Groups of real brokers of several versions, and coordinators that are not ready."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from mirror.net.admin import groups as module
from mirror.net.admin.groups import NOT_READY, CommittedOffset, Groups, Listed, Offsets
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Refused, Unreachable
from mirror.net.metadata import Leader, Topic
from mirror.net.options import ClusterOptions
from mirror.sandbox import SandboxCluster
from mirror.wire.errors import ErrorCode
from mirror.wire.fetch import Node
from tests.service.stage.kafka_side import create_topic, produce

KEY = ("t", 0)
SOME = {KEY: CommittedOffset(5)}


class Scripted(Groups):
    """Answers with these codes, one for each time that it is asked; then with offsets."""

    def __init__(self, *codes: int) -> None:
        super().__init__(Cluster("source", ClusterOptions(bootstrap=())))
        self.answers: Iterator[int] = iter(codes)
        self.asked = 0

    async def _committed(self, groups: Collection[str]) -> dict[str, Offsets | NetworkError]:
        self.asked += 1
        code = next(self.answers, 0)
        found: Offsets | NetworkError = Refused("OffsetFetch", code) if code else dict(SOME)
        return dict.fromkeys(groups, found)


@pytest.mark.parametrize("code", sorted(NOT_READY))
async def test_a_coordinator_that_is_not_ready(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked again until it is; and told, if it never is."""
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    assert await Scripted(code, code).committed(["g"]) == {"g": SOME}
    (found,) = (await Scripted(code).committed(["g"], patience_s=0)).values()
    assert isinstance(found, Refused)
    assert found.code == code


async def test_a_refusal_is_told_at_once() -> None:
    groups = Scripted(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    (found,) = (await groups.committed(["g"])).values()
    assert isinstance(found, Refused)
    assert groups.asked == 1


class Brokers(Cluster):
    """A cluster whose brokers list these groups, or answer with an error: the next of theirs, the last one again and
    again."""

    def __init__(self, **brokers: list[list[str] | int | NetworkError]) -> None:
        super().__init__("west", ClusterOptions(bootstrap=()))
        self.script = {int(name.removeprefix("b")): script for name, script in brokers.items()}
        self.nodes = {node_id: Node(node_id, f"b{node_id}", 9092) for node_id in self.script}

    async def call(self, request: Any, *, node_id: int = -1, **_: Any) -> Any:
        script = self.script[node_id]
        said = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(said, NetworkError):
            raise said
        code, names = (said, list[str]()) if isinstance(said, int) else (0, said)
        rows = [
            SimpleNamespace(group_id=each, protocol_type="consumer", group_state="Empty", group_type="classic")
            for each in names
        ]
        return SimpleNamespace(error_code=code, groups=rows, version=5)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READY_S", 0.05)
    monkeypatch.setattr(module, "PAUSE_S", 0.0)


async def test_all_brokers_list_their_groups(impatient: None) -> None:
    """One that still loads is asked again: then nothing is lacking."""
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    found = await Groups(Brokers(b1=[["a"]], b2=[loading, loading, ["b"]])).listed()
    assert (set(found.groups), found.lacking) == ({"a", "b"}, ())


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (Unreachable("west broker 2 at b2:9092: refused"), "west broker 2 at b2:9092: refused"),
        (int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), "broker 2 of west: COORDINATOR_LOAD_IN_PROGRESS (14)"),
        (int(ErrorCode.COORDINATOR_NOT_AVAILABLE), "broker 2 of west: COORDINATOR_NOT_AVAILABLE (15)"),
    ],
)
async def test_a_broker_that_does_not_list_its_groups(said: int | NetworkError, why: str, impatient: None) -> None:
    """Those of the others are listed, and which one does not answer is told: its groups are not known. So nobody can
    say that a group is not in use that no broker lists."""
    groups = Groups(Brokers(b1=[["a"]], b2=[said]))
    found = await groups.listed()
    assert (set(found.groups), found.lacking) == ({"a"}, (why,))
    assert await groups.in_use(["a"]) == set()
    with pytest.raises(Unreachable, match=r"west: not known whether group b is in use: .*broker 2"):
        await groups.in_use(["a", "b"])


async def test_a_broker_that_hangs(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIST_PATIENCE_S", 0.05)
    brokers = Brokers(b1=[["a"]], b2=[["b"]])
    answered = brokers.call

    async def call(request: Any, *, node_id: int = -1, **more: Any) -> Any:
        await asyncio.sleep(60 if node_id == 2 else 0)
        return await answered(request, node_id=node_id, **more)

    monkeypatch.setattr(brokers, "call", call)
    found = await Groups(brokers).listed()
    assert (set(found.groups), found.lacking) == ({"a"}, ("broker 2 of west: no answer",))


async def test_a_log_of_groups_that_nobody_leads(impatient: None) -> None:
    """No broker has an error to tell, and its groups are in no list."""
    brokers = Brokers(b1=[["a"]])
    brokers.topics["__consumer_offsets"] = Topic(
        name="__consumer_offsets", topic_id=None, internal=True, leaders={0: Leader(1, 0), 1: Leader(-1, 0)}
    )
    assert (await Groups(brokers).listed()).lacking == ("west: __consumer_offsets-1 has no leader",)


@pytest.mark.parametrize(
    ("protocol_type", "kind", "has_offsets"),
    [
        ("consumer", "", True), ("", "", True), ("connect", "", False), ("consumer", "classic", True),
        ("connect", "classic", False), ("consumer", "consumer", True), ("streams", "streams", True),
        ("share", "share", False),
    ],
)  # fmt: skip
def test_who_has_offsets(protocol_type: str, kind: str, has_offsets: bool) -> None:
    assert Listed("g", protocol_type, "Empty", kind).has_offsets is has_offsets


ASKS = """
import asyncio, sys
from mirror.net.admin.groups import Groups
from mirror.net.cluster import Cluster
from mirror.net.options import ClusterOptions

async def ask():
    host, _, port = sys.argv[1].partition(":")
    async with await Cluster.open("source", ClusterOptions(bootstrap=((host, int(port)),))) as cluster:
        print(await Groups(cluster).committed(["g"]))

asyncio.run(ask())
"""


@pytest.mark.broker
def test_a_cluster_that_no_group_has_used_before() -> None:
    """Its coordinators are only being made."""
    with SandboxCluster(name="source", quick=True) as cluster:
        command = [sys.executable, "-c", ASKS, cluster.bootstrap_servers]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "{'g': {}}"), done.stderr


def commit(member: Consumer, offset: TopicPartition) -> None:
    """On a slow machine the group may rebalance once more, and refuses what is committed meanwhile."""
    deadline = time.monotonic() + 60
    while True:
        try:
            member.commit(offsets=[offset], asynchronous=False)
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            member.poll(0.1)


@pytest.mark.broker
@pytest.mark.parametrize("version", ["4.3.0", "2.8.2", "0.11.0.3"])
async def test_each_version(version: str, topic_name: str) -> None:
    """
    1. A group of a member, one that only has offsets, and one that nobody has heard of.
    2. What they have committed, who is in them. Before Kafka 2.6, the list does not say whether anybody is.
    3. A commit for the one without members; that for the other is refused, with a name.
    """
    with SandboxCluster(name="source", quick=True, version=version) as sandbox:
        servers = sandbox.bootstrap_servers
        create_topic(servers, topic_name)
        produce(servers, topic_name, 10)
        used = Consumer({"bootstrap.servers": servers, "group.id": "used", "enable.auto.commit": False})
        used.subscribe([topic_name])
        while not used.assignment():
            used.poll(0.1)
        commit(used, TopicPartition(topic_name, 0, 3, "noted"))
        address = ("127.0.0.1", sandbox.brokers[0].port)
        try:
            async with await Cluster.open("source", ClusterOptions(bootstrap=(address,))) as cluster:
                groups, key = Groups(cluster), (topic_name, 0)
                assert await groups.commit("idle", {key: CommittedOffset(7, "ours")}) == {key: 0}
                found = await groups.committed(["used", "idle", "nobody"])
                used_offset = found["used"]
                assert isinstance(used_offset, dict)
                # confluent-kafka 2.16 sends the end of a C string as well.
                assert used_offset[key]._replace(metadata=used_offset[key].metadata.rstrip("\0")) == (3, "noted")
                assert (found["idle"], found["nobody"]) == ({key: CommittedOffset(7, "ours")}, {})
                listed, lacking = await groups.listed()
                assert lacking == ()
                assert set(listed) == {"used", "idle"}
                told = version != "0.11.0.3" and version >= "2.6"
                assert [listed[name].state for name in ("used", "idle")] == (["Stable", "Empty"] if told else ["", ""])
                assert all(each.has_offsets for each in listed.values())
                assert await groups.described(["used", "idle", "nobody"]) == {
                    "used": ("Stable", 1), "idle": ("Empty", 0), "nobody": ("Dead", 0)
                }  # fmt: skip
                assert await groups.commit("idle", {key: CommittedOffset(8)}) == {key: 0}
                assert await groups.commit("used", {key: CommittedOffset(8)}) == {key: ErrorCode.UNKNOWN_MEMBER_ID}
        finally:
            used.close()
