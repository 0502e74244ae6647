"""The one error of the sandbox: what went wrong, and what to do about it."""

from __future__ import annotations

__all__ = ["SandboxError"]


class SandboxError(Exception):
    """Something the sandbox was asked for cannot be had.

    Args:
        problem: what failed and where, in one sentence.
        remedy: what the reader can do about it.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}\n  remedy: {remedy}")
        self.problem = problem
        self.remedy = remedy
