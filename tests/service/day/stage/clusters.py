"""Two real clusters whose brokers ask for a certificate, and authorities of which one takes the other's place."""

import datetime
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from cryptography import x509

from bench.data import certificates
from mirror.sandbox import SandboxCluster, start_together
from tests.patience import PATIENT
from tests.service.stage.running import PATIENCE_S

TLS, MUTUAL = "TLSONLY", "MUTUAL"
"""Listeners: one for applications, and one that asks for a certificate, for the mirror."""
_TRUSTED = "listener.name.mutual.ssl.truststore.location"
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""A request that every broker answers: size, API and its version, correlation id, no client id."""


@dataclass(frozen=True, kw_only=True)
class Files:
    """PEM files of a folder.

    Attributes:
        ca: the authority of the brokers' certificates.
        broker: a broker's key and chain.
        clients, new_clients: who the brokers believe about clients: both authorities, and the new one alone.
        old, new: a client's key and chain, from the old authority, with 20 days left, and from the new one.
    """

    ca: Path
    broker: Path
    clients: Path
    new_clients: Path
    old: Path
    new: Path


def made(folder: Path) -> Files:
    """Makes them."""
    brokers, before, after = trustme.CA(), trustme.CA(), trustme.CA()
    names = ("ca", "broker", "clients", "new_clients", "old", "new")
    files = Files(**{name: folder / f"{name}.pem" for name in names})
    files.ca.write_bytes(brokers.cert_pem.bytes())
    certificates.write_keystore(files.broker, brokers.issue_cert("127.0.0.1", "localhost"))
    files.clients.write_bytes(before.cert_pem.bytes() + after.cert_pem.bytes())
    files.new_clients.write_bytes(after.cert_pem.bytes())
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=20)
    for path, authority, ends in ((files.old, before, soon), (files.new, after, None)):
        issued = authority.issue_cert("mirror@example.org", not_after=ends)
        path.write_bytes(issued.private_key_and_cert_chain_pem.bytes())
    return files


def end_of(path: Path) -> float:
    """When the first certificate of a PEM file ends, in seconds since 1970."""
    text = path.read_bytes()
    found = x509.load_pem_x509_certificate(text[text.index(b"-----BEGIN CERTIFICATE") :])
    return found.not_valid_after_utc.timestamp()


@contextmanager
def clusters(files: Files) -> Iterator[tuple[SandboxCluster, SandboxCluster]]:
    """West and east, running."""
    properties = {**PATIENT, "listener.name.mutual.ssl.client.auth": "required"}
    for name in (TLS, MUTUAL):
        properties |= certificates.served(name, files.broker)
    properties |= {"listener.name.mutual.ssl.truststore.type": "PEM", _TRUSTED: str(files.clients)}
    west, east = (
        SandboxCluster(name=name, properties=properties, listeners={TLS: "SSL", MUTUAL: "SSL"}, quick=True)
        for name in ("west", "east")
    )
    try:
        start_together(west, east)
        yield west, east
    finally:
        west.close()
        east.close()


def distrust_the_old(cluster: SandboxCluster, files: Files) -> None:
    """From now on the brokers believe nothing but the new authority, of connections that are made from now on."""
    entry = ConfigEntry(_TRUSTED, str(files.new_clients), incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ResourceType.BROKER, str(cluster.brokers[0].node_id), incremental_configs=[entry])
    admin = _admin(cluster)
    for future in admin.incremental_alter_configs([broker]).values():
        future.result(PATIENCE_S)


def accepts(cluster: SandboxCluster, files: Files, client: Path) -> bool:
    """Whether a client with this key and chain is let in: whether its first request is answered."""
    context = ssl.create_default_context(cafile=str(files.ca))
    context.load_cert_chain(client)
    host, _, port = cluster.servers(MUTUAL).rpartition(":")
    try:
        with (
            socket.create_connection((host, int(port)), PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as sock,
        ):
            sock.sendall(_API_VERSIONS)
            return bool(sock.recv(1))
    except (ssl.SSLError, ConnectionError):
        return False


def until_refused(cluster: SandboxCluster, files: Files, client: Path) -> None:
    """Until it is let in no more: brokers hear of a setting a moment after the controller has it."""
    deadline = time.monotonic() + PATIENCE_S
    while accepts(cluster, files, client):
        assert time.monotonic() < deadline, f"{client.name} is not refused"
        time.sleep(0.1)


def grow(cluster: SandboxCluster, topic: str, partitions: int) -> None:
    """Gives a topic so many partitions."""
    admin = _admin(cluster)
    for future in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        future.result(PATIENCE_S)


def partitions_of(cluster: SandboxCluster, topic: str) -> int:
    """How many it has; 0: there is no such topic."""
    found = _admin(cluster).list_topics(timeout=PATIENCE_S).topics.get(topic)
    return 0 if found is None else len(found.partitions)


def _admin(cluster: SandboxCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
