"""One target in a process of its own: ``python -m tests.fuzz.one TARGET FOLDER SECONDS``, or with files to play again.

FOLDER gets ``corpus`` (inputs that reach more code than those before) and ``found`` (inputs that did what none should).
Imports nothing of the mirror before atheris may instrument it.
"""

import base64
import importlib.util
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fuzz.corpus import changed, kept

if TYPE_CHECKING:
    from tests.fuzz.guard import Guard

GUIDED = "atheris, guided by coverage"
UNGUIDED = "Hypothesis, not guided by coverage, as atheris is not installed"
_HANG_S = 60
_RSS_MB = 3072


def engine() -> str:
    """Returns the engine that is there, in words."""
    return GUIDED if importlib.util.find_spec("atheris") else UNGUIDED


def main(arguments: list[str]) -> int:
    """The exit code: 0 if nothing was found."""
    match arguments:
        case ["--as", program, name, *options] if options:
            _with_atheris(name, options, program=program)
            return 0
        case [name, folder, seconds] if seconds.isdigit():
            return _fuzz(name, Path(folder), int(seconds))
        case [name, *files] if files and all(Path(file).is_file() for file in files):
            guard = _guard(name)
            for file in files:
                guard(Path(file).read_bytes())
            return 0
    print(__doc__, file=sys.stderr)
    return 64


def _guard(name: str) -> "Guard":
    from tests.fuzz.guard import Guard
    from tests.fuzz.targets import TARGETS

    return Guard(TARGETS[name])


def _fuzz(name: str, folder: Path, seconds: int) -> int:
    corpus, found = folder / "corpus", folder / "found"
    for each in (corpus, found):
        each.mkdir(parents=True, exist_ok=True)
    if engine() == UNGUIDED:
        return _with_hypothesis(name, found, seconds)
    from tests.fuzz.source import MOST_INPUT

    for number, data in enumerate(kept(name)):
        (corpus / f"kept-{number}").write_bytes(data)
    options = [
        f"-max_total_time={seconds}", f"-max_len={MOST_INPUT}", f"-timeout={_HANG_S}", f"-rss_limit_mb={_RSS_MB}",
        f"-artifact_prefix={found}/", "-print_final_stats=1",
    ]  # fmt: skip
    _with_atheris(name, [*options, str(corpus)])
    return 0


def _with_atheris(name: str, arguments: list[str], *, program: str = "") -> None:
    """Never returns: libFuzzer ends the process, and has written what it found into a file before.

    Args:
        name: of the target.
        arguments: libFuzzer's.
        program: what libFuzzer runs, with arguments of its own, where it needs a further process.
    """
    import atheris

    with atheris.instrument_imports(include=["mirror", "kafka.record"]):
        guard = _guard(name)
    atheris.Setup([program or name, *arguments], guard)
    atheris.Fuzz()


def _with_hypothesis(name: str, found: Path, seconds: int) -> int:
    """Inputs of the corpus, changed and put together at random; what fails is made small."""
    from hypothesis import HealthCheck, given, seed, settings

    guard = _guard(name)
    failed: list[bytes] = []
    count = 0

    @settings(max_examples=500, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(changed(name))
    def play(data: bytes) -> None:
        nonlocal count
        count += 1
        try:
            guard(data)
        except BaseException:
            failed.append(data)
            raise

    until: float = time.monotonic() + seconds
    again: Any = play
    while time.monotonic() < until:
        try:
            seed(random.getrandbits(64))(again)()
        except BaseException:
            smallest = failed[-1]
            (found / "hypothesis").write_bytes(smallest)
            print(f"input, in base64: {base64.b64encode(smallest).decode()}", file=sys.stderr)
            raise
    print(f"stat::number_of_executed_units: {count}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
