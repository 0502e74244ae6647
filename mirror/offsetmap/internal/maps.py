"""Puts a partition's offset map together from the internal topic's records."""

from collections.abc import Iterable

from mirror.offsetmap.entries.chunks import MapChunk, joined
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.internal.memory import RESTORE, StateUnusable
from mirror.offsetmap.runs import MapError, OffsetMap


def whole_map(topic: str, ledger: Ledger, subject: Subject, *, gone_to: int) -> OffsetMap:
    """Returns a partition's map.

    Args:
        topic: the internal topic's name, for messages.
        ledger: the topic's content; not lean.
        subject: the partition.
        gone_to: the start of the destination's log. Chunks before it need not exist.

    Raises:
        StateUnusable: the partition's chunks do not make one map, or one is missing.
    """
    try:
        chunks = ledger.linked(subject, gone_to=gone_to)
    except MapError as error:
        raise StateUnusable(
            f"topic {topic} lacks a part of the offset map of {subject.name}: {error}; somebody has deleted what stood "
            "there, so offsets of this partition cannot be translated. `mirror status` says whether it has halted, and "
            "how to rebuild the map"
        ) from error
    return joined_map(topic, chunks)


def joined_map(topic: str, chunks: Iterable[MapChunk]) -> OffsetMap:
    """Returns the map that these chunks of the internal topic make together (``chunks.joined``).

    Raises:
        StateUnusable: they do not make one map.
    """
    try:
        return joined(chunks)
    except MapError as error:
        raise StateUnusable(f"topic {topic}: its records do not make one offset map: {error}; {RESTORE}") from error
