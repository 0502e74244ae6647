"""A partition's offset map, put together from the internal topic's records."""

from collections.abc import Iterable

from mirror.offsetmap.entries.chunks import MapChunk, joined
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.internal.memory import RESTORE, StateUnusable
from mirror.offsetmap.runs import MapError, OffsetMap


def whole_map(topic: str, ledger: Ledger, subject: Subject, *, gone_to: int) -> OffsetMap:
    """Returns a partition's map, from the internal topic. A lean ledger does not have it.

    Args:
        topic: the internal topic's name.
        ledger: the topic's content.
        subject: the partition.
        gone_to: where the destination's log starts.

    Raises:
        StateUnusable: its chunks do not make one map, or one is missing.
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
    """Returns what ``joined`` does, for chunks that the internal topic has.

    Raises:
        StateUnusable: they do not make one map.
    """
    try:
        return joined(chunks)
    except MapError as error:
        raise StateUnusable(f"topic {topic}: its records do not make one offset map: {error}; {RESTORE}") from error
