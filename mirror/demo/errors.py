"""The demo's only error: what went wrong, and what to do about it."""

__all__ = ["DemoError"]


class DemoError(Exception):
    """The demo cannot go on.

    Args:
        problem: what failed and where, in one sentence; further lines may show a log.
        remedy: what the reader can do about it.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}\n  remedy: {remedy}")
        self.problem = problem
        self.remedy = remedy
