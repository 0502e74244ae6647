"""What is said of an exception that is none of the suite's own."""

from typing import Any

from chaos.errors import unforeseen
from chaos.waiting import until


def raised(condition: Any) -> BaseException:
    try:
        until(condition, "nothing")
    except Exception as error:
        return error
    raise AssertionError


def test_the_way_to_it() -> None:
    """A TimeoutError of a future has no text."""

    def late() -> bool:
        raise TimeoutError

    assert unforeseen(raised(late)).startswith("TimeoutError:  (chaos/waiting.py:")


def test_from_elsewhere() -> None:
    assert unforeseen(KeyError("a")) == "KeyError: 'a' (from outside the suite)"
