"""What an operator sees and what the files say, of a result with differences and of one without."""

import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from mirror.audit import export, report
from mirror.audit.errors import AuditError
from mirror.audit.model import AuditResult, Coverage, Finding, Kind, Side, Span


def coverage(side: Side, topic: str, partition: int, *, complete: bool = True) -> Coverage:
    """A row with 5 batches."""
    return Coverage(
        side=side, topic=topic, partition=partition, cluster_id=side.value, log=Span(0, 50), audited=Span(0, 50),
        ranges=1, batches=5, records=50, bytes=1_500_000, gaps=2, complete=complete, offsets=40,
        **{"control": 3, "aborted": 5} if side is Side.SOURCE else {"control": 10},
    )  # fmt: skip


def finding(kind: Kind, offset: int, **more: object) -> Finding:
    """In [brackets], which are no markup."""
    fields: dict[str, object] = {
        "kind": kind, "topic": "[red]t", "partition": 0, "source": Span(offset, offset + 10), "destination": None,
        "batches": 1, "records": 10, "detail": "[bold]",
    }  # fmt: skip
    return Finding(**{**fields, **more})  # type: ignore[arg-type]


def result(*findings: Finding, notes: tuple[str, ...] = ()) -> AuditResult:
    """Of two partitions."""
    return AuditResult(
        flow="a->b", digest="xxh3_128", source_alias="a", destination_alias="b", source_cluster_id="A",
        destination_cluster_id="B", findings=findings, notes=notes, elapsed_s=2.5,
        coverage=tuple(coverage(side, "[red]t", partition) for side in Side for partition in (0, 1)),
    )  # fmt: skip


def printed(shown: AuditResult, limit: int = report.MOST_SHOWN) -> str:
    """On a wide terminal without colours."""
    out = io.StringIO()
    report.print_result(shown, Console(file=out, width=200), limit=limit)
    return out.getvalue()


def test_an_identical_result() -> None:
    text = printed(result(notes=("b has older [records]",)))
    assert "identical: a and b hold the same 100 records in 10 batches" in text
    assert "note: b has older [records]" in text
    assert "byte for byte at the same offsets, and 20 holes filled (2 partitions" in text
    assert [cell.strip() for cell in text.splitlines()[4].split("│")[-4:-1]] == ["20", "20", "all"]
    assert "6.0 MB read in 2.5 s" in text
    assert "[red]t" in text


def test_differences_name_topic_partition_and_offsets() -> None:
    shown = result(
        finding(Kind.MISSING, 120),
        finding(Kind.MOVED, 130, destination=Span(135, 136)),
        finding(Kind.MISSING, 0, partition=None, source=None, batches=0),
    )
    text = printed(shown)
    assert "3 differences" in text
    line = next(line for line in text.splitlines() if "120 to 129" in line)
    assert [part in line for part in ("missing", "[red]t", "[bold]")] == [True] * 3
    assert "135" in next(line for line in text.splitlines() if "moved" in line and "130 to 139" in line)
    assert "different: a and b: 2 missing, 1 moved" in text


def test_the_table_is_bounded_and_says_so() -> None:
    shown = result(*(finding(Kind.EXTRA, 1_000 + 10 * index) for index in range(30)))
    text = printed(shown, limit=5)
    assert sum("to 10" in line for line in text.splitlines()) == 5
    assert "25 more; --out DIR writes all of them" in text


def test_sizes_and_spans() -> None:
    assert [report.size_text(size) for size in (0, 999, 1_000, 2_500_000, 10**9, 5 * 10**15)] == [
        "0 B", "999 B", "1.0 kB", "2.5 MB", "1.0 GB", "5,000.0 TB",
    ]  # fmt: skip
    assert [report.span_text(span) for span in (None, Span(5, 6), Span(5, 8))] == ["-", "5", "5 to 7"]


def test_the_files_hold_everything(tmp_path: Path) -> None:
    shown = result(finding(Kind.CORRUPT, 20), finding(Kind.MISSING, 0, partition=None, source=None))
    folder = tmp_path / "new" / "folder"
    export.prepare(folder)
    written = export.write(shown, folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in written)
    for name in ("findings", "coverage"):
        assert (
            json.loads((folder / f"{name}.json").read_text()) == pq.read_table(folder / f"{name}.parquet").to_pylist()
        )
    first, second = json.loads((folder / "findings.json").read_text())
    assert (first["kind"], first["partition"], first["source_start"], first["source_end"]) == ("corrupt", 0, 20, 30)
    assert (second["partition"], second["source_start"], second["destination_end"]) == (None, None, None)
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["identical"], summary["findings"]) == (False, {"corrupt": 1, "missing": 1})
    assert len(json.loads((folder / "coverage.json").read_text())) == 4


def test_a_folder_that_cannot_be_written_is_told_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AuditError, match="cannot write to"):
        export.prepare(tmp_path / "file")
    with pytest.raises(AuditError, match="cannot write"):
        export.write(result(), tmp_path / "absent")


def test_progress_is_silent_where_nobody_watches() -> None:
    out = io.StringIO()
    with report.BarProgress(Console(file=out)) as progress:
        progress.stage("reading")
        progress.advance(1, 2)
    assert out.getvalue().strip() == ""
