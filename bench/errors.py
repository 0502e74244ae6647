"""Errors of a benchmark, each with its remedy."""

import sys
from collections.abc import Callable

from mirror.sandbox import SandboxError

__all__ = ["BenchError", "exit_code_of"]


class BenchError(Exception):
    """Something could not be measured. The message has the problem and, on a second line, the remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}\n  {remedy}")
        self.problem = problem
        self.remedy = remedy


def exit_code_of(run: Callable[[], None]) -> int:
    """Runs a tool, and returns the exit code. Errors are printed on stderr; Ctrl-C prints nothing."""
    try:
        run()
    except (BenchError, SandboxError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
