"""Fetch sessions of a fake broker (KIP-227), kept as ``kafka.server.FetchSession`` does."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mirror.wire.errors import ErrorCode

FINAL_EPOCH = -1
LEAST_VERSION = 7


class Wanted(NamedTuple):
    """A partition of a Fetch request: its topic's name and id, and its fields."""

    topic: str | None
    topic_id: Any
    asked: Any

    @property
    def key(self) -> tuple[Any, ...]:
        """Identifies the partition in a session."""
        return (self.topic, self.topic_id, self.asked.partition)


@dataclass(slots=True)
class Session:
    """What a broker remembers of one client's fetches."""

    session_id: int
    epoch: int = 1
    members: dict[tuple[Any, ...], Wanted] = field(default_factory=dict)
    told: dict[tuple[Any, ...], tuple[int, int]] = field(default_factory=dict)
    """Partition -> the high watermark and the log start in its last response."""

    def has_news(self, wanted: Wanted, answer: Any) -> bool:
        """Returns True if an incremental response must name the partition. A partition with records moves to the end of
        the session."""
        told = (answer.high_watermark, answer.log_start_offset)
        if not (
            answer.records
            or answer.error_code
            or answer.diverging_epoch is not None
            or self.told.get(wanted.key) != told
        ):
            return False
        self.told[wanted.key] = told
        if answer.error_code:
            del self.told[wanted.key]  # so it is named in the next response, too
        if answer.records:
            self.members[wanted.key] = self.members.pop(wanted.key)
        return True


def wanted_of(request: Any) -> list[Wanted]:
    """Returns the partitions of the request, in its order."""
    return [Wanted(topic.topic, topic.topic_id, asked) for topic in request.topics or () for asked in topic.partitions]


class Sessions:
    """The sessions of one broker. ``slots``: how many it keeps at most; with 0, every request must name everything."""

    def __init__(self, slots: int = 1000) -> None:
        self.slots = slots
        self.kept: dict[int, Session] = {}
        self._last_id = 0

    def open(self, request: Any) -> tuple[int, Session | None, bool]:
        """Returns the error code, the session (None: the request is outside of any), and True if the response has only
        what is new."""
        if request.version < LEAST_VERSION:
            return 0, None, False
        if request.session_epoch in (0, FINAL_EPOCH):
            self.kept.pop(request.session_id, None)
            if request.session_epoch == FINAL_EPOCH or len(self.kept) >= self.slots:
                return 0, None, False
            self._last_id += 1
            session = self.kept[self._last_id] = Session(self._last_id)
            session.members = {wanted.key: wanted for wanted in wanted_of(request)}
            return 0, session, False
        known = self.kept.get(request.session_id)
        if known is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND, None, False
        if known.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, None, False
        known.epoch += 1
        for wanted in wanted_of(request):
            known.members[wanted.key] = wanted
        for topic in request.forgotten_topics_data or ():
            for index in topic.partitions:
                for key in [key for key in known.members if key[2] == index and topic_is(topic, key)]:
                    del known.members[key]
                    known.told.pop(key, None)
        return 0, known, True


def topic_is(forgotten: Any, key: tuple[Any, ...]) -> bool:
    """Returns True if a forgotten topic is the one in the key: by name, or by id from version 13 on."""
    return bool(forgotten.topic == key[0] if forgotten.topic else forgotten.topic_id == key[1])
