"""Real brokers: started, stopped, killed, paused, restarted; of several versions and sizes."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from bench.data import certificates
from bench.data.certificates import Certificates
from mirror.sandbox import SandboxCluster, SandboxError, cluster, probe, start_together
from mirror.sandbox.children.ports import Reservation
from mirror.sandbox.kafka.versions import DEFAULT
from tests.sandbox.support import DEADLINE_S, alive, consume, create_topic, eventually, listening_addresses, produce

pytestmark = pytest.mark.broker


LOOPBACK = {"127.0.0.1", "::ffff:127.0.0.1"}
ZOOKEEPER, OLDEST = "2.8.2", "0.10.2.2"
"""The newest version that needs ZooKeeper, and the oldest of all."""


@contextlib.contextmanager
def with_listeners(name: str, version: str) -> Iterator[tuple[SandboxCluster, int, Certificates]]:
    """One broker with a listener for a proxy and one that speaks TLS, and two properties of the caller's, one of them
    over the sandbox's own: the cluster, the proxy's port, and the files."""
    mine = {"log.retention.ms": "-1", "offsets.topic.num.partitions": "7"}
    with _reserved() as proxy, certificates.made() as keys:
        properties = {**certificates.served(certificates.TLS, keys.keystore), **mine}
        listeners = {certificates.TLS: "SSL"}
        with SandboxCluster(
            name, version, properties=properties, listeners=listeners, proxied=(proxy.port,), heap_mb=512, quick=True
        ) as running:
            yield running, proxy.port, keys


@contextlib.contextmanager
def _reserved() -> Iterator[Reservation]:
    reservation = Reservation()
    try:
        yield reservation
    finally:
        reservation.release()


@pytest.fixture(scope="module")
def listening() -> Iterator[tuple[SandboxCluster, int, Certificates]]:
    with with_listeners("solo", DEFAULT) as found:
        yield found


@pytest.fixture(scope="module")
def solo(listening: tuple[SandboxCluster, int, Certificates]) -> SandboxCluster:
    """The cluster of these."""
    return listening[0]


def configs_of(running: SandboxCluster) -> dict[str, str | None]:
    """Those of broker 1."""
    admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
    (asked,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    return {name: entry.value for name, entry in asked.result(DEADLINE_S).items()}


def test_a_stop_and_a_kill_keep_the_data_and_the_port(solo: SandboxCluster, topic_name: str) -> None:
    """
    1. What cannot be done with a broker that runs, or with one that does not, is said.
    2. Write a record, stop cleanly, change a property, start: the record is there, on the same address, and the
       property counts.
    3. Write another, kill -9, start: both are there.
    """
    broker = solo.brokers[0]
    servers = solo.bootstrap_servers
    create_topic(servers, topic_name)
    produce(servers, topic_name, b"one")
    first_pid = broker.pid
    with pytest.raises(SandboxError, match="cluster solo is started already"):
        solo.start()
    with pytest.raises(SandboxError, match="broker 1 is running"):
        broker.start()

    broker.stop()
    assert not broker.running
    assert not alive(first_pid)
    for action in (broker.stop, broker.kill, broker.pause, broker.resume, lambda: broker.pid):
        with pytest.raises(SandboxError, match="broker 1 is not running"):
            action()
    broker.properties["message.max.bytes"] = "54321"
    broker.start()
    assert broker.pid != first_pid
    assert configs_of(solo)["message.max.bytes"] == "54321"
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
    configs = configs_of(solo)
    assert configs["log.retention.ms"] == "-1"
    assert configs["offsets.topic.num.partitions"] == "7"


def test_it_listens_on_loopback_only(solo: SandboxCluster) -> None:
    assert listening_addresses(solo.brokers[0].pid) <= LOOPBACK


def test_three_brokers_go_on_without_one_and_come_back_without_any(topic_name: str) -> None:
    """
    1. Every broker sees all three; the internal topics have three replicas.
    2. Kill one: what is written with acks=all arrives.
    3. Kill another one: the last has no controller that could let it go, so its stop ends in a kill, and says so.
    4. Start all: they are in sync again, and the data are there.
    """
    with SandboxCluster(name="trio", brokers=3, heap_mb=512, quick=True) as trio:
        assert len(trio.bootstrap_servers.split(",")) == 3
        for broker in trio.brokers:
            assert probe.metadata(broker.port, timeout_s=5).brokers == {1, 2, 3}
        configs = configs_of(trio)
        assert configs["offsets.topic.replication.factor"] == "3"
        assert configs["transaction.state.log.min.isr"] == "2"
        create_topic(trio.bootstrap_servers, topic_name, replicas=3)
        produce(trio.bootstrap_servers, topic_name, b"one")

        first, second, last = trio.brokers
        second.kill()
        produce(trio.bootstrap_servers, topic_name, b"two")
        assert consume(trio.bootstrap_servers, topic_name, 2) == [b"one", b"two"]

        first.kill()
        pid = last.pid
        with pytest.raises(SandboxError, match="broker 3 did not stop within 1 s and was killed"):
            last.stop(timeout_s=1)
        assert not alive(pid)
        for broker in trio.brokers:
            broker.start(wait=False)  # one alone is no quorum
        for broker in trio.brokers:
            broker.wait_ready()
        admin = AdminClient({"bootstrap.servers": trio.bootstrap_servers, "log_level": 0})

        def in_sync() -> bool:
            partition = admin.list_topics(topic_name, timeout=DEADLINE_S).topics[topic_name].partitions[0]
            return sorted(partition.isrs) == [1, 2, 3]

        assert eventually(in_sync)
        assert consume(trio.bootstrap_servers, topic_name, 2) == [b"one", b"two"]


def serves_and_survives_a_kill(old: SandboxCluster, topic: str) -> None:
    """On loopback only, and its ZooKeeper, too, if it has one."""
    (broker,) = old.brokers
    assert old.cluster_id
    create_topic(old.bootstrap_servers, topic)
    produce(old.bootstrap_servers, topic, b"one")
    broker.kill()
    broker.start()
    assert consume(old.bootstrap_servers, topic, 1) == [b"one"]
    assert listening_addresses(broker.pid) <= LOOPBACK
    if old.zookeeper_pid:
        assert listening_addresses(old.zookeeper_pid) <= LOOPBACK


def test_the_oldest_version_serves_and_survives_a_kill(topic_name: str) -> None:
    with SandboxCluster(name="old", version=OLDEST, quick=True) as old:
        assert old.zookeeper_pid is not None
        serves_and_survives_a_kill(old, topic_name)


def test_the_oldest_without_zookeeper(topic_name: str) -> None:
    """It serves, survives a kill, and speaks TLS."""
    with with_listeners("old", "3.9.2") as (old, _, keys):
        assert old.zookeeper_pid is None
        speaks_tls(old, keys)
        serves_and_survives_a_kill(old, topic_name)


def test_the_newest_with_zookeeper(monkeypatch: pytest.MonkeyPatch, topic_name: str) -> None:
    """
    1. The port that it is given first is taken: it starts on another one. The proxy's listener is as it is elsewhere.
    2. It serves, and survives a kill.
    3. Stop the broker, and take its port: starting it says so. Give the port back: it starts.
    4. Close the cluster: no process and no folder are left.
    """
    with socket.socket() as squatter, _reserved() as proxy:
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
        with SandboxCluster(name="old", version=ZOOKEEPER, proxied=(proxy.port,), heap_mb=512, quick=True) as old:
            (broker,) = old.brokers
            assert given[0] == taken
            assert broker.port != taken
            assert old.zookeeper_pid is not None
            advertises_the_proxy(old, proxy.port)
            serves_and_survives_a_kill(old, topic_name)

            broker.stop()
            with socket.socket() as another:
                another.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                another.bind(("127.0.0.1", broker.port))
                another.listen()
                with pytest.raises(SandboxError, match="Address already in use"):
                    broker.start()
                assert broker.port_was_taken()
            broker.start()
            pids, folder = (broker.pid, old.zookeeper_pid), broker.data_dir.parent.parent
            assert folder.is_dir()
    assert not any(map(alive, pids))
    assert not folder.exists()
    assert not broker.running
    assert old.bootstrap_servers == ""
    old.close()


def test_clusters_start_together_or_not_at_all() -> None:
    """
    1. One of two cannot start: the error is its own, in the broker's own words, and the other is ended as well.
    2. Without it, the other starts.
    """
    good = SandboxCluster(name="good", quick=True)
    bad = SandboxCluster(name="bad", version=ZOOKEEPER, properties={"num.io.threads": "abc"}, quick=True)
    with pytest.raises(SandboxError, match=r"cluster bad \((?s:.*)Invalid value abc for configuration num.io.threads"):
        start_together(good, bad)
    assert good.brokers == bad.brokers == []
    try:
        start_together(good)
        assert good.brokers[0].running
    finally:
        good.close()


def test_a_broker_that_cannot_start_is_said_with_its_own_words() -> None:
    """With ZooKeeper: see above."""
    refused = SandboxCluster(name="odd", properties={"num.io.threads": "abc"}, quick=True)
    with pytest.raises(SandboxError, match=r"cluster odd \((?s:.*)Invalid value abc for configuration num.io.threads"):
        refused.start()
    assert refused.bootstrap_servers == ""
    refused.close()


def test_a_second_listener_advertises_the_proxy(listening: tuple[SandboxCluster, int, Certificates]) -> None:
    advertises_the_proxy(*listening[:2])


def advertises_the_proxy(running: SandboxCluster, proxied: int) -> None:
    """Who comes in by the second listener hears of the proxied ports alone, and who comes in by the first never."""
    (broker,) = running.brokers
    assert broker.proxied_port is not None
    assert len({broker.port, broker.proxied_port, proxied}) == 3

    def advertised(port: int) -> list[int]:
        found: list[int] = []

        def told() -> bool:
            """Where a client has heard of the proxied port before it asks, it asks there, and nobody listens."""
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
            with contextlib.suppress(KafkaException):
                found[:] = [each.port for each in admin.list_topics(timeout=5).brokers.values()]
            return bool(found)

        assert eventually(told)
        return found

    assert advertised(broker.port) == [broker.port]
    assert advertised(broker.proxied_port) == [proxied]


def test_a_listener_speaks_tls(listening: tuple[SandboxCluster, int, Certificates]) -> None:
    speaks_tls(listening[0], listening[2])


def speaks_tls(running: SandboxCluster, keys: Certificates) -> None:
    """To who trusts its certificates, with addresses of that listener; nobody else is answered."""
    (broker,) = running.brokers
    servers, port = running.servers(certificates.TLS), broker.ports[certificates.TLS]
    assert servers == f"127.0.0.1:{port}" != running.bootstrap_servers

    def advertised(timeout_s: float, **settings: str) -> list[int]:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0, **named})
        return [each.port for each in admin.list_topics(timeout=timeout_s).brokers.values()]

    assert advertised(DEADLINE_S, security_protocol="SSL", ssl_ca_location=str(keys.ca)) == [port]
    with certificates.made() as others:
        for strange in ({}, {"security_protocol": "SSL", "ssl_ca_location": str(others.ca)}):
            with pytest.raises(KafkaException):
                advertised(3.0, **strange)
