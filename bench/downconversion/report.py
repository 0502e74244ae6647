"""The document with both measurements, as Markdown. Pure."""

import statistics
from collections.abc import Sequence

from bench.downconversion.memory import Contents, Outcome
from bench.downconversion.plan import WHOLE, Plan
from bench.downconversion.rounds import EQUAL, Advice, Row, advice
from bench.report.machine import Machine
from mirror.legacy import CHUNK_BYTES

__all__ = ["document"]

_HEAD = """\
# Down-conversion

KIP-283's measurements, of `mirror/legacy`, which converts batches of magic 2 into messages of magic 1 or 0. Written by
`make bench-downconversion` from what was measured; do not edit.
"""
_WAYS = {
    "streamed": "read as it comes, converted as it is read",
    "frame": "received whole, converted in chunks",
    "whole": "received whole, converted whole (as before KIP-283)",
}


def document(
    plan: Plan,
    *,
    machine: Machine,
    commit: str,
    rows: Sequence[Row],
    memory: tuple[Contents, Sequence[Outcome]] | None,
) -> str:
    """Returns the whole document.

    Args:
        plan: the plan of the run.
        machine: the machine of the run.
        commit: commit of the code.
        rows: rows of the table; empty: the table was not measured.
        memory: contents of the source, and outcomes of the memory test; None: it was not made.
    """
    about = (
        f"Commit `{commit}`, {machine.date}: {machine.cpu}, {machine.cores} cores, {machine.memory_gb:.0f} GB, Linux "
        f"{machine.kernel}, Python {machine.python.split()[0]}; load average before the run {machine.load_average:.1f}."
    )
    parts = [_HEAD, f"{about}\n"]
    if plan.quick:
        parts.append("**A quick run**: it shows that all of it works, and nothing else.\n")
    if rows:
        parts.append(_table(plan, rows))
    if memory is not None:
        parts.append(_memory(plan, *memory))
    return "\n".join(parts)


def _table(plan: Plan, rows: Sequence[Row]) -> str:
    said = advice(rows)
    fetch = f"{plan.partitions} partitions with {plan.partition_bytes >> 20} MiB each"
    batches = f"batches of {plan.batch_bytes >> 10} KiB with records of {plan.record_bytes:,} bytes"
    rounds = f"in {plan.rounds} rounds" if plan.rounds > 1 else "once"
    head = f"""\
## Chunk sizes

A fetch of {fetch}, in {batches}, is in memory, is converted, and goes through a pipe to another process.
Each measurement is a process of its own. Each size is measured {rounds}, in turn with all others and with the whole
conversion (all of the fetch is converted before anything is sent, as brokers did before KIP-283).

* **ratio**: the speed, divided by that of the whole conversion of the same round; the median of the rounds, and their
  range.
* **MB/s**: 10^6 bytes of record values for each second of the process's own CPU, sending included; the median.
* **peak**: memory of the process at its peak, with {_before(rows)} MB of interpreter, program and fetch; **grown**: the
  part of it that converting took. The most of all rounds, in 10^6 bytes.
"""
    means = _lines(
        ("chunk, KiB", "geometric mean of the ratios"),
        [(_size(size), f"{mean:.3f}") for size, mean in said.means.items()],
    )
    details = _lines(
        ("magic", "codec", "chunk, KiB", "MB/s", "ratio", "range", "peak", "grown"),
        [_cells(row) for row in rows],
    )
    verdict = [] if plan.quick else [_said(said), ""]
    return "\n".join([head, *means, "", *verdict, *details, ""])


def _said(said: Advice) -> str:
    default = _size(CHUNK_BYTES)
    best = f"{_size(said.best)} KiB has the highest mean ({said.means[said.best]:.3f})"
    if CHUNK_BYTES not in said.means:
        return f"The default, {default} KiB, was not measured."
    if said.best == CHUNK_BYTES:
        return (
            f"**{default} KiB is the default** (`CHUNK_BYTES`), as in KIP-283, and has the highest mean. The least is "
            f"{said.means[said.best] - min(said.means.values()):.3f} lower, and half the range of a row's ratios is "
            f"{said.spread:.3f}: no size is far from another, and memory grows with the chunk."
        )
    difference = said.means[said.best] - said.means[CHUNK_BYTES]
    if said.keeps(CHUNK_BYTES):
        return (
            f"**{default} KiB stays the default** (`CHUNK_BYTES`), as in KIP-283. {best}, which is {difference:.3f} "
            f"more; that counts as equal (up to {EQUAL}, or half the range of a row's ratios if that is more: "
            f"{said.spread:.3f}). Between equal sizes, a larger chunk means fewer requests, and more memory."
        )
    return f"**The figures speak against the default** of {default} KiB: {best}, which is {difference:.3f} more."


def _before(rows: Sequence[Row]) -> str:
    return f"{statistics.median(row.peak_bytes - row.grown_bytes for row in rows) / 1e6:.0f}"


def _cells(row: Row) -> tuple[str, ...]:
    spread = f"{min(row.ratios):.2f} to {max(row.ratios):.2f}" if row.chunk_bytes != WHOLE else ""
    return (
        str(row.magic), row.codec.name.lower(), _size(row.chunk_bytes), f"{statistics.median(row.mb_per_s):.0f}",
        f"{row.ratio:.2f}", spread, f"{row.peak_bytes / 1e6:.0f}", f"{row.grown_bytes / 1e6:.1f}",
    )  # fmt: skip


def _size(size: int) -> str:
    return "whole" if size == WHOLE else str(size >> 10)


def _memory(plan: Plan, has: Contents, outcomes: Sequence[Outcome]) -> str:
    test = plan.memory
    topic = f"{has.records:,} records of 1 KB ({has.value_bytes / 1e9:.2f} GB) in {test.partitions} partitions"
    asked = (
        f"`fetch.max.bytes` {test.fetch_max_bytes >> 20} MiB and "
        f"`max.partition.fetch.bytes` {test.max_partition_fetch_bytes >> 20} MiB"
    )
    before = f"{statistics.median(outcome.before_bytes for outcome in outcomes) / 1e6:.0f}"
    head = f"""\
## Memory

{topic} of Kafka 4.3, written by librdkafka; batches of 16 KB in one half of the partitions, of 900 KB in the other.
One consumer, {asked} (the broker's own `fetch.max.bytes` is raised to the same),
converts to magic 1 in chunks of {CHUNK_BYTES >> 10} KiB. Each line is a process of its own, with or without a limit
that the kernel enforces (RLIMIT_DATA). The first line is KIP-283's test, to its end; the others are for one answer.
What the first one makes is read by kafka-python: record by record what librdkafka's consumer reads at the source.
Before the first fetch, a process has {before} MB.
"""
    lines = _lines(
        ("answer", "limit, MB", "came to its end", "peak, MB", "answers", "largest answer, MB", "MB/s of CPU"),
        [_memory_cells(outcome) for outcome in outcomes],
    )
    tail = """
The mirror itself receives answers whole, because it forwards slices of them: its memory is bounded by what it asks for
(`fetch.max.bytes`, `buffer.memory`: KIP-74), not by chunks. The reader of the first lines is
`bench/downconversion/streamed.py`.
"""
    return "\n".join([head, *lines, tail])


def _memory_cells(outcome: Outcome) -> tuple[str, ...]:
    ended = not outcome.out_of_memory
    return (
        _WAYS[outcome.way], f"{outcome.limit_bytes / 1e6:.0f}" if outcome.limit_bytes else "none",
        "yes" if ended else "**no: out of memory**", f"{outcome.peak_bytes / 1e6:.0f}" if ended else "",
        str(outcome.answers), f"{outcome.largest_answer / 1e6:.0f}",
        f"{outcome.contents.value_bytes / 1e6 / outcome.cpu_s:.0f}" if ended else "",
    )  # fmt: skip


def _lines(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    rule = [":--" if heading in ("answer", "codec", "came to its end") else "--:" for heading in headings]
    return [f"| {' | '.join(cells)} |" for cells in (headings, rule, *rows)]
