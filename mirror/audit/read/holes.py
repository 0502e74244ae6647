"""Classifies each batch of a log for the audit: a record batch that is due, or a kind of hole. Pure.

At the source, transaction markers, aborted data and empty batches are holes. No read_committed consumer reads anything
there, and the destination has only control markers for them. (Gaps between batches are also holes: ``read.ranges``
finds them, and ``judge.coverage`` decides whether they have a cause.) At the destination, an abort marker with the
mirror's identity fills one offset; anything else that is not a record batch does not belong there.

The part of the destination's log that was there before the flow (``Adopted``) was written by the destination's own
producers, and the source is a copy of it. Where these have a marker or aborted data, the source has markers. So in this
part, markers and aborted data of any producer fill their offsets.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from mirror.audit.model.places import Adopted, Side
from mirror.audit.model.rows import What
from mirror.audit.read.units import Row
from mirror.audit.read.witness import Witness
from mirror.records.header import CONTROL, DELETE_HORIZON, TRANSACTIONAL
from mirror.records.identity import MIRROR_BIT
from mirror.records.restamp import checksum
from mirror.records.scan import BatchPlace
from mirror.records.transactions import ABORT, COMMIT, marker_kind

Holes = NDArray[np.int64]
"""Rows of start, end and ``What``, in offset order."""
NO_HOLES: Holes = np.empty((0, 3), np.int64)


def coalesced(holes: Holes) -> Holes:
    """Returns the holes, with those of one kind that touch joined into one."""
    if len(holes) < 2:
        return holes
    begins = np.concatenate(([True], (holes[1:, 0] != holes[:-1, 1]) | (holes[1:, 2] != holes[:-1, 2])))
    firsts = np.flatnonzero(begins)
    lasts = np.concatenate((firsts[1:], [len(holes)])) - 1
    return np.column_stack((holes[firsts, 0], holes[lasts, 1], holes[firsts, 2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How one side's batches are classified.

    ``committed``: aborted data is a hole (``isolation.level: read_committed``). ``strangers``: abort markers of any
    producer fill holes (``fill: transaction``, where a coordinator allocates the producer id). ``mapped``: holes are
    not filled at all, and are not compared; the source's holes still tell what is gone there. ``append_times``: the
    destination's broker may put its own times in. ``flow_ids``: the producer ids of all copies of a mapped flow; each
    belongs to one partition.
    """

    side: Side = Side.SOURCE
    committed: bool = False
    strangers: bool = False
    mapped: bool = False
    append_times: bool = False
    flow_ids: tuple[int, ...] = ()

    @property
    def odd(self) -> frozenset[What]:
        """The kinds of batches that are findings by themselves. At a destination with exact offsets: all except data,
        markers, and data that was aborted before the flow. Otherwise: none."""
        if self.side is Side.SOURCE or self.mapped:
            return frozenset()
        return frozenset(What) - {What.DATA, What.CONTROL, What.ABORTED}

    @property
    def kept_attributes(self) -> int:
        """The attribute bits that are compared.

        The delete horizon is each cleaner's own. The mirror clears the transactional bit: at the source it says nothing
        about the copy, and at the destination it would hide records from consumers.
        """
        return ~(DELETE_HORIZON | TRANSACTIONAL) if self.side is Side.SOURCE else ~DELETE_HORIZON

    def to_json(self) -> str:
        """Returns the rules as text for the data source's option."""
        return json.dumps({**asdict(self), "side": self.side.value})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Returns the rules of a text that ``to_json`` made.

        Raises:
            ValueError: ``to_json`` did not make this text.
        """
        try:
            fields = json.loads(text)
            return cls(**{**fields, "side": Side(fields["side"]), "flow_ids": tuple(fields.get("flow_ids", ()))})
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"no rules: {text!r}") from error


PLAIN = Rules()
"""Rules by which every batch with records that is not a control batch is data."""


def were_there(headers: NDArray[np.void], adopted: Adopted | None) -> NDArray[np.bool_]:
    """Returns a mask of the destination's batches that were there before the flow; ``adopted`` None: none of them."""
    if adopted is None:
        return np.zeros(len(headers), np.bool_)
    before: NDArray[np.bool_] = headers["base_offset"] + headers["last_offset_delta"].astype(np.int64) < adopted.end
    if adopted.leader_epoch >= 0:
        before &= headers["leader_epoch"] <= adopted.leader_epoch
    return before


def judged_batches(
    rules: Rules,
    body: memoryview,
    places: Sequence[Row],
    headers: NDArray[np.void],
    aborted: Iterable[tuple[int, int]] = (),
    witness: Witness | None = None,
    adopted: Adopted | None = None,
) -> NDArray[np.int8]:
    """Returns the ``What`` of each batch of a Fetch response.

    The list of aborted transactions has every one that reaches into the response, wherever it began, so each response
    is judged by itself. Only ``witness``, which belongs to the range, remembers earlier responses.

    Args:
        rules: how this side's batches are classified.
        body: the response.
        places: its batches and units.
        headers: their headers. In the adopted part, the transactional bit of batches is cleared in them, since copies
            do not have it either.
        aborted: the response's list of aborted transactions: (producer id, first offset) of each.
        witness: the witness of the range; None: a new one.
        adopted: the part of a destination that was there before the flow. No transaction may be open in it.

    Raises:
        AuditError: the list and the markers in the log contradict each other.
    """
    whats = np.zeros(len(headers), np.int8)
    whats[headers["record_count"] == 0] = What.EMPTY
    flags = headers["attributes"].astype(np.int16)
    control = (flags & CONTROL) != 0
    if rules.side is Side.DESTINATION:
        before = were_there(headers, adopted)
        for index, what in _markers(rules, body, places, headers, control, before) if control.any() else ():
            whats[index] = what
        decided = before & ((flags & TRANSACTIONAL) != 0)
        if adopted is not None and adopted.committed:
            of_transactions = np.flatnonzero(decided & (~control | (whats == What.CONTROL)))
            for index in _aborted(body, places, headers, of_transactions, control, aborted, witness or Witness()):
                whats[index] = What.ABORTED
        headers["attributes"][decided] &= ~TRANSACTIONAL
    else:
        intact = _intact(body, places, headers, control)
        damaged, control = control & ~intact, intact
        whats[control] = What.CONTROL
        if rules.committed:
            of_transactions = np.flatnonzero(((flags & TRANSACTIONAL) != 0) & ~damaged)
            for index in _aborted(body, places, headers, of_transactions, control, aborted, witness or Witness()):
                whats[index] = What.ABORTED
    # Damage may make a batch look empty or aborted. A damaged batch stays a record batch, and is found corrupt.
    left_out = np.isin(whats, (What.EMPTY, What.ABORTED))
    whats[left_out & ~_intact(body, places, headers, left_out)] = What.DATA
    return whats


def _intact(
    body: memoryview, places: Sequence[Row], headers: NDArray[np.void], asked: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Returns a mask of the batches in ``asked`` (another mask) whose checksum matches their bytes."""
    intact = asked.copy()
    for index in np.flatnonzero(asked).tolist():
        intact[index] = _is_intact(body, places, headers, index)
    return intact


def _is_intact(body: memoryview, places: Sequence[Row], headers: NDArray[np.void], index: int) -> bool:
    return checksum(_bytes(body, places[index])) == int(headers["crc"][index])


def _bytes(body: memoryview, place: Row) -> memoryview:
    assert isinstance(place, BatchPlace), "a record by itself is data, and has been verified"
    return body[place.at : place.at + place.size]


def _markers(
    rules: Rules,
    body: memoryview,
    places: Sequence[Row],
    headers: NDArray[np.void],
    control: NDArray[np.bool_],
    before: NDArray[np.bool_],
) -> list[tuple[int, What]]:
    """Returns index and ``What`` of each control batch at the destination. ``before``: a mask of the batches that were
    there before the flow; among these, a marker that ends any transaction fills its offset."""
    found = headers[control]
    own = (found["producer_id"] & MIRROR_BIT != 0) & (found["producer_epoch"] % 2 == 1)
    may_fill = (own | rules.strangers | before[control]) & (found["last_offset_delta"] == 0)
    whats = []
    for index, crc, may in zip(np.flatnonzero(control).tolist(), found["crc"].tolist(), may_fill.tolist(), strict=True):
        batch = _bytes(body, places[index])
        kinds = (ABORT, COMMIT) if before[index] else (ABORT,)
        if checksum(batch) != crc:
            # With offsets: mapped, no marker counts. This is a damaged copy if the map has it, and otherwise a batch of
            # another writer.
            whats.append((index, What.DATA if rules.mapped else What.DAMAGED))
        elif not headers["record_count"][index]:
            whats.append((index, What.EMPTY))  # the cleaner keeps a producer's last batch, without its records
        else:
            whats.append((index, What.CONTROL if may and marker_kind(batch) in kinds else What.FOREIGN))
    return whats


def _aborted(
    body: memoryview,
    places: Sequence[Row],
    headers: NDArray[np.void],
    of_transactions: NDArray[np.intp],
    control: NDArray[np.bool_],
    aborted: Iterable[tuple[int, int]],
    witness: Witness,
) -> list[int]:
    """Returns the indexes of the batches that belong to aborted transactions, found as the Java consumer finds them.

    Raises:
        AuditError: a marker contradicts the list.
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
            continue
        listed = producer in current
        if listed:
            found.append(index)
        if producer not in (witness.undone if listed else witness.due) and _is_intact(body, places, headers, index):
            # Only intact batches count here: a flipped bit in the producer id would make it another producer's data,
            # and that producer's marker would seem to contradict the list.
            witness.data(producer, base, listed=listed)
    return found
