"""``prometheus`` and ``promtool``: those on PATH, or Debian's package, unpacked in the project's build folder.

Nothing is installed or started, and no rights are needed: ``apt-get download`` and ``dpkg -x``.
``python -m tests.prometheus.tools`` fetches them ahead of the tests.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "build" / "tools"
PACKAGE = "prometheus"
FETCH_S = 150
"""Time limit of each command that may use the network."""


def tool(name: str) -> str:
    """Returns the path of ``prometheus`` or ``promtool``. Fetches both if they are neither on PATH nor in the build
    folder. Skips the test on a system without apt; with apt, whatever goes wrong is a failure.

    Raises:
        RuntimeError: the package cannot be fetched.
    """
    if found := shutil.which(name):
        return found
    fetched = FOLDER / PACKAGE / "usr" / "bin" / name
    if not fetched.exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
            pytest.skip(f"no {name} on PATH, and no apt to fetch it: install Prometheus")
        with _alone():
            if not fetched.exists():
                _fetch()
    return str(fetched)


@contextmanager
def _alone() -> Iterator[None]:
    """Several test processes may want the tools at once."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch() -> None:
    with TemporaryDirectory(dir=FOLDER) as made:
        folder = Path(made)
        if why := _download(folder, []):
            # No package lists here, or old ones. Fresh ones are kept beside the package, for which nobody needs to be
            # root, and the system's stay as they are.
            lists = _lists(folder / "apt")
            why = _run(folder, "apt-get", *lists, "update") or _download(folder, lists)
            if why:
                raise RuntimeError(f"apt-get cannot fetch the package {PACKAGE}: {why}; or install it yourself")
        (package,) = folder.glob(f"{PACKAGE}_*.deb")
        if why := _run(folder, "dpkg", "-x", str(package), "unpacked"):
            raise RuntimeError(f"dpkg cannot unpack {package.name}: {why}")
        shutil.rmtree(FOLDER / PACKAGE, ignore_errors=True)
        # In one step: what is there is whole.
        (folder / "unpacked").rename(FOLDER / PACKAGE)


def _download(folder: Path, options: list[str]) -> str:
    return _run(folder, "apt-get", *options, "download", PACKAGE)


def _lists(folder: Path) -> list[str]:
    """Options by which apt keeps its lists and caches in this folder."""
    for part in ("lists/partial", "archives/partial"):
        (folder / part).mkdir(parents=True)
    places = {"State::lists": "lists", "Cache": ".", "Cache::archives": "archives"}
    return [word for key, place in places.items() for word in ("-o", f"Dir::{key}={folder / place}")]


def _run(folder: Path, *command: str) -> str:
    """Runs it there. Returns the end of what it complained of; empty: it succeeded."""
    told = subprocess.run(
        command, cwd=folder, env=os.environ | {"LC_ALL": "C"}, capture_output=True, text=True, check=False,
        timeout=FETCH_S,
    )  # fmt: skip
    return "" if told.returncode == 0 else (told.stderr or told.stdout or f"exit code {told.returncode}")[-1_000:]


if __name__ == "__main__":
    sys.stdout.write(f"{tool('promtool')}\n{tool('prometheus')}\n")
