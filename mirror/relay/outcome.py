"""Outcomes of work on a partition beside its data path: done, or the partition halts, or its position is in doubt.

``attempted`` turns the exceptions of such work into an outcome, and ``Relay.act`` acts on it. Locating has rules of its
own for them (``relay.locate.seeking``): a position that cannot be found now is looked for again.
"""

from collections.abc import Awaitable
from typing import NamedTuple, Self, TypeVar

from mirror.net.errors import NetworkError
from mirror.relay.halts import Halted, PartitionHalted

NOT_OWNER = "not_owner"
END_MOVED = "end_moved"
Result = TypeVar("Result")


class NotOurs(NetworkError):
    """Another worker has taken the partition over, and goes on with it. It is left to that worker for a while."""

    slug = NOT_OWNER

    def __init__(self, name: str, what: str = "has taken it over") -> None:
        """``name``: that of the partition. ``what``: what the other worker has done."""
        super().__init__(f"{name}: another worker {what}")


class Moved(Exception):
    """A log does not end where it should, or may not, or differs from what was sent. ``cause``: a stable name.
    ``unsettled``: True if something that was sent may still arrive."""

    def __init__(self, cause: str, detail: str, *, unsettled: bool = False) -> None:
        super().__init__(detail)
        self.cause = cause
        self.unsettled = unsettled


class Doubt(NamedTuple):
    """The position is not certain any more, and is located again.

    Attributes:
        cause: a stable name, which metrics and logs carry.
        detail: the values at hand.
        taken_over: another worker has the partition; it is left to that worker for a while.
        unsettled: something that was sent may still arrive, so that the next position is settled first.
    """

    cause: str
    detail: str
    taken_over: bool = False
    unsettled: bool = False

    @classmethod
    def of(cls, error: NetworkError | Moved) -> Self:
        """Returns the doubt that the error causes for the partition that met it."""
        if isinstance(error, Moved):
            return cls(error.cause, str(error), unsettled=error.unsettled)
        return cls(error.slug, str(error), taken_over=isinstance(error, NotOurs))


async def attempted(work: Awaitable[Result]) -> Result | Halted | Doubt:
    """Returns the work's result, or the outcome for the partition if the state of a log or a cluster stopped the work.

    Other exceptions are bugs, and are not caught.
    """
    try:
        return await work
    except PartitionHalted as stop:
        return stop.halted
    except (NetworkError, Moved) as error:
        return Doubt.of(error)
