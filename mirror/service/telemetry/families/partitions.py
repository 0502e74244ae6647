"""The metrics of partitions, or with ``metrics.granularity: topic`` of topics. They are the only ones of which there
may be thousands.

By topic, counts and offsets are sums; the time that records wait is that of the worst partition. A figure that is not
known is absent. That is the case for a sum of offsets if one of them is not known, and for a sum or maximum of lags if
it is 0 and one of them is not known.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from operator import add
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from mirror.reasons import PAUSED
from mirror.service.telemetry.accounts import Totals
from mirror.service.telemetry.families.labels import OF_PARTITION, OF_TOPIC, Labelled
from mirror.service.telemetry.fleet import Fleet
from mirror.service.telemetry.rows import PartitionRow

PARTITION, TOPIC = "partition", "topic"
"""Values of ``metrics.granularity``."""

_TOTALS = (
    (
        "mirror_replicated_records",
        "Records that the destination has, by its positions. Includes records that arrived while no worker owned the "
        "partition.",
    ),
    (
        "mirror_replicated_batches",
        "Record batches that the destination has acknowledged to a worker that owned the partition.",
    ),
    ("mirror_replicated_bytes", "Bytes of these record batches, as stored."),
    (
        "mirror_filled_offsets",
        "Source offsets without a record: filled at the destination, or left out with offsets: mapped.",
    ),
)

_Value = float | None


class _Gauge(NamedTuple):
    """The definition of a gauge of partitions."""

    name: str
    text: str
    value: Callable[[Fleet, PartitionRow, float], _Value]
    """Returns the value for a row. The third argument is the time in seconds since 1970. None: not known."""
    joined: Callable[[float, float], float] = add
    """Combines the values of two partitions of a topic."""
    is_lag: bool = False
    """True if a topic's value above 0 is shown even if the value of one of its partitions is not known."""
    of_paused: bool = True
    """False if paused partitions have no value."""


def _offset(value: int) -> _Value:
    return value if value >= 0 else None


_GAUGES = (
    _Gauge(
        "mirror_replication_lag_records",
        "Source offsets that the destination is known to lack. Absent while this is unknown. 0 only while the "
        "source reports where it ends.",
        lambda _, row, __: row.lag_records,
        is_lag=True,
    ),
    _Gauge(
        "mirror_replication_lag_seconds",
        "Seconds since this process first saw the oldest record that the destination lacks. Absent while the lag "
        "is unknown, and while the partition is paused.",
        lambda fleet, row, now: fleet.lag_seconds(row, now),
        joined=max,
        is_lag=True,
        of_paused=False,
    ),
    _Gauge(
        "mirror_source_end_offset",
        "Source offset up to which records can be copied, as last reported by the source.",
        lambda _, row, __: _offset(row.source_end),
    ),
    _Gauge(
        "mirror_target_end_offset",
        "Source offset up to which everything is copied, as last known.",
        lambda _, row, __: _offset(row.position),
    ),
    _Gauge(
        "mirror_committed_offset",
        "The offset that the flow's group has committed at the source.",
        lambda _, row, __: _offset(row.committed),
    ),
)


def partitions(flows: Labelled, granularity: str) -> Iterator[Metric]:
    """Yields the families. ``granularity``: ``PARTITION`` or ``TOPIC``."""
    by_topic = granularity == TOPIC
    names = OF_TOPIC if by_topic else OF_PARTITION
    yield from _totals(flows, names, by_topic)
    yield from _gauges(flows, names, by_topic)
    yield _halted(flows, names, by_topic)
    yield from _skipped(flows, names, by_topic)


def _place(topic: str, index: int, by_topic: bool) -> tuple[str, ...]:
    """Returns the values of the labels behind those of the flow: the topic, and the partition unless ``by_topic``."""
    return (topic,) if by_topic else (topic, str(index))


def _totals(flows: Labelled, names: Sequence[str], by_topic: bool) -> Iterator[Metric]:
    found = [(labels, _summed(fleet.totals()) if by_topic else _each(fleet.totals())) for fleet, labels in flows]
    for at, (name, text) in enumerate(_TOTALS):
        family = CounterMetricFamily(name, text, labels=names)
        for labels, totals in found:
            for place, counts in totals:
                family.add_metric([*labels, *place], counts[at])
        yield family


def _each(totals: dict[tuple[str, int], Totals]) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    return [(_place(*key, by_topic=False), counts) for key, counts in sorted(totals.items())]


def _summed(totals: dict[tuple[str, int], Totals]) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    sums: dict[str, tuple[int, ...]] = {}
    for (topic, _), counts in totals.items():
        so_far = sums.get(topic)
        sums[topic] = counts if so_far is None else tuple(map(add, so_far, counts))
    return [((topic,), counts) for topic, counts in sorted(sums.items())]


def _gauges(flows: Labelled, names: Sequence[str], by_topic: bool) -> Iterator[Metric]:
    now = time.time()
    rows = [(fleet, labels, [(row, _place(*row.key, by_topic)) for _, row in fleet.rows]) for fleet, labels in flows]
    for gauge in _GAUGES:
        family = GaugeMetricFamily(gauge.name, gauge.text, labels=names)
        for fleet, labels, found in rows:
            values: dict[tuple[str, ...], float] = {}
            unknown: set[tuple[str, ...]] = set()
            for row, place in found:
                if row.state == PAUSED and not gauge.of_paused:
                    continue
                value = gauge.value(fleet, row, now)
                if value is None:
                    unknown.add(place)
                else:
                    values[place] = gauge.joined(values[place], value) if place in values else value
            for place, value in values.items():
                if place not in unknown or (value and gauge.is_lag):
                    family.add_metric([*labels, *place], value)
        yield family


def _halted(flows: Labelled, names: Sequence[str], by_topic: bool) -> Metric:
    text = "1 for each partition that has halted, with the reason."
    if by_topic:
        text = "Partitions of the topic that have halted, with the reason. Absent if there are none."
    halted = GaugeMetricFamily("mirror_partition_halted", text, labels=[*names, "reason"])
    for fleet, labels in flows:
        counts: dict[tuple[str, ...], int] = {}
        for row in fleet.halted:
            key = (*_place(*row.key, by_topic), row.reason)
            counts[key] = counts.get(key, 0) + 1
        for key, count in counts.items():
            halted.add_metric([*labels, *key], count)
    return halted


def _skipped(flows: Labelled, names: Sequence[str], by_topic: bool) -> Iterator[Metric]:
    skipped = CounterMetricFamily(
        "mirror_skipped_offsets",
        "Source offsets that were skipped, or accepted as copied without proof, by reason.",
        labels=[*names, "reason"],
    )
    last = GaugeMetricFamily(
        "mirror_last_skip_timestamp_seconds",
        "Time of the last decision to skip offsets, or to accept them without proof.",
        labels=names,
    )
    for fleet, labels in flows:
        sums: dict[tuple[tuple[str, ...], str], int] = {}
        newest: dict[tuple[str, ...], int] = {}
        for each in fleet.skipped:  # the newest last
            place = _place(each.topic, each.partition, by_topic)
            sums[place, each.reason] = sums.get((place, each.reason), 0) + each.offsets
            newest[place] = each.at_ms
        for (place, reason), count in sums.items():
            skipped.add_metric([*labels, *place, reason], count)
        for place, at_ms in newest.items():
            last.add_metric([*labels, *place], at_ms / 1000)
    yield from (skipped, last)
