"""The folder of one configuration file: whose it is, who may look into it, and the lock in it."""

import errno
import os
import pwd
import socket
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mirror.service.instance import background
from mirror.service.instance.announcing import announce, announced
from mirror.service.instance.place import STATE_HOME, Failed, Place, place_of


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(STATE_HOME, str(tmp_path / "state"))
    path = tmp_path / "west.yaml"
    path.touch()
    return path


def test_one_file_has_one_place(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is named; another one of the same name has another."""
    found = place_of(config)
    assert found.config == config.resolve()
    assert stat.S_IMODE(found.folder.stat().st_mode) == 0o700
    assert found.folder.is_relative_to(tmp_path / "state" / "mirror")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.yaml").symlink_to(config)
    for name in ("west.yaml", "./west.yaml", "link.yaml"):
        assert place_of(Path(name)).folder == found.folder
    other = tmp_path / "etc" / "west.yaml"
    assert place_of(other).folder != found.folder


def test_it_is_in_the_users_home(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the user's own, as sudo leaves $HOME; never in the folder that goes when the user logs out."""
    monkeypatch.delenv(STATE_HOME)
    monkeypatch.setenv("HOME", str(tmp_path / "somebody else's"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(tmp_path / "home")))
    assert place_of(config).folder.is_relative_to(tmp_path / "home" / ".local" / "state" / "mirror")
    monkeypatch.setenv(STATE_HOME, "relative")
    assert place_of(config).folder.is_relative_to(tmp_path / "home")


@pytest.mark.parametrize("part", ["mirror", "mirror/*", "mirror/*/*"])
def test_a_folder_that_others_could_use(
    config: Path, tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link, somebody else's, or one that is open to others is refused, at each level."""
    place_of(config)
    (folder,) = (tmp_path / "state").glob(part)
    folder.chmod(0o750)
    with pytest.raises(Failed, match=f"{folder} is open to other users .mode 750.: chmod 700 {folder}"):
        place_of(config)
    folder.chmod(0o700)
    moved = folder.rename(tmp_path / "moved")
    folder.symlink_to(moved)
    with pytest.raises(Failed, match=f"{folder} is a symbolic link"):
        place_of(config)
    folder.unlink()
    folder.write_text("")
    with pytest.raises(Failed, match=f"{folder} cannot be created: File exists|is something else"):
        place_of(config)
    folder.unlink()
    moved.rename(folder)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(Failed, match=r"belongs to user \d+, and not to you .4711."):
        place_of(config)


def test_a_folder_that_cannot_be(config: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(Failed, match=r"cannot be created: .*set \$XDG_STATE_HOME"):
        place_of(config)


def test_a_long_path(config: Path, tmp_path: Path) -> None:
    """Longer than a socket's path may be."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with Place(config, folder).control() as path:
        assert len(path) < 100
        assert Path(path).parent.resolve() == folder


def test_the_lock(config: Path) -> None:
    """
    1. Another process has it: whoever waits gives up after a while, and says so.
    2. That process is killed: it is free at once. One that has let it go early has let it go.
    """
    found = place_of(config)
    code = (
        "import sys, time; from pathlib import Path; from mirror.service.instance.place import Place\n"
        "with Place(Path(), Path(sys.argv[1])).locked(1): print('has it', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(found.folder)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"has it\n"
            with pytest.raises(Failed, match="another mirror start, stop or restart"), found.locked(0.1):
                pass
        finally:
            process.kill()
    with found.locked(0) as release:
        with pytest.raises(Failed), found.locked(0):
            pass
        release()
        with found.locked(0):
            pass


def test_announcements(config: Path, tmp_path: Path) -> None:
    """Several of one file, each as long as its socket is open; those of other files are others."""
    other = tmp_path / "east.yaml"
    assert announced(config) == []
    first, second, third = announce(config), announce(config), announce(other)
    assert first is not None
    assert second is not None
    assert third is not None
    assert announced(config) == announced(other) == [os.getpid()]
    assert first.get_inheritable()
    first.close()
    assert announced(config) == [os.getpid()]
    second.close()
    assert announced(config) == []
    third.close()


def test_no_announcement(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where sockets of that kind are forbidden, ``mirror run`` goes on without."""
    monkeypatch.setattr(socket, "socket", lambda *_: (_ for _ in ()).throw(OSError(97, "not supported")))
    assert announce(config) is None


def test_no_process_can_be_started(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told with the cause, and no file stays open."""

    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    place = place_of(config)
    before = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(subprocess, "Popen", refused)
    with pytest.raises(Failed, match=r"no process can be started: Resource temporarily unavailable; see the limits"):
        background.start(place, config, timeout_s=1)
    assert set(os.listdir("/proc/self/fd")) == before
