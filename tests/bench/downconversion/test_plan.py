"""What the environment chooses."""

from pathlib import Path

import pytest

from bench.downconversion.plan import DOCUMENT, ROOT, MemoryTest, from_environment
from bench.errors import BenchError
from mirror.legacy import CHUNK_BYTES


def test_without_any_it_is_kip_283s() -> None:
    plan = from_environment({})
    assert plan.chunk_sizes == (1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20)
    assert CHUNK_BYTES in plan.chunk_sizes
    assert (plan.partitions, plan.record_bytes) == (12, 1_000)
    assert (plan.magics, len(plan.codecs)) == ((1, 0), 4)
    assert plan.memory == MemoryTest(
        partitions=250, total_bytes=10**9, fetch_max_bytes=250 << 20, max_partition_fetch_bytes=1 << 20,
        limit_bytes=200_000_000,
    )  # fmt: skip
    assert plan.out == ROOT / DOCUMENT


@pytest.mark.parametrize("environ", [{"DOWNCONVERSION_QUICK": "1"}, {"DOWNCONVERSION_ONLY": "memory"}])
def test_a_part_does_not_replace_the_whole(environ: dict[str, str]) -> None:
    assert from_environment(environ).out == ROOT / "build" / "downconversion.md"
    assert from_environment(environ | {"DOWNCONVERSION_OUT": "x.md"}).out == Path("x.md")


def test_parts() -> None:
    assert from_environment({"DOWNCONVERSION_ONLY": "table"}).parts == ("table",)
    with pytest.raises(BenchError, match="DOWNCONVERSION_ONLY is 'tables'"):
        from_environment({"DOWNCONVERSION_ONLY": "tables"})


def test_make_runs_it() -> None:
    assert (
        "bench-downconversion: $(READY)\n\t$(BIN)/python -m bench.downconversion\n" in (ROOT / "Makefile").read_text()
    )
