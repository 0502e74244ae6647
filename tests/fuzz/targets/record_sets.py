"""Record sets cut into batches: by ``records.scan``, and by both forms of the inner loop (``relay/hot``)."""

from itertools import pairwise
from typing import Any

from mirror.records.header import HEADER_SIZE, CorruptBatch
from mirror.records.intact import is_intact
from mirror.records.scan import BatchPlace, base_offset_at, scan, tail
from mirror.relay.hot.native import MODULE, PlainOutbox, is_compiled
from mirror.relay.hot.plain import PLAIN_ATTRIBUTES, InnerLoop, Taken
from tests.fuzz.dressing import dressed
from tests.fuzz.source import Source

LOOPS = [
    [InnerLoop(version, compiled=compiled) for compiled in (False, True)[: 1 + is_compiled()]] for version in (8, 9)
]
"""For a version with sizes of four bytes, and one with varints: the form in Python, and the compiled one."""
_SEALED, _FIRST_DUE, _NEAR_WRAP, _SMALL = 1, 2, 4, 8


def scan_and_take(data: bytes) -> None:
    """Cuts a record set in every way that there is."""
    source = Source(data)
    flags, due = source.number(1), source.number(8, signed=True)
    record_set = source.rest()
    if flags & _SEALED:
        record_set = dressed(record_set, packing=False)
    view = memoryview(record_set)
    places = _places(view)
    assert all(before.at + before.size == after.at for before, after in pairwise(places))
    assert not places or (places[0].at == 0 and places[-1].at + places[-1].size <= len(view))
    for end in range(len(view) - 1, max(0, len(view) - 70), -7):
        # What is cut off at the end changes nothing in front of it.
        assert _places(view[:end]) == [place for place in places if place.at + place.size <= end]
    if flags & _FIRST_DUE:
        due = max(0, base_offset_at(view, 0, len(view)))
    for forms in LOOPS:
        taken = [_taken(form, view, due, flags) for form in forms]
        assert taken.count(taken[0]) == len(taken), taken
        _check(view, places, *taken[0])


def _places(view: memoryview) -> list[BatchPlace]:
    places = []
    try:
        for place in scan(view):
            places.append(place)
        tail(view)
    except CorruptBatch:
        pass
    return places


Put = list[tuple[bytes, bytes, int]]


def _taken(form: InnerLoop, view: memoryview, due: int, flags: int) -> tuple[Taken, Put]:
    """What one form says, and what it puts into the outbox: head, records, number of them."""
    outbox: Any = _outbox(form)
    sequence = (1 << 31) - 3 if flags & _NEAR_WRAP else 7
    most_length = 100 if flags & _SMALL else 1 << 31
    found = form.take(outbox, view, 0, len(view), due, 3, 1 << 62, 4, sequence, most_length, PLAIN_ATTRIBUTES)
    return Taken(*found), [(bytes(head), bytes(records), count) for head, records, count, _ in outbox]


def _outbox(form: InnerLoop) -> Any:
    return MODULE.Outbox() if form.compiled and MODULE is not None else PlainOutbox()


def _check(view: memoryview, places: list[BatchPlace], taken: Taken, put: Put) -> None:
    """Only whole batches are put, in order; what was intact still is."""
    assert taken.put == len(put) <= len(places)
    for place, (head, records, _) in zip(places, put, strict=False):
        batch = view[place.at : place.at + place.size]
        assert records == batch[HEADER_SIZE:]
        assert is_intact(head[-HEADER_SIZE:] + records) is is_intact(batch)
    assert taken.at == sum(place.size for place in places[: len(put)])
