"""``offsets: mapped``: selects the flow's own batches from a log that others also write to. Pure.

A range has the same source offsets on both sides. At the destination, it is read where the offset map has it. Batches
in the map get their source offsets, and from then on are compared like those of an exact copy. Other batches are left
out. A batch that has a producer id of the flow and is not in the map was copied twice, by a zombie, or into the wrong
partition.
"""

from collections.abc import Collection

import numpy as np

from mirror.audit.prepare.plan import CopiedRange
from mirror.audit.read.holes import NO_HOLES
from mirror.audit.read.ranges import NO_MORE, RangePiece

LISTED = 100
"""Maximum number of batches outside the map that a range lists one by one; further ones are only counted."""


class Selector:
    """Selects the range's batches from what was read of the destination. ``flow_ids``: the producer ids of all copies
    of the flow.

    Attributes:
        offsets: the number of offsets in the selected batches.
        unmapped: destination offsets (start, end) of the first ``LISTED`` batches of the flow that the map does not
            have.
        unlisted: the count of the further ones.
    """

    def __init__(self, where: CopiedRange, flow_ids: Collection[int] = ()) -> None:
        own = set(where.own) | (set(flow_ids) - set(where.sharing))
        self._own = np.array(sorted(own), np.int64)
        self._runs = np.array(where.runs, np.int64).reshape(-1, 3)
        self.offsets = 0
        self.unmapped: list[tuple[int, int]] = []
        self.unlisted = NO_MORE

    def __call__(self, piece: RangePiece) -> RangePiece:
        """Returns the piece with only the batches that the map has, at their source offsets."""
        headers = piece.headers
        if not len(headers):
            return piece._replace(holes=NO_HOLES)
        bases = headers["base_offset"].astype(np.int64)
        nexts = bases + headers["last_offset_delta"] + 1
        if len(self._runs):
            at = np.searchsorted(self._runs[:, 1], bases, side="right") - 1
            run = self._runs[np.maximum(at, 0)]
            inside = (at >= 0) & (nexts <= run[:, 1] + run[:, 2])
            shift = run[:, 0] - run[:, 1]
        else:
            inside, shift = np.zeros(len(headers), bool), np.zeros(len(headers), np.int64)
        own = np.isin(headers["producer_id"].astype(np.int64), self._own)
        for index in np.flatnonzero(own & ~inside).tolist():
            span = int(bases[index]), int(nexts[index])
            if len(self.unmapped) < LISTED:
                self.unmapped.append(span)
            else:
                self.unlisted = self.unlisted.plus(*span)
        # A batch of another writer at a place that the map has is compared too, and then found to differ.
        kept = headers[inside].copy()
        kept["base_offset"] = (bases + shift)[inside]
        self.offsets += int((nexts - bases)[inside].sum())
        places = [place for place, keep in zip(piece.places, inside.tolist(), strict=True) if keep]
        return piece._replace(places=places, headers=kept, holes=NO_HOLES, stored=None, old=())
