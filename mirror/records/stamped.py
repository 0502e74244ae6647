"""Batches into which a broker has put the time of their append (``message.timestamp.type=LogAppendTime``).

The broker marks the batch (attribute bit 3), sets its max timestamp to its own clock, and recomputes the checksum. The
records keep the timestamps with which they were sent, but consumers no longer see them. Everything else stays as it was
sent (docs/BROKERS.md). So a batch that was stamped at the destination can still be compared with the one that was sent,
except for its max timestamp.
"""

from mirror.records.header import LOG_APPEND_TIME, BatchHeader
from mirror.records.restamp import CHECKED, OWNER_END, carry


def is_stamped(header: BatchHeader) -> bool:
    """Returns True if a broker has put the time of the append into the batch."""
    return bool(header.attributes & LOG_APPEND_TIME)


def unstamped(header: BatchHeader, max_timestamp: int) -> BatchHeader:
    """Returns the header of a stamped batch as it was sent, with the checksum that belongs to it. The records are not
    read: the checksum is right if that of the stamped batch is.

    Args:
        header: the header of the stamped batch.
        max_timestamp: the max timestamp that was sent, in ms since 1970.
    """
    attributes = header.attributes & ~LOG_APPEND_TIME
    change = CHECKED.pack(header.attributes ^ attributes, 0, 0, header.max_timestamp ^ max_timestamp, 0, 0, 0)
    return header._replace(
        crc=carry(header.crc, change, header.size - OWNER_END), attributes=attributes, max_timestamp=max_timestamp
    )
