"""``offsets: mapped``: the flow's own batches in a log that others write to as well, at the source's offsets. Pure.

A range is the same source offsets on both sides. At the destination it is read where the map has it; batches that lie
in the map are given their source offsets, and from there on are compared like those of an exact copy. Others' batches
are passed over. What carries an identity of the flow and is not in the map was copied twice, or by a zombie.
"""

import numpy as np

from mirror.audit.prepare.plan import Copied
from mirror.audit.read.holes import NO_HOLES
from mirror.audit.read.ranges import Piece

LISTED = 100
"""Batches outside the map that are named one by one; the others only count."""


class Selector:
    """Takes the range's batches out of what was read of the destination.

    Attributes:
        offsets: of the batches that were taken.
        unmapped: destination offsets (start, end) of batches of the flow that the map does not have; the first of them.
    """

    def __init__(self, where: Copied) -> None:
        self._own = np.array(sorted(where.own), np.int64)
        self._runs = np.array(where.runs, np.int64).reshape(-1, 3)
        self.offsets = 0
        self.unmapped: list[tuple[int, int]] = []

    def __call__(self, piece: Piece) -> Piece:
        """The same with the flow's batches alone, at their source offsets."""
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
            if len(self.unmapped) < LISTED:
                self.unmapped.append((int(bases[index]), int(nexts[index])))
        # A batch of somebody else's in a place of the map is compared, and found to be none of the source's.
        kept = headers[inside].copy()
        kept["base_offset"] = (bases + shift)[inside]
        self.offsets += int((nexts - bases)[inside].sum())
        places = [place for place, keep in zip(piece.places, inside.tolist(), strict=True) if keep]
        return piece._replace(places=places, headers=kept, holes=NO_HOLES)
