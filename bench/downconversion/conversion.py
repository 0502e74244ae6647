"""One measurement of the table, in a separate process: converts a fetch that is in memory, and sends it on.

The message sets go to standard output, as they would go to a client. The parent process reads and discards them. The
figures go to standard error.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from bench.downconversion.plan import WHOLE
from lab import procfs
from mirror.legacy import cut, down_convert
from mirror.legacy.downward import OldMagic
from mirror.records.content.opening import MOST_OPENED

__all__ = ["main", "send"]

_WITHOUT_LIMIT = 1 << 62


def main(arguments: dict[str, Any]) -> None:
    """Converts a fetch, and prints the figures.

    Args:
        arguments: ``file``: path of the file with the record sets; ``sizes``: size of each record set; ``magic``;
            ``chunk_bytes``, or ``WHOLE``; ``passes``: number of times that the fetch is converted.
    """
    frame = memoryview(Path(arguments["file"]).read_bytes())
    sets = [frame[start:end] for start, end in pairwise(accumulate(arguments["sizes"], initial=0))]
    before = procfs.rss_bytes(os.getpid())
    began_cpu_s = time.process_time()
    records = 0
    for _ in range(arguments["passes"]):
        if arguments["chunk_bytes"] == WHOLE:
            made = list(_converted(sets, arguments["magic"], _WITHOUT_LIMIT))
            for message_set, count in made:
                send(message_set)
                records += count
            del made
        else:
            for message_set, count in _converted(sets, arguments["magic"], arguments["chunk_bytes"]):
                send(message_set)
                records += count
    figures = {
        "records": records,
        "cpu_s": time.process_time() - began_cpu_s,
        "before_bytes": before,
        "peak_bytes": procfs.peak_rss_bytes(os.getpid()),
    }
    print(json.dumps(figures), file=sys.stderr)


def _converted(sets: list[memoryview], magic: OldMagic, chunk_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Yields (message set, number of its records)."""
    for record_set in sets:
        for chunk in down_convert(record_set, cut(record_set), magic=magic, most=MOST_OPENED, chunk_bytes=chunk_bytes):
            yield chunk.messages, sum(run.records for run in chunk.runs)


def send(data: bytes) -> None:
    """Writes data to standard output without a buffer."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
