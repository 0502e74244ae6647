"""Files that are there as a whole or not at all."""

import errno
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from mirror.service.cutover.files import InUse, only_one, write_whole


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


def test_one_at_a_time(tmp_path: Path) -> None:
    """The next one may begin once the one before has ended, whatever it ended with."""

    def interrupted() -> None:
        with only_one(tmp_path):
            with pytest.raises(InUse, match=f"another cutover is at work in {tmp_path}"), only_one(tmp_path):
                raise AssertionError
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with only_one(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == ["lock"]
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("number", "goes_on"), [(errno.ENOLCK, True), (errno.EOPNOTSUPP, True), (errno.EIO, False)])
def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, goes_on: bool
) -> None:
    """A cutover is not held up by that: who starts two of them there is not told."""

    def flock(*_: object) -> None:
        raise OSError(number, "no locks")

    monkeypatch.setattr("fcntl.flock", flock)
    with nullcontext() if goes_on else pytest.raises(OSError, match="no locks"), only_one(tmp_path):
        pass
