"""A flow back: what clients wrote is at the destination, and the source is a copy of it. The indexes are those of what
clients wrote (``tests.audit.exact.LAYOUT``)."""

from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Span
from mirror.records.header import BatchHeader
from mirror.records.transactions import ABORT, COMMIT
from tests.audit.clusters import edited
from tests.audit.faults.copies import Copy, markers, records_of, stamped
from tests.audit.faults.kinds.fault import ADOPTED, AT, COMPACTED_ADOPTED, Told, changed, fault
from tests.audit.faults.segments import Unit
from tests.records.builders import Record as Written
from tests.records.builders import kafka_batch
from tests.simulation.model.broker import marker_batch

HOLE, ABORTS, COMMITS, LAST_COMMITTED, LAST_ABORTED, LAST_ABORTS = 4, 7, 9, 10, 12, 14
"""Aborted data with more of it behind, and its marker; the marker of ``AT``; a batch that is committed; aborted data
with more of it behind, and its marker."""


def _decided(copy: Copy, of: int, kind: int) -> None:
    """Another marker for the same transaction."""
    header = BatchHeader.read(copy.data(of))
    copy.replace(of, marker_batch(0, header.producer_id, header.producer_epoch, kind=kind))


def _both(copy: Copy, of: int) -> Span:
    return Span(copy.spans[of].start, copy.spans[of + 1].end)


@fault(ADOPTED)
def another_byte(copy: Copy) -> list[Told]:
    data = copy.data(AT)
    copy.replace(AT, edited(data, at=len(data) - 1))
    return [changed(copy, Kind.VALUE_CHANGED, AT)]


@fault(ADOPTED)
def a_record_that_the_copy_lacks(copy: Copy) -> list[Told]:
    """Where it has markers, clients' records were aborted; this one was not."""
    copy.replace(HOLE, stamped(copy.data(HOLE)))
    return [Told(Kind.EXTRA, None, copy.spans[HOLE])]


@fault(ADOPTED)
def a_committed_batch_that_the_copy_lacks(copy: Copy) -> list[Told]:
    at = next(at for at, unit in enumerate(copy.source) if unit.of == AT)
    copy.source[at : at + 1] = markers(copy.spans[AT].offsets, of=AT)
    return [Told(Kind.EXTRA, None, copy.spans[AT])]


@fault(ADOPTED)
def markers_in_its_place(copy: Copy) -> list[Told]:
    """Somebody's, where the copy has the record."""
    copy.destination[AT : AT + 1] = markers(copy.spans[AT].offsets, of=AT, producer=4_000_000, kind=COMMIT)
    return [Told(Kind.MISSING, copy.spans[AT], None), Told(Kind.OVERFILLED, None, copy.spans[AT])]


@fault(ADOPTED)
def committed_after_all(copy: Copy) -> list[Told]:
    """What the copy has markers for, consumers get here."""
    _decided(copy, ABORTS, COMMIT)
    return [Told(Kind.EXTRA, None, _both(copy, HOLE))]


@fault(ADOPTED, COMPACTED_ADOPTED)
def aborted_after_all(copy: Copy) -> list[Told]:
    """What the copy has, consumers do not get here."""
    header = BatchHeader.read(copy.data(LAST_COMMITTED))
    copy.replace(LAST_COMMITTED + 1, marker_batch(0, header.producer_id, header.producer_epoch, kind=ABORT))
    span = copy.spans[LAST_COMMITTED]
    return [Told(Kind.MISSING, span, None), Told(Kind.OVERFILLED, None, span)]


@fault(ADOPTED)
def a_transaction_that_is_open(copy: Copy) -> list[Told]:
    """Its marker is lost: it hides all that is behind it."""
    copy.take_out(LAST_ABORTS, gap=True)
    return [Told(Kind.EXTRA, None, _both(copy, LAST_ABORTED)), Told(Kind.UNFILLED, copy.spans[LAST_ABORTS], None)]


@fault(ADOPTED)
def a_marker_behind_what_was_adopted(copy: Copy) -> list[Told]:
    copy.adopted = copy.spans[LAST_ABORTS].start
    return [Told(Kind.FOREIGN, None, copy.spans[LAST_ABORTS])]


@fault(ADOPTED)
def a_marker_of_a_later_leader(copy: Copy) -> list[Told]:
    """It was written since, in the place of one that was lost."""
    copy.adopted_epoch = 5
    for at in (LAST_ABORTS, LAST_ABORTS + 1):
        data = copy.destination[at].data
        copy.destination[at] = copy.destination[at]._replace(data=data[:12] + (6).to_bytes(4) + data[16:])
    return [Told(Kind.FOREIGN, None, copy.spans[LAST_ABORTS])]


@fault(ADOPTED)
def an_aborted_batch_behind_it(copy: Copy) -> list[Told]:
    """Aborted data and its markers are no copy of anything, once the flow writes."""
    copy.adopted = copy.spans[LAST_ABORTED].start
    return [
        Told(Kind.EXTRA, None, _both(copy, LAST_ABORTED)), Told(Kind.FOREIGN, None, copy.spans[LAST_ABORTS])
    ]  # fmt: skip


@fault(ADOPTED)
def another_record_behind_it(copy: Copy) -> list[Told]:
    """The source's copy of it says so, too."""
    copy.source.append(Unit(stamped(copy.destination[0].data)))
    copy.destination.append(Unit(edited(stamped(copy.destination[0].data), at=len(copy.destination[0].data) - 1)))
    span = Span(copy.end, copy.end + copy.destination[0].offsets)
    return [Told(Kind.VALUE_CHANGED, span, span)]


@fault(COMPACTED_ADOPTED)
def lost_and_written_again_by_what_was_aborted(copy: Copy) -> list[Told]:
    """A cleaner takes a record if there is a later one of its key; one that was aborted is none."""
    keys = [one.key for one in records_of(copy.data(AT))]
    before = BatchHeader.read(copy.data(HOLE))
    records = [Written(at, before.base_timestamp, key, b"aborted") for at, key in enumerate(keys)]
    assert len(records) <= before.record_count
    records += [Written(at, before.base_timestamp, b"k", b"") for at in range(len(records), before.record_count)]
    batch = kafka_batch(
        records, producer_id=before.producer_id, producer_epoch=before.producer_epoch,
        base_sequence=before.base_sequence,
    )  # fmt: skip
    copy.replace(HOLE, edited(batch, attributes=before.attributes & ~7 | BatchHeader.read(batch).codec_bits))
    copy.take_out(AT, gap=True)
    return [Told(Kind.MISSING, copy.spans[AT], None)]
