"""Topics in formats from before Kafka 0.11, written by librdkafka into a broker of 2.8, and copies of them in batches;
what faults such copies can have beside those of any copy.

The broker of 2.8 is not stopped: its log stays as it has written it. Only the copy is laid out.
"""

import time

from confluent_kafka import Producer

from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Side, Span
from mirror.legacy import BatchSpan, Converted, LegacySpan, cut, up_convert
from mirror.records.header import MAGIC, TRANSACTIONAL, BatchHeader, Codec
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import edited
from tests.audit.faults.copies import OWNER, Copy, markers, records_of, rewritten, stamped
from tests.audit.faults.healthy import healthy
from tests.audit.faults.kinds import Shape, Told, holes, lost, mapped
from tests.audit.faults.kinds.fault import fault, same
from tests.audit.faults.segments import Unit
from tests.legacy.logs import MIB, raw, set_format
from tests.records.builders import Record as Written
from tests.records.builders import kafka_batch

OLD = (Shape.OLD, Shape.OLD_MAPPED)
VERSIONS = ("0.10.2", "0.9.0")
"""Whose formats the topics have, in turn: magic 1, magic 0."""
VERSION = "2.8.2"
"""The source's."""
BATCHES = ("none", "none", "none", "lz4", "gzip", "snappy", "none", "lz4", "none")
"""The codecs of a topic's batches of 3 to 5 records. Without one, each record is a message on its own."""
NEW = ("none", "zstd", "none")
"""Of the batches of today behind them."""
WAIT_S = 60


def sizes() -> list[int]:
    """How many records each batch has."""
    return [3 + at % 3 for at in range(len(BATCHES) + len(NEW))]


def write(cluster: SandboxCluster, topics: list[str]) -> None:
    """``BATCHES`` to each, and ``NEW`` once the broker stores them as they come."""
    producers = {
        codec: Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "compression.type": codec, "linger.ms": 60_000}
        )
        for codec in {*BATCHES, *NEW}
    }
    for producer in producers.values():
        for topic in topics:
            producer.list_topics(topic)  # a flush while the topic is still looked up could cut a batch in two
    _write(producers, topics, range(len(BATCHES)))
    for topic in topics:
        set_format(cluster, topic, VERSION)
    _await_new(producers["none"], cluster, topics[0])
    _write(producers, topics[1:], range(len(BATCHES), len(sizes())))
    _write(producers, topics[:1], range(len(BATCHES), len(sizes())))


def _write(producers: dict[str, Producer], topics: list[str], batches: range) -> None:
    for batch in batches:
        producer = producers[(*BATCHES, *NEW)[batch]]
        for topic in topics:
            for record in range(sizes()[batch]):
                producer.produce(
                    topic, f"{topic} {batch} {record} ".encode() * 20, f"key-{record}" if record else None,
                    partition=0, headers=[("trace", b"%d" % batch)] if batch >= len(BATCHES) else None,
                )  # fmt: skip
        producer.flush(WAIT_S)


def _await_new(producer: Producer, cluster: SandboxCluster, topic: str) -> None:
    """The last change of a format comes last. A topic of its own shows when it is there."""
    probe = f"{topic}-probe"
    producer.produce(probe, b"probe", partition=0)
    producer.flush(WAIT_S)
    set_format(cluster, probe, VERSIONS[0])
    deadline = time.monotonic() + WAIT_S
    while isinstance(_last(cluster, producer, probe), BatchSpan):
        assert time.monotonic() < deadline, "the format does not change"
    set_format(cluster, probe, VERSION)
    while isinstance(_last(cluster, producer, probe), LegacySpan):
        assert time.monotonic() < deadline, "the format does not change back"


def _last(cluster: SandboxCluster, producer: Producer, topic: str) -> BatchSpan | LegacySpan:
    producer.produce(topic, b"probe", partition=0)
    producer.flush(WAIT_S)
    time.sleep(0.05)
    return list(cut(memoryview(raw(cluster, topic, 0))))[-1]


def written(cluster: SandboxCluster, topic: str, *, by_entry: bool = False) -> Copy:
    """What is there: a unit for each batch that was written, as the mirror could have copied it; ``by_entry``: one for
    each message or batch that is stored."""
    view = memoryview(raw(cluster, topic, 0))
    entries = list(cut(view))
    groups = []
    left = list(entries)
    for size in sizes():
        own = [left.pop(0)]
        if isinstance(own[0], LegacySpan) and not own[0].is_wrapper:
            own += [left.pop(0) for _ in range(size - 1)]
        groups += [[one] for one in own] if by_entry else [own]
    assert not left
    units = []
    for group in groups:
        (made,) = up_convert(view, group, most=MIB)
        units.append(Unit(made.batch if isinstance(made, Converted) else bytes(view[made.at : made.at + made.size])))
    assert {span.magic if isinstance(span, LegacySpan) else MAGIC for span in entries} in ({0, 2}, {1, 2})
    return Copy(topic, units, stored=[group[0].at for group in groups])


def with_borders(copy: Copy, most: int) -> None:
    """Other borders between the messages on their own: batches of so many records."""
    found: list[Unit] = []
    at = 0
    while at < len(copy.destination):
        unit = copy.destination[at]
        codec = BatchHeader.read(unit.data).codec_bits
        run = [unit]
        while not codec and unit.of < len(BATCHES) and at + len(run) < len(copy.destination):
            behind = copy.destination[at + len(run)]
            if behind.of >= len(BATCHES) or BatchHeader.read(behind.data).codec_bits:
                break
            run.append(behind)
        at += len(run)
        if codec or unit.of >= len(BATCHES):
            found += run
            continue
        records = [Written(*one) for each in run for one in records_of(each.data)]
        for first in range(0, len(records), most):
            some = [one._replace(offset=index) for index, one in enumerate(records[first : first + most])]
            found.append(Unit(kafka_batch(some, producer_id=OWNER, producer_epoch=0, base_sequence=0)))
    copy.destination = found


# -- what may happen -------------------------------------------------------------------------------------------------


@healthy(Shape.OLD)
def one_record_a_batch(copy: Copy) -> None:
    with_borders(copy, 1)


@healthy(Shape.OLD)
def borders_among_messages(copy: Copy) -> None:
    with_borders(copy, 7)


@healthy(Shape.OLD)
def all_that_may_be_together(copy: Copy) -> None:
    with_borders(copy, 10_000)


@healthy(Shape.OLD)
def wrappers_in_two(copy: Copy) -> None:
    """As the limit of the destination's batches may demand."""
    found: list[Unit] = []
    for unit in copy.destination:
        records = records_of(unit.data)
        if BatchHeader.read(unit.data).codec_bits and unit.of < len(BATCHES):
            found.append(Unit(rewritten(unit.data, lambda some: some[:1]), of=unit.of))
            found.append(Unit(rewritten(unit.data, lambda some: some[1:]), of=unit.of))
            assert len(records) > 1
        else:
            found.append(unit)
    copy.destination = found


@healthy(Shape.OLD)
def trimmed_inside_a_wrapper(copy: Copy) -> None:
    copy.trimmed.append((Side.SOURCE, copy.spans[AT].start + 1))


@healthy(Shape.OLD)
def both_trimmed_inside_a_wrapper(copy: Copy) -> None:
    for side in Side:
        copy.trimmed.append((side, copy.spans[AT].start + 2))


# -- faults that any copy can have -----------------------------------------------------------------------------------

for _spoil in (
    lost.first_lost, lost.lost, lost.last_lost, lost.two_lost_apart, lost.two_lost_in_a_row, lost.doubled,
    lost.doubled_far_away, lost.last_doubled, lost.one_lost_and_one_doubled, lost.moved_to_the_beginning,
    lost.a_strangers_record, lost.a_strangers_record_at_the_end, lost.empty,
    lost.begins_later, lost.a_hole_in_its_offsets, holes.overfilled, holes.a_marker_too_many,
    holes.a_marker_behind_the_end, holes.a_strangers_marker_where_a_record_is_due,
):  # fmt: skip
    fault(Shape.OLD)(_spoil)
for _spoil in (lost.lost, mapped.ends_early, mapped.filled_by_a_marker):
    fault(Shape.OLD_MAPPED)(_spoil)


# -- faults of single records ----------------------------------------------------------------------------------------

AT = 3
"""A wrapper; see ``BATCHES``."""
ALONE = 1
"""Messages on their own."""
LAST_OLD, FIRST_NEW = len(BATCHES) - 1, len(BATCHES)


def record(copy: Copy, of: int, index: int) -> Span:
    """The offset of one record of a batch."""
    start = copy.spans[of].start + index
    return Span(start, start + 1)


@fault(Shape.OLD)
def another_value_of_a_record(copy: Copy) -> list[Told]:
    found = []
    for of in (ALONE, AT):
        copy.replace(of, rewritten(copy.data(of), lambda some: [some[0]._replace(value=b"other"), *some[1:]]))
        found.append(same(Kind.VALUE_CHANGED, record(copy, of, 0)))
    return found


@fault(Shape.OLD)
def another_key_of_a_record(copy: Copy) -> list[Told]:
    copy.replace(AT, rewritten(copy.data(AT), lambda some: [*some[:-1], some[-1]._replace(key=b"other")]))
    return [same(Kind.VALUE_CHANGED, record(copy, AT, 2))]


@fault(Shape.OLD)
def another_time_of_a_record(copy: Copy) -> list[Told]:
    copy.replace(ALONE, rewritten(copy.data(ALONE), lambda some: [some[0], some[1]._replace(timestamp=7), *some[2:]]))
    return [same(Kind.HEADER_CHANGED, record(copy, ALONE, 1))]


@fault(Shape.OLD)
def a_header_that_no_old_format_has(copy: Copy) -> list[Told]:
    copy.replace(AT, rewritten(copy.data(AT), lambda some: [some[0]._replace(headers=[("h", b"")]), *some[1:]]))
    return [same(Kind.VALUE_CHANGED, record(copy, AT, 0))]


@fault(Shape.OLD)
def a_tombstone_in_place_of_a_value(copy: Copy) -> list[Told]:
    copy.replace(ALONE, rewritten(copy.data(ALONE), lambda some: [*some[:-1], some[-1]._replace(value=None)]))
    return [same(Kind.VALUE_CHANGED, record(copy, ALONE, 3))]


@fault(Shape.OLD)
def moved_among_batches_of_today(copy: Copy) -> list[Told]:
    """There, nothing is compared record by record."""
    copy.destination.append(copy.destination.pop(copy.index(2)))
    return [Told(Kind.MISSING, copy.spans[2], None), Told(Kind.EXTRA, None, copy.there(2))]


@fault(Shape.OLD)
def records_swapped(copy: Copy) -> list[Told]:
    copy.replace(AT, rewritten(copy.data(AT), lambda some: some[::-1]))
    first, last = record(copy, AT, 0), record(copy, AT, 2)
    return [Told(Kind.MOVED, first, last), Told(Kind.MOVED, last, first)]


@fault(Shape.OLD)
def a_record_less(copy: Copy) -> list[Told]:
    copy.replace(AT, rewritten(copy.data(AT), lambda some: [some[0], *some[2:]]))
    return [Told(Kind.MISSING, record(copy, AT, 1), None)]


@fault(Shape.OLD)
def another_codec_of_a_wrapper(copy: Copy) -> list[Told]:
    copy.replace(AT, rewritten(copy.data(AT), lambda some: some, Codec.GZIP))
    return [same(Kind.HEADER_CHANGED, copy.spans[AT])]


@fault(Shape.OLD)
def hidden_from_consumers(copy: Copy) -> list[Told]:
    """As data of a transaction."""
    data = copy.data(ALONE)
    attributes = BatchHeader.read(data).attributes | TRANSACTIONAL
    copy.replace(ALONE, edited(data, attributes=attributes, producer_id=OWNER + 1, producer_epoch=0))
    return [same(Kind.HEADER_CHANGED, copy.spans[ALONE])]


@fault(Shape.OLD)
def of_another_old_topic(copy: Copy) -> list[Told]:
    copy.destination.insert(copy.index(AT), Unit(stamped(copy.others[0]), of=-2))
    start = copy.there(-2).start
    return [Told(Kind.MISROUTED, None, Span(start + at, start + at + 1)) for at in range(sizes()[0])]


@fault(Shape.OLD)
def a_marker_for_a_record(copy: Copy) -> list[Told]:
    at = copy.index(AT)
    first, *rest = (Unit(rewritten(copy.data(AT), lambda some, at=at: some[at : at + 1])) for at in range(3))  # type: ignore[misc]
    copy.destination[at : at + 1] = [first, *markers(1), *rest[1:]]
    return [Told(Kind.MISSING, record(copy, AT, 1), None), Told(Kind.OVERFILLED, None, record(copy, AT, 1))]


@fault(Shape.OLD)
def lost_and_changed_behind_it(copy: Copy) -> list[Told]:
    """In both formats: what is behind a lost batch is compared as exactly."""
    copy.take_out(ALONE)
    by = -copy.spans[ALONE].offsets
    copy.replace(AT, rewritten(copy.data(AT), lambda some: [some[0]._replace(value=b"other"), *some[1:]]))
    new = FIRST_NEW + 2
    copy.replace(new, rewritten(copy.data(new), lambda some: [some[0]._replace(value=b"x"), *some[1:]]))
    here = record(copy, AT, 0)
    return [
        Told(Kind.MISSING, copy.spans[ALONE], None),
        Told(Kind.VALUE_CHANGED, here, Span(here.start + by, here.end + by)),
        Told(Kind.VALUE_CHANGED, copy.spans[new], copy.there(new)),
    ]


@fault(Shape.OLD)
def another_byte_in_a_batch_of_today(copy: Copy) -> list[Told]:
    data = copy.data(FIRST_NEW)
    copy.replace(FIRST_NEW, edited(data, at=len(data) - 1))
    return [same(Kind.VALUE_CHANGED, copy.spans[FIRST_NEW])]


@fault(Shape.OLD)
def one_batch_for_both_formats(copy: Copy) -> list[Told]:
    """The last messages and the first batch of today in one."""
    at = copy.index(LAST_OLD)
    both = [Written(*one) for of in (LAST_OLD, FIRST_NEW) for one in records_of(copy.data(of))]
    copy.destination[at : at + 2] = [Unit(rewritten(copy.data(LAST_OLD), lambda _: both), of=LAST_OLD)]
    return [same(Kind.RESEGMENTED, copy.spans[FIRST_NEW])]


# -- on the disk -----------------------------------------------------------------------------------------------------


def _flipped(name: str, side: Side, of: int, byte: int, mask: int = 1) -> None:
    def spoil(copy: Copy) -> list[Told]:
        copy.flips.append((side, of, byte, mask))
        if side is Side.SOURCE and BATCHES[of] == "none":
            return [same(Kind.CORRUPT, record(copy, of, 0))]
        return [same(Kind.CORRUPT, copy.spans[of])]

    spoil.__name__ = name
    fault(Shape.OLD)(spoil)


for _at in (15, 16, 17, 20, 40):
    _flipped(f"a_message_flipped_at_byte_{_at}", Side.SOURCE, ALONE, _at)
    _flipped(f"a_wrapper_flipped_at_byte_{_at}", Side.SOURCE, AT, _at)
for _of in (ALONE, AT):
    _flipped(f"copy_{_of}_flipped", Side.DESTINATION, _of, 65)


@fault(Shape.OLD)
def both_flipped(copy: Copy) -> list[Told]:
    for side in Side:
        copy.flips.append((side, AT, 70, 1))
    return [same(Kind.CORRUPT, copy.spans[AT])]
