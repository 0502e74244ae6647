"""Holes that are filled wrongly."""

from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Span
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.transactions import COMMIT
from tests.audit.clusters import edited
from tests.audit.faults.copies import Copy, markers, stamped
from tests.audit.faults.kinds.fault import AT, COMPACTED, PLAIN, TRANSACTIONS, Told, fault
from tests.audit.faults.segments import Unit
from tests.records.builders import kafka_batch


@fault(PLAIN, TRANSACTIONS, COMPACTED)
def overfilled(copy: Copy) -> list[Told]:
    at = copy.index(AT)
    copy.destination[at : at + 1] = markers(copy.spans[AT].offsets)
    return [Told(Kind.MISSING, copy.spans[AT], None), Told(Kind.OVERFILLED, None, copy.spans[AT])]


@fault(PLAIN)
def a_marker_too_many(copy: Copy) -> list[Told]:
    copy.destination[copy.index(AT) : copy.index(AT)] = markers(1, of=-2)
    return [Told(Kind.OVERFILLED, None, copy.there(-2))]


@fault(PLAIN)
def a_marker_behind_the_end(copy: Copy) -> list[Told]:
    copy.destination += markers(1, of=-2)
    return [Told(Kind.EXTRA, None, copy.there(-2))]


HOLE = 4
"""Aborted data, of three offsets; the batch behind it is aborted, too."""
BEHIND = 6
"""The batch behind that."""


@fault(TRANSACTIONS)
def one_marker_more(copy: Copy) -> list[Told]:
    copy.destination[copy.index(BEHIND) : copy.index(BEHIND)] = markers(1, of=-2)
    return [Told(Kind.OVERFILLED, None, copy.there(-2))]


@fault(TRANSACTIONS)
def one_marker_less(copy: Copy) -> list[Told]:
    del copy.destination[copy.index(BEHIND) - 1]
    return [Told(Kind.UNFILLED, Span(copy.spans[BEHIND].start - 1, copy.spans[BEHIND].start), None)]


@fault(TRANSACTIONS)
def a_hole_that_is_not_filled(copy: Copy) -> list[Told]:
    """The offsets are passed over instead."""
    at = copy.index(HOLE)
    behind = copy.index(BEHIND)
    copy.destination[behind] = copy.destination[behind]._replace(gap=behind - at)
    del copy.destination[at:behind]
    return [Told(Kind.UNFILLED, Span(copy.spans[HOLE].start, copy.spans[BEHIND].start), None)]


@fault(TRANSACTIONS)
def aborted_data(copy: Copy) -> list[Told]:
    at, span = copy.index(HOLE), copy.spans[HOLE]
    copy.destination[at : at + span.offsets] = [Unit(stamped(copy.source[HOLE].data))]
    return [Told(Kind.EXTRA, None, span)]


@fault(TRANSACTIONS)
def a_strangers_record_in_a_hole(copy: Copy) -> list[Told]:
    at, batch = copy.index(HOLE), kafka_batch()
    span = copy.spans[HOLE]
    copy.destination[at : at + 3] = [Unit(batch)]
    return [Told(Kind.EXTRA, None, Span(span.start, span.start + 3))]


@fault(TRANSACTIONS)
def an_empty_batch_in_a_hole(copy: Copy) -> list[Told]:
    """Nothing is in it, but no mirror writes such a thing."""
    at, span = copy.index(HOLE), copy.spans[HOLE]
    header = BatchHeader.read(kafka_batch())._replace(
        length=HEADER_SIZE - 12, record_count=0, last_offset_delta=span.offsets - 1
    )
    copy.destination[at : at + span.offsets] = [Unit(edited(header.pack()))]
    return [Told(Kind.UNFILLED, span, None)]


@fault(TRANSACTIONS)
def a_strangers_marker(copy: Copy) -> list[Told]:
    at, span = copy.index(HOLE), copy.spans[HOLE]
    copy.destination[at : at + 1] = markers(1, producer=4_000_000)
    return [Told(Kind.FOREIGN, None, Span(span.start, span.start + 1))]


@fault(TRANSACTIONS)
def a_marker_of_an_even_epoch(copy: Copy) -> list[Told]:
    at, span = copy.index(HOLE), copy.spans[HOLE]
    copy.destination[at : at + 1] = markers(1, epoch=2)
    return [Told(Kind.FOREIGN, None, Span(span.start, span.start + 1))]


@fault(TRANSACTIONS)
def a_commit_marker(copy: Copy) -> list[Told]:
    at, span = copy.index(HOLE), copy.spans[HOLE]
    copy.destination[at : at + 1] = markers(1, kind=COMMIT)
    return [Told(Kind.FOREIGN, None, Span(span.start, span.start + 1))]


@fault(PLAIN)
def a_strangers_marker_where_a_record_is_due(copy: Copy) -> list[Told]:
    at, span = copy.index(AT), copy.spans[AT]
    copy.destination[at : at + 1] = markers(span.offsets, producer=4_000_000)
    return [Told(Kind.MISSING, span, None), Told(Kind.FOREIGN, None, span)]


@fault(TRANSACTIONS)
def committed_data_is_filled_and_aborted_data_copied(copy: Copy) -> list[Told]:
    """A mirror that has taken one for the other."""
    hole, due = copy.spans[HOLE], copy.spans[AT]
    copy.destination[copy.index(HOLE) : copy.index(HOLE) + hole.offsets] = [Unit(stamped(copy.source[HOLE].data))]
    at = copy.index(AT)
    copy.destination[at : at + 1] = markers(due.offsets)
    return [Told(Kind.MISSING, due, None), Told(Kind.OVERFILLED, None, due), Told(Kind.EXTRA, None, hole)]
