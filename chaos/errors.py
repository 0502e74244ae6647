"""What keeps a scenario from being carried out, with what to do about it."""

__all__ = ["ChaosError"]


class ChaosError(Exception):
    """A scenario could not be carried out. The message names the thing, the place and the remedy."""

    def __init__(
        self, problem: str, remedy: str = "see the log of the run; run it again alone with CHAOS_ONLY"
    ) -> None:
        super().__init__(f"{problem}\n  {remedy}")
        self.problem = problem
        self.remedy = remedy
