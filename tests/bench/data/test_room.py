"""Where a run's brokers keep their data."""

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.data import room
from bench.errors import BenchError

GB = 1_000_000_000


class Usage(NamedTuple):
    free: int


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for memory; the disk has 50 GB."""
    monkeypatch.setattr(tempfile, "tempdir", tempfile.gettempdir())
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(50 * GB))
    return folder


def meminfo(folder: Path, available: int) -> Path:
    path = folder / "meminfo"
    path.write_text(f"MemTotal: 99 kB\nMemAvailable:   {available // 1024} kB\n")
    return path


def test_memory_if_there_is_enough(memory: Path, tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    assert room.find(environ, memory=memory, meminfo=meminfo(tmp_path, 21 * GB)) == memory
    assert environ == {"TMPDIR": str(memory)}


@pytest.mark.parametrize("available", [19 * GB, 0])
def test_else_the_disk(memory: Path, tmp_path: Path, available: int) -> None:
    environ: dict[str, str] = {}
    usual = Path(tempfile.gettempdir())
    assert room.find(environ, memory=memory, meminfo=meminfo(tmp_path, available)) == usual
    assert room.find(environ, memory=tmp_path / "none", meminfo=meminfo(tmp_path, 21 * GB)) == usual
    assert room.find(environ, memory=memory, meminfo=tmp_path / "none") == usual
    assert not environ


def test_the_users_choice_counts(memory: Path, tmp_path: Path) -> None:
    environ = {"TMPDIR": "/elsewhere"}
    assert room.find(environ, memory=memory, meminfo=meminfo(tmp_path, 21 * GB)) != memory
    assert environ == {"TMPDIR": "/elsewhere"}


def test_a_full_disk_is_an_error(memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(13 * GB))
    with pytest.raises(BenchError, match=r"has 13\.0 GB free, and a run needs 14 GB"):
        room.find({}, memory=memory, meminfo=meminfo(tmp_path, 21 * GB))
