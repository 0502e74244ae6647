"""What the writers were acknowledged, and whether a cluster holds it. Pure, but for ``content``'s argument.

A copy may equal what the source holds and lack a record all the same: one that the source has lost as well. So what a
producer was told to be stored is kept apart from what the source holds in the end.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Message

from chaos.reading import Reading
from chaos.sides import Name, Offsets

__all__ = ["Acknowledged", "content", "content_of", "unkept"]

_SHOWN = 5
Headers = Sequence[tuple[str, bytes | str | None]]


@dataclass(slots=True)
class Acknowledged:
    """What some writers were told; one writer's is written by its own thread.

    Attributes:
        placed: per partition: offset at the source -> content of the record.
        ordered: per partition: contents of all that a reader of committed records gets there, in this order.
        deaf: topics whose writer is never told anything.
    """

    placed: dict[Name, dict[int, bytes]] = field(default_factory=dict)
    ordered: dict[Name, list[bytes]] = field(default_factory=dict)
    deaf: set[str] = field(default_factory=set)

    def note(self, name: Name, offset: int, one: bytes) -> None:
        """The source has this record there."""
        self.placed.setdefault(name, {})[offset] = one

    def add(self, other: "Acknowledged") -> None:
        """Take in what another writer was told."""
        for name, records in other.placed.items():
            self.placed.setdefault(name, {}).update(records)
        self.ordered |= other.ordered
        self.deaf |= other.deaf

    @property
    def count(self) -> int:
        """Records."""
        return sum(map(len, (*self.placed.values(), *self.ordered.values())))

    def silent(self, topics: Iterable[str]) -> list[str]:
        """Of these topics, those of which nothing was acknowledged, and whose writer can hear."""
        told = {topic for records in (self.placed, self.ordered) for (topic, _), ones in records.items() if ones}
        return [topic for topic in topics if topic not in told | self.deaf]


def content(key: bytes | None, value: bytes | None, headers: Headers | None) -> bytes:
    """What a producer knows of a record when it hands it over (the timestamp may be set later), in 12 bytes."""
    return hashlib.blake2b(repr((key, value, list(headers or ()))).encode(), digest_size=12).digest()


def content_of(message: Message) -> bytes:
    """The same of a record that was read."""
    key, value = message.key(), message.value()
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    return content(key, value, message.headers())


def unkept(told: Acknowledged, held: Reading, *, exact: bool, starts: Offsets | None = None) -> list[str]:
    """What was acknowledged and is not held, or more than once, in words.

    Args:
        told: to the writers.
        held: per partition: offset -> content, as a reader of committed records gets it.
        exact: a record has to be at the offset of its acknowledgement; else once in its partition, in the same order.
        starts: offsets of acknowledgements below which records may have been deleted.
    """
    out: list[str] = []
    for name, records in told.placed.items():
        start = (starts or {}).get(name, 0)
        due = {offset: one for offset, one in sorted(records.items()) if offset >= start}
        out += _misplaced(name, due, held.get(name, {})) if exact else _unordered(name, due, held.get(name, {}))
    for name, ones in told.ordered.items():
        found = list(held.get(name, {}).values())
        if found[: len(ones)] != ones:
            at = next((at for at, (a, b) in enumerate(zip(ones, found, strict=False)) if a != b), len(found))
            out.append(
                f"{_label(name)}: of {len(ones)} records that were acknowledged in this order, it differs at {at}"
            )
    return out


def _misplaced(name: Name, due: Mapping[int, bytes], held: Mapping[int, bytes]) -> list[str]:
    lacking = [offset for offset, one in due.items() if held.get(offset) != one]
    return [f"{_label(name)} lacks {_places(lacking)}"] if lacking else []


def _unordered(name: Name, due: Mapping[int, bytes], held: Mapping[int, bytes]) -> list[str]:
    counts = Counter(held.values())
    out = []
    if lacking := [offset for offset, one in due.items() if not counts[one]]:
        out.append(f"{_label(name)} lacks what was acknowledged at {_places(lacking)}")
    if doubled := [offset for offset, one in due.items() if counts[one] > 1]:
        out.append(f"{_label(name)} holds more than once what was acknowledged at {_places(doubled)}")
    known = frozenset(due.values())
    if not out and [one for one in held.values() if one in known] != list(due.values()):
        out.append(f"{_label(name)} holds what was acknowledged in another order")
    return out


def _label(name: Name) -> str:
    return f"{name[0]}-{name[1]}"


def _places(offsets: Sequence[int]) -> str:
    more = f" and {len(offsets) - _SHOWN} more" if len(offsets) > _SHOWN else ""
    return f"{', '.join(map(str, offsets[:_SHOWN]))}{more}"
