"""A topic's contents on a broker's disk: its log segments, and their batches as the headers alone show them."""

import dataclasses
import mmap
from collections.abc import Iterable
from pathlib import Path

from mirror.records.header import RECORD_COUNT_AT
from mirror.records.scan import scan

__all__ = ["Stored", "read", "segments"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A topic's contents: bytes of record sets, batches and records, over all partitions."""

    bytes: int
    batches: int
    records: int

    @property
    def mean_batch_bytes(self) -> float:
        """Mean size of a stored batch, header included; 0 if there is none."""
        return self.bytes / self.batches if self.batches else 0.0


def segments(data_dir: Path, topic: str, partitions: int) -> list[Path]:
    """Returns the log segments of a topic, which hold its record sets exactly as a Fetch response does."""
    return [
        segment
        for partition in range(partitions)
        for segment in sorted((data_dir / f"{topic}-{partition}").glob("*.log"))
    ]


def read(files: Iterable[Path]) -> Stored:
    """Count batches and records in segments, without opening a batch."""
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
