"""A worker's report on itself, as plain data. It is made once a second, so that it costs the data path nothing.

Counters are a flat mapping, "name" or "name/label", which the supervisor can add up without knowing the names. A report
has only the partitions that have changed since the previous one.
"""

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any

from mirror.reasons import PAUSED
from mirror.relay.assignment import Key
from mirror.relay.partition.partition import Partition
from mirror.relay.relay import Relay
from mirror.service.telemetry.accounts import Stint
from mirror.service.telemetry.rows import Gone, PartitionRow
from mirror.service.telemetry.usage.gc_stats import Pauses
from mirror.service.telemetry.usage.resources import most_files, open_files, resident_bytes

FRESH_S = 8.0
"""If the source's end was not heard of for this long, a lag of 0 is not known any more."""


class Snapshots:
    """Takes snapshots, and remembers what was reported."""

    def __init__(self, pauses: Pauses, numbers: Iterator[int] | None = None) -> None:
        """``numbers``: yields numbers for stints that are unique in this process."""
        self._pauses = pauses
        self._numbers = numbers if numbers is not None else itertools.count(1)
        self._stints: dict[Partition, int] = {}
        """Partition -> number of its current stint."""
        self._told: dict[Key, PartitionRow] = {}
        self._held: dict[Key, tuple[int, float]] = {}
        """Partition -> the offset behind which an open transaction keeps back records, and since when (seconds since
        1970)."""
        self._retention_s: dict[str, float] | None = None
        """The source's retention as last reported; None: not reported yet."""
        self._at_rest: dict[Partition, tuple[Any, ...]] = {}
        """Quiet partition -> everything that can change while it is quiet, as of the last report."""

    def take(self, relay: Relay, committed: Mapping[Key, int], **gauges: float) -> dict[str, Any]:
        """Returns a report on the current state, ready for JSON. ``committed``: the group's committed offsets.
        ``gauges``: further gauges for the report."""
        gone = self._retire(relay)
        # Included only when it has changed: there may be thousands of topics, and a report each second.
        news = relay.topics.retention_s is not self._retention_s
        self._retention_s = relay.topics.retention_s
        fresh_from = time.monotonic() - FRESH_S
        rows = [
            row
            for key, partition in relay.partitions.items()
            if self._may_have_changed(partition, committed.get(key, -1), fresh_from)
            and (row := self._row(key, partition, committed.get(key, -1), fresh_from)) != self._told.get(key)
        ]
        self._told.update((row.key, row) for row in rows)
        return {
            "at": time.time(),
            "counters": self._counters(relay),
            "gauges": {
                **_used(),
                "buffer_bytes": relay.pool.used,
                "buffer_limit_bytes": relay.pool.budget,
                **gauges,
            },
            "flow_partitions": len(relay.keys),
            "partitions": rows,
            "gone": gone,
            "skipped": relay.stats.skipped,
            "unmatched": relay.refresh.unmatched,
            "gone_topics": relay.topics.gone.shown,
            "retention_s": self._retention_s if news else None,
        }

    def _retire(self, relay: Relay) -> list[Gone]:
        """Returns the last report on each partition that was let go since the last snapshot."""
        gone: list[Gone] = []
        for partition in relay.ending.let_go:
            key = partition.topic, partition.index
            gone.append(Gone(*key, self._stint(partition)))
            self._stints.pop(partition, None)
            self._at_rest.pop(partition, None)
            self._told.pop(key, None)
            self._held.pop(key, None)
        relay.ending.let_go.clear()
        return gone

    def _may_have_changed(self, partition: Partition, committed: int, fresh_from: float) -> bool:
        """Returns False for a quiet partition of which nothing has changed. Of thousands of partitions, most are quiet,
        and making their rows would cost more than everything else."""
        cursor = partition.cursor
        if not cursor.is_quiet:
            self._at_rest.pop(partition, None)
            return True
        now = (committed, cursor.due, cursor.high_watermark, cursor.held_back, cursor.heard_at >= fresh_from)
        if self._at_rest.get(partition) == now:
            return False
        self._at_rest[partition] = now
        return True

    def _stint(self, partition: Partition) -> Stint:
        number = self._stints.get(partition)
        if number is None:
            number = self._stints[partition] = next(self._numbers)
        origin = partition.queue.tally.origin
        return Stint(
            number,
            origin.offset if origin else -1,
            origin.at_s if origin else 0.0,
            origin.holes_from if origin else -1,
            partition.claim.inherited,
            partition.position,
            *partition.counts,
            partition.queue.filled,
        )

    def _row(self, key: Key, partition: Partition, committed: int, fresh_from: float) -> PartitionRow:
        halted, waiting = partition.halted, partition.waiting
        is_paused = halted is not None and halted.reason == PAUSED
        if is_paused:
            halted = None
        lag = partition.lag
        return PartitionRow(
            *key,
            PAUSED if is_paused else partition.phase.value,
            # If the source's end was heard of too long ago, a lag of 0 is not known any more.
            lag if lag or partition.cursor.heard_at >= fresh_from else None,
            partition.cursor.high_watermark,
            partition.shown_position,
            committed,
            halted.reason if halted else "",
            halted.detail if halted else "",
            halted.remedy if halted else "",
            waiting.reason if waiting else "",
            waiting.since_s if waiting else 0.0,
            partition.cursor.held_back,
            self._held_since(key, partition),
            partition.destination,
            self._stint(partition),
        )

    def _held_since(self, key: Key, partition: Partition) -> float:
        if partition.cursor.held_back <= 0:
            self._held.pop(key, None)
            return 0.0
        at, since = self._held.get(key, (-1, 0.0))
        if at != partition.cursor.high_watermark:
            # The end that consumers see has moved, so the earlier transaction is decided: this is another one.
            since = time.time()
            self._held[key] = (partition.cursor.high_watermark, since)
        return since

    def _counters(self, relay: Relay) -> dict[str, float]:
        stats = relay.stats
        return {
            "cpu_s": time.process_time(),
            "fetched_bytes": stats.fetched_bytes,
            "opened_batches": sum(relay.rewriter.opened.values()),
            "built_batches": relay.rewriter.splits.built - relay.rewriter.splits.split,
            "split_batches": relay.rewriter.splits.split,
            "produce_requests": stats.produce_requests,
            "fetch_requests": stats.fetch_requests,
            "oversize_frames": stats.oversize_frames,
            "unproven": stats.unproven,
            **{f"throttled_s/{cluster}": seconds for cluster, seconds in stats.throttled_s.items()},
            **{f"opened/{reason}": count for reason, count in relay.rewriter.opened.items()},
            **{f"resyncs/{cause}": count for cause, count in stats.resyncs.items()},
            **{f"halts/{reason}": count for reason, count in stats.halts.items()},
            **stats.record_age.counters("record_age_s"),
            **stats.replication_latency.counters("replication_latency_s"),
            **stats.batch_bytes.counters("batch_bytes"),
            **stats.request_bytes.counters("produce_request_bytes"),
            **stats.request_batches.counters("produce_request_batches"),
            **self._pauses.counters(),
        }


def _used() -> dict[str, float]:
    """Returns the resources that this process uses, by name, as far as they are known."""
    found = {"rss_bytes": resident_bytes(), "open_files": open_files(), "most_files": most_files()}
    return {name: value for name, value in found.items() if value is not None}
