"""Formats before Kafka 0.11 (magic 0 and 1), read, and converted to and from batches of magic 2 (KIP-283). Pure.

``cut`` yields the entries of a record set. ``up_convert`` makes batches of magic 2 from them, for current brokers;
``down_convert`` makes message sets, for brokers that accept nothing newer. ``stand_ins`` makes batches that represent
old messages in those parts of the mirror that only know batches. Every checksum is verified before the content is
used, and nothing is decompressed beyond the caller's limit.
"""

from mirror.legacy.downward import CHUNK_BYTES, ConvertedChunk, LeftOut, RecordRun, UnsupportedCodec, down_convert
from mirror.legacy.entries import BatchSpan, LegacySpan, Span, cut
from mirror.legacy.reading import messages
from mirror.legacy.upward import AT_A_TIME, GATHERED_BYTES, GATHERED_RECORDS, Converted, StandIns, stand_ins, up_convert

__all__ = [
    "AT_A_TIME",
    "CHUNK_BYTES",
    "GATHERED_BYTES",
    "GATHERED_RECORDS",
    "BatchSpan",
    "Converted",
    "ConvertedChunk",
    "LeftOut",
    "LegacySpan",
    "RecordRun",
    "Span",
    "StandIns",
    "UnsupportedCodec",
    "cut",
    "down_convert",
    "messages",
    "stand_ins",
    "up_convert",
]
