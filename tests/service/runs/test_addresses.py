"""Brokers at addresses of IPv6, and brokers that move to other addresses while the mirror runs."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirror.sandbox import SandboxCluster
from mirror.sandbox.children.ports import Reservation
from tests.patience import PATIENT
from tests.service.plan.planning import plan
from tests.service.stage.audits import audited
from tests.service.stage.kafka_side import assert_identical, create_topic, end_of, produce
from tests.service.stage.running import Mirror, config_text, get, mirror
from tests.service.sync.sides import wait_committed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broker


class Forwarder:
    """A port of 127.0.0.1 that leads to a broker: a load balancer, or a name, that follows where the broker moves."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    client.close()
                    continue
                self._open += [client, broker]
                for one, other in ((client, broker), (broker, client)):
                    threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._open:
            one.close()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
    for each in (one, other):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def forwarder(target: int) -> Iterator[Forwarder]:
    made = Forwarder(target)
    try:
        yield made
    finally:
        made.close()


def caught_up(process: Mirror, source: str, destination: str, topic: str) -> None:
    """Until both partitions end where those of the source do."""
    process.wait_for(
        lambda: all(end_of(source, topic, each) == end_of(destination, topic, each) for each in range(2)), "equal ends"
    )


@pytest.mark.spark
def test_brokers_that_listen_on_ipv6_alone(topic_name: str, tmp_path: Path, spark: "SparkSession") -> None:
    """
    1. Two clusters of which the brokers serve clients on [::1] alone. ``mirror plan`` finds nothing in the way.
    2. All is copied, the group at the source has the mirror, and messages name the address with its brackets.
    3. ``mirror audit`` reads both sides there, and finds them the same.
    """
    with (
        SandboxCluster(name="source", host="::1", properties=PATIENT, quick=True, heap_mb=512) as here,
        SandboxCluster(name="destination", host="::1", properties=PATIENT, quick=True, heap_mb=512) as there,
    ):
        source, destination = here.bootstrap_servers, there.bootstrap_servers
        assert source == f"[::1]:{here.brokers[0].port}"
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", here.brokers[0].port))
        create_topic(source, topic_name, 2)
        produce(source, topic_name, 100, partitions=2)
        text = config_text(source, destination, [topic_name])
        (tmp_path / "a.yaml").write_text(text)
        planned = plan(tmp_path / "a.yaml")
        assert planned.code == 0, planned.flow["findings"]
        with mirror(tmp_path / "mirror.yaml", text) as process:
            process.wait_event("assigned")
            caught_up(process, source, destination, topic_name)
            there.brokers[0].kill()
            at = f"destination broker 1 at [::1]:{there.brokers[0].port}"
            process.wait_for(lambda: at in get(process, "/-/ready")[1], f"the name {at}")
            there.brokers[0].start()
            produce(source, topic_name, 100, partitions=2, seed=1)
            caught_up(process, source, destination, topic_name)
            assert process.stop() == 0
        assert assert_identical(source, destination, [topic_name], 2) >= 4
        code, told = audited(spark, tmp_path / "mirror.yaml")
        assert code == 0, told


def test_brokers_that_move(topic_name: str, tmp_path: Path) -> None:
    """
    1. Both clusters are known by a bootstrap address that leads to their brokers. Both brokers are stopped, start at
       other ports, and the bootstrap addresses lead there.
    2. The mirror goes on by itself, and so does its seat in the group: it commits what it copies then.
    """
    moved = Reservation(), Reservation()
    with (
        SandboxCluster(name="source", properties=PATIENT, quick=True, heap_mb=512) as here,
        SandboxCluster(name="destination", properties=PATIENT, quick=True, heap_mb=512) as there,
        forwarder(here.brokers[0].port) as to_source,
        forwarder(there.brokers[0].port) as to_destination,
    ):
        create_topic(here.bootstrap_servers, topic_name, 2)
        produce(here.bootstrap_servers, topic_name, 100, partitions=2)
        more = {"offset.commit.interval.ms": 200}
        text = config_text(to_source.address, to_destination.address, [topic_name], top=more)
        with mirror(tmp_path / "mirror.yaml", text) as process:
            process.wait_event("assigned")
            caught_up(process, here.bootstrap_servers, there.bootstrap_servers, topic_name)
            for cluster, reservation, leading in zip((here, there), moved, (to_source, to_destination), strict=True):
                (broker,) = cluster.brokers
                broker.kill()
                broker.move(reservation.port)
                leading.target = reservation.port
                broker.start()
            produce(here.bootstrap_servers, topic_name, 100, partitions=2, seed=1)
            caught_up(process, here.bootstrap_servers, there.bootstrap_servers, topic_name)
            assert process.of("halted") == []
            ends = [end_of(here.bootstrap_servers, topic_name, each) for each in range(2)]
            wait_committed(here, "mirror-source->destination", topic_name, *ends)
            assert process.stop() == 0
        assert assert_identical(here.bootstrap_servers, there.bootstrap_servers, [topic_name], 2) >= 4
    for reservation in moved:
        reservation.release()
