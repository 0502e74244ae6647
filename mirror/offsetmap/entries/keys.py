"""The keys and values of the internal topic's records: JSON, which any consumer can read."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from mirror.offsetmap import fields

VERSION = 1
_COMPACT = (",", ":")


class Subject(NamedTuple):
    """The subject of a record: a source partition and the destination topic that it is copied into."""

    topic: str
    partition: int
    destination: str

    @property
    def name(self) -> str:
        """The partition and its destination topic in words, for messages."""
        return f"{self.topic}-{self.partition} in {self.destination}"

    @classmethod
    def of(cls, key: Mapping[str, Any]) -> "Subject":
        """Returns the subject of a key that ``key_of`` made."""
        return cls(
            fields.topic(key, "topic"),
            fields.number(key, "partition", most=fields.MOST_I32),
            fields.topic(key, "into"),
        )


def key_of(kind: str, subject: Subject, **rest: object) -> bytes:
    """Returns the key of a record about a partition."""
    return dump(
        {"kind": kind, "topic": subject.topic, "partition": subject.partition, "into": subject.destination} | rest
    )


def dump(value: Mapping[str, Any]) -> bytes:
    """Returns the value as JSON without spaces."""
    return json.dumps(value, separators=_COMPACT).encode()
