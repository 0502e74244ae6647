"""Records that were passed over because they are too large for the destination (``oversize.record``).

Each is recorded in the internal topic before a marker takes its offset at the destination. From then on, only this
entry tells that marker from one that is in the place of a record by mistake.

Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Self

from mirror.offsetmap import fields
from mirror.offsetmap.entries.keys import VERSION, Subject, dump, key_of

DROPPED = "oversize"
"""The cause of a record that was dropped."""
DEAD_LETTER = "dead_letter"
"""The cause of a record that was written to the dead letter topic, and acknowledged there."""
MOST_OFFSETS = 500
"""Maximum number of offsets in one entry. The entry is written again with each offset that is added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOverOffsets:
    """Offsets of records that were passed over, all of the same leader epoch of the source. Within an epoch, an offset
    has only one record. So this identifies the records, whatever the source has at these offsets later."""

    subject: Subject
    writer: str
    """Identifies the process that wrote it: two workers never add to the same entry."""
    offsets: tuple[int, ...]
    """In order; at least one."""
    leader_epoch: int
    source_id: str | None
    """Topic id in hexadecimal, if the cluster has one; ``destination_id`` likewise."""
    destination_id: str | None
    cause: str
    """``DROPPED`` or ``DEAD_LETTER``."""
    at_ms: int
    """When the last offset was added, in ms since 1970."""
    digests: tuple[str, ...] = ()
    """One digest for each record if these are old messages (leader epoch -1), because different ones may have been at
    the same offset. Empty for records of batches, and in entries of versions that did not note digests."""

    @property
    def start(self) -> int:
        """The first offset."""
        return self.offsets[0]

    @property
    def end(self) -> int:
        """The offset behind the last one."""
        return self.offsets[-1] + 1

    def key(self) -> bytes:
        """Returns the key. It names the first offset, the leader epoch and the writer."""
        return key_of("passed", self.subject, start=self.start, epoch=self.leader_epoch, writer=self.writer)

    def value(self) -> bytes:
        """Returns the value, in JSON. ``steps`` has the distance from each offset to the next one."""
        digests = {"digests": list(self.digests)} if self.digests else {}
        return dump(
            {
                "v": VERSION,
                "steps": [after - before for before, after in pairwise(self.offsets)],
                "source_id": self.source_id,
                "destination_id": self.destination_id,
                "cause": self.cause,
                "at_ms": self.at_ms,
            }
            | digests
        )

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """Reads what ``key`` and ``value`` made."""
        steps = value["steps"]
        many = len(steps) if type(steps) is list else -1
        if not 0 <= many < MOST_OFFSETS:
            raise ValueError(f"steps is not a list of at most {MOST_OFFSETS - 1} numbers")
        steps = fields.numbers(value, "steps", *[(1, fields.MOST)] * many)
        offsets = tuple(accumulate(steps, initial=fields.number(key, "start")))
        if offsets[-1] >= fields.MOST:
            raise ValueError("steps leads beyond the last offset")
        digests = value.get("digests", [])
        if type(digests) is not list or len(digests) not in (0, len(offsets)):
            raise ValueError("digests is not a list with one for each offset")
        return cls(
            subject=Subject.of(key),
            writer=fields.label(key, "writer"),
            offsets=offsets,
            leader_epoch=fields.number(key, "epoch", least=-1, most=fields.MOST_I32),
            source_id=fields.topic_id(value, "source_id"),
            destination_id=fields.topic_id(value, "destination_id"),
            cause=fields.label(value, "cause"),
            at_ms=fields.at_ms(value),
            digests=tuple(map(fields.digest, digests)),
        )
