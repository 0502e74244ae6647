"""What a kind of fault is: how a true copy is spoilt, and all that an audit has to say of it.

A function spoils the copy, and returns the findings that are due, each as its kind with its offsets at the source
and at the destination: these, and no other.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Side, Span
from tests.audit.faults.copies import Copy

SOURCE, DESTINATION = Side.SOURCE, Side.DESTINATION

# Places in a batch (protocol: record batch, magic 2).
BASE_OFFSET_AT, LENGTH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT, LAST_OFFSET_DELTA_AT = 7, 10, 16, 20, 22, 26
PRODUCER_ID_AT, RECORD_COUNT_AT = 50, 60


class Shape(Enum):
    """What a topic is."""

    PLAIN = "plain"
    TRANSACTIONAL = "transactional"
    COMPACTED = "compacted"
    ADOPTED = "adopted"
    """Transactional, and at the destination, which was there before the flow: its copy is the source."""
    COMPACTED_ADOPTED = "compacted-adopted"
    MAPPED = "mapped"
    COMPACTED_MAPPED = "compacted-mapped"
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
COMPACTED_MAPPED = Shape.COMPACTED_MAPPED
ADOPTED, COMPACTED_ADOPTED = Shape.ADOPTED, Shape.COMPACTED_ADOPTED
EXACT = PLAIN, TRANSACTIONS
AT = 3
"""A batch in the middle that is due, in topics of every shape."""
LAST = -1
