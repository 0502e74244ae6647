"""Which part of a copy is measured, and what it comes to."""

import dataclasses

import pytest

from bench.goals import MM2_S
from bench.measure import WARM, Interval, Measured, Step, Window, median


def run(interval: Interval, looks: list[tuple[float, int, float]]) -> list[Step]:
    return [interval.look(*look) for look in looks]


def test_from_the_first_data_until_all_is_there() -> None:
    """1. Two looks see nothing. 2. The third sees a tenth: the interval begins. 3. All is there: it ends."""
    interval = Interval(1000, 2_000_000, Window())
    steps = run(
        interval, [(1.0, -1, 0.1), (2.0, 0, 0.5), (3.0, 100, 0.7), (4.0, 600, 1.0), (5.0, 1000, 1.6), (9.0, 1000, 7)]
    )
    assert steps == [Step.WAITING, Step.WAITING, Step.MEASURING, Step.MEASURING, Step.DONE, Step.DONE]
    measured = interval.result(peak_rss_bytes=5, started_at=0.5)
    assert measured is not None
    assert (measured.bytes, measured.seconds, measured.start_cpu_s) == (1_800_000, 2.0, 0.7)
    assert measured.cpu_s == pytest.approx(0.9)
    assert measured.cpu_s_per_gb == pytest.approx(500)
    assert measured.mb_per_s == pytest.approx(0.9)
    assert measured.all_seconds == 4.5


def test_a_warm_up_ends_with_both_its_share_and_its_time() -> None:
    interval = Interval(100, 100, Window(warm_fraction=0.4, warm_s=10.0))
    looks = [(0.0, 1, 0.0), (5.0, 40, 1.0), (9.0, 40, 2.0), (10.0, 41, 3.0), (20.0, 80, 5.0), (21.0, 100, 6.0)]
    assert run(interval, looks) == [Step.WARMING] * 3 + [Step.MEASURING] * 2 + [Step.DONE]
    measured = interval.result(peak_rss_bytes=0, started_at=0.0)
    assert measured is not None
    assert (measured.bytes, measured.cpu_s, measured.warm_s) == (59, 3.0, 10.0)


def test_a_jvm_is_warm_after_20_s_and_measured_for_20() -> None:
    interval = Interval(100, 100, WARM)
    looks = [(0.0, 1, 0.0), (19.9, 40, 1.0), (20.0, 41, 2.0), (39.9, 80, 4.0), (40.0, 81, 5.0)]
    assert run(interval, looks) == [Step.WARMING] * 2 + [Step.MEASURING] * 2 + [Step.DONE]
    measured = interval.result(peak_rss_bytes=0, started_at=0.0)
    assert measured is not None
    assert (measured.warm_s, measured.seconds) == (MM2_S, MM2_S)


def test_of_a_quick_copy_the_rest_is_measured() -> None:
    interval = Interval(100, 100, WARM)
    assert run(interval, [(0.0, 10, 0.0), (1.0, 50, 1.0), (2.0, 100, 2.0)])[1] is Step.MEASURING


def test_a_slow_copy_is_measured_for_a_while_only() -> None:
    interval = Interval(1000, 1000, Window(longest_s=30))
    assert run(interval, [(0.0, 1, 0.0), (29.0, 10, 0.0), (30.0, 11, 0.0)])[-1] is Step.DONE


def test_a_copy_between_two_looks_is_not_measured() -> None:
    interval = Interval(100, 100, Window())
    run(interval, [(0.0, 0, 0.0), (1.0, 100, 1.0), (2.0, 100, 1.0)])
    assert interval.result(peak_rss_bytes=0, started_at=0.0) is None


def test_the_median_of_runs_is_one_of_them_with_the_highest_peak_of_all() -> None:
    runs = [
        Measured(bytes=1, seconds=at, cpu_s=cpu_s, start_cpu_s=0, peak_rss_bytes=peak, all_seconds=1)
        for at, (cpu_s, peak) in enumerate([(5, 70), (1, 90), (3, 60), (4, 80)], start=1)
    ]
    assert median(runs) == dataclasses.replace(runs[2], peak_rss_bytes=90)
    assert median(runs[:1]) == runs[0]
