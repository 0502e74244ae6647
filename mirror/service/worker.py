"""One flow in one process: clusters opened, relay started, watched, drained at the first signal, ended at the second.

Shutdown order, here and nowhere else: stop fetching -> drain what is under way (``drain.timeout.ms``) -> close.
"""

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from mirror.net.cluster import Cluster, ClusterOptions
from mirror.net.connection import ConnectionOptions
from mirror.net.errors import NetworkError
from mirror.relay.relay import NothingToMirror, Relay, SameCluster
from mirror.relay.settings import RelaySettings
from mirror.service import logs
from mirror.service.config import DESTINATION_TOPIC_CONFIGS, ClusterSettings, Config, ResolvedFlow
from mirror.service.config.kinds import topic_pattern

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_HALTED = 2
SIGNALS = (signal.SIGTERM, signal.SIGINT)
PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
WATCH_S = 0.1


def cluster_options(settings: ClusterSettings) -> ClusterOptions:
    """The config's cluster as ``net`` takes it."""
    return ClusterOptions(
        bootstrap=tuple((address.host, address.port) for address in settings.bootstrap_servers),
        connection=ConnectionOptions(
            client_id=settings.client_id,
            request_timeout_s=settings.request_timeout_ms / 1000,
            setup_timeout_s=settings.socket_connection_setup_timeout_ms / 1000,
            receive_buffer=settings.socket_receive_buffer_bytes,
            send_buffer=settings.socket_send_buffer_bytes,
        ),
        backoff_ms=settings.reconnect_backoff_ms,
        backoff_max_ms=settings.reconnect_backoff_max_ms,
    )


def relay_settings(flow: ResolvedFlow, config: Config) -> RelaySettings:
    """The config's flow as ``relay`` takes it."""
    settings = flow.settings
    return RelaySettings(
        flow=flow.name,
        selects=settings.selects,
        wanted={entry: topic_pattern(entry).fullmatch for entry in settings.topics},
        fetch_max_bytes=settings.fetch_max_bytes,
        max_partition_fetch_bytes=settings.max_partition_fetch_bytes,
        fetch_min_bytes=settings.fetch_min_bytes,
        fetch_max_wait_ms=settings.fetch_max_wait_ms,
        buffer_memory=settings.buffer_memory,
        max_in_flight=settings.max_in_flight_requests_per_connection,
        connections_per_broker=settings.connections_per_broker,
        max_request_size=settings.max_request_size,
        request_timeout_ms=flow.destination.request_timeout_ms,
        settle_ms=settings.settle_ms,
        committed=settings.isolation_level == "read_committed",
        accept_gaps=settings.on_gap == "continue",
        fill_by_transaction=settings.fill == "transaction",
        max_fill_per_second=settings.max_fill_per_second,
        max_leading_filler=settings.max_leading_filler,
        backoff_ms=flow.destination.reconnect_backoff_ms,
        backoff_max_ms=flow.destination.reconnect_backoff_max_ms,
        drain_timeout_ms=config.drain_timeout_ms,
        refresh_topics_interval_ms=settings.refresh_topics_interval_ms,
        create_topics=settings.topic_create,
        replication_factor=settings.replication_factor,
        synced_configs=settings.sync_topic_configs,
        fixed_configs=dict(DESTINATION_TOPIC_CONFIGS),
    )


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * PAGE_SIZE


@dataclass(slots=True)
class _Progress:
    """What the progress line needs from the one before."""

    at: float
    bytes: int = 0
    caught_up: bool = False


class Worker:
    """Runs one flow until a signal, a bug, or nothing is left that could run."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._flow = config.enabled_flow()
        self._log: structlog.typing.FilteringBoundLogger = structlog.get_logger().bind(flow=self._flow.name)
        self._stop = asyncio.Event()
        self._progress = _Progress(at=time.monotonic())
        self._starting: asyncio.Task[Any] | None = None
        self._bug: BaseException | None = None

    async def run(self) -> int:
        """The exit code: 0 stopped cleanly, 1 could not run, 2 stopped with halted partitions."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._broken)
        for number in SIGNALS:
            loop.add_signal_handler(number, self._signalled, number)
        try:
            return await self._run()
        except (NetworkError, SameCluster, NothingToMirror) as error:
            self._log.error("failed", reason=type(error).__name__, detail=str(error))
            return EXIT_FAILED
        except asyncio.CancelledError:
            if not self._stop.is_set():
                raise
            # A signal before anything was copied: there is nothing to drain.
            self._log.info(logs.STOPPED, drained=True, pending=0, halted=0)
            return EXIT_OK
        except Exception as error:
            self._log.exception("failed", reason="bug", detail=f"{type(error).__name__}: {error}")
            return EXIT_FAILED
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    async def _run(self) -> int:
        flow = self._flow
        here, _, there = flow.name.partition("->")
        self._starting = asyncio.current_task()
        async with (
            await self._open(here, flow.source) as source,
            await self._open(there, flow.destination) as destination,
        ):
            relay = Relay(source, destination, relay_settings(flow, self._config), self._log)
            try:
                await relay.start()
                self._starting = None
                self._log.info(
                    logs.STARTED,
                    partitions=len(relay.partitions),
                    source_id=source.cluster_id,
                    destination_id=destination.cluster_id,
                )
                await self._watch(relay)
                drained = await relay.drain()
                self._report(relay)
                self._log.info(logs.STOPPED, drained=drained, pending=relay.pending, halted=len(relay.halted))
                return EXIT_HALTED if relay.halted else EXIT_OK
            finally:
                await relay.close()

    async def _open(self, name: str, settings: ClusterSettings) -> Cluster:
        self._log.info("connecting", cluster=name, bootstrap_servers=settings.bootstrap_servers_text)
        return await Cluster.open(name, cluster_options(settings))

    async def _watch(self, relay: Relay) -> None:
        """Until there is a reason to stop; reports on the way."""
        interval_s = self._config.progress_interval_ms / 1000
        report_at = time.monotonic() + interval_s
        assert relay.failed is not None
        while not self._stop.is_set():
            if self._bug is not None:
                raise self._bug
            if relay.failed.done():
                relay.failed.result()
            if relay.partitions and len(relay.halted) == len(relay.partitions):
                self._log.error("failed", reason="all_halted", detail="every partition is halted; see the lines above")
                return
            now = time.monotonic()
            if now >= report_at:
                report_at = now + interval_s
                self._report(relay)
            if not self._progress.caught_up and set(relay.states) <= {"active", "halted"} and not relay.lag_records:
                self._progress.caught_up = True
                self._log.info(logs.CAUGHT_UP, bytes=relay.stats.forwarded_bytes)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), min(WATCH_S, interval_s))

    def _report(self, relay: Relay) -> None:
        """One line of progress."""
        now, stats, last = time.monotonic(), relay.stats, self._progress
        elapsed_s = max(now - last.at, 1e-9)
        self._log.info(
            logs.PROGRESS,
            lag_records=relay.lag_records,
            bytes=stats.forwarded_bytes,
            bytes_per_s=round((stats.forwarded_bytes - last.bytes) / elapsed_s),
            batches_forwarded=stats.forwarded_batches,
            batches_opened=stats.opened_batches,
            partitions=relay.states,
            cpu_s=round(time.process_time(), 3),
            rss_bytes=resident_bytes(),
            buffer_bytes=relay.pool.used,
            fetches=stats.fetch_requests,
            fetched_bytes=stats.fetched_bytes,
            requests=stats.produce_requests,
            resyncs=dict(stats.resyncs),
        )
        last.at, last.bytes = now, stats.forwarded_bytes

    def _signalled(self, number: signal.Signals) -> None:
        """The first asks for a clean stop, the second does not wait."""
        if self._stop.is_set():
            self._log.warning("killed", signal=number.name, detail="second signal: not drained")
            logs.flush()
            sys.stdout.flush()
            os._exit(EXIT_FAILED)
        self._log.info("stopping", signal=number.name)
        self._stop.set()
        if self._starting is not None:
            self._starting.cancel()

    def _broken(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception in a callback has nobody to go to: a bug, and what it interrupted hangs. The watch ends it."""
        error = context.get("exception")
        self._bug = self._bug or (error if isinstance(error, Exception) else RuntimeError(context["message"]))


def run(config: Config) -> int:
    """Runs the flow in the foreground; returns the exit code."""
    try:
        return asyncio.run(Worker(config).run())
    finally:
        logs.flush()
