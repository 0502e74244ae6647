"""What a copy takes, from what was read of a few batches."""

import pytest

from mirror.service.plan.estimate import (
    CopyingEstimate,
    Need,
    disk,
    limited_s,
    need_of,
    one_by_one_s,
    source_retention,
    usable,
)
from mirror.service.plan.model import Disk, Level, Quota
from tests.service.plan.facts import HOUR_MS, NOW_MS, cluster, flow, partition, topic


def test_bytes_of_a_sample_and_of_the_log() -> None:
    """The broker's figure for the log is better than a sample's; what is copied already does not count."""
    half = partition(due=50)
    assert need_of(flow(), topic(), half).size == 50 * 10
    assert need_of(flow(here={"sizes": {("t", 0): 4_000}}), topic(), half).size == 2_000
    unread = partition()
    unread.sample = None
    found = need_of(flow(), topic(), unread)
    assert (found.offsets, found.size, found.unsized) == (100, 0, 1)
    assert need_of(flow(), topic(), partition(due=-1)).offsets == 0


def test_room_on_all_replicas() -> None:
    """The copy, a marker for each hole, and the filler before the first record."""
    one = partition(start=0, sample={"holes": {"marker": 20}, "runs": 20}, leading=1_000)
    found = need_of(flow(), topic(replicas=3), one)
    assert (found.markers, found.leading) == (20, 1_000)
    assert found.disk == pytest.approx((1_000 + 20 * 78 + 700) * 3)
    assert need_of(flow(relay={"mapped": True}), topic(replicas=3), one).markers == 0
    assert need_of(flow(), topic(replicas=-1), partition()).disk == 1_000


def test_what_goes_one_by_one() -> None:
    """Ranges of holes and old batches take round trips, leading filler takes its time."""
    far = flow(here={"round_trip_s": 0.2}, there={"round_trip_s": 0.1})
    holes = partition(sample={"runs": 10, "holes": {"marker": 10}})
    assert one_by_one_s(far, holes, need_of(far, topic(), holes)) == pytest.approx(10 * (0.2 + 4 * 0.1))
    near = flow()
    assert one_by_one_s(near, holes, need_of(near, topic(), holes)) == pytest.approx(10 * 0.003)
    old = partition(sample={"old": 5})
    assert one_by_one_s(far, old, need_of(far, topic(), old)) == pytest.approx(5 * 0.1)
    leading = partition(leading=20_000_000)
    assert one_by_one_s(near, leading, need_of(near, topic(), leading)) == pytest.approx(2.0)


def test_the_time_is_a_lower_bound() -> None:
    """The slowest of what bounds it; and it says what it rests on."""

    def at_least(**changes: object) -> CopyingEstimate:
        found, of = CopyingEstimate(), flow(**changes)  # type: ignore[arg-type]
        for index in range(4):
            found.count(of, topic(), partition(index=index))
        found.finish(of)
        return found

    read = at_least(rate=1_000.0)
    assert read.at_least_s == pytest.approx(4.0)
    assert "a sample was read from source" in read.rests_on[0]
    assert any("not measured" in each for each in read.rests_on)
    quota = (Quota("client-id mirror", "producer_byte_rate", 100.0),)
    limited = at_least(rate=1_000.0, there={"quotas": quota, "brokers": 2})
    assert limited.at_least_s == pytest.approx(20.0)
    assert "the quota of destination" in limited.rests_on[0]
    own = at_least(rate=1_000.0, relay={"max_bytes_per_second": 50})
    assert own.at_least_s == pytest.approx(80.0)
    assert "max.bytes.per.second" in own.rests_on[0]
    unknown = at_least()
    assert unknown.at_least_s is None
    assert unknown.rests_on


def test_limits_of_topics() -> None:
    """The topic that its limit keeps longest; one without a limit does not count."""
    of = flow(rate=1e9, relay={"topic_rate": {"slow": 10, "fast": 100}.get})
    needs = {"slow": Need(size=1_000), "fast": Need(size=2_000), "free": Need(size=1e6)}
    assert limited_s(of, needs) == pytest.approx(100.0)
    assert limited_s(flow(), needs) == 0.0
    found = CopyingEstimate(need=Need(offsets=1, size=3_000))
    found.finish(of, needs)
    assert found.at_least_s == pytest.approx(100.0)
    assert any("topic.max.bytes.per.second" in each for each in found.rests_on)


def test_nothing_to_copy_takes_no_time() -> None:
    found = CopyingEstimate()
    found.count(flow(), topic(), partition(due=100))
    found.finish(flow())
    assert found.at_least_s == 0.0


def test_markers_are_limited() -> None:
    found, of = CopyingEstimate(), flow(rate=1e9, relay={"max_fill_per_second": 10})
    found.count(of, topic(), partition(sample={"holes": {"marker": 50}, "runs": 1}))
    found.finish(of)
    assert found.at_least_s == pytest.approx(5.0)


def test_disks() -> None:
    disks = {1: Disk(100, 40), 2: Disk(100, 20)}
    assert usable(cluster("x", disks=disks)) == 60
    assert usable(cluster("x", disks={1: Disk(-1, -1)})) is None
    assert usable(cluster("x")) is None
    assert [one.level for one in disk(flow(there={"disks": disks}), 61)] == [Level.WARNS]
    assert not list(disk(flow(there={"disks": disks}), 60))
    assert [one.level for one in disk(flow(), 60)] == [Level.TOLD]


@pytest.mark.parametrize(
    ("values", "due_ms", "takes_s", "warns"),
    [
        ({"retention.ms": str(HOUR_MS)}, NOW_MS, 600.0, False),
        ({"retention.ms": str(HOUR_MS)}, NOW_MS, 1_300.0, True),
        ({"retention.ms": str(HOUR_MS)}, NOW_MS - HOUR_MS, 0.0, True),
        ({"retention.ms": str(HOUR_MS)}, NOW_MS - HOUR_MS, None, True),
        ({"retention.ms": str(HOUR_MS)}, -1, 1_300.0, False),
        ({"retention.ms": str(HOUR_MS), "cleanup.policy": "compact"}, NOW_MS - HOUR_MS, 0.0, False),
        ({"retention.ms": "-1"}, NOW_MS - HOUR_MS, 0.0, False),
        ({}, NOW_MS - HOUR_MS, 0.0, False),
    ],
)
def test_records_that_may_be_gone_by_then(
    values: dict[str, str], due_ms: int, takes_s: float | None, warns: bool
) -> None:
    found = list(source_retention(flow(), topic(here=values), due_ms, takes_s))
    assert [one.level for one in found] == [Level.WARNS] * warns
