"""The error of a scenario that could not be carried out, with its remedy."""

__all__ = ["ChaosError"]


class ChaosError(Exception):
    """A scenario could not be carried out. The message names the thing, the place and the remedy."""

    def __init__(
        self, problem: str, remedy: str = "see the log of the run; run it again alone with CHAOS_ONLY"
    ) -> None:
        super().__init__(f"{problem}\n  {remedy}")
        self.problem = problem
        self.remedy = remedy
