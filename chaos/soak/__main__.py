"""``python -m chaos.soak [MINUTES]``: the exit code is 0 if nothing has grown and everything was copied."""

import argparse
import signal
import sys
from types import FrameType

from chaos.errors import ChaosError
from chaos.soak.plan import Plan
from chaos.soak.run import OUT, run, table
from lab.console import Progress
from mirror.sandbox import SandboxError

_LEAST_MINUTES = 2


def main() -> int:
    """Runs a soak, and returns the exit code."""
    usual = Plan()
    parser = argparse.ArgumentParser(prog="python -m chaos.soak", description="See docs/DESIGN.md#9-the-failure-suite.")
    parser.add_argument("minutes", type=int, nargs="?", default=usual.minutes, help=f"{usual.minutes} by default")
    parser.add_argument("--reload-s", type=float, default=usual.reload_s, help="between two of a minute's six changes")
    asked = parser.parse_args()
    if asked.minutes < _LEAST_MINUTES:
        parser.error(f"two halves need at least {_LEAST_MINUTES} minutes")
    signal.signal(signal.SIGTERM, _interrupted)  # like Ctrl-C: all processes are ended
    try:
        with Progress() as progress:
            result = run(Plan(minutes=asked.minutes, reload_s=asked.reload_s), progress)
            progress.show(table(result))
    except (ChaosError, SandboxError) as error:
        print(f"soak: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("soak: interrupted", file=sys.stderr)
        return 130
    for problem in result.problems:
        print(f"soak: {problem}", file=sys.stderr)
    print(f"all samples, and the mirror's log: {OUT}")
    return 1 if result.problems else 0


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
