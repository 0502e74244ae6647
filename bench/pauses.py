"""Measures for how long each partition stands still while its flow or its mirror is restarted.

    python -m bench.pauses [PARTITIONS]        (16; a minute or two)

A producer writes to every partition all the time, and a consumer at the destination notes when records of each
partition arrive. The pause of a partition is its longest time without a record. The table also has the pauses without a
restart: shorter pauses cannot be measured.
"""

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.errors import BenchError, exit_code_of
from mirror.sandbox import SandboxCluster, start_together

__all__ = ["longest_gaps", "main", "row"]

PARTITIONS, WORKERS, TOPIC = 16, 2, "pauses"
WINDOW_S = 15.0
"""Minimum duration of a measurement in seconds. It is longer than a restart takes on a quiet machine."""
_PATIENCE_S = 60.0
_HEAD = "| what happens | median pause, s | longest, s | partitions above 1 s |\n|---|---:|---:|---:|"


def main(arguments: list[str]) -> int:
    """Measures, prints the table, and returns the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the mirror in the background is stopped as well
    return exit_code_of(lambda: _run(int(arguments[0]) if arguments else PARTITIONS))


def longest_gaps(seen: Iterable[tuple[int, float]], since: float, until: float) -> dict[int, float]:
    """Returns partition -> its longest time without a record, in seconds.

    Args:
        seen: (partition, time) of each record, in order of time.
        since: beginning of the window, which counts as a record.
        until: end of the window, which counts as a record.
    """
    last: dict[int, float] = {}
    gaps: dict[int, float] = {}
    for partition, at in seen:
        gaps.setdefault(partition, 0.0)
        last.setdefault(partition, since)
        if since <= at <= until:
            gaps[partition] = max(gaps[partition], at - last[partition])
            last[partition] = at
    return {partition: max(gap, until - last[partition]) for partition, gap in gaps.items()}


def row(name: str, gaps: Mapping[int, float]) -> str:
    """Returns a line of the table. ``gaps``: partition -> its pause."""
    values = sorted(gaps.values())
    above = sum(value > 1 for value in values)
    return f"| {name} | {statistics.median(values):.1f} | {values[-1]:.1f} | {above} of {len(values)} |"


def _run(partitions: int) -> None:
    west, east = (SandboxCluster(name=name, quick=True) for name in ("west", "east"))
    with tempfile.TemporaryDirectory(prefix="mirror-pauses-") as folder:
        mirror = _Mirror(Path(folder))
        try:
            start_together(west, east)
            _create(west, partitions)
            mirror.write(west, east, settle_ms=1_000)
            with _writing(west, partitions):
                mirror.types("start", "--workers", str(WORKERS))
                with _Arrivals(east, partitions) as arrivals:
                    print(_HEAD)
                    arrivals.measured("nothing", lambda: None)
                    mirror.write(west, east, settle_ms=1_001)
                    arrivals.measured("`mirror reload` that restarts the flow", lambda: mirror.types("reload"))
                    arrivals.measured("`mirror restart`", lambda: mirror.types("restart", "--workers", str(WORKERS)))
        finally:
            mirror.types("stop")
            west.close()
            east.close()


class _Mirror:
    """The installed mirror, as a process in the background."""

    def __init__(self, folder: Path) -> None:
        self._config = folder / "mirror.yaml"
        self._environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        self._config.write_text("{}")

    def write(self, west: SandboxCluster, east: SandboxCluster, *, settle_ms: int) -> None:
        clusters = {each.name: {"bootstrap.servers": each.bootstrap_servers} for each in (west, east)}
        flows = {"west->east": {"topics": [TOPIC], "settle.ms": settle_ms}}
        self._config.write_text(json.dumps({"clusters": clusters, "flows": flows, "http.listen": self._address}))

    def types(self, *words: str) -> None:
        program = Path(sys.executable).parent / "mirror"
        done = subprocess.run(
            [program, *words, "-c", self._config], env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise BenchError(f"mirror {words[0]}: exit code {done.returncode}", (done.stdout + done.stderr).strip())


class _Arrivals:
    """A consumer that notes when records of each partition arrive. A context manager, which waits for the first
    ones."""

    def __init__(self, cluster: SandboxCluster, partitions: int) -> None:
        self._reader = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers, "group.id": "pauses", "enable.auto.commit": False,
                "fetch.wait.max.ms": 10, "topic.metadata.refresh.interval.ms": 500, "log_level": 0,
            }
        )  # fmt: skip
        self._wanted = [TopicPartition(TOPIC, each, OFFSET_BEGINNING) for each in range(partitions)]
        self._seen: list[tuple[int, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> "_Arrivals":
        self._reader.assign(self._wanted)
        self._thread.start()
        self._until_all(since=0.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._reader.close()

    def _read(self) -> None:
        while not self._stop.is_set():
            for message in self._reader.consume(1_000, timeout=0.01):
                if message.error() is None:
                    self._seen.append((message.partition(), time.monotonic()))

    def _until_all(self, since: float) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while len({partition for partition, at in tuple(self._seen) if at > since}) < len(self._wanted):
            if time.monotonic() > deadline:
                raise BenchError("not every partition is copied", "see `mirror status`; the machine may be too busy")
            time.sleep(0.05)

    def measured(self, name: str, act: Callable[[], object]) -> None:
        """Calls ``act`` in the middle of a window, which ends after every partition is copied again. Prints the row of
        the table."""
        since = time.monotonic()
        time.sleep(2)
        act()
        self._until_all(since=time.monotonic())
        time.sleep(max(2.0, since + WINDOW_S - time.monotonic()))
        until = time.monotonic()
        print(
            row(name, longest_gaps([each for each in tuple(self._seen) if each[1] >= since], since, until)), flush=True
        )


def _create(cluster: SandboxCluster, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for future in admin.create_topics([NewTopic(TOPIC, partitions, 1)]).values():
        future.result(_PATIENCE_S)


@contextmanager
def _writing(cluster: SandboxCluster, partitions: int) -> Iterator[None]:
    """Writes a record to every partition every 20 ms while the context lasts."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, "log_level": 0})
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.02):
            for partition in range(partitions):
                producer.produce(TOPIC, value=b"x" * 100, partition=partition)
            producer.poll(0)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        producer.flush(_PATIENCE_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
