"""A real Kafka cluster on loopback that leaves nothing behind when its owner ends."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from mirror.sandbox import kraft, settings, zookeeper
from mirror.sandbox.broker import START_TIMEOUT_S, Broker
from mirror.sandbox.children.ports import Reservation
from mirror.sandbox.children.process import Process, Processes
from mirror.sandbox.errors import SandboxError
from mirror.sandbox.jvm import Jvm
from mirror.sandbox.kafka import classes, jars
from mirror.sandbox.kafka.versions import DEFAULT, release

__all__ = ["MOST_BROKERS", "SandboxCluster", "start_together"]

MOST_BROKERS = 3
_PORT_ATTEMPTS = 3
_RECORD_TIMEOUT_S = 120.0  # for a broker to stop and to write its classes


class SandboxCluster:
    """One to three real brokers of any version; a context manager that starts and ends them.

    Everything it starts and writes is gone when it is closed, or when this process ends for whatever reason.

    Args:
        name: the cluster's name in messages.
        version: Apache Kafka's version, from 0.10.1.0.
        brokers: number of brokers.
        properties: broker properties; they override the sandbox's, but those that place the brokers cannot be set.
        heap_mb: heap of each broker, in MiB.
        quick: compile lightly: starts sooner, serves slower. For tests; never for measurements.
        jvm_options: further options for the brokers' ``java``.
        proxied: ports of 127.0.0.1, one for each broker, that the brokers advertise on a second listener, for clients
            that must go through a proxy there; the proxy forwards to ``Broker.proxied_port``. Clients of
            ``Broker.port`` never see these ports. Kafka 1.0 and later.
        listeners: names (capital letters) and security protocols of further listeners of each broker, on
            ``Broker.ports``; ``properties`` has what they need (``listener.name.<name>...``).
        racks: ``broker.rack`` of each broker; none by default.
        host: the only loopback address on which the brokers serve clients, such as ``::1``. Further listeners and
            controllers are on 127.0.0.1.

    Raises:
        SandboxError: an argument is wrong; nothing has been started.

    Attributes:
        brokers: in the order of their ids; none before the start.
        cluster_id: as the brokers report it.
    """

    def __init__(
        self,
        name: str = "cluster",
        version: str = DEFAULT,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        *,
        heap_mb: int = 1024,
        quick: bool = False,
        jvm_options: tuple[str, ...] = (),
        proxied: Sequence[int] = (),
        listeners: Mapping[str, str] | None = None,
        racks: Sequence[str] = (),
        host: str = "127.0.0.1",
    ) -> None:
        if not 1 <= brokers <= MOST_BROKERS:
            raise SandboxError(f"cluster {name}: {brokers} brokers", f"give 1 to {MOST_BROKERS}")
        if heap_mb < 256:
            raise SandboxError(f"cluster {name}: a heap of {heap_mb} MB is too small for a broker", "give 256 or more")
        if len(proxied) not in (0, brokers):
            raise SandboxError(
                f"cluster {name}: {len(proxied)} proxied ports for {brokers} brokers", "give one for each"
            )
        if len(racks) not in (0, brokers):
            raise SandboxError(f"cluster {name}: {len(racks)} racks for {brokers} brokers", "give one for each")
        self.name = name
        self.version = version
        self.properties = settings.check(properties or {})
        self.brokers: list[Broker] = []
        self.cluster_id = ""
        self._release = release(version)
        self._count = brokers
        self._proxied = tuple(proxied)
        self._listeners = dict(listeners or {})
        self._racks = tuple(racks)
        self._host = host
        self._jvm = Jvm(heap_mb=heap_mb, quick=quick, options=jvm_options)
        self._processes: Processes | None = None
        self._reservations: list[Reservation] = []
        self._zookeeper: Process | None = None

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every broker, joined by commas, as for Kafka's clients."""
        return ",".join(broker.address for broker in self.brokers)

    def servers(self, listener: str) -> str:
        """Returns ``host:port`` of every broker's listener of this name, joined by commas."""
        return ",".join(f"127.0.0.1:{broker.ports[listener]}" for broker in self.brokers)

    @property
    def zookeeper_pid(self) -> int | None:
        """Process id of the cluster's ZooKeeper; None if it has none."""
        return self._zookeeper.pid if self._zookeeper else None

    def start(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start all brokers and wait until each of them sees them all.

        Raises:
            SandboxError: the cluster is started already; a broker ended or was not ready in time; jars could not be
                fetched.
        """
        if self._processes is not None:
            raise SandboxError(f"cluster {self.name} is started already", "close it first")
        classpath = jars.classpath(self.version)
        if self._jvm.quick and not classes.records(self._jvm.options):
            shared = classes.options(self.version, classpath, partial(_record_classes, self.version))
            self._jvm = dataclasses.replace(self._jvm, shared=shared)
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            try:
                self._start_once(classpath, timeout_s)
                return
            except SandboxError as error:
                # A program that binds with SO_REUSEADDR can be on a reserved port: try other ports.
                again = attempt < _PORT_ATTEMPTS and any(broker.port_was_taken() for broker in self.brokers)
                self.close()
                if not again:
                    raise SandboxError(f"cluster {self.name} ({self.version}): {error.problem}", error.remedy) from None
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Kill all brokers at once and remove their data. May be called twice."""
        if self._processes is not None:
            self._processes.close()
            self._processes = None
        for reservation in self._reservations:
            reservation.release()
        self._reservations.clear()
        self._zookeeper = None
        self.brokers = []
        self.cluster_id = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<cluster {self.name}, Kafka {self.version}, {self.bootstrap_servers or 'not started'}>"

    def _start_once(self, classpath: str, timeout_s: float) -> None:
        self._processes = processes = Processes()
        ports = self._reserve(self._count, self._host)
        if self._release.kraft:
            self._make_kraft(processes, classpath, ports)
        else:
            self._make_zookeeper(processes, classpath, ports)
        self._add_proxied_listeners()
        self._add_listeners()
        for broker in self.brokers:
            broker.start(wait=False)
        everyone = frozenset(broker.node_id for broker in self.brokers)
        for broker in self.brokers:
            view = broker.wait_ready(others=everyone, timeout_s=timeout_s)
            self.cluster_id = view.cluster_id

    def _make_kraft(self, processes: Processes, classpath: str, ports: list[int]) -> None:
        self._make_brokers(
            processes, classpath, ports, partial(kraft.properties, controller_ports=self._reserve(self._count))
        )
        kraft.format_storage(
            self.brokers, cluster_id=kraft.new_cluster_id(), processes=processes, jvm=self._jvm, classpath=classpath,
            folder=processes.folder,
        )  # fmt: skip

    def _make_brokers(
        self, processes: Processes, classpath: str, ports: list[int], placed: Callable[..., dict[str, str]]
    ) -> None:
        """Makes the brokers. ``placed``: returns the properties that place a broker, for its node_id, address and
        data_dir. The caller's own properties override the sandbox's."""
        self.brokers = [
            self._broker(processes, classpath, node_id, port) for node_id, port in enumerate(ports, start=1)
        ]
        for broker in self.brokers:
            place = placed(node_id=broker.node_id, address=broker.address, data_dir=broker.data_dir)
            broker.properties = {**place, **broker.properties}

    def _make_zookeeper(self, processes: Processes, classpath: str, ports: list[int]) -> None:
        (zookeeper_port,) = self._reserve(1)
        self._make_brokers(processes, classpath, ports, partial(zookeeper.properties, zookeeper_port=zookeeper_port))
        self._zookeeper = zookeeper.start(
            port=zookeeper_port, processes=processes, jvm=self._jvm, classpath=classpath,
            folder=processes.folder / "zookeeper",
        )  # fmt: skip

    def _add_proxied_listeners(self) -> None:
        for broker, advertised_port in zip(self.brokers, self._proxied, strict=False):
            (port,) = self._reserve(1)
            broker.proxied_port = port
            broker.properties |= settings.proxied_listener(
                broker.properties, port=port, advertised_port=advertised_port
            )

    def _add_listeners(self) -> None:
        for broker in self.brokers:
            for name, protocol in self._listeners.items():
                (port,) = self._reserve(1)
                broker.ports[name] = port
                broker.properties |= settings.listener(broker.properties, name, protocol, port=port)

    def _broker(self, processes: Processes, classpath: str, node_id: int, port: int) -> Broker:
        folder = processes.folder / f"broker-{node_id}"
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        return Broker(
            processes=processes, folder=folder, node_id=node_id, host=self._host, port=port,
            properties={**settings.small_cluster(self._count), **self._rack(node_id), **self.properties},
            command=self._jvm.command(classpath, "kafka.Kafka", [], folder=folder),
        )  # fmt: skip

    def _rack(self, node_id: int) -> dict[str, str]:
        return {"broker.rack": self._racks[node_id - 1]} if self._racks else {}

    def _reserve(self, count: int, host: str = "127.0.0.1") -> list[int]:
        made = [Reservation(host) for _ in range(count)]
        self._reservations += made
        return [reservation.port for reservation in made]


def _record_classes(version: str, path: Path) -> None:
    """Write the classes of a broker of this version to a file."""
    options = (classes.recording(path),)
    with SandboxCluster("classes", version=version, heap_mb=512, quick=True, jvm_options=options) as cluster:
        cluster.brokers[0].stop(timeout_s=_RECORD_TIMEOUT_S)


def start_together(*clusters: SandboxCluster) -> None:
    """Start several clusters at the same time; if one does not start, none is left.

    Raises:
        SandboxError: the error of the first cluster that failed.
    """
    for version in dict.fromkeys(cluster.version for cluster in clusters):
        jars.classpath(version)  # one fetch, and one progress bar, at a time
    with ThreadPoolExecutor(max_workers=max(1, len(clusters))) as threads:
        starts = [threads.submit(cluster.start) for cluster in clusters]
        try:
            for started in as_completed(starts):
                started.result()
        except BaseException:
            # A thread that waits for a broker sees it end. A thread that was just about to start one misses the
            # first close, so close again until all threads are done.
            while True:
                for cluster in clusters:
                    cluster.close()
                if not wait(starts, timeout=0.1).not_done:
                    break
            for cluster in clusters:
                cluster.close()  # a cluster that became ready after all
            raise
