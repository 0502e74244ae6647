"""Copies with offsets of their own."""

from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Span
from tests.audit.clusters import edited
from tests.audit.faults.copies import Copy, markers, rewritten
from tests.audit.faults.kinds.content import all_of_others
from tests.audit.faults.kinds.fault import AT, MAPPED, Told, changed, fault


@fault(MAPPED)
def a_strangers_batch_in_its_place(copy: Copy) -> list[Told]:
    """Of as many offsets."""
    copy.replace(
        AT, edited(rewritten(copy.data(AT), all_of_others), producer_id=-1, producer_epoch=-1, base_sequence=-1)
    )
    return [changed(copy, Kind.VALUE_CHANGED, AT)]


@fault(MAPPED)
def two_swapped(copy: Copy) -> list[Told]:
    """Of as many offsets; the map does not know."""
    first, second = copy.data(0), copy.data(3)
    copy.replace(0, second)
    copy.replace(3, first)
    return [
        Told(Kind.MOVED, copy.spans[0], copy.there(3)),
        Told(Kind.MOVED, copy.spans[3], copy.there(0)),
    ]


@fault(MAPPED)
def copied_before_the_map_begins(copy: Copy) -> list[Told]:
    """Its account was lost, and all was copied once more."""
    copies = [unit._replace(of=-2) for unit in copy.destination if unit.of >= 0]
    copy.destination = [*copies, *copy.destination]
    copy.map()
    return [Told(Kind.UNVERIFIABLE, None, copy.there(-2))]


@fault(MAPPED)
def ends_early(copy: Copy) -> list[Told]:
    del copy.destination[copy.index(8) :]
    return [Told(Kind.MISSING, Span(copy.spans[8].start, copy.end), None)]


@fault(MAPPED)
def filled_by_a_marker(copy: Copy) -> list[Told]:
    at = copy.index(AT)
    copy.destination[at : at + 1] = markers(copy.spans[AT].offsets)
    return [Told(Kind.MISSING, copy.spans[AT], None)]
