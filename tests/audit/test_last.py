"""``mirror audit --metrics-file``: what stands in the file after each end of an audit."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mirror.audit import command
from mirror.audit.errors import AuditError
from mirror.audit.last import said
from mirror.audit.model.findings import Kind
from mirror.audit.model.result import AuditResult
from mirror.audited import Compared, LastAudit, read, write
from tests.audit.test_command import NOWHERE, request
from tests.audit.test_report import finding, result

FLOW = "a->b"
TOPIC = "[red]t"
ENDS = replace(NOWHERE, alias="a"), replace(NOWHERE, alias="b")
EARLIER = LastAudit(
    flow=FLOW, at_s=5.0, verdict="identical", success_at_s=5.0, source_id="A", destination_id="B",
    topics={TOPIC: Compared(0, 7, 8)},
)  # fmt: skip
READ = {TOPIC: Compared(0, 3_000_000, 10)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit.prom"


@pytest.fixture
def audited(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[object], tuple[int, str]]:
    """Audits with this end, at the time of 1000 s. Returns exit code and stderr."""
    monkeypatch.setattr("mirror.audit.last.time.time", lambda: 1_000.0)

    def run(end: object) -> tuple[int, str]:
        def audit(*_: object) -> AuditResult:
            if isinstance(end, AuditResult):
                return end
            assert isinstance(end, BaseException)
            raise end

        monkeypatch.setattr(command, "_audit", audit)
        code = command.audit_flow(request(*ENDS, "t"), metrics=file)
        return code, capsys.readouterr().err

    return run


def test_a_pass(file: Path, audited: Callable[[object], tuple[int, str]]) -> None:
    assert audited(result()) == (0, "")
    assert read(file) == replace(EARLIER, at_s=1_000.0, success_at_s=1_000.0, topics=READ)


def test_differences(file: Path, audited: Callable[[object], tuple[int, str]]) -> None:
    """They are counted by topic; what has no proof, or was passed over, is none. The last success stays."""
    found = [finding(Kind.MISSING, 0), finding(Kind.EXTRA, 1, topic="u"), finding(Kind.UNVERIFIABLE, 2)]
    expected = replace(
        EARLIER, at_s=1_000.0, verdict="different", success_at_s=None,
        topics={TOPIC: Compared(1, 3_000_000, 10), "u": Compared(1, 0, 0)},
    )  # fmt: skip
    assert audited(result(*found)) == (2, "")
    assert read(file) == expected
    write(EARLIER, file)
    assert audited(result(*found)) == (2, "")
    assert read(file) == replace(expected, success_at_s=5.0)


@pytest.mark.parametrize(
    ("kind", "code", "verdict", "differences"),
    [(Kind.UNVERIFIABLE, 3, "unverifiable", 0), (Kind.OVERSIZE, 3, "oversize", 0), (Kind.ABSENT, 1, "incomplete", 1)],
)
def test_no_difference_and_no_pass(
    file: Path,
    audited: Callable[[object], tuple[int, str]],
    kind: Kind,
    code: int,
    verdict: str,
    differences: int,
) -> None:
    write(EARLIER, file)
    assert audited(result(finding(kind, 0))) == (code, "")
    found = read(file)
    assert found is not None
    assert (found.verdict, found.success_at_s, found.differences) == (verdict, 5.0, differences)


@pytest.mark.parametrize("end", [AuditError("away", "wait"), KeyboardInterrupt(), ZeroDivisionError("a bug")])
def test_it_could_not_audit(file: Path, audited: Callable[[object], tuple[int, str]], end: BaseException) -> None:
    """The last run is now, nothing was proved, and the rest stays: a difference that was found, above all."""
    before = replace(EARLIER, verdict="different", topics={TOPIC: Compared(4, 7, 8)})
    write(before, file)
    if isinstance(end, ZeroDivisionError):
        with pytest.raises(ZeroDivisionError):
            audited(end)
    else:
        assert audited(end)[0] == 1
    assert read(file) == replace(before, at_s=1_000.0, verdict="unfinished")


def test_a_success_with_other_clusters_is_none(file: Path, audited: Callable[[object], tuple[int, str]]) -> None:
    write(replace(EARLIER, destination_id="another"), file)
    assert audited(result(finding(Kind.MISSING, 0)))[0] == 2
    found = read(file)
    assert found is not None
    assert (found.success_at_s, found.destination_id) == (None, "B")


def test_a_damaged_file_is_said_and_replaced(file: Path, audited: Callable[[object], tuple[int, str]]) -> None:
    file.write_text("mirror_audit_verdict 1\n")
    code, errors = audited(result())
    assert (code, errors) == (
        0,
        f"audit: {file} is damaged, or was not written by mirror audit; "
        "when the last audit passed is not known any more\n",
    )
    assert read(file) is not None


@pytest.mark.parametrize(
    ("name", "told", "remedy"),
    [
        ("audit.txt", "does not end in .prom, and node_exporter reads no other files", "audit.txt.prom"),
        ("absent/audit.prom", "cannot write", "name a file in a folder that can be written to"),
        ("folder.prom", "Is a directory", "name a file in a folder"),
        ("other.prom", "has the last audit of flow c->d, and this one is of a->b", "name a file for each flow"),
    ],
)
def test_a_bad_path_is_told_before_the_audit(
    tmp_path: Path,
    name: str,
    told: str,
    remedy: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "folder.prom").mkdir()
    write(replace(EARLIER, flow="c->d"), tmp_path / "other.prom")
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(command, "_audit", lambda *_: pytest.fail("it has begun"))
    assert command.audit_flow(request(*ENDS, "t"), metrics=tmp_path / name) == 1
    problem, what_to_do = capsys.readouterr().err.splitlines()
    assert problem.startswith("audit: ")
    assert told in problem
    assert remedy in what_to_do
    assert sorted(tmp_path.iterdir()) == before
    assert read(tmp_path / "other.prom") == replace(EARLIER, flow="c->d")


def test_a_file_that_cannot_be_written_at_the_end(
    file: Path, audited: Callable[[object], tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads the file would go by the audit before, so this is no success."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mirror.audit.last.write", full)
    code, errors = audited(result())
    assert code == 1
    assert f"cannot write {file}: No space left on device" in errors


def test_what_is_compared_is_the_sources() -> None:
    assert said(result(), FLOW, 3.0) == replace(EARLIER, at_s=3.0, success_at_s=None, topics=READ)
