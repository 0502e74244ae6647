"""What a disk, or a hand at its files, can do."""

from collections.abc import Callable, Sequence

from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Side, Span
from mirror.records.header import CONTROL, HEADER_SIZE
from tests.audit.clusters import edited
from tests.audit.faults.copies import Copy
from tests.audit.faults.kinds.fault import (
    AT,
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    COMPACTED,
    CRC_AT,
    DESTINATION,
    EXACT,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    MAGIC_AT,
    MAPPED,
    PLAIN,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
    SOURCE,
    TRANSACTIONS,
    Shape,
    Told,
    changed,
    fault,
)
from tests.audit.faults.kinds.holes import HOLE


def _flipped(side: Side, byte: int, of: int = AT, mask: int = 1) -> Callable[[Copy], None]:
    def flip(copy: Copy) -> None:
        copy.flips.append((side, of, byte, mask))

    return flip


def _on_disk(name: str, side: Side, byte: int, mask: int = 1, shapes: Sequence[Shape] = EXACT) -> None:
    """A flipped bit that a checksum covers."""

    def spoil(copy: Copy) -> list[Told]:
        _flipped(side, byte, mask=mask)(copy)
        return [changed(copy, Kind.CORRUPT, AT)]

    spoil.__name__ = f"{side.value}_{name}"
    fault(*shapes)(spoil)


_on_disk("payload_flipped", SOURCE, HEADER_SIZE + 5, shapes=(PLAIN, TRANSACTIONS, COMPACTED, MAPPED))
_on_disk("payload_flipped", DESTINATION, HEADER_SIZE + 5, shapes=(PLAIN, TRANSACTIONS, COMPACTED, MAPPED))
for _side in Side:
    _on_disk("checksum_flipped", _side, CRC_AT)
    _on_disk("codec_flipped", _side, ATTRIBUTES_AT)
    _on_disk("control_bit_flipped", _side, ATTRIBUTES_AT, CONTROL)
    _on_disk("producer_id_flipped", _side, PRODUCER_ID_AT)
    _on_disk("record_count_flipped", _side, RECORD_COUNT_AT)


def _claims_the_most(side: Side, shapes: Sequence[Shape]) -> None:
    """The last batch says that it reaches two billion offsets further, and its checksum is right."""

    def spoil(copy: Copy) -> list[Told]:
        last = len(copy.spans) - 1
        before = copy.source[last].data if side is SOURCE else copy.data(last)
        after = edited(before, last_offset_delta=(1 << 31) - 1)
        for byte, (one, other) in enumerate(zip(before, after, strict=True)):
            if one != other:
                _flipped(side, byte, last, one ^ other)(copy)
        return [changed(copy, Kind.CORRUPT, last)]

    spoil.__name__ = f"{side.value}_claims_the_most"
    fault(*shapes)(spoil)


_claims_the_most(SOURCE, (PLAIN, COMPACTED, MAPPED))
_claims_the_most(DESTINATION, (PLAIN, COMPACTED))


@fault(PLAIN)
def both_sides_flipped_alike(copy: Copy) -> list[Told]:
    for side in Side:
        _flipped(side, HEADER_SIZE + 5)(copy)
    return [changed(copy, Kind.CORRUPT, AT)]


def _from_there_on(name: str, byte: int, mask: int, kind: Kind) -> None:
    """A flipped bit behind which the log cannot be read."""

    def spoil(copy: Copy) -> list[Told]:
        _flipped(DESTINATION, byte, mask=mask)(copy)
        return [Told(kind, None, Span(copy.spans[AT].start, copy.end))]

    spoil.__name__ = name
    fault(PLAIN)(spoil)


_from_there_on("length_flipped_up", LENGTH_AT, 0x40, Kind.UNREADABLE)
_from_there_on("last_offset_flipped", LAST_OFFSET_DELTA_AT, 1, Kind.CORRUPT)
_from_there_on("base_offset_flipped", BASE_OFFSET_AT, 0x20, Kind.CORRUPT)
_from_there_on("magic_flipped", MAGIC_AT, 0x04, Kind.CORRUPT)


@fault(TRANSACTIONS)
def a_marker_flipped(copy: Copy) -> list[Told]:
    """Of those that fill a hole: what it was is not to be known any more."""
    span = copy.spans[HOLE]
    copy.flips.append((DESTINATION, HOLE, HEADER_SIZE + 5, 1))
    return [Told(Kind.CORRUPT, None, Span(span.start, span.start + 1))]
