"""The running pair of clusters: made for a shape, shared by its scenarios, replaced when another shape is asked for."""

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
    # A killed broker is replaced as leader within this, and a frozen one leaves the in-sync replicas.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "400",
    "replica.lag.time.max.ms": "10000",
    # The open transaction of a producer that is gone ends soon after its timeout.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
    "group.min.session.timeout.ms": "1000",
    "num.network.threads": "2",
    "num.io.threads": "3",
    "log.segment.delete.delay.ms": "200",
}
"""Of every broker."""


def fetch(shapes: Iterable[Shape]) -> None:
    """Fetch Kafka in the versions of these shapes, and its command-line tools, which the Java writers run.

    A writer that began with a download of minutes would have written nothing when its scenario looks for copies.

    Raises:
        SandboxError: something could not be fetched.
    """
    for version in sorted({version for shape in shapes for version in _versions(shape)}):
        jars.classpath(version)
    jars.classpath_of([KAFKA_TOOLS])


def _versions(shape: Shape) -> tuple[str, str]:
    """Returns the versions of Kafka of source and destination."""
    return shape.version or DEFAULT, shape.destination_version or shape.version or DEFAULT


class Clusters:
    """At most one pair at a time; a context manager that ends it."""

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
        """Returns the pair of this shape, started if it does not run.

        Raises:
            SandboxError: it could not be started.
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
        """End the pair, if one runs."""
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
