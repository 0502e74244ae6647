"""The deep path: batches that the destination would refuse as they are, or is to have with another codec or in larger
batches, opened and rewritten.

With ``legacy.stand_ins``, for messages from before Kafka 0.11, the only place on the way of a batch where one is
opened. It is counted by reason, so that operators see how much of
their data takes this way.
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
"""Limit for the pieces that are made of a batch at a time. Each is several objects, however little it holds. What is
left of the batch is fetched again."""
MOST_SIZE = 16 << 20
"""The same for their bytes: once there are as many, no more are made."""


class Rewritten(NamedTuple):
    """The pieces of a batch from the offset on that was due.

    Attributes:
        pieces: dense batches, in order, and in their places the records that are passed over.
        upto: the offset behind the last piece; behind the whole batch, if nothing stopped it.
        halt: why no more of it can be rewritten; None: nothing speaks against it.
        rest: True if there may be more of it.
    """

    pieces: list[Piece | RecordTooLarge]
    upto: int
    halt: Halt | None = None
    rest: bool = False

    @property
    def size(self) -> int:
        """Bytes of the pieces as they are stored."""
        return sum(piece.header.size for piece in self.pieces if isinstance(piece, Piece))


@dataclass(slots=True)
class Rewriter:
    """Rewrites batches for all partitions of a process.

    Attributes:
        opened: batches that were opened, by the reason for which they would have halted, or what was wanted.
        splits: batches that were built here, and how many of them were too large and were split.
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
            topic: the topic of the batch, at the source.
            header: its header.
            batch: all of it; its checksum was verified.
            due: the offset that is due.
            terms: those of the topic.
            reason: why it cannot go as it is.
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
            topic: their topic, at the source.
            parts: headers, and the bytes behind them, without a gap between them; checksums were verified.
            terms: those of the topic.

        Returns:
            The larger batches. None: they cannot be opened, or come to be too large; nothing speaks against sending
            them as they are.
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
    """Returns the offset behind it."""
    return piece.offset + 1 if isinstance(piece, RecordTooLarge) else piece.header.next_offset
