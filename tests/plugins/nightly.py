"""The tests that ``make test`` leaves out, each with what tries the same by day. ``make test-all`` runs them, too.

What is here takes long, and shows a rule once more: under another version, in another mode, through more seeds, in a
longer run. No rule stands here alone. Run ``make test-all`` after a change to what one of these names, and before a
release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pytest

__all__ = ["NIGHTLY", "ByDay", "is_nightly"]

_SWEEPS = "tests/simulation/sweeps"
_RUNS = "tests/service/runs"
_KILLED = "tests/audit/spark/test_session.py::test_whoever_of_sparks_is_killed_it_is_one_line"

NIGHTLY: Mapping[str, str] = MappingProxyType(
    {
        f"{_SWEEPS}/test_mutations.py": f"{_SWEEPS}/test_simulation.py",
        f"{_SWEEPS}/test_old_formats.py": "tests/simulation/mapped/test_old_formats.py",
        f"{_SWEEPS}/test_rebatching.py": f"{_SWEEPS}/test_pieces.py",
        f"{_SWEEPS}/test_append_times.py": f"{_SWEEPS}/test_pieces.py",
        f"{_SWEEPS}/test_starting.py": "tests/simulation/mapped/test_starting.py",
        "tests/simulation/mapped/test_pieces.py": "tests/simulation/mapped/test_mapped.py",
        f"{_RUNS}/rewriting/test_old_formats.py::test_append_times": f"{_RUNS}/rewriting/test_append_times.py",
        f"{_RUNS}/rewriting/test_old_formats.py::test_holes_that_a_cleaner_made": "tests/legacy/test_brokers.py",
        f"{_RUNS}/rewriting/test_old_formats.py::test_a_copy_that_was_emptied": "tests/relay/locate/test_readback.py",
        f"{_RUNS}/rewriting/test_codec.py::test_each_codec[3.9.2": f"{_RUNS}/rewriting/test_codec.py",
        f"{_RUNS}/rewriting/test_mode.py::test_tiny_batches[3.9.2": f"{_RUNS}/rewriting/test_mode.py",
        f"{_RUNS}/rewriting/test_deep_path_mapped.py::test_every_codec[append": (
            f"{_RUNS}/rewriting/test_append_times.py"
        ),
        f"{_RUNS}/rewriting/test_oversize.py::test_dropped[none": f"{_RUNS}/rewriting/test_oversize.py",
        f"{_RUNS}/test_worker.py::test_old_brokers[2.7.2": f"{_RUNS}/test_worker.py",
        f"{_RUNS}/test_worker.py::test_old_brokers[3.0.2": f"{_RUNS}/test_worker.py",
        f"{_RUNS}/starting/test_starting.py::test_a_time_inside_a_batch[mapped": f"{_RUNS}/starting/test_starting.py",
        "tests/service/cutover/real/test_way_back.py::test_there_and_back_and_there": (
            "tests/service/cutover/real/test_moving.py"
        ),
        "tests/service/plan/test_versions.py": "tests/service/plan/test_situations.py",
        "tests/relay/durable/circles/test_real_rings.py::test_the_last_of_a_ring": (
            "tests/relay/durable/circles/test_both_ways.py"
        ),
        "tests/spark/test_in_spark.py": "tests/spark/test_source.py",
        "tests/spark/read/test_batch.py::test_brokers_are_killed": "tests/raw/test_failover.py",
        "tests/service/telemetry/test_outages.py::test_outages[destination": "tests/service/telemetry/test_outages.py",
        "tests/service/plan/test_command.py::test_configs_in_step": "tests/relay/topics/test_topic_configs.py",
        f"{_RUNS}/rewriting/test_old_formats.py::test_in_another_order": "tests/legacy/test_brokers.py",
        f"{_RUNS}/rewriting/test_deep_path_mapped.py::test_holes_inside": "tests/simulation/mapped/test_mapped.py",
        "tests/sandbox/test_cluster.py::test_three_brokers": "tests/net/known/test_what_replicas_do.py",
        f"{_KILLED}[java-before": "tests/audit/spark/test_session.py",
        f"{_KILLED}[workers": "tests/audit/spark/test_session.py",
        "tests/audit/faults/test_old.py::test_the_grid": "tests/audit/faults/test_grid.py",
        "tests/chaos/soak/test_short.py": "tests/chaos/test_short.py",
        "tests/chaos/test_short_secured.py": "tests/chaos/test_short.py",
        "tests/chaos/test_short_network.py": "tests/chaos/test_short.py",
        "tests/bench/test_rebatching.py": f"{_RUNS}/rewriting/test_mode.py",
        "tests/bench/downconversion/test_memory.py": "tests/bench/downconversion/test_sets.py",
        "tests/sandbox/test_cluster.py::test_the_oldest_version": f"{_RUNS}/rewriting/test_old_formats.py",
        "tests/sandbox/test_cluster.py::test_the_oldest_without_zookeeper": f"{_RUNS}/test_worker.py",
        "tests/sandbox/test_cluster.py::test_the_newest_with_zookeeper": f"{_RUNS}/test_worker.py",
    }
)
"""Beginning of a test's name, with its file -> the file that tries the same by day."""


def is_nightly(name: str) -> bool:
    """Returns True if a test is left to the night. ``name``: as pytest has it, ``file::test[case]``."""
    return name.startswith(tuple(NIGHTLY))


class ByDay:
    """A plugin that leaves out what is left to the night."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept: Sequence[pytest.Item] = [item for item in items if not is_nightly(item.nodeid)]
        left = [item for item in items if is_nightly(item.nodeid)]
        if left:
            config.hook.pytest_deselected(items=left)
            items[:] = kept
