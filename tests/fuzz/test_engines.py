"""``make fuzz`` in small: it runs, says which engine did, and what it finds can be played again."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.fuzz import __main__ as program
from tests.fuzz import one
from tests.fuzz.corpus import changed, keep, kept
from tests.fuzz.source import Target
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(program, "FOLDER", tmp_path)
    monkeypatch.setitem(os.environ, "PYTHONPATH", str(ROOT))


def test_in_small(capsys: pytest.CaptureFixture[str]) -> None:
    """Two targets, a second each. With atheris, if it is installed here, else with Hypothesis: it says so twice."""
    assert program.main(["1", "^(scan|fetch)$"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"{one.engine()}; 1 s for each of 2 targets: scan, fetch\n")
    assert told.count("; nothing found\n") == 2
    assert told.strip().endswith(f"inputs, with {one.engine()}")
    inputs = int(told.strip().splitlines()[-1].split(" s, ")[1].split()[0])
    assert inputs > 20


def test_a_finding_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Hypothesis, in this process. It can be played again from its file."""

    def run(data: bytes) -> None:
        assert len(data) < 4, "too long"

    monkeypatch.setitem(TARGETS, "scan", Target(run))
    monkeypatch.setattr(one, "engine", lambda: one.UNGUIDED)
    with pytest.raises(AssertionError, match="too long"):
        one.main(["scan", str(tmp_path), "5"])
    (file,) = (tmp_path / "found").iterdir()
    assert len(file.read_bytes()) >= 4
    with pytest.raises(AssertionError, match="too long"):
        one.main(["scan", str(file)])


def test_a_finding_fails_the_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 77))
    assert program.main(["1", "^scan$"]) == 1
    told = capsys.readouterr().out
    assert "scan: 0 s, -1 inputs; FOUND (exit code 77)" in told
    assert "tests.fuzz.one scan" in told


@pytest.mark.parametrize("arguments", [[], ["x"], ["1", "("]])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(arguments) == 64
    assert "python -m tests.fuzz SECONDS [REGEX]" in capsys.readouterr().err


def test_no_target_of_that_name() -> None:
    assert program.main(["1", "nothing"]) == 1


def test_what_has_no_room_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.corpus.FOLDER", tmp_path)
    assert keep("scan", [b"a" * 9_000, b"b" * 9_000, b"c", b"c", b""]) == 2
    assert kept("scan") == [b"c", b"a" * 9_000] or kept("scan") == [b"a" * 9_000, b"c"]


def test_changed_inputs_are_like_those_that_are_kept() -> None:
    """Drawn without a search: some equal one, most do not."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = [changed("scan").example() for _ in range(5)]
    assert all(isinstance(data, bytes) for data in drawn)


def test_nothing_of_the_mirror_is_imported_before_it_may_be_instrumented() -> None:
    code = "import sys, tests.fuzz.one; print([name for name in sys.modules if name.startswith('mirror')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_make_runs_it() -> None:
    """For half an hour, if nobody says otherwise; with the extra that has atheris."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (seconds,) = re.findall(r"^fuzz: SECONDS := (\d+)$", makefile, re.MULTILINE)
    assert int(seconds) * len(TARGETS) == 1_800
    assert "-m tests.fuzz $(SECONDS) '$(ONLY)'" in makefile
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert "'.[fuzz]'" in makefile
    assert [name.startswith("atheris") for name in extras["fuzz"]] == [True]


def test_what_is_kept_is_chosen_by_what_it_reaches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So it cannot be chosen without atheris, and nothing is changed."""
    monkeypatch.setattr(program, "engine", lambda: one.UNGUIDED)
    before = kept("scan")
    assert program.main(["keep"]) == 1
    assert "keeping needs atheris: pip install '.[fuzz]'" in capsys.readouterr().err
    assert kept("scan") == before
