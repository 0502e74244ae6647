"""The offset at which a copy begins, if that is not the source's start (``start.from``).

It is recorded before anything of the partition is copied, and never changed: a minute later, ``latest`` is another
offset. Two workers may decide at the same time. So each decision has its own key, and the first one in the topic
counts.

Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from mirror.offsetmap import fields
from mirror.offsetmap.entries.keys import VERSION, Subject, dump, key_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingOffset:
    """The source offset at which a partition's copy begins. The source's records before it are not copied."""

    subject: Subject
    writer: str
    """Different for each decision."""
    source_id: str | None
    """The topic id in hexadecimal, if the cluster has one. The entry does not count for another topic of this name."""
    offset: int
    batch: int
    """Base offset of the source batch that holds ``offset``; ``offset`` itself if a batch begins there, or if there was
    no batch yet."""
    leader_epoch: int
    """The epoch of the source's leader that was asked; -1: not known."""
    start_from: str
    """The setting that decided it, for people."""
    at_ms: int = 0

    def key(self) -> bytes:
        """Returns the key: one for each decision."""
        return key_of("starting", self.subject, writer=self.writer)

    def value(self) -> bytes:
        """Returns the value, in JSON."""
        return dump(
            {
                "v": VERSION,
                "source_id": self.source_id,
                "offset": self.offset,
                "batch": self.batch,
                "leader_epoch": self.leader_epoch,
                "start_from": self.start_from,
                "at_ms": self.at_ms,
            }
        )

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """Reads what ``key`` and ``value`` made."""
        offset = fields.number(value, "offset")
        return cls(
            subject=Subject.of(key),
            writer=fields.label(key, "writer"),
            source_id=fields.topic_id(value, "source_id"),
            offset=offset,
            batch=fields.number(value, "batch", most=offset),
            leader_epoch=fields.number(value, "leader_epoch", least=-1, most=fields.MOST_I32),
            start_from=fields.label(value, "start_from"),
            at_ms=fields.at_ms(value),
        )
