"""The records that were acknowledged to the writers, and the check that a cluster holds them. Pure, except for
``content_of``.

A copy may equal the source and still lack a record, if the source has lost it as well. So the records that were
acknowledged to a producer are kept, besides those that the source holds in the end.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Message

from chaos.judging.reading import Reading
from chaos.play.sides import Name, Offsets

__all__ = ["Acknowledged", "content", "content_of", "deletable", "judge_skipped", "surviving", "unkept"]

_SHOWN = 5
Headers = Sequence[tuple[str, bytes | str | None]]


@dataclass(slots=True)
class Acknowledged:
    """The acknowledgements to one or several writers. Those of a single writer are added by its own thread.

    Attributes:
        placed: partition -> offset at the source -> content of the record.
        ordered: partition -> contents of all records that a read_committed consumer gets there, in this order.
        deaf: topics whose writer does not report acknowledgements.
    """

    placed: dict[Name, dict[int, bytes]] = field(default_factory=dict)
    ordered: dict[Name, list[bytes]] = field(default_factory=dict)
    deaf: set[str] = field(default_factory=set)

    def note(self, name: Name, offset: int, one: bytes) -> None:
        """Notes that a record was acknowledged. ``offset``: its offset at the source; ``one``: its content."""
        self.placed.setdefault(name, {})[offset] = one

    def add(self, other: "Acknowledged") -> None:
        """Adds the acknowledgements to another writer."""
        for name, records in other.placed.items():
            self.placed.setdefault(name, {}).update(records)
        self.ordered |= other.ordered
        self.deaf |= other.deaf

    def of(self, names: Collection[Name]) -> "Acknowledged":
        """Returns only the acknowledgements of these partitions."""
        return Acknowledged(
            placed={name: ones for name, ones in self.placed.items() if name in names},
            ordered={name: ones for name, ones in self.ordered.items() if name in names},
            deaf=self.deaf,
        )

    @property
    def count(self) -> int:
        """Number of acknowledged records."""
        return sum(map(len, (*self.placed.values(), *self.ordered.values())))

    def silent(self, topics: Iterable[str]) -> list[str]:
        """Returns those of the topics of which no record was acknowledged, without those whose writer does not report
        acknowledgements."""
        told = {topic for records in (self.placed, self.ordered) for (topic, _), ones in records.items() if ones}
        return [topic for topic in topics if topic not in told | self.deaf]


KEY_BYTES = 6
"""Number of leading bytes of a content that are the same for all records with the same key."""


def content(key: bytes | None, value: bytes | None, headers: Headers | None) -> bytes:
    """Returns 18 bytes that identify a record by its key, value and headers. The timestamp is left out, since it may be
    set after the record was sent. The first ``KEY_BYTES`` bytes depend on the key only."""
    rest = hashlib.blake2b(repr((key, value, list(headers or ()))).encode(), digest_size=12).digest()
    return hashlib.blake2b(repr(key).encode(), digest_size=KEY_BYTES).digest() + rest


def content_of(message: Message) -> bytes:
    """Returns the ``content`` of a record that a consumer has read."""
    key, value = message.key(), message.value()
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    return content(key, value, message.headers())


def unkept(
    told: Acknowledged, held: Reading, *, exact: bool, starts: Offsets | None = None, source: Reading | None = None
) -> list[str]:  # fmt: skip
    """Returns, in words, the acknowledged records that a cluster does not hold, or holds more than once.

    Args:
        told: the acknowledgements to the writers.
        held: partition -> offset -> content, as a read_committed consumer of the cluster gets them.
        exact: True if a record has to be at its acknowledged offset; False: once in its partition, in order.
        starts: partition -> source offset below which records may have been deleted; None: none were.
        source: the records of the source, in the form of ``held``. A producer may have written a record twice although
            it was acknowledged once; then a copy has it twice as well.
    """
    out: list[str] = []
    for name, records in told.placed.items():
        start = (starts or {}).get(name, 0)
        due = {offset: one for offset, one in sorted(records.items()) if offset >= start}
        there, here = held.get(name, {}), (source or {}).get(name, {})
        out += _misplaced(name, due, there) if exact else _unordered(name, due, there, here)
    for name, ones in told.ordered.items():
        found = list(held.get(name, {}).values())
        if found[: len(ones)] != ones:
            at = next((at for at, (a, b) in enumerate(zip(ones, found, strict=False)) if a != b), len(found))
            out.append(
                f"{_label(name)}: of {len(ones)} records that were acknowledged in this order, it differs at {at}"
            )
    return out


def deletable(gap: tuple[int, int] | None, start: int) -> tuple[int, int] | None:
    """Returns the range of source offsets that may have been deleted before they were copied; None: there is none.

    Args:
        gap: the first offset that existed when records were deleted, and the one after the last; None: no record was
            deleted.
        start: the source's log start offset in the end. Brokers go on deleting for a while after retention was switched
            off, newer records included.
    """
    return None if gap is None else (gap[0], max(gap[1], start))


def judge_skipped(
    name: Name, ranges: Iterable[tuple[int, int]], gap: tuple[int, int] | None, due: Mapping[int, bytes],
    held: Mapping[int, bytes], *, exact: bool,
) -> list[str]:  # fmt: skip
    """Checks that all offsets which were reported as skipped are missing, and could not have been copied. Returns the
    violations in words.

    Args:
        name: the partition.
        ranges: the reported ranges, each as the first source offset and the one after the last.
        gap: the range of offsets that may have been deleted before they were copied; None: there is none.
        due: offset -> content of the acknowledged records.
        held: offset -> content of the destination's records.
        exact: True if offsets are the same on both sides.
    """
    told = {at for start, end in ranges for at in range(start, end)}
    out = []
    start, end = gap or (0, 0)
    if wrong := sorted(at for at in told if not start <= at < end):
        out.append(f"{_label(name)} tells of {_places(wrong)} as skipped, which the source had not deleted")
    there = frozenset(held.values())
    if wrong := sorted(at for at in told if at in due and (held.get(at) == due[at] if exact else due[at] in there)):
        out.append(f"{_label(name)} tells of {_places(wrong)} as skipped, which it has copied")
    return out


def surviving(
    due: Mapping[int, bytes], here: Mapping[int, bytes], there: Mapping[int, bytes], *, exact: bool
) -> list[str]:  # fmt: skip
    """Checks that a partition which is compacted on both sides has the same last record of each key. Returns the
    violations in words.

    Args:
        due: offset -> content of the acknowledged records.
        here: offset -> content of the source's records.
        there: offset -> content of the destination's records.
        exact: True if offsets are the same on both sides.
    """
    out = []
    last, copied, acknowledged = (_last_of_keys(one) for one in (here, there, due))
    if wrong := sorted(at for key, (at, _) in acknowledged.items() if last.get(key, (-1, b""))[0] < at):
        out.append(f"the source itself lacks what was acknowledged last of a key at {_places(wrong)}")
    if wrong := sorted(
        at for key, (at, one) in last.items()
        if copied.get(key, (-1, b""))[1] != one or (exact and copied[key][0] != at)
    ):  # fmt: skip
        out.append(f"the destination lacks what survives of a key at {_places(wrong)}")
    if wrong := [at for at, one in there.items() if exact and (due.get(at, one) != one or here.get(at, one) != one)]:
        out.append(f"the destination holds something else at {_places(sorted(wrong))}")
    if foreign := copied.keys() - last.keys():
        out.append(f"the destination holds {len(foreign)} keys that the source has not")
    return out


def _last_of_keys(records: Mapping[int, bytes]) -> dict[bytes, tuple[int, bytes]]:
    return {one[:KEY_BYTES]: (at, one) for at, one in sorted(records.items())}


def _misplaced(name: Name, due: Mapping[int, bytes], held: Mapping[int, bytes]) -> list[str]:
    lacking = [offset for offset, one in due.items() if held.get(offset) != one]
    return [f"{_label(name)} lacks {_places(lacking)}"] if lacking else []


def _unordered(
    name: Name, due: Mapping[int, bytes], held: Mapping[int, bytes], source: Mapping[int, bytes]
) -> list[str]:  # fmt: skip
    counts, written = Counter(held.values()), Counter(source.values())
    out = []
    if lacking := [offset for offset, one in due.items() if not counts[one]]:
        out.append(f"{_label(name)} lacks what was acknowledged at {_places(lacking)}")
    if doubled := [offset for offset, one in due.items() if counts[one] > max(1, written[one])]:
        out.append(f"{_label(name)} holds more than once what was acknowledged at {_places(doubled)}")
    once = [one for one in due.values() if written[one] <= 1]
    known = frozenset(once)
    if not out and [one for one in held.values() if one in known] != once:
        out.append(f"{_label(name)} holds what was acknowledged in another order")
    return out


def _label(name: Name) -> str:
    return f"{name[0]}-{name[1]}"


def _places(offsets: Sequence[int]) -> str:
    more = f" and {len(offsets) - _SHOWN} more" if len(offsets) > _SHOWN else ""
    return f"{', '.join(map(str, offsets[:_SHOWN]))}{more}"
