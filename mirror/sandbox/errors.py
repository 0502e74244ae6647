"""The sandbox's only error: what went wrong, and what to do about it."""

from __future__ import annotations

__all__ = ["SandboxError"]


class SandboxError(Exception):
    """The sandbox cannot do what it was asked to do.

    Args:
        problem: what failed and where, in one sentence.
        remedy: what the reader can do about it.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}\n  remedy: {remedy}")
        self.problem = problem
        self.remedy = remedy
