"""Small batches in a row become larger ones (``mode: deep``, ``mode: auto``).

Every batch costs a request of its own for its partition, at most five of them are in flight, and brokers keep an index
and a producer's state for each. So a topic of tiny batches is copied faster, and kept cheaper, in larger ones, although
each record has to be cut out.
"""

from collections.abc import Callable
from typing import NamedTuple

from mirror.legacy import AT_A_TIME
from mirror.records.admit import Terms
from mirror.records.header import HEADER_SIZE, MAGIC, MAGIC_AT, BatchHeader, CorruptBatch
from mirror.records.scan import measure
from mirror.relay.hot.deep import Rewriter
from mirror.relay.hot.putting import SoFar

ENOUGH_BYTES = 128 << 10
"""Bytes at which a row of batches that are joined ends: eight times a producer's default batch."""
ENOUGH_RECORDS = 10_000
LEAST_BATCHES = 2
PLAIN_AT_A_TIME = 16 << 20
"""Bytes that are decompressed and compressed again before other partitions have their turn."""


MayGo = Callable[[BatchHeader, memoryview, int], bool]
"""Says of a header, the whole batch and the offset that is due there whether it would go to the destination as it is,
or with another codec."""


class Rebatched(NamedTuple):
    """How far it went.

    Attributes:
        at: the byte to go on at.
        stop: the batches up to there go as they are, if they may.
        cut: True if that is enough for now. The rest is fetched again.
    """

    at: int
    stop: int
    cut: bool = False


def put_small(
    so_far: SoFar, buf: memoryview, at: int, end: int, rewriter: Rewriter | None, produce_version: int, may_go: MayGo
) -> Rebatched:
    """Puts larger batches in the place of the small ones from byte ``at`` on, as long as several stand in a row.

    Args:
        so_far: what was put into the outbox of this record set.
        buf: the answer to a fetch.
        at: where a batch begins.
        end: where the record set ends.
        rewriter: see ``forward``.
        produce_version: the version with which batches are sent.
        may_go: see ``MayGo``.
    """
    partition, rewriter = so_far.partition, rewriter or Rewriter()
    enough = rewriter.splits.plain + PLAIN_AT_A_TIME
    while True:
        places, stop = _in_a_row(buf, at, end, so_far.next_due, partition.terms, may_go)
        if len(places) < LEAST_BATCHES:
            return Rebatched(at, stop)
        parts = [(header, bytes(buf[at + HEADER_SIZE : at + header.size])) for at, header in places]
        pieces = rewriter.rebatch(partition.topic, parts, partition.terms)
        if pieces is None:
            return Rebatched(at, stop)
        so_far.put_rebatched(places[-1][0], [header for header, _ in parts], pieces, produce_version)
        at = stop
        if so_far.opened >= AT_A_TIME or rewriter.splits.plain >= enough:
            return Rebatched(at, end, cut=at < end)  # other partitions have their turn first


def _in_a_row(
    buf: memoryview, at: int, end: int, due: int, terms: Terms, may_go: MayGo
) -> tuple[list[tuple[int, BatchHeader]], int]:
    """Returns the places and headers of the batches from byte ``at`` on that may become one, and the byte behind them:
    each is due, small, and may go. If there is none, the byte behind the batch that is not small."""
    places = list[tuple[int, BatchHeader]]()
    size = records = 0
    while size < ENOUGH_BYTES and records < ENOUGH_RECORDS:
        try:
            found = measure(buf, at, end)
        except CorruptBatch:
            return places, at if places else end
        if not isinstance(found, int) or buf[at + MAGIC_AT] != MAGIC:
            return places, at if places else end
        header, stop = BatchHeader.read(buf, at), at + found
        like = not places or terms.codec is not None or header.codec_bits == places[0][1].codec_bits
        small = found < terms.rebatches and header.base_offset == due
        if not (like and small and may_go(header, buf[at:stop], due)):
            return places, at if places else stop
        places.append((at, header))
        size, records = size + found, records + header.record_count
        at, due = stop, header.next_offset
    return places, at
