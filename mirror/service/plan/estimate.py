"""Estimates what the copy would take: bytes, time and disk space. Nothing is written to measure it, so times are lower
bounds.

Partitions are added one by one, and none is kept.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mirror.foretold import Line
from mirror.service.plan.checks.flows import quota_rate
from mirror.service.plan.model import ClusterFacts, FlowFacts, Level, PartitionFacts, PlanFinding, TopicFacts
from mirror.service.texts import duration_text

MARKER_BYTES = 78
"""Bytes of one marker in the log: a batch of one offset."""
FILLER_BYTES = 0.7
"""Bytes of leading filler for each offset (``records.filler``), until it is deleted."""
FILLER_PER_S = 10_000_000
"""Maximum number of offsets of leading filler per second and partition."""
HOLE_LEAST_S = 0.003
"""Minimum time in seconds to fill a range of offsets with markers, however near the clusters are."""
TRIPS_THERE, TRIPS_HERE = 4, 1
"""Minimum number of round trips to the destination and to the source to fill a range of offsets with markers."""
LEAST_S = 60.0
"""Minimum time in seconds of a copy, including the time until it is started."""
MARGIN = 3
"""The source should keep records for this many times the estimated time, which is only a lower bound."""


@dataclass(slots=True)
class Need:
    """What has to be copied of a partition, a topic, or all topics.

    Attributes:
        offsets: number of offsets to copy, including holes.
        size: bytes of these offsets at the source, as far as they are known.
        markers: number of offsets that are filled with markers.
        leading: number of offsets before the copy's first record that are filled.
        disk: bytes that the copy takes at the destination, on all replicas.
        unsized: number of partitions with a backlog of unknown size.
    """

    offsets: int = 0
    size: float = 0.0
    markers: float = 0.0
    leading: int = 0
    disk: float = 0.0
    unsized: int = 0

    def add(self, other: "Need") -> None:
        """Adds the sums of another one to this one."""
        self.offsets += other.offsets
        self.size += other.size
        self.markers += other.markers
        self.leading += other.leading
        self.disk += other.disk
        self.unsized += other.unsized


@dataclass(slots=True)
class CopyingEstimate:
    """The estimate for a flow.

    Attributes:
        need: what has to be copied.
        slowest_s: time in seconds that the slowest partition takes at least for what it does one after the other:
            holes, old batches, leading filler.
        at_least_s: time in seconds that the whole copy takes at least; None: not known.
        rests_on: what the estimate of the time is based on, in words.
    """

    need: Need = field(default_factory=Need)
    slowest_s: float = 0.0
    at_least_s: float | None = None
    rests_on: list[str] = field(default_factory=list)

    def count(self, flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Need:
        """Adds a partition, and returns what has to be copied of it."""
        need = need_of(flow, topic, one)
        self.need.add(need)
        self.slowest_s = max(self.slowest_s, one_by_one_s(flow, one, need))
        return need

    def finish(self, flow: FlowFacts, topics: Mapping[str, Need] | None = None) -> None:
        """Estimates the time, once all partitions are counted. ``topics``: topic -> what has to be copied of it."""
        rate, told = _rate(flow)
        if not self.need.offsets and not self.need.leading:
            self.at_least_s = 0.0
            return
        if self.need.size and not rate:
            self.rests_on = ["too little was read to measure how fast the source is"]
            return
        moving = self.need.size / rate if rate else 0.0
        filling = self.need.markers / flow.settings.max_fill_per_second if not flow.settings.mapped else 0.0
        limited = limited_s(flow, topics or {})
        self.at_least_s = max(moving, filling, limited, self.slowest_s)
        self.rests_on = [told] if rate else []
        if limited:
            self.rests_on.append(f"topic.max.bytes.per.second: {limited:,.0f} s for the topic that it keeps longest")
        if filling or self.slowest_s:
            self.rests_on.append(
                f"holes, old batches and filler that a partition takes one by one: {self.slowest_s:,.0f} s in the "
                f"slowest; round trips of {flow.source.round_trip_s * 1000:,.1f} ms to the source and "
                f"{flow.destination.round_trip_s * 1000:,.1f} ms to the destination"
            )
        if self.need.unsized:
            self.rests_on.append(f"{self.need.unsized} partitions whose size is not known are not counted")
        self.rests_on.append("one worker; the destination's speed is not measured, since nothing is written")


def limited_s(flow: FlowFacts, topics: Mapping[str, Need]) -> float:
    """Returns the longest time in seconds that a topic takes because of its own limit (``topic.max.bytes.per.second``);
    0: no topic has a limit. ``topics``: topic -> what has to be copied of it."""
    rate = flow.settings.topic_rate
    limits = {name: rate(name) for name in topics} if rate is not None else {}
    return max((need.size / limits[name] for name, need in topics.items() if limits.get(name)), default=0.0)


def need_of(flow: FlowFacts, topic: TopicFacts, one: PartitionFacts) -> Need:
    """Returns what has to be copied of one partition."""
    backlog, sample = one.backlog, one.sample
    per_offset = sample.size / sample.offsets if sample is not None and sample.offsets else None
    held = one.end - one.start + one.left_out
    known = (flow.source.sizes or {}).get((topic.name, one.index))
    if known is not None and held > 0:
        per_offset = known / held
    share = sample.hole_offsets / sample.offsets if sample is not None and sample.offsets else 0.0
    markers = 0.0 if flow.settings.mapped else backlog * share
    size = backlog * per_offset if per_offset is not None else 0.0
    replicas = max(1, topic.replicas)
    return Need(
        offsets=backlog,
        size=size,
        markers=markers,
        leading=one.leading,
        disk=(size + markers * MARKER_BYTES + one.leading * FILLER_BYTES) * replicas,
        unsized=int(backlog > 0 and per_offset is None),
    )


def one_by_one_s(flow: FlowFacts, one: PartitionFacts, need: Need) -> float:
    """Returns the time in seconds that a partition takes at least for what it does one after the other: leading filler,
    holes, and batches so old that each is sent alone."""
    sample, seconds = one.sample, need.leading / FILLER_PER_S
    if sample is None or not sample.offsets:
        return seconds
    trip_here, trip_there = flow.source.round_trip_s, flow.destination.round_trip_s
    if not flow.settings.mapped:
        hole_s = max(HOLE_LEAST_S, TRIPS_HERE * trip_here + TRIPS_THERE * trip_there)
        seconds += need.offsets * sample.runs / sample.offsets * hole_s
    return seconds + need.offsets * sample.old / sample.offsets * trip_there


def _rate(flow: FlowFacts) -> tuple[float, str]:
    """Returns the highest rate of the flow in bytes per second (0: not known), and what it is based on, in words."""
    rate, told = flow.rate, f"{flow.rate / 1e6:,.1f} MB/s, at which a sample was read from {flow.source.name}"
    for cluster, key in ((flow.source, "consumer_byte_rate"), (flow.destination, "producer_byte_rate")):
        limit = quota_rate(cluster, key)
        if limit and (not rate or limit < rate):
            rate, told = limit, f"{limit / 1e6:,.1f} MB/s, the quota of {cluster.name} ({key})"
    own = flow.settings.max_bytes_per_second
    if own and (not rate or own < rate):
        rate, told = float(own), f"{own / 1e6:,.1f} MB/s, the flow's max.bytes.per.second"
    return rate, told


def disk(flow: FlowFacts, needed: float) -> Iterator[PlanFinding]:
    """Line P33: whether the destination's disks have room for the copy. ``needed``: bytes on all replicas."""
    room = usable(flow.destination)
    if room is None:
        yield PlanFinding(
            Line.DISK,
            Level.TOLD,
            f"the brokers of {flow.destination.name} do not tell how much room they have (Describe on the cluster; "
            "Kafka 3.3)",
        )
    elif needed > room:
        yield PlanFinding(
            Line.DISK,
            Level.WARNS,
            f"the copy takes about {needed / 1e9:,.1f} GB on all replicas, and the brokers of {flow.destination.name} "
            f"have {room / 1e9:,.1f} GB left",
            "give them more room, or a shorter retention",
        )


def usable(cluster: ClusterFacts) -> int | None:
    """Returns the usable bytes on all disks of a cluster; None if a broker that has answered does not tell, or none
    has."""
    disks = list((cluster.disks or {}).values())
    return sum(one.usable for one in disks) if disks and all(one.usable >= 0 for one in disks) else None


def source_retention(
    flow: FlowFacts, topic: TopicFacts, due_ms: int, at_least_s: float | None
) -> Iterator[PlanFinding]:
    """Line P24, by time: whether the source topic keeps its records until they are copied.

    Args:
        flow: the flow.
        topic: the topic.
        due_ms: timestamp of the oldest record that is due, in ms since 1970; -1: there is none.
        at_least_s: time in seconds that the whole copy takes at least; None: not known.
    """
    value = topic.here.get("retention.ms")
    policy = topic.here.get("cleanup.policy") or "delete"
    if due_ms < 0 or not value or int(value) < 0 or "delete" not in policy:
        return
    left_s, takes_s = (due_ms + int(value) - flow.now_ms) / 1000, max(LEAST_S, at_least_s or 0.0)
    if left_s < takes_s * MARGIN:
        yield PlanFinding(
            Line.SOURCE_RETENTION,
            Level.WARNS,
            f"the oldest record that is due is deleted at {flow.source.name} "
            + (f"in {duration_text(left_s)}" if left_s > 0 else "now")
            + f" (retention.ms), and copying takes at least {duration_text(takes_s)}; what is deleted before it is "
            "copied halts the partition (retention_overtook), once something of it was copied",
            "raise retention.ms of the source topic until the mirror has caught up",
        )
