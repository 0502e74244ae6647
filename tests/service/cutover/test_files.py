"""Files that are there as a whole or not at all."""

import os
from pathlib import Path

import pytest

from mirror.service.cutover.files import write_whole


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("before")
    path.chmod(0o644)
    write_whole(path, "after")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("after", 0o600)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of before is as it was, and nothing else is left."""
    path = tmp_path / "a.json"
    write_whole(path, "before")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "after")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("a.json", "before")]
