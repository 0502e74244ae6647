"""What is measured, and the environment variables that choose. Pure.

DOWNCONVERSION_QUICK=1      in small: one magic, two codecs, three chunk sizes, one round; a memory test of 115 MB
DOWNCONVERSION_ONLY=PART    table, or memory
DOWNCONVERSION_OUT=FILE     where the result goes: docs/results/DOWNCONVERSION.md; but build/downconversion.md for a
                            quick run, and with DOWNCONVERSION_ONLY: only a full run replaces a full one
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from bench.errors import BenchError
from mirror.legacy.downward import OldMagic
from mirror.records.header import Codec

__all__ = ["DOCUMENT", "PARTS", "ROOT", "WHOLE", "MemoryTest", "Plan", "from_environment"]

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = "docs/results/DOWNCONVERSION.md"
PARTS = ("table", "memory")
WHOLE = 0
"""Instead of a chunk size: all of a fetch is converted before anything is sent, as brokers did before KIP-283."""
KIB, MIB = 1 << 10, 1 << 20
CHUNK_SIZES = tuple(KIB << power for power in range(4, 11))
"""KIP-283's: 16 KiB to 1 MiB."""
OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
"""Those that magic 0 and 1 have."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTest:
    """KIP-283's memory test; sizes in bytes.

    Attributes:
        partitions: of the topic.
        total_bytes: of all records together.
        fetch_max_bytes: of the one consumer; also of the broker, whose own limit would be lower.
        max_partition_fetch_bytes: likewise, of each partition.
        limit_bytes: the process's memory: what KIP-283's broker has for its heap.
    """

    partitions: int = 250
    total_bytes: int = 1_000_000_000
    fetch_max_bytes: int = 250 * MIB
    max_partition_fetch_bytes: int = MIB
    limit_bytes: int = 200_000_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run.

    Attributes:
        magics, codecs, chunk_sizes: the table's rows: each magic with each codec and each size.
        rounds: how often each row is measured, in turn with all of its magic and codec.
        record_bytes: of a record's value, as in KIP-283.
        batch_bytes: of a stored batch: a producer's default.
        partitions, partition_bytes: of a fetch: KIP-283's topic, with a consumer's default for each partition.
        plain_bytes: of records that are converted in one measurement, at least.
        memory: the memory test.
        parts: what is done, of ``PARTS``.
        out: the document.
        quick: True if it is only to show that all of it works.
    """

    magics: tuple[OldMagic, ...] = (1, 0)
    codecs: tuple[Codec, ...] = OLD_CODECS
    chunk_sizes: tuple[int, ...] = CHUNK_SIZES
    rounds: int = 7
    record_bytes: int = 1_000
    batch_bytes: int = 16 * KIB
    partitions: int = 12
    partition_bytes: int = MIB
    plain_bytes: int = 24_000_000
    memory: MemoryTest = MemoryTest()
    parts: tuple[str, ...] = PARTS
    out: Path = ROOT / DOCUMENT
    quick: bool = False


_QUICK = Plan(
    magics=(1,), codecs=(Codec.NONE, Codec.LZ4), chunk_sizes=(16 * KIB, 128 * KIB, MIB), rounds=1, partitions=3,
    plain_bytes=3_000_000, quick=True,
    memory=MemoryTest(
        partitions=96, total_bytes=115_000_000, fetch_max_bytes=96 * MIB, limit_bytes=90_000_000,
    ),
)  # fmt: skip


def from_environment(environ: Mapping[str, str]) -> Plan:
    """Returns the plan that the environment asks for.

    Raises:
        BenchError: a variable has a value that it cannot have.
    """
    plan = _QUICK if environ.get("DOWNCONVERSION_QUICK", "") not in ("", "0") else Plan()
    only = environ.get("DOWNCONVERSION_ONLY", "")
    if only and only not in PARTS:
        raise BenchError(f"DOWNCONVERSION_ONLY is {only!r}", f"give one of {', '.join(PARTS)}, or nothing for both")
    out = environ.get("DOWNCONVERSION_OUT", "")
    whole = not plan.quick and not only
    path = Path(out) if out else ROOT / (DOCUMENT if whole else "build/downconversion.md")
    return dataclasses.replace(plan, parts=(only,) if only else PARTS, out=path)
