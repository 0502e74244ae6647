"""The record sets of the table's fetch."""

from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from bench.downconversion import sets
from mirror.legacy import BatchSpan, cut
from mirror.records.header import Codec


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_whole_batches_of_a_producers_size(codec: Codec, tmp_path: Path) -> None:
    options = {"codec": codec, "partitions": 2, "partition_bytes": 1 << 18, "batch_bytes": 1 << 14}
    sizes = sets.write(tmp_path / "a", record_bytes=1_000, **options)  # type: ignore[arg-type]
    again = sets.write(tmp_path / "b", record_bytes=1_000, **options)  # type: ignore[arg-type]
    data = (tmp_path / "a").read_bytes()
    assert (sizes, data) == (again, (tmp_path / "b").read_bytes())
    for start, end in pairwise(accumulate(sizes, initial=0)):
        spans = list(cut(memoryview(data)[start:end]))
        assert sum(span.size for span in spans) == end - start <= 1 << 18
        assert end - start > 0.8 * (1 << 18)
        for before, after in pairwise(spans):
            assert isinstance(before, BatchSpan)
            assert isinstance(after, BatchSpan)
            assert after.header.base_offset == before.header.next_offset
            assert before.header.codec_bits == codec
            assert 0.7 < before.size / (1 << 14) < 1.4
