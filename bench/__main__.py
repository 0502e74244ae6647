"""``python -m bench``: see ``bench.plan`` for the environment variables."""

import os
import signal
import sys
from types import FrameType

from bench.errors import BenchError
from bench.goals import complaints
from bench.plan import __doc__ as plan_text
from bench.plan import from_environment
from bench.run import report, run
from lab.console import Progress, no_arguments
from mirror.sandbox import SandboxError


def main() -> int:
    """Runs the plan that the environment variables describe. Returns the exit code: 0 if no row has failed and no bound
    is missed, 130 if the run was interrupted, otherwise 1."""
    no_arguments("bench", plan_text)
    signal.signal(signal.SIGTERM, _interrupted)  # like Ctrl-C: all processes are ended, and the results are kept
    try:
        plan = from_environment(os.environ)
        with Progress() as progress:
            found = run(plan, progress)
        report(found, plan, progress.show)
        print(f"written to {plan.out}: compare.json, compare.md, compare.svg")
    except (BenchError, SandboxError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted; what was measured so far is kept", file=sys.stderr)
        return 130
    wrong = complaints(found)
    for line in wrong:
        print(f"bench: {line}", file=sys.stderr)
    return 1 if wrong else 0


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
