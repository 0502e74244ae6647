"""The pair of clusters that runs. It is started for a shape, shared by the scenarios of that shape, and replaced when
another shape is needed."""

from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from chaos.play.rights import AUTHORIZER
from chaos.play.sides import Pair
from chaos.scenario import Shape
from lab.proxy import MIRROR_HOST, Proxy
from mirror.demo.data.writers import KAFKA_TOOLS
from mirror.sandbox import SandboxCluster, start_together
from mirror.sandbox.kafka import jars
from mirror.sandbox.kafka.versions import DEFAULT

__all__ = ["PROPERTIES", "Clusters", "fetch"]

_HEAP_MB = 384
PROPERTIES = {
    "auto.create.topics.enable": "false",
    "min.insync.replicas": "1",
    # Within this time, a killed broker is replaced as leader, and a frozen one leaves the in-sync replicas.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "400",
    "replica.lag.time.max.ms": "10000",
    # The open transaction of a dead producer is aborted soon after its timeout.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
    "group.min.session.timeout.ms": "1000",
    "num.network.threads": "2",
    "num.io.threads": "3",
    "log.segment.delete.delay.ms": "200",
}
"""Broker properties of all clusters."""


def fetch(shapes: Iterable[Shape]) -> None:
    """Downloads Kafka in the versions of these shapes, and its command-line tools for the Java writers.

    This is done before the scenarios. If a writer itself began with a download of minutes, there would be no records
    when its scenario waits for copies.

    Raises:
        SandboxError: something could not be downloaded.
    """
    for version in sorted({version for shape in shapes for version in _versions(shape)}):
        jars.classpath(version)
    jars.classpath_of([KAFKA_TOOLS])


def _versions(shape: Shape) -> tuple[str, str]:
    """Returns the Kafka versions of source and destination."""
    return shape.version or DEFAULT, shape.destination_version or shape.version or DEFAULT


class Clusters:
    """Runs at most one pair of clusters at a time. A context manager that ends the pair on exit."""

    def __init__(self) -> None:
        self._shape: Shape | None = None
        self._pair: Pair | None = None
        self._networks = ExitStack()

    @property
    def current(self) -> Pair:
        """The pair that runs."""
        assert self._pair is not None
        return self._pair

    def pair(self, shape: Shape) -> Pair:
        """Returns the pair for a shape. If another pair runs, or none, starts a new one.

        Raises:
            SandboxError: the clusters could not be started.
        """
        if self._pair is None or shape != self._shape:
            self.drop()
            versions = _versions(shape)
            host = MIRROR_HOST if shape.authorized else "127.0.0.1"
            networks = [
                self._networks.enter_context(Proxy(shape.brokers, host=host)) for _ in range(2 if shape.proxied else 0)
            ]
            usual = {**PROPERTIES, **(AUTHORIZER if shape.authorized else {})}
            source, destination = (
                SandboxCluster(
                    name, version=versions[at], brokers=shape.brokers,
                    properties=usual | {"default.replication.factor": str(shape.brokers)} | dict(own),
                    heap_mb=_HEAP_MB, quick=True,
                    proxied=networks[at].ports if networks else (),
                )
                for at, (name, own) in enumerate((("source", shape.source), ("destination", shape.destination)))
            )  # fmt: skip
            start_together(source, destination)
            for network, cluster in zip(networks, (source, destination), strict=False):
                network.attach(cluster)
            self._shape, self._pair = shape, Pair(source, destination, networks)
        return self._pair

    def drop(self) -> None:
        """Ends the pair, if one runs."""
        if self._pair is not None:
            for side in self._pair.sides:
                side.cluster.close()
        self._networks.close()
        self._shape = self._pair = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()
