"""Partition logs as files on a broker's disk: laid out while it is down, flipped while it runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mirror.records.header import BatchHeader
from mirror.sandbox import Broker

_LOST_IN_RECOVERY = ("*.log", "*.index", "*.timeindex", "*.txnindex", "*.snapshot")


class Unit(NamedTuple):
    """A batch of a log, wherever it comes to lie.

    ``gap``: offsets in front of it that no batch takes. ``of``: of a copy, or of a marker that fills a hole: index of
    the source's batch; -1 of any other. ``at``: the offset that it says it has; None: the true one.
    """

    data: bytes
    gap: int = 0
    of: int = -1
    at: int | None = None

    @property
    def offsets(self) -> int:
        """How many it takes."""
        return BatchHeader.read(self.data).last_offset_delta + 1


def bases(log: Sequence[Unit], start: int = 0) -> list[int]:
    """The offset of each batch, and the end."""
    found = []
    for unit in log:
        found.append(start + unit.gap)
        start = found[-1] + unit.offsets
    return [*found, start]


def placed(log: Sequence[Unit], start: int = 0) -> list[bytes]:
    """The batches at the offsets of their places. No checksum covers a base offset."""
    at = [base if unit.at is None else unit.at for unit, base in zip(log, bases(log, start)[:-1], strict=True)]
    return [base.to_bytes(8) + unit.data[8:] for unit, base in zip(log, at, strict=True)]


def folder(broker: Broker, topic: str) -> Path:
    """Of partition 0."""
    return broker.data_dir / f"{topic}-0"


def lay(broker: Broker, topic: str, log: Sequence[Unit], start: int = 0) -> None:
    """One segment with these batches is partition 0 from now on. The broker is down; without the index files it reads
    the segment when it starts, and makes them anew. It would cut off a batch with a wrong checksum, and all behind it:
    those are damaged once it runs."""
    assert not broker.running
    where = folder(broker, topic)
    for pattern in _LOST_IN_RECOVERY:
        for path in where.glob(pattern):
            path.unlink()
    (where / f"{start:020}.log").write_bytes(b"".join(placed(log, start)))


def flip(broker: Broker, topic: str, at: int, mask: int = 1) -> None:
    """Turns over bits of a byte of the segment, counted from its start: the broker serves what is in the file."""
    (path,) = folder(broker, topic).glob("*.log")
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ mask]))
