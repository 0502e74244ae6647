"""The deep path: opens and rewrites batches that the destination would refuse as they are, or that are to have another
codec or become part of larger batches.

Beside ``legacy.stand_ins`` (for messages from before Kafka 0.11), this is the only place on the data path that opens
batches. Opened batches are counted by reason, so that operators see how much of their data goes this way.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mirror.reasons import HaltReason
from mirror.records.admit import Halt, RewriteWish, Terms
from mirror.records.content.decompressing import NotOpened
from mirror.records.content.ratio import RatioEstimator
from mirror.records.content.rewriting import Oversize, Piece, RecordTooLarge, Splits, rebatch, rewrite
from mirror.records.header import HEADER_SIZE, BatchHeader

MOST_PIECES = 4_096
"""Most pieces that are made of a batch at a time. Each takes several objects, however small it is. The rest of the
batch is fetched again."""
MOST_SIZE = 16 << 20
"""Likewise for the bytes of the pieces: once there are this many, no more pieces are made."""


class Rewritten(NamedTuple):
    """The pieces of a batch, from the offset that was due on.

    Attributes:
        pieces: dense batches, in order. Records that are passed over stand in their places among them.
        upto: the offset behind the last piece; if nothing stopped the work, the offset behind the whole batch.
        halt: why no more of it can be rewritten; None: nothing prevents it.
        rest: True if there may be more of it.
    """

    pieces: list[Piece | RecordTooLarge]
    upto: int
    halt: Halt | None = None
    rest: bool = False

    @property
    def size(self) -> int:
        """Size of the pieces in bytes, as they are stored."""
        return sum(piece.header.size for piece in self.pieces if isinstance(piece, Piece))


@dataclass(slots=True)
class Rewriter:
    """Rewrites batches for all partitions of a process.

    Attributes:
        opened: number of opened batches by reason: the halt that was avoided, or the wish of the configuration.
        splits: number of batches that were built here, and of those that were too large and were split.
    """

    opened: dict[str, int] = field(default_factory=dict)
    splits: Splits = field(default_factory=Splits)
    _ratios: dict[str, RatioEstimator] = field(default_factory=dict)

    def count(self, reason: HaltReason | RewriteWish, batches: int = 1) -> None:
        """Counts batches that are opened for this reason."""
        self.opened[reason.slug] = self.opened.get(reason.slug, 0) + batches

    def rewrite(
        self,
        topic: str,
        header: BatchHeader,
        batch: memoryview,
        due: int,
        terms: Terms,
        reason: HaltReason | RewriteWish,
    ) -> Rewritten:
        """Rewrites the records of a batch from ``due`` on.

        Args:
            topic: the source topic.
            header: the batch's header.
            batch: the whole batch, whose checksum was verified.
            due: the next offset to copy.
            terms: the topic's terms.
            reason: why the batch is not sent as it is.
        """
        self.count(reason)
        pieces: list[Piece | RecordTooLarge] = []
        size = 0
        try:
            for piece in rewrite(
                header,
                bytes(batch[HEADER_SIZE:]),
                due=due,
                most_size=terms.max_batch_size,
                ratios=self._ratios.setdefault(topic, RatioEstimator()),
                splits=self.splits,
                passes_over=terms.passes_over,
                codec=terms.codec,
            ):
                pieces.append(piece)
                size += piece.header.size if isinstance(piece, Piece) else 0
                enough = len(pieces) >= MOST_PIECES or size >= MOST_SIZE
                if enough and _behind(piece) < header.next_offset:
                    return Rewritten(pieces, _behind(piece), rest=True)
        except Oversize as error:
            halt = Halt(reason=HaltReason.TOO_LARGE, detail=str(error), size=error.size)
        except NotOpened as error:
            halt = Halt(reason=HaltReason.NOT_OPENED, detail=f"{error} (it had to be opened: {reason.slug})")
        else:
            return Rewritten(pieces, header.next_offset)
        return Rewritten(pieces, _behind(pieces[-1]) if pieces else due, halt)

    def rebatch(self, topic: str, parts: Sequence[tuple[BatchHeader, bytes]], terms: Terms) -> list[Piece] | None:
        """Makes larger batches of several small ones.

        Args:
            topic: the source topic.
            parts: headers, each with the bytes behind it, without gaps between the batches. Checksums were verified.
            terms: the topic's terms.

        Returns:
            The larger batches. None: the small ones cannot be opened, or would become too large; they can be sent as
            they are.
        """
        ratios = self._ratios.setdefault(topic, RatioEstimator())
        try:
            pieces = list(
                rebatch(parts, most_size=terms.max_batch_size, ratios=ratios, splits=self.splits, codec=terms.codec)
            )
        except NotOpened:
            return None
        self.count(RewriteWish.REBATCHED, len(parts))
        return pieces


def _behind(piece: Piece | RecordTooLarge) -> int:
    """Returns the offset behind the piece."""
    return piece.offset + 1 if isinstance(piece, RecordTooLarge) else piece.header.next_offset
