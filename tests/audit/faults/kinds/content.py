"""Batches with other content, or cut in another way."""

from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Span
from mirror.records.header import TRANSACTIONAL, BatchHeader, Codec
from tests.audit.clusters import edited
from tests.audit.faults.copies import OWNER, Copy, records_of, rewritten
from tests.audit.faults.kinds.fault import AT, COMPACTED, MAPPED, PLAIN, TRANSACTIONS, Told, changed, fault, same
from tests.audit.faults.segments import Unit
from tests.records.builders import Record as Written


@fault(PLAIN, TRANSACTIONS, COMPACTED, MAPPED)
def another_byte(copy: Copy) -> list[Told]:
    data = copy.data(AT)
    copy.replace(AT, edited(data, at=len(data) - 1))
    return [changed(copy, Kind.VALUE_CHANGED, AT)]


@fault(PLAIN, MAPPED)
def another_value(copy: Copy) -> list[Told]:
    copy.replace(AT, rewritten(copy.data(AT), lambda found: [found[0]._replace(value=b"other"), *found[1:]]))
    return [changed(copy, Kind.VALUE_CHANGED, AT)]


@fault(PLAIN)
def another_key(copy: Copy) -> list[Told]:
    copy.replace(AT, rewritten(copy.data(AT), lambda found: [*found[:-1], found[-1]._replace(key=b"other")]))
    return [changed(copy, Kind.VALUE_CHANGED, AT)]


@fault(PLAIN)
def another_timestamp_inside(copy: Copy) -> list[Told]:
    """Of a record, not of its batch."""

    def change(found: list[Written]) -> list[Written]:
        return [found[0], found[1]._replace(timestamp=found[0].timestamp - 1), *found[2:]]

    copy.replace(AT, rewritten(copy.data(AT), change))
    return [changed(copy, Kind.VALUE_CHANGED, AT)]


@fault(PLAIN)
def a_header_less(copy: Copy) -> list[Told]:
    copy.replace(AT, rewritten(copy.data(AT), lambda found: [one._replace(headers=()) for one in found]))
    return [changed(copy, Kind.VALUE_CHANGED, AT)]


@fault(PLAIN)
def a_tombstone(copy: Copy) -> list[Told]:
    copy.replace(AT, rewritten(copy.data(AT), lambda found: [*found[:-1], found[-1]._replace(value=None)]))
    return [changed(copy, Kind.VALUE_CHANGED, AT)]


@fault(PLAIN)
def records_in_another_order(copy: Copy) -> list[Told]:
    copy.replace(AT, rewritten(copy.data(AT), lambda found: found[::-1]))
    return [changed(copy, Kind.VALUE_CHANGED, AT)]


@fault(PLAIN)
def another_codec(copy: Copy) -> list[Told]:
    """The same records, but not the same bytes."""
    data = copy.data(AT)
    codec = Codec.GZIP if BatchHeader.read(data).codec_bits != Codec.GZIP else Codec.LZ4
    copy.replace(AT, rewritten(data, lambda found: found, codec))
    return [changed(copy, Kind.VALUE_CHANGED, AT)]


@fault(PLAIN, TRANSACTIONS, MAPPED)
def another_base_timestamp(copy: Copy) -> list[Told]:
    data = copy.data(AT)
    copy.replace(AT, edited(data, base_timestamp=BatchHeader.read(data).base_timestamp + 1))
    return [changed(copy, Kind.HEADER_CHANGED, AT)]


@fault(PLAIN)
def another_max_timestamp(copy: Copy) -> list[Told]:
    data = copy.data(AT)
    copy.replace(AT, edited(data, max_timestamp=BatchHeader.read(data).max_timestamp + 1))
    return [changed(copy, Kind.HEADER_CHANGED, AT)]


@fault(PLAIN)
def append_time(copy: Copy) -> list[Told]:
    data = copy.data(AT)
    copy.replace(AT, edited(data, attributes=BatchHeader.read(data).attributes | 8))
    return [changed(copy, Kind.APPEND_TIMES, AT)]


@fault(PLAIN)
def another_codec_in_the_header(copy: Copy) -> list[Told]:
    data = copy.data(AT)
    copy.replace(AT, edited(data, attributes=BatchHeader.read(data).attributes ^ 1))
    return [changed(copy, Kind.HEADER_CHANGED, AT)]


@fault(PLAIN)
def another_record_count(copy: Copy) -> list[Told]:
    data = copy.data(AT)
    copy.replace(AT, edited(data, record_count=BatchHeader.read(data).record_count - 1))
    return [changed(copy, Kind.HEADER_CHANGED, AT)]


@fault(PLAIN, TRANSACTIONS)
def transactional_at_the_destination(copy: Copy) -> list[Told]:
    """Records that nobody who reads committed may ever see."""
    data = copy.data(AT)
    attributes = BatchHeader.read(data).attributes | TRANSACTIONAL
    copy.replace(AT, edited(data, attributes=attributes, producer_id=OWNER + 1, producer_epoch=0))
    return [changed(copy, Kind.HEADER_CHANGED, AT)]


@fault(PLAIN)
def everything_of_others(copy: Copy) -> list[Told]:
    copy.destination[:] = [Unit(rewritten(unit.data, all_of_others)) for unit in copy.destination]
    return [same(Kind.VALUE_CHANGED, span) for span in copy.spans]


def all_of_others(found: list[Written]) -> list[Written]:
    return [one._replace(value=b"somebody else's") for one in found]


@fault(PLAIN)
def two_batches_in_one(copy: Copy) -> list[Told]:
    at = copy.index(AT)
    both = [Written(*one) for of in (AT, AT + 1) for one in records_of(copy.data(of))]
    copy.destination[at : at + 2] = [Unit(rewritten(copy.data(AT), lambda _: both), of=-2)]
    return [same(Kind.RESEGMENTED, Span(copy.spans[AT].start, copy.spans[AT + 1].end))]


@fault(PLAIN)
def a_foreign_batch_over_two(copy: Copy) -> list[Told]:
    """None of its records is one of theirs."""
    at = copy.index(AT)
    both = [Written(*one) for of in (AT, AT + 1) for one in records_of(copy.data(of))]
    lost = Span(copy.spans[AT].start, copy.spans[AT + 1].end)
    there = Span(copy.there(AT).start, copy.there(AT + 1).end)
    copy.destination[at : at + 2] = [Unit(rewritten(copy.data(AT), lambda _: all_of_others(both)), of=-2)]
    return [Told(Kind.MISSING, lost, None), Told(Kind.EXTRA, None, there)]


@fault(PLAIN)
def one_batch_in_two_with_another_value(copy: Copy) -> list[Told]:
    at, data = copy.index(AT), copy.data(AT)
    copy.destination[at : at + 1] = [
        Unit(rewritten(data, lambda found: [found[0]._replace(value=b"another")])),
        Unit(rewritten(data, lambda found: found[1:])),
    ]
    return [same(Kind.VALUE_CHANGED, copy.spans[AT])]


@fault(PLAIN)
def a_batch_cut_in_two_with_another_max_timestamp(copy: Copy) -> list[Told]:
    """That is no copy of the source's: it has to be that of the records."""
    at, data = copy.index(AT), copy.data(AT)
    first, second = rewritten(data, lambda found: found[:1]), rewritten(data, lambda found: found[1:])
    second = edited(second, max_timestamp=BatchHeader.read(second).max_timestamp + 1)
    copy.destination[at : at + 1] = [Unit(first), Unit(second)]
    span = copy.spans[AT]
    return [same(Kind.HEADER_CHANGED, Span(span.start + 1, span.end))]


@fault(PLAIN)
def a_record_less_in_a_batch(copy: Copy) -> list[Told]:
    copy.replace(AT, rewritten(copy.data(AT), lambda found: found[1:]))
    return [Told(Kind.VALUE_CHANGED, copy.spans[AT], copy.there(AT))]


@fault(PLAIN)
def a_record_more_in_a_batch(copy: Copy) -> list[Told]:
    copy.replace(AT, rewritten(copy.data(AT), lambda found: [*found, found[0]]))
    return [Told(Kind.VALUE_CHANGED, copy.spans[AT], copy.there(AT))]
