"""The data of a workload: records, batch sizes, and what is read back."""

from pathlib import Path

import pytest

from bench import profile
from bench.data import payload, stored
from bench.data.load import records_per_batch, stored_bytes
from bench.plan import Workload, all_workloads
from mirror.records.header import HEADER


def test_records_have_their_size_and_repeat_by_seed() -> None:
    pool = payload.pool(200, seed=1, total_bytes=20_000)
    assert {len(record) for record in pool} == {200}
    assert len(set(pool)) == len(pool) == 100
    assert pool == payload.pool(200, seed=1, total_bytes=20_000) != payload.pool(200, seed=2, total_bytes=20_000)
    with pytest.raises(ValueError, match="64"):
        payload.pool(10, seed=1)


def test_records_shrink_like_events_do() -> None:
    pool = payload.pool(1_000, seed=1, total_bytes=200_000)
    plain = stored_bytes(pool, "none")
    assert 2 < plain / stored_bytes(pool, "lz4") < 4
    assert 3 < plain / stored_bytes(pool, "zstd") < 5


@pytest.mark.parametrize("workload", all_workloads()[:9], ids=lambda workload: workload.name)
def test_batches_get_the_size_that_is_meant(workload: Workload) -> None:
    pool = payload.pool(workload.record_bytes, seed=3, total_bytes=8_000_000)
    count = records_per_batch(pool, codec=workload.codec, batch_bytes=workload.batch_bytes)
    assert stored_bytes(pool[:count], workload.codec) == pytest.approx(workload.batch_bytes, rel=0.12)


def _batch(base_offset: int, records: int, size: int) -> bytes:
    header = HEADER.pack(base_offset, size - 12, 0, 2, 0, 0, records - 1, 0, 0, -1, -1, -1, records)
    return header + bytes(size - len(header))


def test_what_a_topic_holds_is_counted_by_headers(tmp_path: Path) -> None:
    for partition in range(2):
        folder = tmp_path / f"bench.x-{partition}"
        folder.mkdir()
        (folder / "00000000000000000000.log").write_bytes(_batch(0, 3, 100) + _batch(3, 2, 300))
        (folder / "00000000000000000005.log").write_bytes(b"")
        (folder / "00000000000000000000.index").write_bytes(b"not a log")
    found = stored.read(stored.segments(tmp_path, "bench.x", 2))
    assert found == stored.Stored(bytes=800, batches=4, records=10)
    assert found.mean_batch_bytes == 200
    assert stored.read([]).mean_batch_bytes == 0


def test_hottest_places_of_raw_stacks() -> None:
    own, whole = profile.hottest(["main;a;b 3", "main;a 1", "main;c;c 4", "no count", ""])
    assert own == [("c", 0.5), ("b", 0.375), ("a", 0.125)]
    assert dict(whole) == {"main": 1.0, "a": 0.5, "c": 0.5, "b": 0.375}
