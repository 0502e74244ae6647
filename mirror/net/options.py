"""The options for reaching a cluster: addresses, time limits, buffer sizes. Plain data, also for code that does not
connect."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from mirror.net.security.options import PLAINTEXT, SecurityOptions

UP_FOR_S = 6.0
"""A cluster from which no byte came for this long is away."""


class Use(Enum):
    """What a control connection is used for: a cluster has one for each use and broker. A broker answers the requests
    on a connection one after the other."""

    ASKING = "asking"
    """Requests that are answered at once."""
    WRITING = "writing"
    """Requests whose answers wait for followers, and for which a quota may throttle the connection."""
    MARKING = "marking"
    """WriteTxnMarkers, and nothing else. A broker that throttles a connection reads nothing from it for as long as it
    says, and does afterwards what was sent there, even if nobody waits any more. No quota concerns these requests, so
    that here none of them comes later than it was sent (``docs/BROKERS.md#a-throttled-connection-is-not-read``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Settings shared by all connections to a cluster. Buffer sizes in bytes; -1 leaves the choice to the system.
    ``reads_only``: nothing is produced there, so that brokers may be older (Kafka 0.10.1) than those that take batches
    of magic 2."""

    client_id: str = "mirror"
    request_timeout_s: float = 30.0
    setup_timeout_s: float = 10.0
    receive_buffer: int = -1
    send_buffer: int = -1
    security: SecurityOptions = PLAINTEXT
    reads_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """``bootstrap``: (host, port) pairs, tried in order. Times in the units of their names."""

    bootstrap: tuple[tuple[str, int], ...]
    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    backoff_ms: int = 50
    backoff_max_ms: int = 10_000

    @property
    def bootstrap_servers(self) -> str:
        """The addresses as Kafka's own clients take them: "host:port,host:port"."""
        return addresses_text(self.bootstrap)


def certified(host: str) -> str:
    """Returns a host's name as certificates, SNI (RFC 6066) and Kerberos have it: without a dot at its end, which tells
    resolvers only that the name is complete."""
    return host.removesuffix(".")


def address_text(host: str, port: int) -> str:
    """Returns "host:port" as it is written and read, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def addresses_text(bootstrap: Iterable[tuple[str, int]]) -> str:
    """Returns a cluster's addresses as Kafka's own clients take them: "host:port,host:port"."""
    return ",".join(address_text(host, port) for host, port in bootstrap)


def tool_options(bootstrap: Iterable[tuple[str, int]], security: SecurityOptions) -> str:
    """Returns the options with which Kafka's own command-line tools reach a cluster. FILE stands for a file of client
    properties, which they need where connections are secured."""
    secured = "" if security == PLAINTEXT else " --command-config FILE"
    return f"--bootstrap-server {addresses_text(bootstrap)}{secured}"
