"""What goes wrong in a benchmark, with what to do about it."""

__all__ = ["BenchError"]


class BenchError(Exception):
    """One run could not be measured. The message names the thing, the place and the remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}\n  {remedy}")
        self.problem = problem
        self.remedy = remedy
