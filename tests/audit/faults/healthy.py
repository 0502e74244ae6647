"""Copies to which happens what may happen to a copy: an audit has nothing to say of them."""

from collections.abc import Callable
from typing import NamedTuple

from mirror.audit.model.places import Side
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.identity import Identity
from mirror.records.restamp import restamp
from tests.audit.clusters import edited
from tests.audit.faults.copies import OWNER, Copy, compacted, exact, markers, stamped
from tests.audit.faults.kinds.compacted import GONE
from tests.audit.faults.kinds.fault import (
    ADOPTED,
    COMPACTED,
    COMPACTED_ADOPTED,
    COMPACTED_MAPPED,
    DESTINATION,
    MAPPED,
    PLAIN,
    SOURCE,
    TRANSACTIONS,
    Shape,
)
from tests.audit.faults.segments import Unit
from tests.records.builders import kafka_batch


class Healthy(NamedTuple):
    """One kind."""

    name: str
    shape: Shape
    change: Callable[[Copy], None]


HEALTHY: list[Healthy] = []


def healthy(*shapes: Shape) -> Callable[[Callable[[Copy], None]], Callable[[Copy], None]]:
    """The function does to a copy what is no fault, in topics of each of these shapes."""

    def add(change: Callable[[Copy], None]) -> Callable[[Copy], None]:
        HEALTHY.extend(Healthy(f"{shape.value}-{change.__name__.replace('_', '-')}", shape, change) for shape in shapes)
        return change

    return add


OLD = (Shape.OLD, Shape.OLD_MAPPED)


@healthy(*Shape)
def untouched(copy: Copy) -> None:
    """Nothing happens."""


@healthy(PLAIN, TRANSACTIONS, MAPPED, *OLD)
def trimmed_at_the_source(copy: Copy) -> None:
    copy.trimmed.append((SOURCE, copy.spans[2].start))


@healthy(PLAIN, Shape.OLD)
def trimmed_inside_a_batch(copy: Copy) -> None:
    copy.trimmed.append((SOURCE, copy.spans[2].start + 1))


@healthy(PLAIN, TRANSACTIONS, Shape.OLD)
def trimmed_on_both_sides(copy: Copy) -> None:
    for side in Side:
        copy.trimmed.append((side, copy.spans[3].start))


@healthy(PLAIN, TRANSACTIONS, Shape.OLD)
def copied_by_several_owners(copy: Copy) -> None:
    """Other producer ids, epochs and sequences."""
    copy.destination = [
        unit if BatchHeader.read(unit.data).is_control else unit._replace(data=_by(unit.data, at))
        for at, unit in enumerate(copy.destination)
    ]


def _by(batch: bytes, owner: int) -> bytes:
    header = BatchHeader.read(batch)
    return restamp(header, Identity(OWNER + owner % 3, owner, 0), header.attributes).pack() + batch[HEADER_SIZE:]


@healthy(PLAIN)
def another_leader_epoch(copy: Copy) -> None:
    """Each cluster's own; no checksum covers it."""
    copy.destination = [
        unit._replace(data=unit.data[:12] + at.to_bytes(4) + unit.data[16:]) for at, unit in enumerate(copy.destination)
    ]


@healthy(TRANSACTIONS)
def filled_by_several_owners(copy: Copy) -> None:
    copy.destination = [
        markers(1, of=unit.of, producer=OWNER + at % 3, epoch=2 * at + 1)[0]
        if BatchHeader.read(unit.data).is_control
        else unit
        for at, unit in enumerate(copy.destination)
    ]


@healthy(COMPACTED, COMPACTED_MAPPED)
def cleaned_at_the_destination(copy: Copy) -> None:
    copy.destination = compacted(copy.destination)


@healthy(COMPACTED, COMPACTED_MAPPED)
def cleaned_on_both_sides(copy: Copy) -> None:
    copy.source, copy.destination = compacted(copy.source), compacted(copy.destination)


@healthy(COMPACTED)
def delete_horizon_at_the_destination(copy: Copy) -> None:
    copy.destination = compacted(copy.destination, horizon=True)


@healthy(COMPACTED, COMPACTED_MAPPED)
def delete_horizons_on_both_sides(copy: Copy) -> None:
    copy.source = compacted(copy.source, horizon=True)
    copy.destination = compacted(copy.destination, horizon=True)


@healthy(COMPACTED)
def cleaned_before_it_was_copied(copy: Copy) -> None:
    """A whole batch is gone at the source: the copy has markers there."""
    copy.source = _without(copy.source, GONE)
    copy.destination = exact(copy.source, lambda _: True)


@healthy(COMPACTED)
def filler_that_was_cleaned_away(copy: Copy) -> None:
    """Markers, too, are taken by the destination's cleaner at some time."""
    copy.source = _without(copy.source, GONE)
    copy.destination = exact(copy.source, lambda _: True)
    copy.destination = [unit for unit in copy.destination if unit.of >= 0]
    copy.destination[0] = copy.destination[0]._replace(gap=copy.source[0].gap)


def _without(log: list[Unit], index: int) -> list[Unit]:
    """A log whose cleaner took this batch."""
    behind = log[index + 1]
    return [*log[:index], behind._replace(gap=log[index].gap + log[index].offsets + behind.gap), *log[index + 2 :]]


@healthy(ADOPTED)
def written_to_since_it_was_adopted(copy: Copy) -> None:
    """Records and holes behind it, by the flow."""
    copy.source += [Unit(copy.data(0)), *markers(2, producer=OWNER + 1), Unit(copy.data(1))]
    copy.destination += [Unit(stamped(copy.data(0))), *markers(2), Unit(stamped(copy.data(1), 2))]


@healthy(ADOPTED)
def adopted_before_the_epochs_of_now(copy: Copy) -> None:
    """What was there is of an earlier leader than what the flow has written."""
    copy.adopted_epoch = BatchHeader.read(copy.destination[-1].data).leader_epoch


@healthy(COMPACTED_ADOPTED)
def aborted_data_that_was_cleaned_away(copy: Copy) -> None:
    """With its marker; and of a producer's last batch, there is an empty one."""
    header = BatchHeader.read(copy.data(5))
    empty = header._replace(length=HEADER_SIZE - 12, record_count=0)
    copy.replace(5, edited(empty.pack()))
    for of in (4, 12, 13, 14):
        copy.take_out(of, gap=True)


@healthy(ADOPTED)
def adopted_and_trimmed(copy: Copy) -> None:
    """Both logs begin inside of a transaction that was aborted."""
    for side in Side:
        copy.trimmed.append((side, copy.spans[5].start))


@healthy(MAPPED, Shape.OLD_MAPPED)
def many_batches_of_others(copy: Copy) -> None:
    copy.destination = [
        unit for one in copy.destination for unit in (one, *(Unit(kafka_batch()) for _ in range(1 + one.offsets)))
    ]
    copy.map()


@healthy(MAPPED)
def nobody_else_writes(copy: Copy) -> None:
    copy.destination = [unit for unit in copy.destination if unit.of >= 0]
    copy.map()


@healthy(MAPPED)
def markers_of_others_between(copy: Copy) -> None:
    copy.destination = [unit for one in copy.destination for unit in (one, *markers(2, producer=7, epoch=0))]
    copy.map()


@healthy(MAPPED, Shape.OLD_MAPPED)
def strangers_go_on_behind_it(copy: Copy) -> None:
    copy.destination += [Unit(kafka_batch()) for _ in range(5)]


@healthy(PLAIN, TRANSACTIONS, Shape.OLD)
def deleted_while_it_is_audited(copy: Copy) -> None:
    """As retention does, at the source first."""
    copy.meanwhile.append((SOURCE, copy.spans[8].start))


@healthy(PLAIN)
def deleted_on_both_sides_while_it_is_audited(copy: Copy) -> None:
    """Further at the destination than where the source begins by now, but nothing that it has."""
    copy.meanwhile += [(DESTINATION, copy.spans[5].start), (SOURCE, copy.spans[5].start)]
