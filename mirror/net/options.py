"""The options for reaching a cluster: addresses, time limits, buffer sizes. Plain data, also for code that does not
connect."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from mirror.net.security.options import PLAINTEXT, SecurityOptions

UP_FOR_S = 6.0
"""A cluster from which no byte was received for this long counts as down."""


class Use(Enum):
    """What a control connection is used for: a cluster has one for each use and broker. A broker answers the requests
    on a connection one after the other."""

    ASKING = "asking"
    """Requests that are answered at once."""
    WRITING = "writing"
    """Requests whose answers wait for followers, and for which a quota may throttle the connection."""
    MARKING = "marking"
    """WriteTxnMarkers, and nothing else. A broker that throttles a connection does not read from it for the throttle
    time, and afterwards executes what was sent on it, even if nobody waits any more. WriteTxnMarkers has no quota, so
    on a connection of its own it is never executed late (``docs/BROKERS.md#a-throttled-connection-is-not-read``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Settings shared by all connections to a cluster. Buffer sizes in bytes; -1 leaves the choice to the system.
    ``reads_only``: nothing is produced to the cluster, so its brokers may be as old as Kafka 0.10.1, which does not
    accept batches of magic 2."""

    client_id: str = "mirror"
    request_timeout_s: float = 30.0
    setup_timeout_s: float = 10.0
    receive_buffer: int = -1
    send_buffer: int = -1
    security: SecurityOptions = PLAINTEXT
    reads_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How to reach a cluster. ``bootstrap``: (host, port) pairs, tried in order. ``backoff_ms``, ``backoff_max_ms``:
    the wait between tries (``Backoff``)."""

    bootstrap: tuple[tuple[str, int], ...]
    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    backoff_ms: int = 50
    backoff_max_ms: int = 10_000

    @property
    def bootstrap_servers(self) -> str:
        """The addresses in the form of ``bootstrap.servers``: "host:port,host:port"."""
        return addresses_text(self.bootstrap)


def certified(host: str) -> str:
    """Returns a host's name as it stands in certificates, SNI (RFC 6066) and Kerberos: without the dot at its end,
    which only tells resolvers that the name is complete."""
    return host.removesuffix(".")


def address_text(host: str, port: int) -> str:
    """Returns "host:port" as it is written and read, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def addresses_text(bootstrap: Iterable[tuple[str, int]]) -> str:
    """Returns addresses in the form of ``bootstrap.servers``: "host:port,host:port"."""
    return ",".join(address_text(host, port) for host, port in bootstrap)


def tool_options(bootstrap: Iterable[tuple[str, int]], security: SecurityOptions) -> str:
    """Returns the options with which Kafka's command-line tools reach a cluster. If connections are secured, they have
    ``--command-config FILE``; FILE stands for a file of client properties, which the user has to write."""
    secured = "" if security == PLAINTEXT else " --command-config FILE"
    return f"--bootstrap-server {addresses_text(bootstrap)}{secured}"
