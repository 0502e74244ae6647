"""Compares two looks at a flow: have the producers stopped, and are the topics still the same? Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mirror.offsetmap.fields import ids_differ
from mirror.service.offsets.ends import Key, PartitionEnds

Ends = dict[str, dict[str, int]]
"""topic -> partition (as text, for JSON) -> the source's log end."""

Topics = dict[str, dict[str, str | None]]
"""topic -> its ``into``, ``source_id`` and ``destination_id`` (see ``PartitionEnds``)."""


class Written(NamedTuple):
    """A partition whose source is written to. ``records``: how many were added, counted as offsets."""

    name: str
    records: int
    per_second: float

    def told(self) -> str:
        """Returns the finding in words."""
        return f"{self.name}: {self.records:,} records, {self.per_second:,.1f} a second"


def ends_of(rows: Iterable[PartitionEnds]) -> Ends:
    """Returns the source's log ends of these partitions."""
    found: Ends = {}
    for row in rows:
        found.setdefault(row.topic, {})[str(row.partition)] = row.source_end
    return found


def topics_of(rows: Iterable[PartitionEnds]) -> Topics:
    """Returns names and ids of the topics of these partitions."""
    return {
        row.topic: {"into": row.into, "source_id": row.source_id, "destination_id": row.destination_id} for row in rows
    }


def written(before: Iterable[PartitionEnds], after: Iterable[PartitionEnds], seconds: float) -> list[Written]:
    """Returns the partitions whose source has grown between two looks, those with most new records first. A partition
    that is new counts from its log start.

    Args:
        before: the partitions at the first look.
        after: the partitions at the second look.
        seconds: time between the looks.
    """
    known: Mapping[Key, int] = {row.key: row.source_end for row in before}
    found = [
        Written(row.name, came, came / max(seconds, 0.001))
        for row in after
        if (came := row.source_end - known.get(row.key, max(row.source_start, 0))) > 0
    ]
    return sorted(found, key=lambda one: (-one.records, one.name))


def unstable(rows: Iterable[PartitionEnds]) -> list[PartitionEnds]:
    """Returns the partitions whose last stable offset is before the log end: a transaction is open, or records are not
    replicated yet."""
    return [row for row in rows if row.source_stable < row.source_end]


def moved(before: Ends, after: Ends) -> list[str]:
    """Returns what has changed between two sets of ends, in words; empty: nothing."""
    flat = [{(topic, at): end for topic, ends in each.items() for at, end in ends.items()} for each in (before, after)]
    was, now = flat
    found = []
    for key in sorted(was.keys() | now.keys(), key=lambda each: (each[0], int(each[1]))):
        one, other = was.get(key), now.get(key)
        if one != other:
            found.append(f"{key[0]}-{key[1]}: from {_told(one)} to {_told(other)}")
    return found


def _told(end: int | None) -> str:
    return "nothing" if end is None else str(end)


def remade(before: Topics, after: Topics) -> list[str]:
    """Returns which topics were recreated, or go into another topic, in words; empty: none. Topics that are only in one
    of both do not count; their ends show them (``moved``)."""
    found = []
    for topic in sorted(before.keys() & after.keys()):
        was, now = before[topic], after[topic]
        if was["into"] != now["into"]:
            found.append(f"{topic} goes into {now['into']}, and went into {was['into']}")
        elif ids_differ(was["source_id"], now["source_id"]):
            found.append(f"{topic} was deleted and created again at the source")
        elif ids_differ(was["destination_id"], now["destination_id"]):
            found.append(f"{now['into']} was deleted and created again at the destination")
    return found
