"""Outcomes of work on a partition beside its data path: done, or the partition halts, or its position is in doubt.

``attempted`` turns the exceptions of such work into an outcome, and ``Relay.act`` acts on it. Locating has its own
rules for exceptions (``relay.locate.seeking``): if a position cannot be found now, it is looked for again.
"""

from collections.abc import Awaitable
from typing import NamedTuple, Self, TypeVar

from mirror.net.errors import NetworkError
from mirror.relay.halts import Halted, PartitionHalted

NOT_OWNER = "not_owner"
END_MOVED = "end_moved"
Result = TypeVar("Result")


class NotOurs(NetworkError):
    """Raised if another worker has taken the partition over. The partition is left to that worker for a while."""

    slug = NOT_OWNER

    def __init__(self, name: str, what: str = "has taken it over") -> None:
        """``name``: the partition's name. ``what``: what the other worker has done, as the end of a sentence."""
        super().__init__(f"{name}: another worker {what}")


class Moved(Exception):
    """Raised if a log does not end where it should, possibly does not, or differs from what was sent.

    Attributes:
        cause: a stable name, for metrics and logs.
        unsettled: True if something that was sent may still arrive.
    """

    def __init__(self, cause: str, detail: str, *, unsettled: bool = False) -> None:
        super().__init__(detail)
        self.cause = cause
        self.unsettled = unsettled


class Doubt(NamedTuple):
    """The position is not certain any more: the partition has to be located again.

    Attributes:
        cause: a stable name, for metrics and logs.
        detail: the values involved.
        taken_over: True if another worker has the partition, which is then left to that worker for a while.
        unsettled: True if something that was sent may still arrive. The next position is then settled first.
    """

    cause: str
    detail: str
    taken_over: bool = False
    unsettled: bool = False

    @classmethod
    def of(cls, error: NetworkError | Moved) -> Self:
        """Returns the doubt into which the error puts the partition."""
        if isinstance(error, Moved):
            return cls(error.cause, str(error), unsettled=error.unsettled)
        return cls(error.slug, str(error), taken_over=isinstance(error, NotOurs))


async def attempted(work: Awaitable[Result]) -> Result | Halted | Doubt:
    """Awaits the work. Returns its result, or the outcome for the partition if the state of a log or of a cluster
    stopped it.

    Other exceptions are bugs and are not caught.
    """
    try:
        return await work
    except PartitionHalted as stop:
        return stop.halted
    except (NetworkError, Moved) as error:
        return Doubt.of(error)
