"""Turns the configuration into the settings of ``net``, ``relay``, the workers and the supervisor."""

from typing import TypedDict

from mirror.net.options import ClusterOptions, ConnectionOptions
from mirror.relay.settings import RelaySettings
from mirror.service.config import DESTINATION_TOPIC_CONFIGS, ClusterSettings, Config, FlowSettings, ResolvedFlow
from mirror.service.config.checks.start import start_at_ms
from mirror.service.offsets.sides import FlowSides
from mirror.service.sync.settings import SyncSettings
from mirror.service.telemetry.otlp.settings import OtlpSettings
from mirror.service.worker_settings import GroupSettings, Handover, Supervision, selecting, topic_rate

SNAPSHOT_INTERVAL_MS = 1_000
MOST_FETCH_BYTES = 32 << 20
MOST_BUFFER_MEMORY = 96 << 20
"""Limits up to which sizes grow over a long link (``relay.fetch.sizes``), unless they are set in the configuration."""


def cluster_options(settings: ClusterSettings, *, reads_only: bool = False) -> ClusterOptions:
    """Returns a cluster's settings in the form for ``net``. ``reads_only``: see ``ConnectionOptions``."""
    return ClusterOptions(
        bootstrap=tuple((address.host, address.port) for address in settings.bootstrap_servers),
        connection=ConnectionOptions(
            client_id=settings.client_id,
            request_timeout_s=settings.request_timeout_ms / 1000,
            setup_timeout_s=settings.socket_connection_setup_timeout_ms / 1000,
            receive_buffer=settings.socket_receive_buffer_bytes,
            send_buffer=settings.socket_send_buffer_bytes,
            security=settings.security,
            reads_only=reads_only,
        ),
        backoff_ms=settings.reconnect_backoff_ms,
        backoff_max_ms=settings.reconnect_backoff_max_ms,
    )


REBATCHED_BELOW = {"shallow": 0, "auto": 1 << 10, "deep": 64 << 10}
"""``mode`` -> size in bytes below which batches are merged into larger ones; see ``bench.rebatching`` for the
figures."""


def relay_settings(flow: ResolvedFlow, config: Config) -> RelaySettings:
    """Returns a flow's settings in the form for ``relay``: plain data, except for functions
    (``service.worker_settings``)."""
    settings = flow.settings
    return RelaySettings(
        flow=flow.id,
        **selecting(settings.selection),
        fetch_max_bytes=settings.fetch_max_bytes,
        max_partition_fetch_bytes=settings.max_partition_fetch_bytes,
        fetch_min_bytes=settings.fetch_min_bytes,
        fetch_max_wait_ms=settings.fetch_max_wait_ms,
        linger_ms=settings.linger_ms,
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
        rewrites=settings.deep_path_enable,
        compression=settings.compression_type,
        rebatches=REBATCHED_BELOW[settings.mode],
        append_times=settings.destination_timestamps == "append",
        oversize_record=settings.oversize_record,
        dead_letter_topic=settings.oversize_record_topic,
        fill_by_transaction=settings.fill == "transaction",
        max_fill_per_second=settings.max_fill_per_second,
        max_leading_filler=settings.max_leading_filler,
        start_from=settings.start_from,
        start_at_ms=start_at_ms(settings.start_from),
        start_group=settings.start_group,
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


class _Most(TypedDict):
    most_fetch_bytes: int
    most_partition_fetch_bytes: int
    most_buffer_memory: int


def _most(settings: FlowSettings) -> _Most:
    """Returns the limits up to which a flow's sizes may grow. A size that the configuration sets does not grow."""
    given = settings.model_fields_set
    may_grow = given.isdisjoint({"fetch_max_bytes", "buffer_memory"})
    return {
        "most_fetch_bytes": MOST_FETCH_BYTES if may_grow else 0,
        "most_partition_fetch_bytes": MOST_FETCH_BYTES if may_grow and "max_partition_fetch_bytes" not in given else 0,
        "most_buffer_memory": MOST_BUFFER_MEMORY if "buffer_memory" not in given else 0,
    }


def flow_sides(flow: ResolvedFlow) -> FlowSides:
    """Returns a flow in the form for the translation of offsets."""
    return FlowSides(
        name=flow.name,
        id=flow.id,
        source=cluster_options(flow.source, reads_only=True),
        destination=cluster_options(flow.destination),
        selection=flow.settings.selection,
        exact=flow.settings.offsets == "exact",
        committed=flow.settings.isolation_level == "read_committed",
    )


def group_settings(flow: ResolvedFlow, config: Config) -> GroupSettings:
    """Returns the settings of the flow's group, the same for every worker (``Handover.of_worker`` adds the rest)."""
    return GroupSettings(
        group_id=config.group_of(flow),
        protocol=config.group_protocol,
        instance_id=config.group_instance_id,
        session_timeout_ms=config.session_timeout_ms,
        commit_interval_ms=config.offset_commit_interval_ms,
        flow=flow.id,
    )


def sync_settings(flow: ResolvedFlow, own_group: str) -> SyncSettings:
    """Returns the settings for keeping group offsets and ACLs in step. ``own_group``: the group of the flow's own
    workers."""
    settings = flow.settings
    return SyncSettings(
        offsets=settings.sync_group_offsets_enabled,
        acls=settings.sync_topic_acls_enabled,
        offsets_interval_ms=settings.sync_group_offsets_interval_ms,
        acls_interval_ms=settings.sync_topic_acls_interval_ms,
        groups=settings.groups,
        groups_exclude=settings.groups_exclude,
        own_group=own_group,
    )


def handover(flow: ResolvedFlow, config: Config) -> Handover:
    """Returns a flow's settings, the same for every worker (``Handover.of_worker`` adds the rest)."""
    group = group_settings(flow, config)
    return Handover(
        number=0,
        flow=flow.name,
        own_workers=flow.settings.workers,
        source=cluster_options(flow.source, reads_only=True),
        destination=cluster_options(flow.destination),
        selection=flow.settings.selection,
        relay=relay_settings(flow, config),
        group=group,
        sync=sync_settings(flow, group.group_id),
        snapshot_interval_ms=min(SNAPSHOT_INTERVAL_MS, config.progress_interval_ms),
    )


def otlp_settings(config: Config) -> OtlpSettings | None:
    """Returns the settings of the export to OpenTelemetry; None if there is none."""
    if not config.otel_exporter_otlp_endpoint:
        return None
    return OtlpSettings(
        endpoint=config.otel_exporter_otlp_endpoint,
        headers=config.otel_exporter_otlp_headers,
        timeout_ms=config.otel_exporter_otlp_timeout,
        interval_ms=config.otel_metric_export_interval,
    )


def supervision(config: Config, *, workers: int | None = None, fail_fast: bool = False) -> Supervision:
    """Returns the supervisor's settings. ``workers``: number of shared processes; None: from the configuration.
    ``fail_fast``: the option of `mirror run`."""
    return Supervision(
        flows=tuple(handover(flow, config) for flow in config.enabled_flows()),
        pool=workers or config.workers,
        http_listen=config.http_listen,
        http_token=config.http_token,
        log_level=config.log_level,
        progress_interval_ms=config.progress_interval_ms,
        drain_timeout_ms=config.drain_timeout_ms,
        audit_files={
            flow.name: flow.settings.audit_metrics_file
            for flow in config.enabled_flows()
            if flow.settings.audit_metrics_file
        },
        otlp=otlp_settings(config),
        metrics_granularity=config.metrics_granularity,
        workers_option=workers,
        fail_fast=fail_fast,
    )
