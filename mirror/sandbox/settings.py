"""Broker properties that a small cluster needs, with KRaft or ZooKeeper; all others keep Kafka's defaults."""

from __future__ import annotations

from collections.abc import Mapping

from mirror.sandbox.errors import SandboxError

__all__ = ["check", "listener", "proxied_listener", "small_cluster"]

_PROXIED = "PROXIED"
_OURS = frozenset({
    "advertised.listeners", "broker.id", "controller.listener.names", "controller.quorum.voters", "listeners",
    "log.dir", "log.dirs", "metadata.log.dir", "node.id", "port", "process.roles", "zookeeper.connect",
})  # fmt: skip


def check(properties: Mapping[str, str]) -> dict[str, str]:
    """Checks a caller's broker properties, and returns a copy.

    Raises:
        SandboxError: a name or value is not valid, or a property places the broker, which only the sandbox may do.
    """
    for key, value in properties.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise SandboxError(f"broker property {key!r}={value!r} is not text", "give names and values as strings")
        if not key or any(sign in key for sign in " =:\n\\#!"):
            raise SandboxError(f"{key!r} is not the name of a broker property", "give Kafka's own name")
        if key in _OURS:
            raise SandboxError(f"broker property {key} is set by the sandbox", "leave it out")
    return dict(properties)


def small_cluster(brokers: int) -> dict[str, str]:
    """Returns properties for a cluster of 1 to 3 brokers: internal topics that fit it, groups that form at once.

    A version that does not know one of these ignores it with a warning in its log.
    """
    replicas = str(brokers)
    in_sync = str(min(2, brokers))
    return {
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        # A killed broker can come back, and is replaced as leader, once its session is over: sooner than Kafka's 9 s.
        "broker.session.timeout.ms": "5000",
        "broker.heartbeat.interval.ms": "500",
        # By default a KRaft controller writes a record every 500 ms when nothing happens: a quarter of what an idle
        # broker costs.
        "metadata.max.idle.interval.ms": "0",
    }


def proxied_listener(properties: Mapping[str, str], *, port: int, advertised_port: int) -> dict[str, str]:
    """Returns the properties that add a second listener to a broker, on ``port`` and advertised as ``advertised_port``.

    A broker answers each listener's clients with that listener's addresses, in every kind of response, so a proxy
    does not have to rewrite responses.
    """
    return _another(properties, _PROXIED, "PLAINTEXT", port, advertised_port)


def listener(properties: Mapping[str, str], name: str, protocol: str, *, port: int) -> dict[str, str]:
    """Returns the properties that add a listener of this name (capital letters) and security protocol on ``port``. The
    caller adds what the protocol needs (certificates, mechanisms), as ``listener.name.<name in small letters>...``."""
    return _another(properties, name, protocol, port, port)


def _another(properties: Mapping[str, str], name: str, protocol: str, port: int, advertised: int) -> dict[str, str]:
    """Returns the properties that add this listener to those in ``properties``."""
    protocols = properties.get("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT")
    return {
        "listeners": f"{properties['listeners']},{name}://127.0.0.1:{port}",
        "advertised.listeners": f"{properties['advertised.listeners']},{name}://127.0.0.1:{advertised}",
        "listener.security.protocol.map": f"{protocols},{name}:{protocol}",
        "inter.broker.listener.name": "PLAINTEXT",
    }
