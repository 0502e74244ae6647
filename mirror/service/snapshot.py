"""What a worker tells of itself, as plain data: once a second, so that watching costs the data path nothing.

Counters are a flat mapping, "name" or "name/label", so that the supervisor adds them up without knowing them. Of the
partitions only those are told that changed since the last time.
"""

import os
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from mirror.relay.assignment import Key
from mirror.relay.partition import Partition
from mirror.relay.relay import Relay
from mirror.relay.tally import Counts
from mirror.service.pauses import Pauses

PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


class Row(NamedTuple):
    """One partition. Counters are those of this worker process, over all the times that it had the partition."""

    topic: str
    partition: int
    state: str
    lag_records: int
    max_timestamp_ms: int
    """Of the last batch sent; -1: none yet."""
    source_end: int
    position: int
    """The destination's log end; -1: not known at present."""
    committed: int
    """The group's offset; -1: none yet."""
    records: int
    batches: int
    bytes: int
    filled: int
    reason: str
    """Why it halted; empty: it has not."""
    detail: str
    remedy: str

    @property
    def key(self) -> Key:
        """Topic and partition index."""
        return self.topic, self.partition


class Gone(NamedTuple):
    """The counters of a partition that this process had before and has not now."""

    topic: str
    partition: int
    records: int
    batches: int
    bytes: int
    filled: int


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * PAGE_SIZE


class Snapshots:
    """Takes them; remembers what was told."""

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses
        self._had: dict[Key, Partition] = {}
        self._before: dict[Key, tuple[Counts, int]] = {}
        """What partitions of that key had counted when they were let go."""
        self._told: dict[Key, Row] = {}

    def take(self, relay: Relay, committed: Mapping[Key, int], **gauges: float) -> dict[str, Any]:
        """The state of now, for JSON."""
        gone = self._retire(relay)
        rows = [
            row
            for key, partition in relay.partitions.items()
            if (row := self._row(key, partition, committed.get(key, -1))) != self._told.get(key)
        ]
        self._told.update((row.key, row) for row in rows)
        return {
            "at": time.time(),
            "counters": self._counters(relay),
            "gauges": {
                "rss_bytes": resident_bytes(),
                "buffer_bytes": relay.pool.used,
                "buffer_limit_bytes": relay.settings.buffer_memory,
                **gauges,
            },
            "flow_partitions": len(relay.keys),
            "partitions": rows,
            "gone": gone,
            "skipped": relay.stats.skipped,
        }

    def _retire(self, relay: Relay) -> list[Gone]:
        """Partitions that were let go keep what they counted."""
        gone: list[Gone] = []
        for key, partition in self._had.items():
            if relay.partitions.get(key) is partition:
                continue
            counts, filled = self._before.get(key, (Counts(), 0))
            self._before[key] = counts.plus(partition.counts), filled + partition.filled
            self._told.pop(key, None)
            if key not in relay.partitions:
                counts, filled = self._before[key]
                gone.append(Gone(*key, *counts, filled))
        self._had = dict(relay.partitions)
        return gone

    def _row(self, key: Key, partition: Partition, committed: int) -> Row:
        counts, filled = self._before.get(key, (Counts(), 0))
        halted = partition.halted
        return Row(
            *key,
            partition.phase.value,
            partition.lag,
            partition.max_timestamp,
            partition.high_watermark,
            max(partition.acknowledged, -1),
            committed,
            *counts.plus(partition.counts),
            filled + partition.filled,
            halted.reason if halted else "",
            halted.detail if halted else "",
            halted.remedy if halted else "",
        )

    def _counters(self, relay: Relay) -> dict[str, float]:
        stats = relay.stats
        return {
            "cpu_s": time.process_time(),
            "fetched_bytes": stats.fetched_bytes,
            "forwarded_bytes": stats.forwarded_bytes,
            "forwarded_batches": stats.forwarded_batches,
            "opened_batches": stats.opened_batches,
            "produce_requests": stats.produce_requests,
            "fetch_requests": stats.fetch_requests,
            "oversize_frames": stats.oversize_frames,
            "unproven": stats.unproven,
            "filled": stats.filled,
            **{f"throttled_s/{cluster}": seconds for cluster, seconds in stats.throttled_s.items()},
            **{f"resyncs/{cause}": count for cause, count in stats.resyncs.items()},
            **{f"halts/{reason}": count for reason, count in stats.halts.items()},
            **self._pauses.counters(),
        }
