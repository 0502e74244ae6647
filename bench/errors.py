"""What goes wrong in a benchmark, with what to do about it."""

import sys
from collections.abc import Callable

from mirror.sandbox import SandboxError

__all__ = ["BenchError", "exit_code_of"]


class BenchError(Exception):
    """One run could not be measured. The message names the thing, the place and the remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}\n  {remedy}")
        self.problem = problem
        self.remedy = remedy


def exit_code_of(run: Callable[[], None]) -> int:
    """Runs a tool; the exit code. What cannot be measured is said on stderr, Ctrl-C needs no words."""
    try:
        run()
    except (BenchError, SandboxError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
