"""Outages of a whole cluster, as its clients meet them: stopped, frozen, refused, not resolved."""

import os
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.proxy import Proxy
from mirror.sandbox import SandboxCluster
from mirror.sandbox.cluster import start_together
from tests.patience import KEEPING

KINDS = ("stopped", "frozen", "refused", "unresolved")
UNRESOLVED = "MIRROR_TEST_UNRESOLVED"
"""Environment: a file with the ports whose addresses cannot be resolved."""


class Site:
    """A cluster of one broker behind a proxy, which clients know by the proxy's address only."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.proxy = Proxy()
        self.cluster = SandboxCluster(name=name, properties=KEEPING, quick=True, proxied=self.proxy.ports)

    @property
    def bootstrap_servers(self) -> str:
        """For the mirror."""
        return self.proxy.bootstrap_servers

    @property
    def direct(self) -> str:
        """For the test itself."""
        return self.cluster.bootstrap_servers

    @contextmanager
    def away(self, kind: str) -> Iterator[None]:
        """The cluster is away for clients, until the block is left."""
        (broker,) = self.cluster.brokers
        unresolved = Path(os.environ[UNRESOLVED])
        if kind == "stopped":
            broker.kill()
        elif kind == "frozen":
            broker.pause()
        elif kind == "refused":
            self.proxy.refuse()
            self.proxy.cut(reset=True)
        else:
            unresolved.write_text(str(self.proxy.ports[0]))
            self.proxy.cut(reset=True)
        try:
            yield
        finally:
            if kind == "stopped":
                broker.start()
            elif kind == "frozen":
                broker.resume()
            elif kind == "refused":
                self.proxy.accept()
            else:
                unresolved.write_text("")


@contextmanager
def two_sites() -> Iterator[tuple[Site, Site]]:
    """A source and a destination."""
    source, destination = Site("source"), Site("destination")
    with source.proxy, destination.proxy:
        start_together(source.cluster, destination.cluster)
        try:
            for site in (source, destination):
                site.proxy.attach(site.cluster)
            yield source, destination
        finally:
            source.cluster.close()
            destination.cluster.close()


def deaf_resolver(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, Python processes that are started do not resolve the addresses of the ports in the file."""
    folder.joinpath("sitecustomize.py").write_text(
        textwrap.dedent(f"""
            import os
            import socket

            _resolve = socket.getaddrinfo


            def getaddrinfo(host, port, *rest, **more):
                with open(os.environ["{UNRESOLVED}"]) as ports:
                    if str(port) in ports.read().split():
                        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
                return _resolve(host, port, *rest, **more)


            socket.getaddrinfo = getaddrinfo
        """)
    )
    unresolved = folder / "unresolved"
    unresolved.write_text("")
    monkeypatch.setenv(UNRESOLVED, str(unresolved))
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *([before] if before else [])]))
