"""The document says what was measured; the one in the repository says that of the default."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.downconversion import __main__ as downconversion
from bench.downconversion.memory import Contents, Outcome
from bench.downconversion.plan import DOCUMENT, ROOT, WHOLE, Plan, from_environment
from bench.downconversion.report import document
from bench.report.machine import Machine
from lab import commit
from mirror.legacy import CHUNK_BYTES
from tests.bench.downconversion.test_rounds import KIB, row

MACHINE = Machine(
    date="2026-01-01 00:00 UTC", cpu="a CPU", cores=2, memory_gb=8, kernel="6", python="3.11 x", inner_loop="compiled",
    java="17", data="memory", load_average=0.5,
)  # fmt: skip
HAS = Contents(records=1_000_000, value_bytes=10**9, digest=1)
STREAMED = Outcome(
    way="streamed", limit_bytes=200_000_000, out_of_memory=False, answers=5, largest_answer=262_000_000,
    stored_bytes=10**9, cpu_s=10.0, before_bytes=40_000_000, peak_bytes=48_000_000, contents=HAS,
)  # fmt: skip
DEAD = dataclasses.replace(STREAMED, way="whole", out_of_memory=True, contents=Contents())


def text_of(better: float = 0.0, plan: Plan | None = None) -> str:
    rows = [row(WHOLE, 1, 1, 1), row(CHUNK_BYTES, 1, 1, 1), row(256 * KIB, *[1 + better] * 3)]
    return document(plan or Plan(), machine=MACHINE, commit="abc1234", rows=rows, memory=(HAS, [STREAMED, DEAD]))


def test_what_it_says() -> None:
    text = text_of(0.01)
    assert "Commit `abc1234`" in text
    assert "| 1 | none | whole | 100 | 1.00 |  | 50 | 1.0 |" in text
    assert "| 1 | none | 256 | 101 | 1.01 | 1.01 to 1.01 | 50 | 1.0 |" in text
    assert "**128 KiB stays the default**" in text
    assert "1,000,000 records of 1 KB (1.00 GB) in 250 partitions" in text
    assert "`fetch.max.bytes` 250 MiB and `max.partition.fetch.bytes` 1 MiB" in text
    assert "| read as it comes, converted as it is read | 200 | yes | 48 | 5 | 262 | 100 |" in text
    assert "| 200 | **no: out of memory** |  | 5 | 262 |  |" in text


def test_what_it_says_of_the_default() -> None:
    assert "is the default** (`CHUNK_BYTES`), as in KIP-283, and has the highest mean" in text_of(-0.5)
    assert "**The figures speak against the default** of 128 KiB: 256 KiB has the highest mean" in text_of(0.5)


def test_a_quick_run_says_nothing_of_it() -> None:
    text = text_of(0.5, from_environment({"DOWNCONVERSION_QUICK": "1"}))
    assert "**A quick run**" in text
    assert "the default" not in text


def test_the_default_is_what_the_table_says() -> None:
    """Of the document in the repository, which a full run has written; and KIP-283's memory test has passed there."""
    text = (ROOT / DOCUMENT).read_text(encoding="utf-8")
    assert "speak against" not in text
    assert f"**{CHUNK_BYTES >> 10} KiB is the default**" in text or f"**{CHUNK_BYTES >> 10} KiB stays" in text
    assert "records of 1 KB (1.00 GB) in 250 partitions" in text
    (line,) = [line for line in text.splitlines() if line.startswith("| read as it comes") and "| 200 |" in line]
    cells = [cell.strip() for cell in line.split("|")]
    assert cells[3] == "yes"
    assert int(cells[4]) < 200
    assert int(cells[6]) > 200, "an answer is larger than the memory"


@pytest.mark.parametrize("rows", [True, False])
def test_a_part_alone(rows: bool) -> None:
    made = [row(WHOLE, 1), row(CHUNK_BYTES, 1)] if rows else []
    text = document(Plan(), machine=MACHINE, commit="x", rows=made, memory=None if rows else (HAS, [STREAMED]))
    assert ("## Chunk sizes" in text, "## Memory" in text) == (rows, not rows)


def test_a_commit_while_it_is_measured_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was measured behind it is of another commit."""
    now = ["aaa1111"]
    monkeypatch.setattr(commit, "of_now", lambda *_, **__: now[0])
    monkeypatch.setattr(downconversion, "of_now", lambda *_, **__: now[0])
    monkeypatch.setattr("bench.report.machine.describe", lambda: MACHINE)

    def measure(*_: object) -> list[object]:
        now[0] = "bbb2222"
        return []

    monkeypatch.setattr("bench.downconversion.rounds.measure", measure)
    plan = Plan(quick=True, parts=("table",), out=tmp_path / "found.md")
    progress: Any = SimpleNamespace(line=lambda _: None, step=lambda _: None)
    downconversion._measure(plan, progress)
    assert "Commit `aaa1111 to bbb2222`" in plan.out.read_text()
