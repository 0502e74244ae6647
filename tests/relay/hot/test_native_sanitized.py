"""The compiled forms under the compiler's sanitizers: their tests make them read and write nothing out of bounds."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from mirror.relay.hot.native import is_compiled

ROOT = Path(__file__).parents[3]
SOURCES = sorted(map(str, (ROOT / "mirror" / "relay" / "hot" / "c").glob("*.c")))
TESTS = (
    *(f"tests/relay/hot/test_{name}.py" for name in ("acks", "plain", "forward", "gather", "outbox")),
    "tests/relay/sending/test_lane.py",
    "tests/relay/holes/test_parking.py",
    *(f"tests/fuzz/test_corpus.py::{name}[scan]" for name in ("test_replayed", "test_the_first_inputs")),
)
PATIENCE_S = 300
INSTRUMENTED = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("mirror.relay.hot._native", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.modules["mirror.relay.hot._native"] = module
import pytest
from mirror.relay.hot import native
assert native.MODULE is module
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:randomly", *sys.argv[2:]]))
"""


def sanitizers() -> list[str]:
    """The libraries that have to be loaded first; none where there is no compiler that has them."""
    if not is_compiled() or shutil.which("gcc") is None:
        return []
    asked = [["gcc", f"-print-file-name={name}"] for name in ("libasan.so", "libubsan.so")]
    found = [subprocess.run(one, capture_output=True, text=True, check=True).stdout.strip() for one in asked]
    return found if all(Path(one).is_absolute() for one in found) else []


@pytest.mark.skipif(not sanitizers(), reason="no gcc with its sanitizers")
def test_nothing_out_of_bounds(tmp_path: Path) -> None:
    library = tmp_path / "_native.so"
    command = [
        "gcc",
        "-O1",
        "-g",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-fno-omit-frame-pointer",
    ]
    command += ["-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{sysconfig.get_path('include')}"]
    subprocess.run([*command, *SOURCES, "-o", str(library)], check=True)
    # Python's own allocator would hide where a small buffer ends; and what it keeps to the end is no leak of ours.
    environment = os.environ | {
        "LD_PRELOAD": " ".join(sanitizers()), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", INSTRUMENTED, str(library), *TESTS],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
