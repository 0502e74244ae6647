"""Recognizes small batches that the mirror has joined into larger ones (``mode``). Pure.

Batches of the source and the destination's batches in their place belong together as far as they overlap. They are no
difference if both hold the same records at the same offsets, except records that log cleaners have removed since.
"""

from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from mirror.audit.judge.changed.cleaned import is_excused
from mirror.audit.model.differences import RecordDifference
from mirror.audit.model.places import Side, Span
from mirror.audit.model.rows import BatchRow
from mirror.records.header import CODEC_MASK

REBATCHED = "small batches in a row became larger ones"

ByOffset = dict[int, BatchRow]
"""Batches by base offset."""


class RowOfBatches(NamedTuple):
    """Batches of both sides that belong together, in order."""

    source: list[BatchRow]
    destination: list[BatchRow]

    @property
    def span(self) -> Span:
        """The offsets from the first to the last of these batches."""
        both = [row.span for row in (*self.source, *self.destination)]
        return Span(min(span.start for span in both), max(span.end for span in both))

    @property
    def records(self) -> int:
        """The number of the source's records."""
        return sum(row.records for row in self.source)

    @property
    def size(self) -> int:
        """The bytes of the source's batches."""
        return sum(row.size for row in self.source)

    def is_whole(
        self,
        differing: Sequence[RecordDifference],
        cleaned: Set[Side],
        *,
        whole: bool,
        codec: int | None,
        append_times: bool = False,
    ) -> bool:
        """Returns True if the destination's batches can be the complete result of joining the source's.

        Args:
            differing: the records that differ.
            cleaned: the sides on which a log cleaner works.
            whole: all of these offsets are audited.
            codec: the codec in which the flow compresses batches that it rewrites; None: the batch's own.
            append_times: the destination's broker may have put its own times in.
        """
        timed = whole and not cleaned and not append_times
        codecs = {row.flags & CODEC_MASK for row in self.source} | ({codec} if codec is not None else set())
        gone_here, gone_there = (sum(one.at is side for one in differing) for side in Side)
        both = ((Side.SOURCE, self.source), (Side.DESTINATION, self.destination))
        return (
            all(row.records == row.span.offsets or side in cleaned for side, rows in both for row in rows)
            and all(row.flags in codecs for row in self.destination)
            and (not timed or self._newest(self.source) == self._newest(self.destination))
            and all(is_excused(one, cleaned) for one in differing)
            and (not whole or sum(row.records for row in self.destination) - gone_there == self.records - gone_here)
        )

    @staticmethod
    def _newest(rows: Sequence[BatchRow]) -> int:
        """Returns the newest max timestamp. It must be the same on both sides. Those of single batches depend on their
        borders."""
        return max(row.max_timestamp for row in rows)

    def take_from(self, source: ByOffset, destination: ByOffset) -> None:
        """Removes these batches from both mappings."""
        for rows, mine in ((source, self.source), (destination, self.destination)):
            for row in mine:
                del rows[row.base_offset]


def rows_of_batches(source: ByOffset, destination: ByOffset) -> Iterator[RowOfBatches]:
    """Yields the batches that belong together, where both sides have some. The arguments have each side's differing
    batches with right checksums; the caller may change them while it iterates."""
    both = sorted(
        ((row.base_offset, at, row) for at, rows in enumerate((source, destination)) for row in rows.values()),
        key=lambda one: one[:2],
    )
    row, end = RowOfBatches([], []), 0
    for base, at, batch in both:
        if base >= end and (row.source or row.destination):
            if row.source and row.destination:
                yield row
            row = RowOfBatches([], [])
        row[at].append(batch)
        end = max(end, batch.last_offset + 1)
    if row.source and row.destination:
        yield row
