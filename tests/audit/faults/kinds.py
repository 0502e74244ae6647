"""Every kind of fault that a copy can have: how it is made, and all that an audit has to say of it.

A function spoils a true copy, and returns the findings that are due, each as its kind with its offsets at the source
and at the destination: these, and no other.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from mirror.audit.model import Kind, Side, Span
from mirror.records.header import CONTROL, HEADER_SIZE, TRANSACTIONAL, BatchHeader, Codec
from mirror.records.transactions import COMMIT
from tests.audit.clusters import edited
from tests.audit.faults.copies import OWNER, Copy, compacted, markers, records_of, rewritten, stamped
from tests.audit.faults.segments import Unit
from tests.records.builders import Record as Written
from tests.records.builders import kafka_batch
from tests.records.cleaner import cleaned

SOURCE, DESTINATION = Side.SOURCE, Side.DESTINATION

# Places in a batch (protocol: record batch, magic 2).
BASE_OFFSET_AT, LENGTH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT, LAST_OFFSET_DELTA_AT = 7, 10, 16, 20, 22, 26
PRODUCER_ID_AT, RECORD_COUNT_AT = 50, 60


class Shape(Enum):
    """What a topic is."""

    PLAIN = "plain"
    TRANSACTIONAL = "transactional"
    COMPACTED = "compacted"
    MAPPED = "mapped"
    OLD = "old"
    """In formats from before Kafka 0.11, with batches of today behind them; the copy has it in batches."""
    OLD_MAPPED = "old-mapped"


class Told(NamedTuple):
    """A finding, without its words."""

    kind: Kind
    source: Span | None
    destination: Span | None


Spoil = Callable[[Copy], Sequence[Told]]


class Fault(NamedTuple):
    """One kind."""

    name: str
    shape: Shape
    spoil: Spoil


FAULTS: list[Fault] = []


def fault(*shapes: Shape) -> Callable[[Spoil], Spoil]:
    """The function makes a kind of fault, in topics of each of these shapes."""

    def add(spoil: Spoil) -> Spoil:
        FAULTS.extend(Fault(f"{shape.value}-{spoil.__name__.replace('_', '-')}", shape, spoil) for shape in shapes)
        return spoil

    return add


def of_shapes(*shapes: Shape) -> list[Fault]:
    """The kinds of faults in topics of these shapes."""
    return [fault for fault in FAULTS if fault.shape in shapes]


def same(kind: Kind, span: Span) -> Told:
    """At the same offsets on both sides."""
    return Told(kind, span, span)


def changed(copy: Copy, kind: Kind, of: int) -> Told:
    """Of a batch that is in its place."""
    return Told(kind, copy.spans[of], copy.there(of))


PLAIN, TRANSACTIONS, COMPACTED, MAPPED = Shape.PLAIN, Shape.TRANSACTIONAL, Shape.COMPACTED, Shape.MAPPED
EXACT = PLAIN, TRANSACTIONS
AT = 3
"""A batch in the middle that is due, in topics of every shape."""
LAST = -1


# -- lost, doubled, moved ----------------------------------------------------------------------------------------------


@fault(PLAIN, TRANSACTIONS, MAPPED)
def first_lost(copy: Copy) -> list[Told]:
    copy.take_out(0)
    return [Told(Kind.MISSING, copy.spans[0], None)]


@fault(PLAIN, TRANSACTIONS, MAPPED)
def lost(copy: Copy) -> list[Told]:
    copy.take_out(AT)
    return [Told(Kind.MISSING, copy.spans[AT], None)]


@fault(PLAIN, TRANSACTIONS)
def last_lost(copy: Copy) -> list[Told]:
    copy.take_out(len(copy.source) - 1)
    return [Told(Kind.MISSING, copy.spans[-1], None)]


@fault(PLAIN)
def two_lost_apart(copy: Copy) -> list[Told]:
    for of in (2, 6):
        copy.take_out(of)
    return [Told(Kind.MISSING, copy.spans[of], None) for of in (2, 6)]


@fault(PLAIN, MAPPED)
def two_lost_in_a_row(copy: Copy) -> list[Told]:
    for of in (3, 4):
        copy.take_out(of)
    return [Told(Kind.MISSING, Span(copy.spans[3].start, copy.spans[4].end), None)]


@fault(PLAIN, TRANSACTIONS)
def doubled(copy: Copy) -> list[Told]:
    at = copy.index(AT)
    copy.destination.insert(at + 1, copy.destination[at]._replace(of=-1))
    second = Span(copy.there(AT).end, copy.there(AT).end + copy.spans[AT].offsets)
    return [Told(Kind.DUPLICATE, copy.spans[AT], second)]


@fault(PLAIN)
def doubled_far_away(copy: Copy) -> list[Told]:
    copy.destination.insert(copy.index(8), copy.destination[copy.index(2)]._replace(of=-1))
    begin = copy.spans[8].start
    return [Told(Kind.DUPLICATE, copy.spans[2], Span(begin, begin + copy.spans[2].offsets))]


@fault(PLAIN)
def last_doubled(copy: Copy) -> list[Told]:
    copy.destination.append(copy.destination[-1]._replace(of=-1))
    return [Told(Kind.EXTRA, None, Span(copy.end, copy.end + copy.spans[-1].offsets))]


@fault(MAPPED)
def doubled_in_place_of_anothers(copy: Copy) -> list[Told]:
    """Where the map has nothing."""
    at = copy.index(4) - 1
    assert copy.destination[at].of < 0, "no batch of others"
    copy.destination[at] = copy.destination[copy.index(0)]._replace(of=-2)
    return [Told(Kind.EXTRA, None, copy.there(-2))]


@fault(MAPPED)
def doubled_behind_the_checkpoint(copy: Copy) -> list[Told]:
    copy.destination.append(copy.destination[copy.index(AT)]._replace(of=-2))
    return [Told(Kind.WHOLESALE, Span(0, copy.end), None)]


@fault(PLAIN)
def one_lost_and_one_doubled(copy: Copy) -> list[Told]:
    """The ends are equal."""
    del copy.destination[copy.index(1)]
    at = copy.index(7)
    copy.destination.insert(at, copy.destination[at]._replace(of=-2))
    return [Told(Kind.MISSING, copy.spans[1], None), Told(Kind.DUPLICATE, copy.spans[7], copy.there(-2))]


@fault(PLAIN)
def moved_to_the_end(copy: Copy) -> list[Told]:
    unit = copy.destination.pop(copy.index(2))
    copy.destination.append(unit)
    return [Told(Kind.MOVED, copy.spans[2], copy.there(2))]


@fault(PLAIN)
def moved_to_the_beginning(copy: Copy) -> list[Told]:
    unit = copy.destination.pop(copy.index(7))
    copy.destination.insert(0, unit)
    return [Told(Kind.MOVED, copy.spans[7], copy.there(7))]


@fault(PLAIN)
def of_another_topic(copy: Copy) -> list[Told]:
    copy.destination.insert(copy.index(AT), Unit(stamped(copy.others[1]), of=-2))
    return [Told(Kind.MISROUTED, None, copy.there(-2))]


@fault(PLAIN)
def of_another_topic_in_its_place(copy: Copy) -> list[Told]:
    """Of as many offsets."""
    copy.replace(AT, stamped(copy.others[AT]))
    return [Told(Kind.MISROUTED, None, copy.spans[AT]), Told(Kind.MISSING, copy.spans[AT], None)]


@fault(PLAIN, TRANSACTIONS)
def a_strangers_record(copy: Copy) -> list[Told]:
    copy.destination.insert(copy.index(AT), Unit(kafka_batch(), of=-2))
    return [Told(Kind.EXTRA, None, copy.there(-2))]


@fault(PLAIN)
def a_strangers_record_at_the_end(copy: Copy) -> list[Told]:
    copy.destination.append(Unit(kafka_batch(), of=-2))
    return [Told(Kind.EXTRA, None, copy.there(-2))]


@fault(PLAIN, TRANSACTIONS)
def empty(copy: Copy) -> list[Told]:
    copy.destination.clear()
    return [Told(Kind.MISSING, Span(0, copy.end), None)]


@fault(PLAIN, TRANSACTIONS)
def begins_later(copy: Copy) -> list[Told]:
    copy.trimmed.append((DESTINATION, copy.spans[1].end))
    return [Told(Kind.MISSING, Span(0, copy.spans[1].end), None)]


@fault(PLAIN)
def a_hole_in_its_offsets(copy: Copy) -> list[Told]:
    copy.take_out(AT, gap=True)
    return [Told(Kind.MISSING, copy.spans[AT], None)]


# -- other content -----------------------------------------------------------------------------------------------------


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
    copy.destination[:] = [Unit(rewritten(unit.data, _others)) for unit in copy.destination]
    return [same(Kind.VALUE_CHANGED, span) for span in copy.spans]


def _others(found: list[Written]) -> list[Written]:
    return [one._replace(value=b"somebody else's") for one in found]


# -- other batches -----------------------------------------------------------------------------------------------------


@fault(PLAIN)
def two_batches_in_one(copy: Copy) -> list[Told]:
    at = copy.index(AT)
    both = [Written(*one) for of in (AT, AT + 1) for one in records_of(copy.data(of))]
    copy.destination[at : at + 2] = [Unit(rewritten(copy.data(AT), lambda _: both), of=-2)]
    return [same(Kind.RESEGMENTED, Span(copy.spans[AT].start, copy.spans[AT + 1].end))]


@fault(PLAIN)
def one_batch_in_two_with_another_value(copy: Copy) -> list[Told]:
    at, data = copy.index(AT), copy.data(AT)
    copy.destination[at : at + 1] = [
        Unit(rewritten(data, lambda found: [found[0]._replace(value=b"another")])),
        Unit(rewritten(data, lambda found: found[1:])),
    ]
    return [same(Kind.RESEGMENTED, copy.spans[AT])]


@fault(PLAIN)
def a_record_less_in_a_batch(copy: Copy) -> list[Told]:
    copy.replace(AT, rewritten(copy.data(AT), lambda found: found[1:]))
    return [Told(Kind.RESEGMENTED, copy.spans[AT], copy.there(AT))]


@fault(PLAIN)
def a_record_more_in_a_batch(copy: Copy) -> list[Told]:
    copy.replace(AT, rewritten(copy.data(AT), lambda found: [*found, found[0]]))
    return [Told(Kind.RESEGMENTED, copy.spans[AT], copy.there(AT))]


# -- holes -------------------------------------------------------------------------------------------------------------


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


# -- on the disk -------------------------------------------------------------------------------------------------------


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


# -- compacted ---------------------------------------------------------------------------------------------------------

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


# -- offsets: mapped ---------------------------------------------------------------------------------------------------


@fault(MAPPED)
def a_strangers_batch_in_its_place(copy: Copy) -> list[Told]:
    """Of as many offsets."""
    copy.replace(AT, edited(rewritten(copy.data(AT), _others), producer_id=-1, producer_epoch=-1, base_sequence=-1))
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
