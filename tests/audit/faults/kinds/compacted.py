"""Compacted topics."""

from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Span
from mirror.records.header import BatchHeader, Codec
from tests.audit.faults.copies import Copy, compacted, records_of, rewritten
from tests.audit.faults.kinds.fault import AT, COMPACTED, COMPACTED_MAPPED, Told, changed, fault, same
from tests.audit.faults.segments import Unit
from tests.records.builders import Record as Written
from tests.records.cleaner import cleaned

CUT, GONE, HELD = 1, 0, 5
"""Of ``copies.KEYS``: a batch of which a cleaner takes one record, one of which it takes all, one of which none."""
CUTS = (CUT, 3)
"""All of the first kind."""


@fault(COMPACTED)
def cleaned_at_the_source(copy: Copy) -> list[Told]:
    """No difference, and no proof."""
    copy.source = compacted(copy.source)
    return [
        Told(Kind.UNVERIFIABLE, None, copy.spans[GONE]), *(same(Kind.UNVERIFIABLE, copy.spans[of]) for of in CUTS)
    ]  # fmt: skip


@fault(COMPACTED_MAPPED)
def cleaned_at_the_source_only(copy: Copy) -> list[Told]:
    """Likewise, where the copy has offsets of its own."""
    copy.source = compacted(copy.source)
    gone = Told(Kind.UNVERIFIABLE, None, copy.there(GONE))
    return [gone, *(changed(copy, Kind.UNVERIFIABLE, of) for of in CUTS)]


@fault(COMPACTED_MAPPED)
def others_records_in_a_batch_that_the_source_has_no_more(copy: Copy) -> list[Told]:
    """Of keys that nothing has."""
    copy.source = compacted(copy.source)
    copy.replace(GONE, rewritten(copy.data(GONE), lambda found: [one._replace(key=b"x") for one in found]))
    gone = Told(Kind.EXTRA, None, copy.there(GONE))
    return [gone, *(changed(copy, Kind.UNVERIFIABLE, of) for of in CUTS)]


@fault(COMPACTED)
def a_record_that_no_cleaner_takes(copy: Copy) -> list[Told]:
    """The destination was cleaned, and lacks a record of which nothing later has the key."""
    _without(copy, HELD, 0)
    return [same(Kind.VALUE_CHANGED, copy.spans[HELD])]


@fault(COMPACTED)
def a_batch_that_no_cleaner_takes(copy: Copy) -> list[Told]:
    copy.take_out(FREE, gap=True)
    copy.destination = compacted(copy.destination)
    return [Told(Kind.MISSING, copy.spans[FREE], None)]


FREE = 2
"""A batch that is followed by others, and of which a cleaner takes nothing."""


@fault(COMPACTED)
def another_value_in_a_cleaned_batch(copy: Copy) -> list[Told]:
    copy.destination = compacted(copy.destination)
    data = copy.data(CUT)
    *first, last = [Written(*one) for one in records_of(data)]
    left = [*first, last._replace(value=b"other")]
    copy.replace(CUT, cleaned(data, left, codec=Codec(BatchHeader.read(data).codec_bits)))
    return [same(Kind.VALUE_CHANGED, copy.spans[CUT])]


@fault(COMPACTED)
def others_records_where_the_source_has_nothing_left(copy: Copy) -> list[Told]:
    """Of keys that nothing has."""
    copy.source = compacted(copy.source)
    copy.replace(GONE, rewritten(copy.data(GONE), lambda found: [one._replace(key=b"x") for one in found]))
    return [Told(Kind.EXTRA, None, copy.spans[GONE]), *(same(Kind.UNVERIFIABLE, copy.spans[of]) for of in CUTS)]


@fault(COMPACTED)
def a_value_where_a_tombstone_was(copy: Copy) -> list[Told]:
    def change(found: list[Written]) -> list[Written]:
        return [one if one.value is not None else one._replace(value=b"alive") for one in found]

    copy.replace(AT, rewritten(copy.data(AT), change))
    return [same(Kind.VALUE_CHANGED, copy.spans[AT])]


@fault(COMPACTED)
def two_cleaned_batches_in_one(copy: Copy) -> list[Told]:
    at = copy.index(FREE)
    both = [Written(*one) for of in (FREE, FREE + 1) for one in records_of(copy.data(of))]
    copy.destination[at : at + 2] = [Unit(rewritten(copy.data(FREE), lambda _: both))]
    return [same(Kind.RESEGMENTED, Span(copy.spans[FREE].start, copy.spans[FREE + 1].end))]


def _without(copy: Copy, of: int, record: int) -> None:
    copy.destination = compacted(copy.destination)
    data = copy.data(of)
    left = [Written(*one) for one in records_of(data)]
    del left[record]
    copy.replace(of, cleaned(data, left, codec=Codec(BatchHeader.read(data).codec_bits)))
