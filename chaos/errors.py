"""The error of a scenario that could not be carried out, with its remedy; and the text for unexpected exceptions."""

import traceback
from pathlib import Path

__all__ = ["ChaosError", "unforeseen"]

_HERE = Path(__file__).parent
_LINES = 4


class ChaosError(Exception):
    """A scenario could not be carried out. The message has the problem and, on a second line, the remedy."""

    def __init__(
        self, problem: str, remedy: str = "see the log of the run; run it again alone with CHAOS_ONLY"
    ) -> None:
        super().__init__(f"{problem}\n  {remedy}")
        self.problem = problem
        self.remedy = remedy


def unforeseen(error: BaseException) -> str:
    """Returns a text for an unexpected exception, with the last of the suite's lines in its traceback: the exception
    itself may have no message."""
    lines = [one for one in traceback.extract_tb(error.__traceback__) if _HERE in Path(one.filename).parents]
    way = " > ".join(f"{Path(one.filename).relative_to(_HERE.parent)}:{one.lineno}" for one in lines[-_LINES:])
    return f"{type(error).__name__}: {error} ({way or 'from outside the suite'})"
