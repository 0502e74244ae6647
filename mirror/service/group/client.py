"""The librdkafka consumer that is the member of a consumer group: its settings, and when it has to be made again."""

import logging
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException

from mirror.net.errors import AuthenticationFailed, TlsFailed
from mirror.net.security.files import Stamp, stamps
from mirror.net.security.librdkafka import client_config
from mirror.net.security.options import OAUTHBEARER, SecurityOptions
from mirror.net.security.tls import check_files
from mirror.service.worker_settings import GroupSettings

SOCKET_TIMEOUT_MS = 10_000
HEARTBEATS_PER_SESSION = 3
MAX_POLL_INTERVAL_MARGIN_MS = 60_000
SMALLEST_FETCH = 1_000
"""Bytes for message.max.bytes, and for the settings that must be at least as large. The consumer never fetches, so it
needs no room."""
LOOK_AT_FILES_S = 5.0
"""How often files of certificates and secrets are checked for changes."""


class GroupClients:
    """Makes the clients of one seat, one after the other.

    Args:
        config: librdkafka's settings and callbacks (``consumer_config``), without the security settings.
        security: certificates and secrets; each client reads them once, when it is made.
        trouble: called with the reason if no client can be made now.
    """

    def __init__(self, config: dict[str, Any], security: SecurityOptions, trouble: Callable[[str], None]) -> None:
        self._config = config
        self._security = security
        self._trouble = trouble
        self._stamps: tuple[Stamp, ...] = ()
        self._look_at = 0.0

    def make(self) -> Consumer | None:
        """Returns a new client, with certificates and secrets as they are now; None if they cannot be read now."""
        self._stamps = stamps(self._security)
        try:
            return Consumer({**self._config, **client_config(self._security)}, logger=silent_logger())
        except (AuthenticationFailed, KafkaException) as error:
            self._trouble(str(error.args[0].str() if isinstance(error, KafkaException) else error))
            return None

    def outdated(self) -> bool:
        """Returns True if certificates or secrets have changed since the last client was made, and can be read."""
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + LOOK_AT_FILES_S
        return stamps(self._security) != self._stamps and self._can_be_read()

    def _can_be_read(self) -> bool:
        """Returns True if a client could be made with the files as they are now. Perhaps only some of them have been
        replaced yet; until the others are, the present client stays."""
        try:
            if self._security.sasl is None or self._security.sasl.mechanism != OAUTHBEARER:
                client_config(self._security)  # not for OAUTHBEARER: getting a token may take long
            if self._security.tls is not None:
                check_files(self._security.tls)
        except (AuthenticationFailed, TlsFailed) as error:
            self._trouble(str(error))
            return False
        return True


def consumer_config(
    settings: GroupSettings,
    *,
    bootstrap: str,
    client_id: str,
    drain_timeout_ms: int,
    refresh_topics_interval_ms: int,
) -> dict[str, Any]:
    """Returns librdkafka's settings for a consumer that never consumes, with as little memory as possible."""
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": f"{client_id}{settings.mark}",
        "group.id": settings.group_id,
        "group.protocol": settings.protocol,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        # A revoked partition is drained inside poll(), so the next poll() is that late.
        "max.poll.interval.ms": max(
            drain_timeout_ms + MAX_POLL_INTERVAL_MARGIN_MS, settings.session_timeout_ms, 300_000
        ),
        "topic.metadata.refresh.interval.ms": min(refresh_topics_interval_ms, 300_000),
        "socket.timeout.ms": SOCKET_TIMEOUT_MS,
        "reconnect.backoff.max.ms": 2_000,
        "queued.min.messages": 1,
        "queued.max.messages.kbytes": 1,
        "message.max.bytes": SMALLEST_FETCH,
        "fetch.max.bytes": SMALLEST_FETCH,
        "fetch.message.max.bytes": SMALLEST_FETCH,
        "log_level": 3,
    }
    if settings.instance_id:
        config["group.instance.id"] = settings.instance_id
    if settings.protocol == "classic":
        # With the new protocol, the brokers decide on these (KIP-848).
        config["partition.assignment.strategy"] = "cooperative-sticky"
        config["session.timeout.ms"] = settings.session_timeout_ms
        config["heartbeat.interval.ms"] = max(settings.session_timeout_ms // HEARTBEATS_PER_SESSION, 100)
    return config


def silent_logger() -> logging.Logger:
    """Returns a logger that drops librdkafka's own log, which would go to stderr. Everything important is also reported
    as an error."""
    logger = logging.Logger("librdkafka")
    logger.addHandler(logging.NullHandler())
    return logger
