"""How long requests take, and how old records are when they are copied."""

import time
from typing import Any
from unittest.mock import Mock

import pytest

from mirror.net.health.histogram import Histogram
from mirror.relay import timing
from mirror.relay.stats import Stats
from mirror.relay.timing import SentTimes
from tests.fakes import faults
from tests.fakes.loop import until
from tests.relay.stage.flows import Flow, batch, clusters, mirroring

HOUR_AGO_S = 3_600.0


def counted(histogram: Histogram) -> int:
    return sum(histogram.counts)


def requests(flow: Flow, cluster: str, api: str) -> tuple[float, float]:
    """How many were answered, and the seconds that they took together."""
    durations = (flow.relay.source if cluster == "source" else flow.relay.destination).durations.counters("s")
    found = {name: count for name, count in durations.items() if name.startswith(f"s/{api}/")}
    total = found.pop(f"s/{api}/sum", 0.0)
    return sum(found.values()), total


async def test_requests_and_records() -> None:
    """
    1. A batch of an hour ago is copied: its age and its latency are an hour. Fetch, Produce and others are counted.
    2. An answer that is held back for a while makes the request, and the record's latency, longer by that.
    3. A record without a timestamp has no age. One from the future has none either, but is counted.
    """
    async with clusters() as (source, destination):
        source.add_topic("t")
        now_ms = round(time.time() * 1000)
        source.store("t", 0, batch(0, max_timestamp=now_ms - round(HOUR_AGO_S * 1000)))
        async with mirroring(source, destination, max_in_flight=1) as flow:
            stats = flow.relay.stats
            await flow.copied()
            assert counted(stats.record_age) == counted(stats.replication_latency) == 1
            one = len(batch(0))
            assert (counted(stats.batch_bytes), stats.batch_bytes.total) == (1, one)
            assert (counted(stats.request_bytes), counted(stats.request_batches)) == (1, 1)
            assert one < stats.request_bytes.total < one + 20
            assert stats.request_batches.total == 1
            assert HOUR_AGO_S <= stats.record_age.total <= stats.replication_latency.total
            sent, took_s = requests(flow, "destination", "Produce")
            assert sent == 1
            assert took_s > 0
            assert requests(flow, "source", "Fetch")[0] >= 1
            assert requests(flow, "source", "Metadata")[0] >= 1
            held = destination.next("Produce", faults.held())
            source.store("t", 0, batch(3, max_timestamp=now_ms))
            await held.came.wait()
            began, before = time.monotonic(), stats.replication_latency.total
            while time.monotonic() < began + 0.1:
                await until(lambda: True)
            held.open()
            await flow.copied()
            assert requests(flow, "destination", "Produce")[1] - took_s >= 0.1
            assert stats.replication_latency.total - before >= 0.1
            source.store("t", 0, batch(6, max_timestamp=-1))
            await flow.copied()
            assert counted(stats.record_age) == 2
            before = stats.record_age.total
            source.store("t", 0, batch(9, max_timestamp=now_ms + 1_000_000))
            await flow.copied()
            assert counted(stats.record_age) == counted(stats.replication_latency) == 3
            assert stats.record_age.total == before


async def test_a_request_that_is_not_answered() -> None:
    """It is no duration; those behind it are told from it."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.store("t", 0, batch(0))
        async with mirroring(source, destination, max_in_flight=1) as flow:
            await flow.copied()
            destination.next("Produce", faults.disconnect())
            source.store("t", 0, batch(3))
            await flow.copied()  # it had arrived
            assert requests(flow, "destination", "Produce")[0] == 1
            source.store("t", 0, batch(6))
            await flow.copied()
            assert requests(flow, "destination", "Produce")[0] == 2
            assert not any(lane._times._sent for lane in flow.relay.lanes)


def test_of_requests_that_are_sent_together_the_last_one_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have durations alone."""
    monkeypatch.setattr(timing, "size_of", lambda _: 100)
    monkeypatch.setattr(timing, "max_timestamp_of", lambda _: 1_000 * round(time.time() - HOUR_AGO_S))
    stats, durations = Stats(), Mock()
    times = SentTimes(durations, stats)
    request: Any = ([Mock(in_flight=[[b""]])], 120, None)
    times.sent([request] * 3)
    for _ in range(3):
        times.answered()
    assert durations.note.call_count == 3
    assert counted(stats.record_age) == counted(stats.replication_latency) == 1
    assert stats.replication_latency.total < 2 * HOUR_AGO_S
