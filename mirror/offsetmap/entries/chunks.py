"""The pieces of a partition's offset map, as the internal topic has them (``offsetmap.entries.entry``).

Each writer has its own chain of chunks, numbered from 0, which continues the chain that it took over. A map that lacks
a chunk would give wrong offsets. So only chunks that follow each other, back to the beginning, make a map.

Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from mirror.offsetmap import fields
from mirror.offsetmap.entries.keys import VERSION, Subject, dump, key_of
from mirror.offsetmap.runs import MapError, OffsetMap

CHUNK_RUNS = 1024
"""The number of runs of a full chunk: at most about 30 KB of JSON. A full chunk is never written again."""


class Order(NamedTuple):
    """Orders the accounts of a partition: by the number of the takeover, then by the identity that the coordinator
    gave. For two accounts of one takeover, ``Checkpoint.rank`` decides."""

    takeover: int
    producer_id: int
    epoch: int

    @classmethod
    def load(cls, value: Mapping[str, Any]) -> Self:
        """Reads the field ``order`` of a record."""
        return cls(*fields.numbers(value, "order", (0, fields.MOST), (-1, fields.MOST), (-1, fields.MOST_I16)))


class ChunkId(NamedTuple):
    """The identity of a chunk within its partition."""

    writer: str
    number: int


NOT_NOTED = ChunkId("", -1)
"""``MapChunk.follows`` in records of versions that did not note the previous chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapChunk:
    """A piece of a partition's map: a part of what ``writer`` has copied. ``number`` counts the writer's chunks from 0.

    ``since``: the source offset from which this writer's account replaces all accounts of lower order."""

    subject: Subject
    writer: str
    order: Order
    number: int
    since: int
    map: OffsetMap
    sealed: bool = False
    """True if the chunk is full: nothing more is added to it."""
    follows: ChunkId | None = NOT_NOTED
    """The last chunk of the account that this writer took over, which precedes the writer's first chunk. None: the map
    begins with the writer's first chunk."""
    gone_to: int = 0
    """The destination had deleted everything before this offset, so the map may lack it."""

    @property
    def id(self) -> ChunkId:
        """The identity of this chunk."""
        return ChunkId(self.writer, self.number)

    def key(self) -> bytes:
        """Returns the key: one for each chunk of each writer."""
        return key_of("map", self.subject, writer=self.writer, chunk=self.number)

    def value(self) -> bytes:
        """Returns the value, in JSON."""
        noted = {} if self.follows == NOT_NOTED else {"follows": self.follows, "gone_to": self.gone_to}
        known = {"v": VERSION, "order": self.order, "since": self.since, "sealed": self.sealed}
        return dump(known | noted | {"runs": self.map.pack()})

    @classmethod
    def load(cls, key: Mapping[str, Any], value: Mapping[str, Any]) -> Self:
        """Reads what ``key`` and ``value`` made. Older versions did not write ``follows`` and ``gone_to``."""
        return cls(
            subject=Subject.of(key),
            writer=fields.label(key, "writer"),
            order=Order.load(value),
            number=fields.number(key, "chunk"),
            since=fields.number(value, "since"),
            map=OffsetMap.unpack(value["runs"]),
            sealed=fields.flag(value, "sealed"),
            follows=_follows(value) if "follows" in value else NOT_NOTED,
            gone_to=fields.number(value, "gone_to") if "follows" in value else 0,
        )


def _follows(value: Mapping[str, Any]) -> ChunkId | None:
    if value["follows"] is None:
        return None
    writer, number = value["follows"]
    told = {"writer": writer, "number": number}
    return ChunkId(fields.label(told, "writer"), fields.number(told, "number"))


def linked(counted: Sequence[MapChunk], every: Iterable[MapChunk], *, writer: str, gone_to: int = 0) -> list[MapChunk]:
    """Returns the chunks of one partition that make its map, in order.

    Args:
        counted: the chunks that count (``Ledger.chunks``), in order.
        every: all existing chunks of the partition.
        writer: the writer of the account that counts.
        gone_to: the start of the destination's log. Chunks before it need not exist.

    Raises:
        MapError: a chunk is missing.
    """
    there = {chunk.id: chunk for chunk in every}
    last = max((chunk for chunk in counted if chunk.writer == writer), key=lambda one: one.number, default=None)
    if last is None:
        raise MapError(f"no chunk of writer {writer}, whose checkpoint counts")
    found = {last.id: last}
    gone_to = max(gone_to, last.gone_to)
    chunk = last
    while not (len(chunk.map) and chunk.map[0].destination <= gone_to):
        before = ChunkId(chunk.writer, chunk.number - 1) if chunk.number else chunk.follows
        if before == NOT_NOTED:
            at = next(at for at, one in enumerate(counted) if one.id == chunk.id)
            before = counted[at - 1].id if at else None
        if before is None:
            break
        if before not in there or before in found:
            raise MapError(f"chunk {before.number} of writer {before.writer} is missing")
        chunk = found[before] = there[before]
    return [*reversed(found.values())]


def joined(chunks: Iterable[MapChunk]) -> OffsetMap:
    """Returns the map that these chunks of one partition make together. They must be in order.

    Raises:
        MapError: they do not make one map.
    """
    found = OffsetMap()
    writer = ""
    for chunk in chunks:
        if chunk.writer != writer:
            writer = chunk.writer
            found.truncate(chunk.since)
            if len(chunk.map):
                # If the log has lost its end and was written again, the older account has offsets that do not exist.
                found.truncate_destination(chunk.map[0].destination)
        found.extend(chunk.map)
    return found
