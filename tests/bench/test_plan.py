"""What the environment chooses."""

import pytest

from bench.data import room
from bench.errors import BenchError
from bench.plan import CASES, ROOT, SYSTEMS, from_environment


def test_a_full_run_has_every_size_and_codec_and_small_batches_with_many_partitions() -> None:
    plan = from_environment({})
    assert [workload.name for workload in plan.workloads] == [
        *(f"{size}-{codec}-8p" for size in ("1KB", "16KB", "1MB") for codec in ("none", "lz4", "zstd")),
        *(f"{size}-{codec}-64p" for size in ("1KB", "16KB") for codec in ("none", "lz4", "zstd")),
        "16KB-lz4-64p-tls",
        "16KB-lz4-64p-tls-source",
        "16KB-lz4-1000p-tls",
        "16KB-lz4-1p-far-source",
        "16KB-lz4-64p-far-source",
    ]
    assert [workload.tls for workload in plan.workloads[-6:]] == [
        (), ("source", "destination"), ("source",), ("source", "destination"), (), (),
    ]  # fmt: skip
    assert [workload.far for workload in plan.workloads[-3:]] == [(), ("source",), ("source",)]
    assert (plan.kind, plan.systems, plan.latency, plan.repeat) == ("full", SYSTEMS, True, 5)
    assert plan.out == ROOT / "bench/out"


def test_there_is_enough_for_a_jvm_and_room_for_it() -> None:
    """More than a gigabyte each; without a JVM, a quarter."""
    full, alone = from_environment({}).workloads, from_environment({"BENCH_SYSTEMS": "floor,mirror"}).workloads
    assert all(1_000_000_000 < workload.total_bytes < room.NEEDED_BYTES - 4_000_000_000 for workload in full)
    assert [workload.total_bytes for workload in alone] == [workload.total_bytes // 4 for workload in full]


def test_a_quick_run_has_one_workload_and_three_systems() -> None:
    plan = from_environment({"BENCH_QUICK": "1"})
    assert [workload.name for workload in plan.workloads] == ["16KB-lz4-64p"]
    assert (plan.kind, plan.systems, plan.latency) == ("quick", ("floor", "mirror", "mm2"), False)
    assert plan.out == ROOT / "build/bench", "no less than a full run replaces one"
    assert from_environment({}).out == ROOT / "bench/out"
    assert from_environment({"BENCH_REPEAT": "7"}).out == ROOT / "bench/out"
    fewer = from_environment({"BENCH_REPEAT": "4"})
    assert (fewer.kind, fewer.out) == ("selection", ROOT / "build/bench")


def test_a_selection_does_not_replace_a_complete_run() -> None:
    plan = from_environment({"BENCH_ONLY": "^1MB-.*zstd", "BENCH_SYSTEMS": "mirror, floor", "BENCH_SCALE": "0.5"})
    assert [workload.name for workload in plan.workloads] == ["1MB-zstd-8p"]
    assert plan.workloads[0].total_bytes == 450_000_000
    assert (plan.kind, plan.systems, plan.latency) == ("selection", ("floor", "mirror"), False)
    assert plan.out == ROOT / "build/bench"
    assert from_environment({"BENCH_ONLY": "latency", "BENCH_OUT": "/somewhere"}).out.as_posix() == "/somewhere"


def test_latency_can_be_all_that_is_measured() -> None:
    plan = from_environment({"BENCH_ONLY": "latency"})
    assert plan.latency
    assert not plan.workloads


@pytest.mark.parametrize(
    "chosen",
    [
        {"BENCH_ONLY": "exact", "BENCH_SYSTEMS": "mm2"},
        {"BENCH_ONLY": "latency", "BENCH_SYSTEMS": "floor"},
        {"BENCH_ONLY": "latency", "BENCH_QUICK": "1"},
        {"BENCH_ONLY": "exact-deep", "BENCH_QUICK": "1"},
    ],
)
def test_variables_that_leave_nothing_are_refused(chosen: dict[str, str]) -> None:
    """Each by itself chooses something."""
    for name, value in chosen.items():
        from_environment({name: value})
    with pytest.raises(BenchError, match="leave nothing to measure"):
        from_environment(chosen)


def test_the_other_inner_loop_does_not_replace_a_complete_run() -> None:
    plan = from_environment({"MIRROR_PURE": "1"})
    assert (plan.kind, plan.out) == ("selection", ROOT / "build/bench")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("BENCH_ONLY", "nothing like it", "1KB-none-8p"),
        ("BENCH_ONLY", "[", "regular expression"),
        ("BENCH_SYSTEMS", "mirror,mm3", "mm3"),
        ("BENCH_SYSTEMS", " , ", "nothing"),
        ("BENCH_SCALE", "much", "BENCH_SCALE='much'"),
        ("BENCH_SCALE", "-1", "above 0"),
        ("BENCH_REPEAT", "1.5", "whole"),
        ("BENCH_FLOW", "fetch.max.bytes=1", "JSON"),
        ("BENCH_FLOW", "[1]", "object"),
    ],
)
def test_a_value_that_means_nothing_is_refused_with_what_would(name: str, value: str, says: str) -> None:
    with pytest.raises(BenchError, match=r"\n  ") as caught:
        from_environment({name: value})
    assert says in str(caught.value)


def test_what_exactness_costs_can_be_chosen_alone() -> None:
    """Every case of the issue is there: old data, markers often and seldom, in both modes, and a long way."""
    plan = from_environment({"BENCH_ONLY": "^exact-", "BENCH_SCALE": "0.5"})
    assert not plan.workloads
    assert not plan.latency
    assert {case.records_per_transaction for case in plan.cases} == {0, 10, 1_000}
    far = {(case.partitions, case.far) for case in plan.cases if case.round_trip_ms == 200}
    assert far >= {(partitions, ("source", "destination")) for partitions in (1, 8, 64)}
    assert far >= {(partitions, ("destination",)) for partitions in (1, 64)}
    assert [case.total_bytes for case in plan.cases] == [case.total_bytes // 2 for case in CASES if not case.many]
    assert [case.partitions for case in CASES if case.many] == [2_000, 2_000, 10_000]
    assert from_environment({"BENCH_QUICK": "1"}).cases == ()
    assert from_environment({}).cases == CASES
