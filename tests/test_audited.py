"""The file of the last audit: what is written is read again, and what nobody has written so is no audit."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from mirror.audit.command import _EXIT_CODES, ExitCode
from mirror.audit.model.result import Verdict
from mirror.audited import PASSED, UNFINISHED, VERDICTS, Compared, Damaged, LastAudit, probe, read, write

LAST = LastAudit(
    flow="east->west",
    at_s=1_700_000_100.5,
    verdict="different",
    success_at_s=1_700_000_000.25,
    source_id="E_1",
    destination_id="W-2",
    topics={"a": Compared(2, 3_000, 40), "b.c": Compared(0, 5 * 10**15, 600)},
)
UNKNOWN = LastAudit(flow="east->west", at_s=9.0, verdict=UNFINISHED)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit.prom"


def test_its_words_are_the_audits() -> None:
    assert set(VERDICTS) == {each.value for each in Verdict} | {UNFINISHED}
    assert {each.value for each, code in _EXIT_CODES.items() if code is ExitCode.IDENTICAL} == PASSED


@pytest.mark.parametrize("verdict", VERDICTS)
def test_what_is_written_is_read(file: Path, verdict: str) -> None:
    assert read(file) is None
    write(replace(LAST, verdict=verdict), file)
    assert read(file) == replace(LAST, verdict=verdict)
    write(replace(UNKNOWN, verdict=verdict), file)
    assert read(file) == replace(UNKNOWN, verdict=verdict)


def test_the_text(file: Path) -> None:
    """One series for each verdict, and no last success if there was none."""
    write(replace(LAST, topics={"a": Compared(2, 3_000, 40)}), file)
    text = file.read_text()
    flow = 'source="east",target="west"'
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        f"mirror_audit_last_run_timestamp_seconds{{{flow}}} 1.7000001005e+09",
        f"mirror_audit_last_success_timestamp_seconds{{{flow}}} 1.70000000025e+09",
        f'mirror_audit_differences{{{flow},topic="a"}} 2.0',
        f'mirror_audit_compared_bytes{{{flow},topic="a"}} 3000.0',
        f'mirror_audit_compared_batches{{{flow},topic="a"}} 40.0',
        *(f'mirror_audit_verdict{{{flow},verdict="{each}"}} {float(each == "different")}' for each in VERDICTS),
        'mirror_audit_info{source="east",source_cluster_id="E_1",target="west",target_cluster_id="W-2"} 1.0',
    ]
    write(UNKNOWN, file)
    assert "last_success_timestamp_seconds{" not in file.read_text()


def test_all_may_read_it_and_nothing_else_is_left(file: Path) -> None:
    before = os.umask(0o077)
    try:
        write(LAST, file)
        probe(file)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert list(file.parent.iterdir()) == [file]


def test_a_write_that_fails_leaves_what_was_there(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(LAST, file)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(UNKNOWN, file)
    assert read(file) == LAST
    assert list(file.parent.iterdir()) == [file]


def test_cut_anywhere_it_is_damaged(file: Path) -> None:
    """Line by line, and in the last line byte by byte."""
    write(LAST, file)
    whole = file.read_bytes()
    last = whole[:-1].rindex(b"\n") + 1
    for at in (*(at for at, byte in enumerate(whole[:last]) if byte == 10), *range(last, len(whole))):
        file.write_bytes(whole[:at])
        with pytest.raises(Damaged, match="is damaged, or was not written by mirror audit"):
            read(file)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('verdict="different"} 1.0', 'verdict="different"} 0.0'),
        ('verdict="identical"} 0.0', 'verdict="identical"} 1.0'),
        ('verdict="identical"', 'verdict="perfect"'),
        ("1.7000001005e+09", "NaN"),
        ("1.70000000025e+09", "+Inf"),
        ('mirror_audit_differences{source="east"', 'mirror_audit_differences{source="south"'),
        ('topic="a"} 40.0', 'topic="x"} 40.0'),
        ("mirror_audit_compared_batches{", "mirror_other{"),
        ('target="west",verdict="oversize"', 'verdict="oversize"'),
        ("mirror_audit_last_run_timestamp_seconds{", "another_metric{"),
        ("4", "\udcff"),
        ("1.7000001005e+09", "9" * 400),
    ],
)
def test_what_no_audit_writes(file: Path, old: str, new: str) -> None:
    write(LAST, file)
    text = file.read_text()
    assert old in text
    file.write_bytes(text.replace(old, new, 1).encode("utf-8", "surrogateescape"))
    with pytest.raises(Damaged, match="is damaged"):
        read(file)


def test_what_cannot_be_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.mkdir()
    with pytest.raises(Damaged, match="cannot be read: Is a directory"):
        read(file)
    file.rmdir()
    write(LAST, file)
    monkeypatch.setattr("mirror.audited.MOST_BYTES", 100)
    with pytest.raises(Damaged, match="is larger than 100 bytes"):
        read(file)


def test_what_stays_of_the_audit_before() -> None:
    new = replace(LAST, at_s=2e9, success_at_s=None, topics={"a": Compared(1, 1, 1)})
    assert new.after(None) == new
    assert new.after(LAST) == replace(new, success_at_s=LAST.success_at_s)
    assert replace(new, verdict="accepted").after(LAST) == replace(new, verdict="accepted", success_at_s=2e9)
    # Without a verdict, what was found stays, and the clusters that it was found in.
    assert UNKNOWN.after(LAST) == replace(LAST, at_s=9.0, verdict=UNFINISHED)
    assert UNKNOWN.after(LAST).differences == 2
    assert UNKNOWN.after(None) == UNKNOWN


@pytest.mark.parametrize("ids", [("X", "W-2"), ("E_1", "X")])
def test_of_other_clusters_nothing_stays(ids: tuple[str, str]) -> None:
    new = replace(LAST, success_at_s=None, source_id=ids[0], destination_id=ids[1])
    assert not LAST.is_of(*ids)
    assert new.after(LAST) == new


def test_an_id_that_is_not_known_contradicts_none() -> None:
    assert LAST.is_of("", "")
    assert LAST.is_of("E_1", "W-2")
    assert UNKNOWN.is_of("E_1", "W-2")


@pytest.mark.parametrize("where", ["absent/audit.prom", "folder"])
def test_a_place_that_cannot_be_written(tmp_path: Path, where: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"No such file|Is a directory"):
        probe(tmp_path / where)
