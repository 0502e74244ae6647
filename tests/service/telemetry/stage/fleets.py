"""A fleet of workers without processes, and what they tell."""

import time
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from mirror.relay.stats import GivenUp
from mirror.service.telemetry.fleet import Fleet
from mirror.service.telemetry.rows import Gone, PartitionRow
from tests.service.telemetry.stage.showing import exposed_of, status_of

NOW_MS = 1_700_000_000_000


def snapshot(
    *rows: PartitionRow, gone: tuple[Gone, ...] = (), skipped: tuple[GivenUp, ...] = (), **counters: float
) -> Any:
    return {
        "at": time.time(),
        "counters": {"cpu_s": 1.5, **counters},
        "gauges": {"rss_bytes": 1_000, "joined": 1},
        "flow_partitions": 2,
        "clusters": {"source": True, "destination": True},
        "unassigned": None,
        "silent": [],
        "unreached": {},
        "partitions": [list(each) for each in rows],
        "gone": [list(each) for each in gone],
        "skipped": [list(each) for each in skipped],
        "unmatched": [],
        "gone_topics": [],
        "retention_s": None,
    }


def fleet(count: int = 2) -> Fleet:
    found = Fleet("source->destination")
    for number in range(1, count + 1):
        found.started(number, 1_000 + number)
    return found


def sample(found: Fleet, name: str, **labels: str) -> float | None:
    for family in text_string_to_metric_families(exposed_of(found, "1.2.3").decode()):
        for each in family.samples:
            if each.name == name and labels.items() <= each.labels.items():
                return each.value
    return None


def told(found: Fleet) -> Any:
    return status_of(found)
