"""Joins consecutive small batches to larger ones (``mode: deep``, ``mode: auto``).

A request has only one batch of each partition, at most five requests are in flight, and brokers keep an index and
producer state for each batch. So a topic of tiny batches is copied faster, and stored at less cost, in larger ones,
although each record has to be cut out.
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
"""Bytes at which a row of batches to join ends: eight times a producer's default batch."""
ENOUGH_RECORDS = 10_000
LEAST_BATCHES = 2
PLAIN_AT_A_TIME = 16 << 20
"""Bytes that are decompressed and compressed again before other partitions have their turn."""


MayGo = Callable[[BatchHeader, memoryview, int], bool]
"""Tells whether a batch could go to the destination as it is, or at least with another codec. Arguments: its header,
the whole batch, and the offset that is due there."""


class Rebatched(NamedTuple):
    """How far ``put_small`` went.

    Attributes:
        at: the byte to go on at.
        stop: the batches from ``at`` up to this byte are sent as they are, if they may be.
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
        buf: the Fetch response.
        at: where a batch begins.
        end: where the record set ends.
        rewriter: see ``forward``.
        produce_version: the version that batches are sent with.
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
    """Returns the places and headers of the batches from byte ``at`` on that can be joined, and the byte behind them.
    Each is due, small, and may go.

    If there is none, the byte is that behind the first batch, or ``end`` if that is no whole batch of magic 2.
    """
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
