"""Builds the error with which a value is refused: a problem and a remedy."""

from pydantic_core import PydanticCustomError

REFUSED = "refused"
"""The `type` of every pydantic error that our own checks raise; its context holds `problem` and `remedy`."""


def refused(problem: str, remedy: str, at: str = "") -> PydanticCustomError:
    """Returns the error for an invalid value. `at`: another key, whose line is shown if the value is a default."""
    return PydanticCustomError(REFUSED, "{problem}; {remedy}", {"problem": problem, "remedy": remedy, "at": at})
