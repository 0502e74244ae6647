"""The contents of a topic on a broker's disk: its log segments, and what the batch headers in them show."""

import dataclasses
import mmap
from collections.abc import Iterable
from pathlib import Path

from mirror.records.header import RECORD_COUNT_AT
from mirror.records.scan import scan

__all__ = ["Stored", "read", "segments"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The contents of a topic: bytes of batches, number of batches, and number of records, over all partitions."""

    bytes: int
    batches: int
    records: int

    @property
    def mean_batch_bytes(self) -> float:
        """Mean size of a stored batch with its header, in bytes; 0 if there is no batch."""
        return self.bytes / self.batches if self.batches else 0.0


def segments(data_dir: Path, topic: str, partitions: int) -> list[Path]:
    """Returns the log segments of a topic. They have the record sets exactly as in a Fetch response."""
    return [
        segment
        for partition in range(partitions)
        for segment in sorted((data_dir / f"{topic}-{partition}").glob("*.log"))
    ]


def read(files: Iterable[Path]) -> Stored:
    """Counts bytes, batches and records in log segments. Reads only the batch headers."""
    size = batches = records = 0
    for file in files:
        length = file.stat().st_size
        if not length:
            continue
        with (
            file.open("rb") as opened,
            mmap.mmap(opened.fileno(), length, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as view,
        ):
            for place in scan(view):
                size += place.size
                batches += 1
                count_at = place.at + RECORD_COUNT_AT
                records += int.from_bytes(view[count_at : count_at + 4], "big", signed=True)
    return Stored(bytes=size, batches=batches, records=records)
