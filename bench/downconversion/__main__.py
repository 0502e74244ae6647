"""``python -m bench.downconversion``: see ``bench.downconversion.plan`` for the environment variables."""

import os
import sys

from bench.data import room
from bench.downconversion import memory, rounds
from bench.downconversion.plan import DOCUMENT, Plan, from_environment
from bench.downconversion.plan import __doc__ as plan_text
from bench.downconversion.report import document
from bench.errors import exit_code_of
from bench.report import machine
from lab.commit import of_now, since
from lab.console import Progress, no_arguments

__all__ = ["main"]


def main() -> int:
    """Runs the plan that the environment variables describe, and returns the exit code."""
    no_arguments("bench.downconversion", plan_text)
    return exit_code_of(_run)


def _run() -> None:
    plan = from_environment(os.environ)
    with Progress() as progress:
        _measure(plan, progress)
    print(f"written to {plan.out}")


def _measure(plan: Plan, progress: Progress) -> None:
    if not plan.quick:
        room.find(os.environ)
    here, begun = machine.describe(), of_now(DOCUMENT)
    progress.line(here.sentence())
    rows, found = [], None
    if "table" in plan.parts:
        progress.step("chunk sizes")
        rows = rounds.measure(plan, progress.line)
    if "memory" in plan.parts:
        progress.step("the memory test")
        found = memory.measure(plan, progress.line)
    plan.out.parent.mkdir(parents=True, exist_ok=True)
    text = document(plan, machine=here, commit=since(begun, DOCUMENT), rows=rows, memory=found)
    plan.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
