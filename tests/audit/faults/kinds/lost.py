"""Records that are lost, doubled, moved, or somebody else's."""

from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Span
from tests.audit.faults.copies import Copy, stamped
from tests.audit.faults.kinds.fault import AT, DESTINATION, MAPPED, PLAIN, SOURCE, TRANSACTIONS, Told, fault
from tests.audit.faults.segments import Unit
from tests.records.builders import kafka_batch


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


@fault(PLAIN, MAPPED)
def deleted_at_the_destination_while_it_is_audited(copy: Copy) -> list[Told]:
    """The source still has some of it."""
    copy.meanwhile += [(DESTINATION, copy.there(5).start), (SOURCE, copy.spans[2].start)]
    return [Told(Kind.MISSING, Span(copy.spans[2].start, copy.spans[5].start), None)]


@fault(PLAIN)
def a_hole_in_its_offsets(copy: Copy) -> list[Told]:
    copy.take_out(AT, gap=True)
    return [Told(Kind.MISSING, copy.spans[AT], None)]
