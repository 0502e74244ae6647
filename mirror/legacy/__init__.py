"""Formats before Kafka 0.11 (magic 0 and 1), read, and converted to and from batches of magic 2 (KIP-283). Pure.

``cut`` says what is in a record set, ``up_convert`` makes batches of it for destinations of today, ``stand_ins``
batches for everything here that knows nothing else, ``down_convert`` message sets for brokers that take nothing newer.
Nothing is believed before its checksum was verified, and nothing is decompressed beyond the caller's limit.
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
