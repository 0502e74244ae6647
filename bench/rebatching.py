"""Measures what it costs and saves to merge small batches into larger ones (``mode``). Batches of one record are copied
alternately as they are and in larger ones.

    python -m bench.rebatching [ROUNDS]        (3; some ten minutes)

``mode: auto`` merges batches below the size at which that is cheaper. Its limit
(``mirror.service.config.resolve.REBATCHED_BELOW``) comes from this table.
"""

import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from bench.copiers.copying import measure
from bench.copiers.programs import Programs, programs
from bench.copiers.shallow import Mirror
from bench.data import loading
from bench.data.clusters import Side, pair
from bench.data.stored import Stored
from bench.errors import BenchError, exit_code_of
from bench.measure import Measured, Window
from bench.plan import Workload

__all__ = ["main"]

ROUNDS = 3
BATCHES = 120_000
"""Number of batches of each size."""
SIZES = (200, 500, 1_000, 2_000, 4_000, 16_000)
"""Sizes of a batch with a single record, in bytes."""
PARTITIONS = (1, 16)
MODES = ("shallow", "deep")
_OVERHEAD = 70
"""Approximate number of bytes of a batch in addition to its record's value."""


_HEAD = """\
| batch, bytes | partitions | batches/s, shallow -> deep | mirror, µs a batch | destination's broker, µs a batch |
|---:|---:|---:|---:|---:|"""


_Cost = tuple[float, float, float]
"""Figures of one copy: source batches per second, and the CPU of mirror and of the destination's broker for each batch,
in µs."""


def main(arguments: list[str]) -> int:
    """Measures all sizes, prints the table, and returns the exit code."""
    return exit_code_of(lambda: _run(int(arguments[0]) if arguments else ROUNDS))


def _run(rounds: int) -> None:
    print(_HEAD)
    with pair() as (source, destination), programs() as started:
        broker = _broker_of(destination)
        for size in SIZES:
            for partitions in PARTITIONS:
                workload = Workload(
                    size=f"{size}B", codec="none", partitions=partitions, batch_bytes=size,
                    record_bytes=size - _OVERHEAD, total_bytes=size * BATCHES,
                )  # fmt: skip
                held = loading.fill(workload, source, started)
                found = _in_turn(workload, held, source, destination, started, broker, rounds)
                print(_row(size, partitions, found), flush=True)
                source.delete_all()


def _in_turn(
    workload: Workload, held: Stored, source: Side, destination: Side, started: Programs, broker: psutil.Process,
    rounds: int,
) -> dict[str, list[_Cost]]:  # fmt: skip
    found: dict[str, list[_Cost]] = {mode: [] for mode in MODES}
    for turn in range(rounds):
        for mode in MODES if turn % 2 == 0 else MODES[::-1]:
            copier = Mirror(flow={"mode": mode}, window=Window())
            with _cpu_of(broker) as spent:
                run = measure(copier, workload, held, source=source, destination=destination, programs=started)
            found[mode].append(_cost(run, held, spent[0]))
    return found


def _cost(run: Measured, held: Stored, broker_s: float) -> _Cost:
    """Returns the figures of a copy. Mirror's CPU counts from the first data on, that of the broker over the whole
    copy. ``broker_s``: the latter, in seconds."""
    batches = run.bytes / held.mean_batch_bytes
    return batches / run.seconds, run.cpu_s / batches * 1e6, broker_s / BATCHES * 1e6


def _row(size: int, partitions: int, found: dict[str, list[_Cost]]) -> str:
    shallow, deep = ([statistics.median(each) for each in zip(*found[mode], strict=True)] for mode in MODES)
    figures = " | ".join(f"{one:,.0f} -> {other:,.0f}" for one, other in zip(shallow, deep, strict=True))
    return f"| {size:,} | {partitions} | {figures} |"


def _broker_of(side: Side) -> psutil.Process:
    """Returns the process of a side's broker, by the port on which it listens."""
    port = int(side.bootstrap_servers.rpartition(":")[2])
    for connection in psutil.net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            return psutil.Process(connection.pid)
    raise BenchError(f"no process listens on port {port}", "was the broker killed?")


@contextmanager
def _cpu_of(process: psutil.Process) -> Iterator[list[float]]:
    """Yields a list. At the end of the context, its one element is the CPU of the process in between, in seconds."""
    spent = [0.0]
    before = process.cpu_times()
    yield spent
    after = process.cpu_times()
    spent[0] = after.user + after.system - before.user - before.system


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
