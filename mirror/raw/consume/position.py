"""A program's position in a partition that it reads, and the offset at which it begins."""

from collections.abc import Mapping

from mirror.net.logs.leader_requests import EARLIEST, LATEST
from mirror.raw.consume.cursor import NOTHING
from mirror.raw.errors import NoOffset
from mirror.raw.model import TopicPartition
from mirror.raw.settings import ConsumerSettings

RESETS = {"earliest": EARLIEST, "latest": LATEST}
"""Value of ``auto.offset.reset`` -> timestamp for ListOffsets."""


class Position:
    """The position in one partition. Only ``RawConsumer`` assigns its fields, in the program's thread.

    Attributes:
        offset: offset of the next record that ``poll`` returns; None: it has to be looked up.
        begin: how to look it up: EARLIEST or LATEST; None: the committed offset, or else by ``auto.offset.reset``.
        before: what was read before that offset.
        paused: True if the partition is not fetched.
        applied: True once the event loop fetches the partition at ``offset``, or does not fetch it, as the position
            says. False from each change of it until then, so that an interrupt between the two is made up for.
    """

    __slots__ = ("applied", "before", "begin", "offset", "paused")

    def __init__(self) -> None:
        self.offset: int | None = None
        self.begin: int | None = None
        self.before = NOTHING
        self.paused = self.applied = False

    def move(self, offset: int | None, *, begin: int | None = None) -> None:
        """Sets the position to another offset than that of the next record. ``begin``: if ``offset`` is None."""
        self.applied = False
        self.offset, self.begin, self.before = offset, begin, NOTHING

    def pause(self, paused: bool) -> None:
        """Sets whether the partition is paused."""
        self.applied = False
        self.paused = paused


def begins(wanted: Mapping[TopicPartition, Position], settings: ConsumerSettings) -> dict[int, list[TopicPartition]]:
    """Returns where to begin in partitions without a committed offset: EARLIEST or LATEST -> partitions.

    Raises:
        NoOffset: for one of them, neither its position nor ``auto.offset.reset`` says where to begin.
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
