"""What is built for others: one wheel for every Python, with the files that are printed; sources that can be tested."""

import ctypes
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from mirror import DISTRIBUTION

pytestmark = pytest.mark.long
ROOT = Path(__file__).parent.parent.parent
INTERNAL = ("outbox_add", "outbox_first", "outbox_type")
"""Functions that the files of the extension share."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source archive, and a wheel that is built from it alone."""
    root = tmp_path_factory.mktemp("built")
    sources = root / "sources"
    leave = shutil.ignore_patterns(".*", "build", "out", "*.so", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, sources, ignore=leave)
    out = root / "out"
    told = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(sources)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as pip does it."""
    target = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def test_one_wheel_for_every_python(wheel: Path) -> None:
    name, _, python, abi, platform = wheel.stem.split("-")
    assert name == DISTRIBUTION.replace("-", "_")
    assert (python, abi) == ("cp311", "abi3")
    assert platform.startswith("linux_")


def test_what_is_in_the_wheel(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    ours = {name for name in names if name.startswith("mirror/")}
    assert {"mirror/py.typed", "mirror/relay/hot/_native.abi3.so", "mirror/relay/hot/_native.pyi"} <= ours
    assert {f"mirror/configs/{name}.yaml" for name in ("alerts", "example", "reference")} <= ours
    assert {"openapi.json", "page/page.css", "page/page.js"} <= {
        name.removeprefix("mirror/service/http/") for name in ours
    }
    assert not [name for name in names if name.endswith((".c", ".h"))]
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"mirror"}


def test_symbols_are_hidden(installed: Path) -> None:
    """Of the extension nothing is to be found but what Python asks for."""
    library = ctypes.CDLL(str(installed / "mirror" / "relay" / "hot" / "_native.abi3.so"))
    assert hasattr(library, "PyInit__native")
    assert not [name for name in INTERNAL if hasattr(library, name)]


def test_internal_names_are_right() -> None:
    """They would be found, were they not hidden."""
    header = (ROOT / "mirror" / "relay" / "hot" / "c" / "_native.h").read_text()
    assert all(f"{name}(" in header for name in INTERNAL)


@pytest.mark.parametrize("name", ["example", "reference", "alerts"])
def test_it_prints_its_files(installed: Path, tmp_path: Path, name: str) -> None:
    """From the wheel alone, with the compiled code."""
    told = subprocess.run(
        [sys.executable, "-m", "mirror", "config", name],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(installed)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert told.stdout == (ROOT / "mirror" / "configs" / f"{name}.yaml").read_text()


def test_the_sources_can_run_the_tests(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        names = {name.partition("/")[2] for name in sources.getnames()}
    wanted = {"Makefile", "pyproject.toml", "scripts/fastest-python", "tests/conftest.py", "tests/vectors/README.md"}
    wanted |= {"bench/__main__.py", "chaos/__main__.py", "mirror/relay/hot/c/_native.c", "docs/DESIGN.md"}
    wanted |= {
        "docs/runbooks/README.md",
        "deploy/grafana/generate.py",
        "deploy/grafana/dashboards/mirror-overview.json",
    }
    assert wanted <= names
    tests = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*") if path.suffix in (".py", ".bin")}
    assert tests <= names
