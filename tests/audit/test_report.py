"""What an operator sees and what the files say, of a result with differences and of one without."""

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from mirror import DISTRIBUTION
from mirror.audit import export, report
from mirror.audit.command import _EXIT_CODES, for_stdout
from mirror.audit.errors import AuditError
from mirror.audit.folder import SUMMARY, prepare
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Adopted, Side, Span, TopicPartition
from mirror.audit.model.request import AuditRequest, Endpoint
from mirror.audit.model.result import AuditResult, Cleaned, Coverage, RangeContent, SkippedRange, Undecided, Verdict
from mirror.offsetmap.entries.checkpoint import in_words


def coverage(side: Side, topic: str, partition: int, *, complete: bool = True) -> Coverage:
    """A row with 5 batches."""
    control, aborted = (3, 5) if side is Side.SOURCE else (10, 0)
    return Coverage(
        side=side, topic=topic, partition=partition, cluster_id=side.value, log=Span(0, 50), audited=Span(0, 50),
        ranges=1, batches=5, records=50, bytes=1_500_000, gaps=2, complete=complete, offsets=40, control=control,
        aborted=aborted, contents=(RangeContent(0, 50, 50, 16 * "ab"),),
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


@pytest.mark.parametrize("terminal", [False, True])
def test_lines_are_wrapped_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> None:
    """In a pipe, or a file, a finding is a line, however long."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(out, "isatty", lambda: terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    words = " ".join(f"word{at}" for at in range(100))
    report.print_result(result(finding(Kind.MISSING, 10, detail=words), notes=(words,)), for_stdout())
    found = [line for line in out.getvalue().splitlines() if "word0 " in line or "word99" in line]
    assert [words in line for line in found] == ([True, True] if not terminal else [False] * 4)


def test_an_identical_result() -> None:
    text = printed(result(notes=("b has older [records]",)))
    assert "identical: a and b hold the same 100 records in 10 batches" in text
    assert "note: b has older [records]" in text
    assert "byte for byte at the same offsets, and 20 holes filled (2 partitions" in text
    assert [cell.strip() for cell in text.splitlines()[4].split("│")[-4:-1]] == ["20", "20", "all"]
    assert "6.0 MB read in 2.5 s" in text
    assert "[red]t" in text


def test_a_topic_that_is_named_and_not_there() -> None:
    """The others were audited, and it is no pass, whatever is accepted: exit code 1."""
    absent = finding(Kind.ABSENT, 0, partition=None, source=None, batches=0, records=0)
    for others, told in (
        ((), "nothing differs in the others"),
        ((finding(Kind.MISSING, 5),), "of the others: 1 missing"),
    ):
        shown = replace(result(absent, *others), accepted=frozenset({"unverifiable", "oversize"}))
        assert (shown.verdict, _EXIT_CODES[shown.verdict], shown.identical) == (Verdict.INCOMPLETE, 1, False)
        assert f"1 topic that the configuration names could not be audited; {told} (" in report.verdict(shown)
        assert export.summary(shown)["verdict"] == "incomplete"


def test_what_to_do_stands_before_the_verdict() -> None:
    out = io.StringIO()
    advice = ["missing ([t] partition 0): copy it again", "  a command"]
    report.print_result(result(finding(Kind.MISSING, 5)), Console(file=out, width=200), remedies=advice)
    lines = out.getvalue().splitlines()
    assert lines[-4:-1] == ["what to do:", *(f"  {line}" for line in advice)]
    assert lines[-1].startswith("different: ")
    assert "what to do" not in printed(result())


def test_what_was_skipped_is_in_the_verdict() -> None:
    """In words, each with its place and time; the verdict says how much it is about. The files have them, too."""
    shown = replace(
        result(),
        skipped=(
            SkippedRange("[t]", 1, Span(10, 15), in_words("on.gap"), 1_700_000_000_000),
            SkippedRange("u", 0, Span(3, 4), in_words("unproven"), 1_700_000_001_000),
        ),
    )
    text = " ".join(printed(shown).split())
    where = "skipped: [t] partition 1, source offsets 10 to 14, at 2023-11-14 22:13:20Z"
    assert f"{where}: could not be copied; going on without them was accepted" in text
    assert "skipped: u partition 0, source offset 3, at 2023-11-14 22:13:21Z: not shown to be copied" in text
    assert "6.0 MB read in 2.5 s); 6 source offsets in 2 ranges were skipped or taken on trust" in text
    assert "1 more skipped; --out DIR" in printed(shown, limit=1)
    assert "skipped" not in printed(result())
    first, _ = export.summary(shown)["skipped"]
    assert (first["source_start"], first["source_end"], first["at_ms"]) == (10, 15, 1_700_000_000_000)


def test_what_is_behind_open_transactions_is_said_and_counted() -> None:
    shown = replace(
        result(),
        undecided=(
            Undecided(Side.SOURCE, "[t]", 1, Span(10, 15)),
            Undecided(Side.SOURCE, "u", 0, Span(3, 5)),
            Undecided(Side.DESTINATION, "v", 2, Span(7, 8)),
        ),
    )
    text = " ".join(printed(shown).split())
    assert "a: [t] partition 1, offsets 10 to 14 are behind an open transaction; they were not audited" in text
    assert "b: v partition 2, offsets 7 are behind an open transaction; consumers that read committed do not" in text
    assert "; 7 offsets of a behind open transactions were not audited; 1 offsets of b behind open transactions" in text
    assert "2 more open transactions; --out DIR" in printed(shown, limit=1)
    assert "open transaction" not in printed(result())
    assert export.summary(shown)["undecided"][0] == {
        "side": "source", "topic": "[t]", "partition": 1, "start": 10, "end": 15,
    }  # fmt: skip


@pytest.mark.parametrize("cause", ["on.gap", "unproven", "never_arrived", "oversize", "dead_letter"])
def test_causes_are_words(cause: str) -> None:
    """What is written down is a name; nobody is shown it."""
    assert cause not in in_words(cause)
    assert in_words(cause).count(" ") > 7
    assert in_words("of_a_later_version") == "of_a_later_version"


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


def test_what_has_no_proof_is_no_difference_and_no_pass() -> None:
    """Unless it is accepted by name; beside a difference, it is counted with the others."""
    shown = result(finding(Kind.UNVERIFIABLE, 20, bytes=2_000), finding(Kind.UNVERIFIABLE, 40, records=0, batches=0))
    text = printed(shown)
    assert "2 places without proof, by offsets" in text
    assert "unverifiable: a and b differ nowhere, but nothing proves 10 records (2.0 kB) that only b still has" in text
    assert "10 offsets that a lacks without a cause (2 partitions" in text
    assert (shown.verdict, _EXIT_CODES[shown.verdict]) == (Verdict.UNVERIFIABLE, 3)
    passed = replace(shown, accepted=frozenset({"unverifiable"}))
    assert "; the configuration accepts it (2 partitions" in printed(passed)
    assert (passed.verdict, _EXIT_CODES[passed.verdict], passed.identical) == (Verdict.ACCEPTED, 0, False)
    worse = replace(passed, findings=(*passed.findings, finding(Kind.EXTRA, 60)))
    assert (worse.verdict, _EXIT_CODES[worse.verdict]) == (Verdict.DIFFERENT, 2)
    assert "1 difference and 2 places without proof" in printed(worse)
    with pytest.raises(ValueError, match="'extra' is not one of unverifiable"):
        AuditRequest(
            flow="f", source=Endpoint(alias="a", bootstrap=()), destination=Endpoint(alias="b", bootstrap=()),
            accept=frozenset({"extra"}),
        )  # fmt: skip


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
    shown = replace(shown, adopted={TopicPartition("t", 1): Adopted(9)})
    folder = tmp_path / "new" / "folder"
    prepare(folder)
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
    assert summary["verdict"] == "different"
    assert summary["adopted"] == [{"topic": "t", "partition": 1, "end": 9, "leader_epoch": -1}]
    assert len(json.loads((folder / "coverage.json").read_text())) == 4
    assert (summary["flow"], summary["version"], summary["source"]["cluster_id"]) == (
        shown.flow, version(DISTRIBUTION), shown.source_cluster_id,
    )  # fmt: skip
    assert summary["bounds"] == {
        row.topic: {str(part.partition): list(part.audited) for part in shown.coverage if part.topic == row.topic}
        for row in shown.coverage
    }
    assert datetime.fromisoformat(summary["finished_at"]).tzinfo is not None


def test_an_older_success_is_never_taken_for_a_new_one(tmp_path: Path) -> None:
    """It goes before the work begins; and a verdict stands only beside all that it stands on, whenever writing ends."""
    prepare(tmp_path)
    names = {path.name for path in export.write(result(), tmp_path)}
    prepare(tmp_path)
    assert list(tmp_path.iterdir()) == []
    flushed = export._flush
    for survives in range(len(names) + 1):

        def flush(path: Path, left: list[int] = [survives]) -> None:  # noqa: B006 - the point of it
            if not left[0]:
                raise OSError(28, "No space left on device")
            left[0] -= 1
            flushed(path)

        with patch.object(export, "_flush", flush), pytest.raises(AuditError, match="No space left"):
            export.write(result(), tmp_path)
        finished = {path.name for path in tmp_path.iterdir()} & names
        assert SUMMARY not in finished or finished == names
        prepare(tmp_path)
        assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AuditError, match="cannot write to"):
        prepare(tmp_path / "file")
    with pytest.raises(AuditError, match="cannot write"):
        export.write(result(), tmp_path / "absent")


def test_progress_says_how_much_how_fast_and_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal: of 3 GB, a third in ten seconds; a stage whose size is not known has no rate."""
    now = [100.0]
    monkeypatch.setattr("mirror.audit.report.time.monotonic", lambda: now[0])
    with report.BarProgress(Console(file=io.StringIO(), force_terminal=True, width=150)) as progress:
        progress.stage("reading", 3_000_000_000)
        now[0] += 10.0
        progress.advance(2, 6)
        (task,) = progress._bar.tasks
        assert (task.description, task.fields["rate"]) == ("reading (about 3.0 GB)", "100.0 MB/s")
        assert (task.completed, task.total) == (2, 6)
        progress.stage("following what moved")
        progress.advance(1, 2)
        assert (task.description, task.fields["rate"]) == ("following what moved", "")
        progress.advance(0, 0)


def test_progress_is_silent_where_nobody_watches() -> None:
    out = io.StringIO()
    with report.BarProgress(Console(file=out)) as progress:
        progress.stage("reading")
        progress.advance(1, 2)
    assert out.getvalue().strip() == ""


def test_what_was_passed_over_is_no_pass() -> None:
    """Counted in records and bytes, and by exit code 3, unless it is accepted by name; so it is beside what has no
    proof, and beside a difference."""
    one = replace(finding(Kind.OVERSIZE, 20, destination=None), records=1, batches=0, bytes=2_000_000)
    shown = result(one, replace(one, source=Span(40, 41)))
    text = printed(shown)
    assert "2 places passed over, by offsets" in text
    assert (
        "oversize: a and b differ nowhere but in 2 records (4.0 MB) too large for b, which the flow has passed" in text
    )
    assert (shown.verdict, _EXIT_CODES[shown.verdict], shown.identical) == (Verdict.OVERSIZE, 3, False)
    assert export.summary(shown)["verdict"] == "oversize"
    passed = replace(shown, accepted=frozenset({"oversize"}))
    assert (passed.verdict, _EXIT_CODES[passed.verdict]) == (Verdict.ACCEPTED, 0)
    assert "(oversize.record); the configuration accepts it (2 partitions" in printed(passed)
    both = replace(passed, findings=(*passed.findings, finding(Kind.UNVERIFIABLE, 60)))
    assert both.verdict is Verdict.UNVERIFIABLE
    assert "unverifiable: a and b differ nowhere, but nothing proves 10 records" in printed(both)
    assert "; and they differ in 2 records (4.0 MB) too large for b" in printed(both)
    assert replace(both, accepted=frozenset({"oversize", "unverifiable"})).verdict is Verdict.ACCEPTED
    assert replace(both, accepted=frozenset({"unverifiable"})).verdict is Verdict.OVERSIZE
    worse = replace(both, findings=(*both.findings, finding(Kind.EXTRA, 80)))
    assert worse.verdict is Verdict.DIFFERENT
    assert "1 difference and 1 place without proof and 2 places passed over" in printed(worse)


@pytest.mark.parametrize(("batches", "told"), [(1, "1 batch"), (2, "2 batches"), (1_000, "1,000 batches")])
def test_batches_that_stand_in_others_are_counted(batches: int, told: str) -> None:
    one = replace(finding(Kind.REENCODED, 0), batches=batches, detail="why")
    assert f"of {told} of " in report.verdict(replace(result(), reencoded=(one,)))


def cleaned(records: int, *, batches: int = 2) -> AuditResult:
    """The destination's log cleaner has removed so many records of one partition; one more is only rewritten."""
    shown = result()
    rows = [
        replace(row, records=row.records - records) if (row.side, row.partition) == (Side.DESTINATION, 1) else row
        for row in shown.coverage
    ]
    found = {TopicPartition("[red]t", 1): Cleaned(batches, records), TopicPartition("[red]t", 0): Cleaned(1, 0)}
    return replace(shown, coverage=tuple(rows), cleaned=found)


@pytest.mark.parametrize(
    ("records", "batches", "told"),
    [
        (7, 2, "; log cleaners have changed or removed 3 batches: 7 records are no longer at b, and still at a"),
        (1, 0, "; log cleaners have changed or removed 1 batch: 1 record is no longer at b, and still at a"),
        (0, 2, "; log cleaners have rewritten 3 batches, with every record"),
    ],
)
def test_what_log_cleaners_have_removed_is_in_the_verdict(records: int, batches: int, told: str) -> None:
    """Both sides hold what the destination has; that the source has more is said, and that not every byte is the
    same."""
    shown = cleaned(records, batches=batches)
    text = report.verdict(shown)
    assert f"hold the same {100 - records} records in 10 batches, byte for byte (but for those that log" in text
    assert text.endswith(told)
    for none in (result(), replace(shown, cleaned={TopicPartition("[red]t", 0): Cleaned(0, 0)})):
        assert "cleaners" not in report.verdict(none)
    by_record = report.verdict(replace(shown, cleaned={TopicPartition("[red]t", 0): Cleaned(0, 5)}))
    assert by_record.endswith("; 5 records are no longer at b, and still at a")
    assert export.summary(shown)["cleaned"] == {"batches": batches + 1, "records": records}


@pytest.mark.parametrize("locale", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {}])
def test_the_page_is_in_utf_8_in_any_locale(tmp_path: Path, locale: dict[str, str]) -> None:
    """As it says of itself; a locale without the letter must not end an audit that is done."""
    code = (
        "import sys, pathlib; from mirror.audit import export; from mirror.audit.model.findings import Kind; "
        "from tests.audit.test_report import finding, result; "
        "export.write(result(finding(Kind.MISSING, 1, detail=chr(0x416))), pathlib.Path(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, tmp_path], env=os.environ | locale, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert chr(0x416) in (tmp_path / "report.html").read_text(encoding="utf-8")
