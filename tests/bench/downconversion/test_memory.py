"""KIP-283's memory test in small, on a real broker; and what is made is not believed, but read."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from bench.downconversion.consumer import END, HEAD
from bench.downconversion.memory import Contents, read_back
from bench.errors import BenchError
from tests.legacy.samples import messages_of, records_from

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.broker
def test_make_bench_downconversion_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. A broker has 115 MB in 96 partitions, and gives 96 MiB of it in one answer.
    2. Within 90 MB of memory, the consumer that reads the answer as it comes converts all of it: the same records as
       librdkafka reads at the source (else the command fails).
    3. Those that receive it whole run out of memory there, and come to their end without the limit.
    """
    out = tmp_path / "downconversion.md"
    monkeypatch.setenv("DOWNCONVERSION_QUICK", "1")
    monkeypatch.setenv("DOWNCONVERSION_OUT", str(out))
    done = subprocess.run(
        [sys.executable, "-m", "bench.downconversion"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = out.read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| re")]
    assert [(cells[1], cells[2]) for cells in rows] == [
        ("90", "yes"), ("none", "yes"), *[("90", "**no: out of memory**"), ("none", "yes")] * 2
    ]  # fmt: skip
    streamed, _, _, frame, _, whole = [int(cells[3] or 0) for cells in rows]
    assert streamed < 90 < frame < whole
    assert all(int(cells[5]) > 90 for cells in rows)
    assert text.count("| 1 | lz4 |") == 4


def piece(partition: int, data: bytes, next_offset: int) -> bytes:
    return HEAD.pack(partition, next_offset, len(data)) + data


def test_read_back() -> None:
    first, second = messages_of(1, records_from(0, 3)), messages_of(1, records_from(3, 2))
    stream = piece(4, first, 3) + piece(4, second, 5) + piece(0, b"", 0) + HEAD.pack(END, 0, 0)
    found = read_back(io.BytesIO(stream))
    expected = Contents()
    for record in records_from(0, 3) + records_from(3, 2):
        expected = expected.with_record(4, record.offset, record.key, record.value)
    assert found == expected
    assert found.records == 5
    assert expected.with_record(4, 5, None, b"x") != expected.with_record(3, 5, None, b"x")


@pytest.mark.parametrize("missing", [(1, 3), (0, 4)])
def test_offsets_that_do_not_follow(missing: tuple[int, int]) -> None:
    first, told = missing
    with pytest.raises(BenchError, match="partition 4: "):
        read_back(io.BytesIO(piece(4, messages_of(1, records_from(first, 3)), told)))
