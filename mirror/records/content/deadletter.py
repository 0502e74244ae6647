"""A record as a dead letter: as it was, with headers that say where it comes from and why it is here.

The headers are those of Kafka Connect's dead letter queues (KIP-298: ``__connect.errors.topic`` and so on), under the
mirror's own prefix: text in UTF-8, behind the record's own headers. Pure.
"""

from collections.abc import Mapping

from mirror.records.content.decompressing import NotOpened
from mirror.records.content.raw import RawRecord
from mirror.records.content.rewriting import alone
from mirror.records.content.varint import read_varint, write_varint
from mirror.records.header import BatchHeader

PREFIX = "__mirror.errors."
"""Prefix of the names of the added headers."""


def dead_letter(header: BatchHeader, record: RawRecord, told: Mapping[str, str]) -> bytes:
    """Returns a batch with only this record, ready to be produced.

    Args:
        header: the header of the record's batch, whose checksum was verified; codec and timestamp follow from it.
        record: the record.
        told: name -> value of the headers that are added; names without ``PREFIX``.

    Raises:
        NotOpened: the sizes inside the record contradict each other.
    """
    where = f"the record at offset {header.base_offset + record.offset_delta}"
    piece = alone(header, record._replace(content=_with_headers(record.content, told, where)))
    # Brokers assign the offset, and refuse any other base. The checksum does not cover it.
    return piece.header._replace(base_offset=0).pack() + piece.records


def _with_headers(content: bytes, told: Mapping[str, str], where: str) -> bytes:
    """Returns a record's content (key, value, headers) with the added headers behind its own."""
    try:
        size, at = read_varint(content, 0)
        size, at = read_varint(content, at + max(0, size))
        count_at = at + max(0, size)
        count, behind = read_varint(content, count_at)
    except (IndexError, ValueError):
        raise NotOpened(f"{where} is damaged: sizes inside of a record do not fit") from None
    added = [part.encode() for name, text in told.items() for part in (PREFIX + name, text)]
    parts = [write_varint(len(part)) + part for part in added]
    return b"".join([content[:count_at], write_varint(count + len(told)), content[behind:], *parts])
