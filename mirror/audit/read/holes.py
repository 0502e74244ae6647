"""What each batch of a log is to the audit: a record batch that is due, or one of the kinds of holes. Pure.

At the source, transaction markers, aborted data, empty batches and gaps are holes: no consumer reads anything there,
and the destination has nothing but control markers for them. At the destination, an abort marker with the mirror's
identity fills one offset; whatever else is no record batch has no business there.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from mirror.audit.model import Side, What
from mirror.audit.read.witness import Witness
from mirror.records.header import CONTROL, DELETE_HORIZON, TRANSACTIONAL
from mirror.records.identity import MIRROR_BIT
from mirror.records.restamp import checksum
from mirror.records.scan import Place
from mirror.records.transactions import ABORT, marker_kind

Holes = NDArray[np.int64]
"""Rows of start, end and ``What``, in the order of offsets."""
NO_HOLES: Holes = np.empty((0, 3), np.int64)


def coalesced(holes: Holes) -> Holes:
    """Neighbours of one kind made one."""
    if len(holes) < 2:
        return holes
    begins = np.concatenate(([True], (holes[1:, 0] != holes[:-1, 1]) | (holes[1:, 2] != holes[:-1, 2])))
    firsts = np.flatnonzero(begins)
    lasts = np.concatenate((firsts[1:], [len(holes)])) - 1
    return np.column_stack((holes[firsts, 0], holes[lasts, 1], holes[firsts, 2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How one side's batches are told apart.

    ``committed``: aborted data is a hole (``isolation.level: read_committed``). ``strangers``: abort markers fill
    whoever wrote them (``fill: transaction``, where a coordinator allocates the producer id). ``mapped``: holes are not
    filled at all, and the sides are not compared in them.
    """

    side: Side = Side.SOURCE
    committed: bool = False
    strangers: bool = False
    mapped: bool = False

    @property
    def odd(self) -> frozenset[What]:
        """What is a finding by itself: nothing at the source, all but markers at the destination."""
        if self.side is Side.SOURCE or self.mapped:
            return frozenset()
        return frozenset(What) - {What.DATA, What.CONTROL}

    @property
    def kept_attributes(self) -> int:
        """The attribute bits that are compared.

        The delete horizon is each cleaner's own. The mirror takes the transactional bit off: at the source it says
        nothing about the copy, at the destination it would hide records from consumers.
        """
        return ~(DELETE_HORIZON | TRANSACTIONAL) if self.side is Side.SOURCE else ~DELETE_HORIZON

    def to_json(self) -> str:
        """As the data source's option carries them."""
        return json.dumps({**asdict(self), "side": self.side.value})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The way back.

        Raises:
            ValueError: not such a text.
        """
        try:
            fields = json.loads(text)
            return cls(**{**fields, "side": Side(fields["side"])})
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"no rules: {text!r}") from error


PLAIN = Rules()
"""Every batch that is no control batch is data."""


def sorted_out(
    rules: Rules,
    body: memoryview,
    places: Sequence[Place],
    headers: NDArray[np.void],
    aborted: Iterable[tuple[int, int]] = (),
    witness: Witness | None = None,
) -> NDArray[np.int8]:
    """``What`` of each batch of one Fetch response. ``aborted``: the response's list, (producer id, first offset).

    The list has every aborted transaction that reaches into the response, wherever it began, so that each response
    is judged by itself; only ``witness``, of the range, remembers what came before.

    Raises:
        AuditError: the list and the markers in the log contradict each other.
    """
    whats = np.zeros(len(headers), np.int8)
    whats[headers["record_count"] == 0] = What.EMPTY
    flags = headers["attributes"].astype(np.int16)
    control = (flags & CONTROL) != 0
    if rules.side is Side.DESTINATION:
        for index, what in _markers(rules, body, places, headers, control) if control.any() else ():
            whats[index] = what
    else:
        intact = _intact(body, places, headers, control)
        damaged, control = control & ~intact, intact
        whats[control] = What.CONTROL
        if rules.committed:
            of_transactions = np.flatnonzero(((flags & TRANSACTIONAL) != 0) & ~damaged)
            for index in _aborted(body, places, headers, of_transactions, control, aborted, witness or Witness()):
                whats[index] = What.ABORTED
    # A batch that is damaged may only seem to hold no record: it stays a batch, and is found corrupt.
    left_out = np.isin(whats, (What.EMPTY, What.ABORTED))
    whats[left_out & ~_intact(body, places, headers, left_out)] = What.DATA
    return whats


def _intact(
    body: memoryview, places: Sequence[Place], headers: NDArray[np.void], asked: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Those of ``asked`` whose checksum matches their bytes."""
    intact = asked.copy()
    for index in np.flatnonzero(asked).tolist():
        intact[index] = _is_intact(body, places, headers, index)
    return intact


def _is_intact(body: memoryview, places: Sequence[Place], headers: NDArray[np.void], index: int) -> bool:
    return checksum(_bytes(body, places[index])) == int(headers["crc"][index])


def _bytes(body: memoryview, place: Place) -> memoryview:
    return body[place.at : place.at + place.size]


def _markers(
    rules: Rules, body: memoryview, places: Sequence[Place], headers: NDArray[np.void], control: NDArray[np.bool_]
) -> list[tuple[int, What]]:
    """Index and ``What`` of each control batch at the destination."""
    found = headers[control]
    own = (found["producer_id"] & MIRROR_BIT != 0) & (found["producer_epoch"] % 2 == 1)
    may_fill = (own | rules.strangers) & (found["last_offset_delta"] == 0)
    whats = []
    for index, crc, may in zip(np.flatnonzero(control).tolist(), found["crc"].tolist(), may_fill.tolist(), strict=True):
        batch = _bytes(body, places[index])
        if checksum(batch) != crc:
            whats.append((index, What.DAMAGED))
        else:
            whats.append((index, What.CONTROL if may and marker_kind(batch) == ABORT else What.FOREIGN))
    return whats


def _aborted(
    body: memoryview,
    places: Sequence[Place],
    headers: NDArray[np.void],
    of_transactions: NDArray[np.intp],
    control: NDArray[np.bool_],
    aborted: Iterable[tuple[int, int]],
    witness: Witness,
) -> list[int]:
    """Indexes of the batches that belong to aborted transactions, as the Java consumer finds them.

    Raises:
        AuditError: a marker says otherwise than the list.
    """
    begins = sorted(aborted, key=lambda entry: entry[1], reverse=True)
    current: set[int] = set()
    found: list[int] = []
    ids = headers["producer_id"].astype(np.int64).tolist()
    bases = headers["base_offset"].astype(np.int64)
    lasts = (bases + headers["last_offset_delta"]).tolist()
    for index, base in zip(of_transactions.tolist(), bases[of_transactions].tolist(), strict=True):
        producer = ids[index]
        while begins and begins[-1][1] <= lasts[index]:
            current.add(begins.pop()[0])
        if control[index]:
            kind = marker_kind(_bytes(body, places[index]))
            witness.marker(producer, base, kind, listed=producer in current)
            current.discard(producer)
        elif producer in current:
            found.append(index)
        elif producer not in witness.due and _is_intact(body, places, headers, index):
            # A flipped bit makes it another producer's: what its marker says is true all the same.
            witness.data(producer, base)
    return found
