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
"""In place of a chunk size: the whole fetch is converted before anything is sent, as brokers did before KIP-283."""
KIB, MIB = 1 << 10, 1 << 20
CHUNK_SIZES = tuple(KIB << power for power in range(4, 11))
"""The chunk sizes of KIP-283: 16 KiB to 1 MiB."""
OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
"""The codecs of magic 0 and 1."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTest:
    """The sizes of KIP-283's memory test.

    Attributes:
        partitions: number of partitions of the topic.
        total_bytes: bytes of all records together.
        fetch_max_bytes: ``fetch.max.bytes`` of the consumer, and of the broker, whose default would be lower.
        max_partition_fetch_bytes: ``max.partition.fetch.bytes`` of the consumer.
        limit_bytes: limit of the process's memory. KIP-283's broker has as much for its heap.
    """

    partitions: int = 250
    total_bytes: int = 1_000_000_000
    fetch_max_bytes: int = 250 * MIB
    max_partition_fetch_bytes: int = MIB
    limit_bytes: int = 200_000_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run measures.

    Attributes:
        magics, codecs, chunk_sizes: the table has a row for each combination of magic, codec and chunk size.
        rounds: number of measurements of each row, alternately with the other rows of its magic and codec.
        record_bytes: size of a record's value, as in KIP-283.
        batch_bytes: size of a stored batch: a producer's default.
        partitions, partition_bytes: number of partitions in a fetch, as in KIP-283, and bytes of each: a consumer's
            default.
        plain_bytes: minimum number of bytes of record values that are converted in one measurement.
        memory: sizes of the memory test.
        parts: the parts to do, out of ``PARTS``.
        out: path of the document.
        quick: True for a run that only shows that everything works.
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
    """Returns the plan that the environment variables describe.

    Raises:
        BenchError: a value is invalid.
    """
    plan = _QUICK if environ.get("DOWNCONVERSION_QUICK", "") not in ("", "0") else Plan()
    only = environ.get("DOWNCONVERSION_ONLY", "")
    if only and only not in PARTS:
        raise BenchError(f"DOWNCONVERSION_ONLY is {only!r}", f"give one of {', '.join(PARTS)}, or nothing for both")
    out = environ.get("DOWNCONVERSION_OUT", "")
    whole = not plan.quick and not only
    path = Path(out) if out else ROOT / (DOCUMENT if whole else "build/downconversion.md")
    return dataclasses.replace(plan, parts=(only,) if only else PARTS, out=path)
