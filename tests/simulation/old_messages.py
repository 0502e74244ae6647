"""Messages of magic 0 and 1 in a simulated log."""

from mirror.legacy import stand_ins
from mirror.records.header import HEADER_SIZE, BatchHeader
from tests.simulation.model.broker import Stored


class OldStored(Stored):
    """A message as it lies in the log. ``header``: of the batch that stands for it."""

    @property
    def payload(self) -> bytes:
        """The records of that batch."""
        return stand_ins(memoryview(self.data)).batches[0][HEADER_SIZE:]


def old_stored(message: bytes) -> OldStored:
    (batch,) = stand_ins(memoryview(message)).batches
    return OldStored(BatchHeader.read(batch), message)


def value_of(content: bytes) -> bytes:
    """Of a record whose key is short and which has no headers, but has a value of up to 8,191 bytes."""
    key = content[0] // 2
    return content[key + (3 if content[key + 1] & 0x80 else 2) : -1]
