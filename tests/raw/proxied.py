"""A cluster whose connections can be broken, and brokers that forget."""

from collections.abc import Iterator
from contextlib import contextmanager

from lab.proxy import Proxy
from mirror.sandbox import SandboxCluster
from tests.patience import PATIENT

FORGETTING = {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "100"}
"""Brokers' properties: producers of old records are forgotten at once."""


class ProxiedCluster:
    """A cluster behind a proxy."""

    def __init__(self, cluster: SandboxCluster, proxy: Proxy) -> None:
        self.cluster = cluster
        self.proxy = proxy


@contextmanager
def behind_a_proxy() -> Iterator[tuple[SandboxCluster, Proxy]]:
    """A running cluster of one broker, and the proxy that its clients go through."""
    with (
        Proxy() as proxy,
        SandboxCluster(name="behind", properties=PATIENT, quick=True, proxied=proxy.ports) as cluster,
    ):
        proxy.attach(cluster)
        yield cluster, proxy
