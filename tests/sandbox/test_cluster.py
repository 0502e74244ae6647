"""Real brokers: started, stopped, killed, paused, restarted; of several versions and sizes."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from bench.data import certificates
from mirror.sandbox import SandboxCluster, SandboxError, cluster, probe, start_together
from mirror.sandbox.children.ports import Reservation
from tests.sandbox.support import DEADLINE_S, alive, consume, create_topic, eventually, listening_addresses, produce

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def solo() -> Iterator[SandboxCluster]:
    """One broker with two properties of the caller's, one of them over the sandbox's own."""
    properties = {"log.retention.ms": "-1", "offsets.topic.num.partitions": "7"}
    with SandboxCluster(name="solo", properties=properties, quick=True) as running:
        yield running


@pytest.fixture(scope="module")
def trio() -> Iterator[SandboxCluster]:
    """Three brokers."""
    with SandboxCluster(name="trio", brokers=3, heap_mb=512, quick=True) as running:
        yield running


def test_a_stop_and_a_kill_keep_the_data_and_the_port(solo: SandboxCluster, topic_name: str) -> None:
    """
    1. Write a record, stop cleanly, start: it is there, on the same address.
    2. Write another, kill -9, start: both are there.
    """
    broker = solo.brokers[0]
    servers = solo.bootstrap_servers
    create_topic(servers, topic_name)
    produce(servers, topic_name, b"one")
    first_pid = broker.pid

    broker.stop()
    assert not broker.running
    assert not alive(first_pid)
    broker.start()
    assert broker.pid != first_pid
    assert consume(servers, topic_name, 1) == [b"one"]

    produce(servers, topic_name, b"two")
    broker.kill()
    with pytest.raises(OSError, match="refused"):
        probe.metadata(broker.port, timeout_s=1)
    broker.start()
    assert solo.bootstrap_servers == servers
    assert consume(servers, topic_name, 2) == [b"one", b"two"]


def test_a_paused_broker_does_not_answer_until_it_is_resumed(solo: SandboxCluster) -> None:
    broker = solo.brokers[0]
    broker.pause()
    try:
        with pytest.raises(TimeoutError):
            probe.metadata(broker.port, timeout_s=0.3)
        assert broker.running
    finally:
        broker.resume()
    assert probe.metadata(broker.port, timeout_s=DEADLINE_S).cluster_id == solo.cluster_id


def test_properties_reach_the_broker_and_win_over_ours(solo: SandboxCluster) -> None:
    admin = AdminClient({"bootstrap.servers": solo.bootstrap_servers})
    (asked,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    configs = asked.result(DEADLINE_S)
    assert configs["log.retention.ms"].value == "-1"
    assert configs["offsets.topic.num.partitions"].value == "7"


def test_a_changed_property_counts_from_the_next_start(solo: SandboxCluster) -> None:
    broker = solo.brokers[0]
    broker.stop()
    broker.properties["message.max.bytes"] = "54321"
    broker.start()
    admin = AdminClient({"bootstrap.servers": solo.bootstrap_servers})
    (asked,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    assert asked.result(DEADLINE_S)["message.max.bytes"].value == "54321"


def test_it_listens_on_loopback_only(solo: SandboxCluster) -> None:
    assert listening_addresses(solo.brokers[0].pid) <= {"127.0.0.1", "::ffff:127.0.0.1"}


def test_what_makes_no_sense_is_said(solo: SandboxCluster) -> None:
    broker = solo.brokers[0]
    with pytest.raises(SandboxError, match="cluster solo is started already"):
        solo.start()
    with pytest.raises(SandboxError, match="broker 1 is running"):
        broker.start()
    broker.stop()
    try:
        for action in (broker.stop, broker.kill, broker.pause, broker.resume, lambda: broker.pid):
            with pytest.raises(SandboxError, match="broker 1 is not running"):
                action()
    finally:
        broker.start()


def test_three_brokers_go_on_without_one(trio: SandboxCluster, topic_name: str) -> None:
    """
    1. Every broker sees all three; the internal topics have three replicas.
    2. Kill one: what is written with acks=all arrives.
    3. Start it: it is in sync again.
    """
    assert len(trio.bootstrap_servers.split(",")) == 3
    for broker in trio.brokers:
        assert probe.metadata(broker.port, timeout_s=5).brokers == {1, 2, 3}
    create_topic(trio.bootstrap_servers, topic_name, replicas=3)
    produce(trio.bootstrap_servers, topic_name, b"one")

    trio.brokers[1].kill()
    produce(trio.bootstrap_servers, topic_name, b"two")
    assert consume(trio.bootstrap_servers, topic_name, 2) == [b"one", b"two"]
    trio.brokers[1].start()

    admin = AdminClient({"bootstrap.servers": trio.bootstrap_servers, "log_level": 0})

    def in_sync() -> bool:
        partition = admin.list_topics(topic_name, timeout=DEADLINE_S).topics[topic_name].partitions[0]
        return sorted(partition.isrs) == [1, 2, 3]

    assert eventually(in_sync)
    (asked,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    configs = asked.result(DEADLINE_S)
    assert configs["offsets.topic.replication.factor"].value == "3"
    assert configs["transaction.state.log.min.isr"].value == "2"


def test_three_brokers_can_all_end_and_come_back(trio: SandboxCluster, topic_name: str) -> None:
    """
    1. Kill two: the last has no controller that could let it go, so its stop ends in a kill, and says so.
    2. Start all: the data are there.
    """
    create_topic(trio.bootstrap_servers, topic_name, replicas=3)
    produce(trio.bootstrap_servers, topic_name, b"one")
    first, second, last = trio.brokers
    first.kill()
    second.kill()
    pid = last.pid
    with pytest.raises(SandboxError, match="broker 3 did not stop within 1 s and was killed"):
        last.stop(timeout_s=1)
    assert not alive(pid)
    for broker in trio.brokers:
        broker.start(wait=False)  # one alone is no quorum
    for broker in trio.brokers:
        broker.wait_ready()
    assert consume(trio.bootstrap_servers, topic_name, 1) == [b"one"]


@pytest.mark.parametrize("version", ["3.9.2", "2.8.2", "0.10.2.2"])
def test_older_versions_serve_and_survive_a_kill(version: str, topic_name: str) -> None:
    with SandboxCluster(name="old", version=version, quick=True) as old:
        assert old.cluster_id
        create_topic(old.bootstrap_servers, topic_name)
        produce(old.bootstrap_servers, topic_name, b"one")
        old.brokers[0].kill()
        old.brokers[0].start()
        assert consume(old.bootstrap_servers, topic_name, 1) == [b"one"]
        assert listening_addresses(old.brokers[0].pid) <= {"127.0.0.1", "::ffff:127.0.0.1"}
        assert (old.zookeeper_pid is None) == (version == "3.9.2")
        if old.zookeeper_pid:
            assert listening_addresses(old.zookeeper_pid) <= {"127.0.0.1", "::ffff:127.0.0.1"}


def test_clusters_start_together_or_not_at_all() -> None:
    """
    1. One of two cannot start: the error is its own, and the other is ended as well.
    2. Without it, the other starts.
    """
    good = SandboxCluster(name="good", version="2.8.2", quick=True)
    bad = SandboxCluster(name="bad", version="2.8.2", properties={"num.io.threads": "x"}, quick=True)
    with pytest.raises(SandboxError, match="cluster bad"):
        start_together(good, bad)
    assert good.brokers == bad.brokers == []
    try:
        start_together(good)
        assert good.brokers[0].running
    finally:
        good.close()


@pytest.mark.parametrize("version", ["4.3.0", "2.8.2"])
def test_a_broker_that_cannot_start_is_said_with_its_own_words(version: str) -> None:
    refused = SandboxCluster(name="odd", version=version, properties={"num.io.threads": "abc"}, quick=True)
    with pytest.raises(SandboxError, match=r"cluster odd \((?s:.*)Invalid value abc for configuration num.io.threads"):
        refused.start()
    assert refused.bootstrap_servers == ""
    refused.close()


def test_a_start_goes_to_other_ports_when_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        taken = squatter.getsockname()[1]
        given: list[int] = []

        class FirstTaken(Reservation):
            def __init__(self, host: str = "127.0.0.1") -> None:
                super().__init__(host)
                if not given:
                    self.port = taken
                given.append(self.port)

        monkeypatch.setattr(cluster, "Reservation", FirstTaken)
        with SandboxCluster(version="2.8.2", quick=True) as running:
            assert given[0] == taken
            assert running.brokers[0].port != taken


def test_a_taken_port_is_said_and_after_the_end_nothing_is_left() -> None:
    """
    1. Stop the broker, and take its port: starting it says so.
    2. Give the port back: it starts.
    3. Close the cluster: no process and no folder are left.
    """
    with SandboxCluster(version="2.8.2", quick=True) as ended:
        broker = ended.brokers[0]
        broker.stop()
        with socket.socket() as squatter:
            squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            squatter.bind(("127.0.0.1", broker.port))
            squatter.listen()
            with pytest.raises(SandboxError, match="Address already in use"):
                broker.start()
            assert broker.port_was_taken()
        broker.start()
        pid, folder = broker.pid, broker.data_dir.parent.parent
        assert folder.is_dir()
    assert not alive(pid)
    assert not folder.exists()
    assert not broker.running
    assert ended.bootstrap_servers == ""
    ended.close()


@contextlib.contextmanager
def _reserved() -> Iterator[Reservation]:
    reservation = Reservation()
    try:
        yield reservation
    finally:
        reservation.release()


@pytest.mark.parametrize("version", ["4.3.0", "2.8.2"])
def test_a_second_listener_advertises_the_proxy(version: str) -> None:
    """Who comes in by the second listener hears of the proxied ports alone, and who comes in by the first never."""
    with (
        _reserved() as first,
        SandboxCluster(name="proxied", version=version, proxied=(first.port,), heap_mb=512, quick=True) as running,
    ):
        (broker,) = running.brokers
        assert broker.proxied_port is not None
        assert len({broker.port, broker.proxied_port, first.port}) == 3

        def advertised(port: int) -> list[int]:
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
            return [each.port for each in admin.list_topics(timeout=DEADLINE_S).brokers.values()]

        assert advertised(broker.port) == [broker.port]
        assert advertised(broker.proxied_port) == [first.port]


@pytest.mark.parametrize("version", ["4.3.0", "3.9.2"])
def test_a_listener_speaks_tls(version: str) -> None:
    """To who trusts its certificates, with addresses of that listener; nobody else is answered."""
    with (
        certificates.made() as keys,
        certificates.made() as others,
        SandboxCluster(
            name="secured",
            version=version,
            heap_mb=512,
            quick=True,
            listeners={certificates.TLS: "SSL"},
            properties=certificates.served(certificates.TLS, keys.keystore),
        ) as running,  # fmt: skip
    ):
        (broker,) = running.brokers
        servers, port = running.servers(certificates.TLS), broker.ports[certificates.TLS]
        assert servers == f"127.0.0.1:{port}" != running.bootstrap_servers

        def advertised(timeout_s: float, **settings: str) -> list[int]:
            named = {name.replace("_", "."): value for name, value in settings.items()}
            admin = AdminClient({"bootstrap.servers": servers, "log_level": 0, **named})
            return [each.port for each in admin.list_topics(timeout=timeout_s).brokers.values()]

        assert advertised(DEADLINE_S, security_protocol="SSL", ssl_ca_location=str(keys.ca)) == [port]
        for strange in ({}, {"security_protocol": "SSL", "ssl_ca_location": str(others.ca)}):
            with pytest.raises(KafkaException):
                advertised(3.0, **strange)
