"""``prometheus``, ``promtool`` and a browser: those on PATH, or Debian's packages, unpacked in the build folder.

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
BROWSER = "chromium-headless-shell"
"""The package, and the program in it; what it needs is fetched with it, as far as the system does not have it."""
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
    _have(fetched, PACKAGE, f"no {name} on PATH, and no apt to fetch it: install Prometheus")
    return str(fetched)


def browser() -> tuple[str, dict[str, str]]:
    """Returns the path of a Chromium without a screen, and the environment variables that it needs. Fetched, skipped
    and failed as ``tool``."""
    for name in (BROWSER, "chromium"):
        if found := shutil.which(name):
            return found, {}
    fetched = FOLDER / BROWSER / "usr" / "lib" / "chromium" / BROWSER
    _have(fetched, BROWSER, "no chromium on PATH, and no apt to fetch it: install Chromium", needs=True)
    libraries = sorted((FOLDER / BROWSER / "usr" / "lib").glob("*-linux-gnu*"))
    return str(fetched), {"LD_LIBRARY_PATH": ":".join(f"{each}:{each / 'pulseaudio'}" for each in libraries)}


def _have(fetched: Path, package: str, otherwise: str, *, needs: bool = False) -> None:
    """Sees to it that this file of a package is there. ``needs``: with what the package needs. ``otherwise``: why the
    test is skipped, where there is no apt."""
    if fetched.exists():
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        pytest.skip(otherwise)
    with _alone():
        if not fetched.exists():
            _fetch(package, needs=needs)


@contextmanager
def _alone() -> Iterator[None]:
    """Several test processes may want the tools at once."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(package: str, *, needs: bool) -> None:
    with TemporaryDirectory(dir=FOLDER) as made:
        folder = Path(made)
        if why := _download(folder, package, [], needs=needs):
            # No package lists here, or old ones. Fresh ones are kept beside the package, for which nobody needs to be
            # root, and the system's stay as they are.
            lists = _lists(folder / "apt")
            why = _run(folder, "apt-get", *lists, "update") or _download(folder, package, lists, needs=needs)
            if why:
                raise RuntimeError(f"apt-get cannot fetch the package {package}: {why}; or install it yourself")
        for each in folder.glob("*.deb"):
            if why := _run(folder, "dpkg", "-x", str(each), "unpacked"):
                raise RuntimeError(f"dpkg cannot unpack {each.name}: {why}")
        shutil.rmtree(FOLDER / package, ignore_errors=True)
        # In one step: what is there is whole.
        (folder / "unpacked").rename(FOLDER / package)


def _download(folder: Path, package: str, options: list[str], *, needs: bool) -> str:
    """Downloads a package. ``needs``: with those that it needs and this system does not have. Returns what went wrong;
    empty: nothing."""
    packages = [package]
    if needs:
        wanted = _ran(folder, "apt-get", *options, "install", "--simulate", "--no-install-recommends", package)
        if wanted.returncode:
            return _complaint(wanted)
        packages = [line.split()[1] for line in wanted.stdout.splitlines() if line.startswith("Inst ")]
    return _run(folder, "apt-get", *options, "download", *packages)


def _lists(folder: Path) -> list[str]:
    """Options by which apt keeps its lists and caches in this folder."""
    for part in ("lists/partial", "archives/partial"):
        (folder / part).mkdir(parents=True)
    places = {"State::lists": "lists", "Cache": ".", "Cache::archives": "archives"}
    return [word for key, place in places.items() for word in ("-o", f"Dir::{key}={folder / place}")]


def _run(folder: Path, *command: str) -> str:
    """Runs it there. Returns the end of what it complained of; empty: it succeeded."""
    told = _ran(folder, *command)
    return "" if told.returncode == 0 else _complaint(told)


def _ran(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, cwd=folder, env=os.environ | {"LC_ALL": "C"}, capture_output=True, text=True, check=False,
        timeout=FETCH_S,
    )  # fmt: skip


def _complaint(told: "subprocess.CompletedProcess[str]") -> str:
    return (told.stderr or told.stdout or f"exit code {told.returncode}")[-1_000:]


if __name__ == "__main__":
    sys.stdout.write(f"{tool('promtool')}\n{tool('prometheus')}\n{browser()[0]}\n")
