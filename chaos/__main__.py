"""``python -m chaos``: see ``chaos.suite.plan`` for the environment variables."""

import os
import signal
import sys
from types import FrameType

from chaos.errors import ChaosError
from chaos.suite.plan import __doc__ as plan_text
from chaos.suite.plan import from_environment
from chaos.suite.run import run
from lab.console import Progress, no_arguments
from mirror.sandbox import SandboxError


def main() -> int:
    """Runs the plan that the environment variables describe. Returns the exit code: 0 if every scenario held, 130 if
    the run was interrupted, otherwise 1."""
    no_arguments("chaos", plan_text)
    signal.signal(signal.SIGTERM, _interrupted)  # like Ctrl-C: all processes are ended, and the results are kept
    try:
        plan = from_environment(os.environ)
        with Progress() as progress:
            rows = run(plan, progress)
        held = sum(row.held for row in rows)
        print(f"{held} of {len(rows)} scenarios held")
        return 0 if held == len(rows) else 1
    except (ChaosError, SandboxError) as error:
        print(f"chaos: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("chaos: interrupted; what was run so far is kept", file=sys.stderr)
        return 130
    return 1


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
