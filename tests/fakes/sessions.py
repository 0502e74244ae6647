"""Fetch sessions of a fake broker (KIP-227), as ``kafka.server.FetchSession`` keeps them."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mirror.wire.errors import ErrorCode

FINAL_EPOCH = -1
LEAST_VERSION = 7


class Wanted(NamedTuple):
    """A partition of a request: its topic's name and id, and what is asked of it."""

    topic: str | None
    topic_id: Any
    asked: Any

    @property
    def key(self) -> tuple[Any, ...]:
        """What it is known by."""
        return (self.topic, self.topic_id, self.asked.partition)


@dataclass(slots=True)
class Session:
    """What a broker remembers of what one client fetches."""

    session_id: int
    epoch: int = 1
    members: dict[tuple[Any, ...], Wanted] = field(default_factory=dict)
    told: dict[tuple[Any, ...], tuple[int, int]] = field(default_factory=dict)
    """The high watermark and log start that each was told last."""

    def has_news(self, wanted: Wanted, answer: Any) -> bool:
        """Whether an incremental answer names the partition. One with records goes to the end."""
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
            del self.told[wanted.key]  # so that it is named again
        if answer.records:
            self.members[wanted.key] = self.members.pop(wanted.key)
        return True


def wanted_of(request: Any) -> list[Wanted]:
    """The partitions that the request names, in its order."""
    return [Wanted(topic.topic, topic.topic_id, asked) for topic in request.topics or () for asked in topic.partitions]


class Sessions:
    """Those of one broker. ``slots``: how many it keeps at most; 0: none, so that each request names everything."""

    def __init__(self, slots: int = 1000) -> None:
        self.slots = slots
        self.kept: dict[int, Session] = {}
        self._last_id = 0

    def open(self, request: Any) -> tuple[int, Session | None, bool]:
        """The error, the session (None: outside any), and whether the answer names only what is new."""
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
    """Whether a forgotten topic is the one of the key: by name, or from version 13 by id."""
    return bool(forgotten.topic == key[0] if forgotten.topic else forgotten.topic_id == key[1])
