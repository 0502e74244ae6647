"""The table of chunk sizes: measures every size alternately with the whole conversion, and finds the best size."""

import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.downconversion import sets
from bench.downconversion.plan import ROOT, WHOLE, Plan
from bench.errors import BenchError
from mirror.legacy.downward import OldMagic
from mirror.records.header import Codec

__all__ = ["EQUAL", "Advice", "Row", "advice", "measure"]

EQUAL = 0.05
"""Ratios that differ by less count as equal, however well they repeat: the cost of a chunk outside of the conversion (a
request, an answer) is not measured here."""
_READ_BYTES = 1 << 20
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The figures of a chunk size with a magic and a codec.

    Attributes:
        magic, codec: magic and codec.
        chunk_bytes: the chunk size, or ``WHOLE``.
        mb_per_s: 10^6 bytes of record values per second of the process's CPU, for each round.
        ratios: these figures divided by those of the whole conversion in the same round.
        peak_bytes: peak memory of the process, the highest of all rounds.
        grown_bytes: the part of the peak that was added by the conversion, the highest of all rounds.
    """

    magic: OldMagic
    codec: Codec
    chunk_bytes: int
    mb_per_s: tuple[float, ...]
    ratios: tuple[float, ...]
    peak_bytes: int
    grown_bytes: int

    @property
    def ratio(self) -> float:
        """Median of the rounds' ratios."""
        return statistics.median(self.ratios)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What follows from the table for the chunk size.

    Attributes:
        means: chunk size -> geometric mean of its ratios, over magics and codecs.
        best: the chunk size with the highest mean.
        spread: by how much a row's ratio differs between rounds: the median over all rows of half the range. Two sizes
            that differ by less count as equal.
    """

    means: dict[int, float]
    best: int
    spread: float

    def keeps(self, default: int) -> bool:
        """Returns True if no size is clearly better than ``default``."""
        return default in self.means and self.means[self.best] - self.means[default] <= max(self.spread, EQUAL)


def measure(plan: Plan, say: Say) -> list[Row]:
    """Measures all rows of the table. ``say``: called with the progress, in words.

    Raises:
        BenchError: a measurement has failed.
    """
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="mirror-downconversion-") as folder:
        for codec in plan.codecs:
            file = Path(folder) / codec.name
            sizes = sets.write(
                file, codec=codec, partitions=plan.partitions, partition_bytes=plan.partition_bytes,
                batch_bytes=plan.batch_bytes, record_bytes=plan.record_bytes,
            )  # fmt: skip
            for magic in plan.magics:
                found = _rounds(plan, magic, file, sizes)
                rows += _rows(plan, magic, codec, found)
                say(_told(rows[-len(found) :]))
            file.unlink()
    return rows


def advice(rows: Sequence[Row]) -> Advice:
    """Returns what follows from the rows for the chunk size."""
    chunked = [row for row in rows if row.chunk_bytes != WHOLE]
    logs: dict[int, list[float]] = {}
    for row in chunked:
        logs.setdefault(row.chunk_bytes, []).append(math.log(row.ratio))
    means = {size: math.exp(statistics.fmean(values)) for size, values in sorted(logs.items())}
    spread = statistics.median((max(row.ratios) - min(row.ratios)) / 2 for row in chunked)
    return Advice(means=means, best=max(means, key=lambda size: means[size]), spread=spread)


_Figures = dict[str, Any]


def _rounds(plan: Plan, magic: OldMagic, file: Path, sizes: list[int]) -> dict[int, list[_Figures]]:
    """Measures all sizes and the whole conversion in each round. Another one is first in each round. Returns chunk size
    -> figures of the rounds."""
    every = (WHOLE, *plan.chunk_sizes)
    found: dict[int, list[_Figures]] = {size: [] for size in every}
    once = _run({"file": str(file), "sizes": sizes, "magic": magic, "chunk_bytes": WHOLE, "passes": 1})
    passes = math.ceil(plan.plain_bytes / (once["records"] * plan.record_bytes))
    for number in range(plan.rounds):
        first = number * 3 % len(every)
        for size in every[first:] + every[:first]:
            arguments = {"file": str(file), "sizes": sizes, "magic": magic, "chunk_bytes": size, "passes": passes}
            found[size].append(_run(arguments))
    return found


def _run(arguments: _Figures) -> _Figures:
    """Makes one measurement, and returns its figures. Reads and discards its output."""
    command = [sys.executable, "-m", "bench.downconversion.conversion", json.dumps(arguments)]
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors) as process:
            assert process.stdout is not None
            try:
                while os.read(process.stdout.fileno(), _READ_BYTES):
                    pass
            except BaseException:
                process.kill()
                raise
        errors.seek(0)
        told = errors.read().decode(errors="replace")
    if process.returncode:
        raise BenchError(f"a conversion ended with {process.returncode}: {told[-500:]}", "see its last lines above")
    figures: _Figures = json.loads(told)
    return figures


def _rows(plan: Plan, magic: OldMagic, codec: Codec, found: dict[int, list[_Figures]]) -> list[Row]:
    speeds = {
        size: tuple(one["records"] * plan.record_bytes / 1e6 / one["cpu_s"] for one in runs)
        for size, runs in found.items()
    }
    return [
        Row(
            magic=magic,
            codec=codec,
            chunk_bytes=size,
            mb_per_s=speeds[size],
            ratios=tuple(mine / whole for mine, whole in zip(speeds[size], speeds[WHOLE], strict=True)),
            peak_bytes=max(one["peak_bytes"] for one in runs),
            grown_bytes=max(one["peak_bytes"] - one["before_bytes"] for one in runs),
        )
        for size, runs in found.items()
    ]


def _told(rows: Sequence[Row]) -> str:
    figures = ", ".join(f"{row.chunk_bytes >> 10 or 'whole'}: {row.ratio:.2f}" for row in rows)
    return f"magic {rows[0].magic}, {rows[0].codec.name.lower()}: {figures} (KiB: ratio to the whole)"
