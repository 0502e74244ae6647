"""Where a program is in a partition that it reads, and where it begins."""

from collections.abc import Mapping

from mirror.net.logs.leader_requests import EARLIEST, LATEST
from mirror.raw.errors import NoOffset
from mirror.raw.model import TopicPartition
from mirror.raw.settings import ConsumerSettings

RESETS = {"earliest": EARLIEST, "latest": LATEST}
"""``auto.offset.reset``, as ListOffsets asks for it."""


class Position:
    """The position in one partition. Assigned by ``RawConsumer`` only, in the program's thread.

    Attributes:
        offset: of the next record that ``poll`` returns; None: it has to be looked up.
        begin: where to begin then: EARLIEST or LATEST; None: at the committed offset, if there is one.
        leader_epoch: of the batch before; -1: not known.
        paused: it is not fetched.
    """

    __slots__ = ("begin", "leader_epoch", "offset", "paused")

    def __init__(self) -> None:
        self.offset: int | None = None
        self.begin: int | None = None
        self.leader_epoch = -1
        self.paused = False

    def move(self, offset: int | None, *, begin: int | None = None) -> None:
        """Goes elsewhere than to the next record."""
        self.offset, self.begin, self.leader_epoch = offset, begin, -1


def begins(wanted: Mapping[TopicPartition, Position], settings: ConsumerSettings) -> dict[int, list[TopicPartition]]:
    """Returns where partitions begin that have no committed offset: EARLIEST or LATEST -> those of them.

    Raises:
        NoOffset: nothing says it for one of them.
    """
    reset = RESETS.get(settings.auto_offset_reset)
    found: dict[int, list[TopicPartition]] = {}
    for at, position in wanted.items():
        begin = reset if position.begin is None else position.begin
        if begin is None:
            why = f"group {settings.group_id} has no offset for it" if settings.group_id else "there is no group.id"
            raise NoOffset(
                f"{at.topic}-{at.partition}: {why}, and auto.offset.reset is none; seek() to where reading begins",
                topic=at.topic,
                partition=at.partition,
                offset=-1,
            )
        found.setdefault(begin, []).append(at)
    return found
