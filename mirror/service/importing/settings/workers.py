"""Settings of the MirrorMaker 2 process, and of the Kafka Connect workers in it: storage, REST, plug-ins."""

from collections.abc import Mapping

from mirror.service.importing.settings.rule import Rule, decide, each, not_needed

_STORAGE = "there is no Kafka Connect that would keep offsets, configs and status in topics of its own"
_REST = "there is no REST server of Kafka Connect: workers share partitions through a consumer group, on any hosts"
_WORKER = "it belongs to the workers of Kafka Connect"
PROVIDERS = "config.providers"
CLUSTERS = "clusters"

WORKERS: Mapping[str, Rule] = {
    CLUSTERS: not_needed("clusters are listed below, each under its alias"),
    "exactly.once.source.support": not_needed("every copy is exactly once"),
    **each(
        not_needed(_REST),
        "dedicated.mode.enable.internal.rest listeners admin.listeners access.control.allow.origin "
        "access.control.allow.methods "
        "response.http.headers.config inter.worker.key.generation.algorithm inter.worker.key.size "
        "inter.worker.key.ttl.ms "
        "inter.worker.signature.algorithm inter.worker.verification.algorithms connect.protocol ssl.client.auth",
    ),
    **each(
        not_needed(_WORKER),
        "connector.client.config.override.policy plugin.path plugin.discovery rebalance.timeout.ms "
        "heartbeat.interval.ms "
        "session.timeout.ms scheduled.rebalance.max.delay.ms task.shutdown.graceful.timeout.ms topic.creation.enable "
        "topic.tracking.enable topic.tracking.allow.reset worker.sync.timeout.ms worker.unsync.backoff.ms "
        "internal.key.converter internal.value.converter offset.flush.interval.ms offset.flush.timeout.ms group.id "
        "offsets.storage.topic metrics.context.connect.group.id",
    ),
    "rest.extension.classes": decide("no Java class can be plugged in", unless=("",), then="none"),
    PROVIDERS: not_needed("${env:NAME} and ${file:PATH} are always there"),
}  # fmt: skip

WORKER_PREFIXES: Mapping[str, Rule] = {
    **dict.fromkeys(("offset.storage.", "config.storage.", "status.storage."), not_needed(_STORAGE)),
    **dict.fromkeys(("rest.", "listeners.https.", "admin.listeners.https."), not_needed(_REST)),
    f"{PROVIDERS}.": not_needed("${env:NAME} and ${file:PATH} are always there"),
    **dict.fromkeys(("metrics.context.", "internal."), not_needed(_WORKER)),
}
"""Prefixes of keys."""
