"""The table: every chunk size against the whole conversion, in turns, and which size it speaks for."""

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
"""Ratios that differ by less are as good as each other, however well they repeat: what a chunk costs behind the
conversion (a request, an answer) is not measured here."""
_READ_BYTES = 1 << 20
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One chunk size with one magic and codec.

    Attributes:
        magic, codec, chunk_bytes: which; ``WHOLE``: not in chunks.
        mb_per_s: 10^6 bytes of record values for each second of the process's CPU, in each round.
        ratios: that figure divided by the whole conversion's of the same round.
        peak_bytes: memory of the process at its peak, the most of all rounds.
        grown_bytes: the part of it that conversion took, beyond the fetch and all else that was there before; likewise.
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
        """The median of the rounds' ratios."""
        return statistics.median(self.ratios)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What the table says about the size.

    Attributes:
        means: chunk size -> geometric mean of its ratios, over magics and codecs.
        best: the size with the highest.
        spread: by how much a row's ratio differs between rounds: the median over all rows of half the range. Two sizes
            that differ by less are as good as each other.
    """

    means: dict[int, float]
    best: int
    spread: float

    def keeps(self, default: int) -> bool:
        """Returns True if no size is clearly better than ``default``."""
        return default in self.means and self.means[self.best] - self.means[default] <= max(self.spread, EQUAL)


def measure(plan: Plan, say: Say) -> list[Row]:
    """Measure every row.

    Raises:
        BenchError: a measurement failed.
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
    """Returns what the rows say about the chunk size."""
    chunked = [row for row in rows if row.chunk_bytes != WHOLE]
    logs: dict[int, list[float]] = {}
    for row in chunked:
        logs.setdefault(row.chunk_bytes, []).append(math.log(row.ratio))
    means = {size: math.exp(statistics.fmean(values)) for size, values in sorted(logs.items())}
    spread = statistics.median((max(row.ratios) - min(row.ratios)) / 2 for row in chunked)
    return Advice(means=means, best=max(means, key=lambda size: means[size]), spread=spread)


_Figures = dict[str, Any]


def _rounds(plan: Plan, magic: OldMagic, file: Path, sizes: list[int]) -> dict[int, list[_Figures]]:
    """Measures all sizes, and the whole conversion, in each round; which one is first changes from round to round."""
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
    """One measurement; reads what it makes and lets it go."""
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
