"""How a value is refused: with a problem and a remedy."""

from pydantic_core import PydanticCustomError

REFUSED = "refused"
"""The `type` of every pydantic error that is ours; its context holds `problem` and `remedy`."""


def refused(problem: str, remedy: str, at: str = "") -> PydanticCustomError:
    """Returns the error for an invalid value; `at` names another key, whose line is shown if the value is a default."""
    return PydanticCustomError(REFUSED, "{problem}; {remedy}", {"problem": problem, "remedy": remedy, "at": at})
