"""Turns the configuration into the settings of ``net``, ``relay``, the workers and the supervisor."""

from typing import TypedDict

from mirror.net.options import ClusterOptions, ConnectionOptions
from mirror.relay.settings import RelaySettings
from mirror.service.config import DESTINATION_TOPIC_CONFIGS, ClusterSettings, Config, FlowSettings, ResolvedFlow
from mirror.service.worker_settings import GroupSettings, Handover, Supervision, selecting, topic_rate

SNAPSHOT_INTERVAL_MS = 1_000
MOST_FETCH_BYTES = 32 << 20
MOST_BUFFER_MEMORY = 96 << 20
"""Up to these, sizes grow over a long link (``relay.fetch.sizes``), unless they are set in the configuration."""


def cluster_options(settings: ClusterSettings) -> ClusterOptions:
    """Returns a cluster's settings as ``net`` takes them."""
    return ClusterOptions(
        bootstrap=tuple((address.host, address.port) for address in settings.bootstrap_servers),
        connection=ConnectionOptions(
            client_id=settings.client_id,
            request_timeout_s=settings.request_timeout_ms / 1000,
            setup_timeout_s=settings.socket_connection_setup_timeout_ms / 1000,
            receive_buffer=settings.socket_receive_buffer_bytes,
            send_buffer=settings.socket_send_buffer_bytes,
            security=settings.security,
        ),
        backoff_ms=settings.reconnect_backoff_ms,
        backoff_max_ms=settings.reconnect_backoff_max_ms,
    )


def relay_settings(flow: ResolvedFlow, config: Config) -> RelaySettings:
    """Returns a flow's settings as ``relay`` takes them: plain data but for functions (``service.worker_settings``)."""
    settings = flow.settings
    return RelaySettings(
        flow=flow.id,
        **selecting(settings.selection),
        fetch_max_bytes=settings.fetch_max_bytes,
        max_partition_fetch_bytes=settings.max_partition_fetch_bytes,
        fetch_min_bytes=settings.fetch_min_bytes,
        fetch_max_wait_ms=settings.fetch_max_wait_ms,
        buffer_memory=settings.buffer_memory,
        **_most(settings),
        client_rack=flow.source.client_rack,
        max_bytes_per_second=settings.max_bytes_per_second,
        topic_max_bytes_per_second=dict(settings.topic_max_bytes_per_second),
        topic_rate=topic_rate(settings.topic_max_bytes_per_second),
        max_in_flight=1 if settings.identity == "strict" else settings.max_in_flight_requests_per_connection,
        connections_per_broker=settings.connections_per_broker,
        max_request_size=settings.max_request_size,
        request_timeout_ms=flow.destination.request_timeout_ms,
        settle_ms=settings.settle_ms,
        strict=settings.identity == "strict",
        committed=settings.isolation_level == "read_committed",
        accept_gaps=settings.on_gap == "continue",
        fill_by_transaction=settings.fill == "transaction",
        max_fill_per_second=settings.max_fill_per_second,
        max_leading_filler=settings.max_leading_filler,
        mapped=settings.offsets == "mapped",
        checkpoint_interval_ms=settings.checkpoint_interval_ms,
        state_replication_factor=settings.state_replication_factor,
        backoff_ms=flow.destination.reconnect_backoff_ms,
        backoff_max_ms=flow.destination.reconnect_backoff_max_ms,
        drain_timeout_ms=config.drain_timeout_ms,
        refresh_topics_interval_ms=settings.refresh_topics_interval_ms,
        create_topics=settings.topic_create,
        replication_factor=settings.replication_factor,
        synced_configs=settings.sync_topic_configs,
        sync_configs=settings.sync_topic_configs_enabled,
        fixed_configs=dict(DESTINATION_TOPIC_CONFIGS),
    )


def group_id(config: Config, flow: ResolvedFlow) -> str:
    """Returns the consumer group at the source by which a flow's workers share the partitions."""
    return config.group_id or f"mirror-{flow.id}"


class _Most(TypedDict):
    most_fetch_bytes: int
    most_partition_fetch_bytes: int
    most_buffer_memory: int


def _most(settings: FlowSettings) -> _Most:
    """Returns the sizes up to which a flow's sizes may grow: those that the configuration does not set."""
    given = settings.model_fields_set
    may_grow = given.isdisjoint({"fetch_max_bytes", "buffer_memory"})
    return {
        "most_fetch_bytes": MOST_FETCH_BYTES if may_grow else 0,
        "most_partition_fetch_bytes": MOST_FETCH_BYTES if may_grow and "max_partition_fetch_bytes" not in given else 0,
        "most_buffer_memory": MOST_BUFFER_MEMORY if "buffer_memory" not in given else 0,
    }


def group_settings(config: Config, number: int) -> GroupSettings:
    """Returns the group's settings for the worker of this number."""
    return GroupSettings(
        group_id=group_id(config, config.enabled_flow()),
        protocol=config.group_protocol,
        instance_id=f"{config.group_instance_id}-{number}" if config.group_instance_id else "",
        session_timeout_ms=config.session_timeout_ms,
        commit_interval_ms=config.offset_commit_interval_ms,
        flow=config.enabled_flow().id,
    )


def handover(config: Config, number: int) -> Handover:
    """Returns the settings for the worker of this number; numbers count from 1."""
    flow = config.enabled_flow()
    return Handover(
        number=number,
        flow=flow.name,
        source=cluster_options(flow.source),
        destination=cluster_options(flow.destination),
        selection=flow.settings.selection,
        relay=relay_settings(flow, config),
        group=group_settings(config, number),
        snapshot_interval_ms=min(SNAPSHOT_INTERVAL_MS, config.progress_interval_ms),
    )


def supervision(config: Config, *, workers: int | None = None, fail_fast: bool = False) -> Supervision:
    """Returns the supervisor's settings. ``workers``: their number; None: as the configuration says."""
    flow = config.enabled_flow()
    return Supervision(
        flow=flow.name,
        flow_id=flow.id,
        http_listen=config.http_listen,
        log_level=config.log_level,
        progress_interval_ms=config.progress_interval_ms,
        drain_timeout_ms=config.drain_timeout_ms,
        workers=tuple(handover(config, number) for number in range(1, (workers or config.workers) + 1)),
        fail_fast=fail_fast,
    )
