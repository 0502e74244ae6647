"""The floor: the cost of moving these bytes through a process that does nothing else with them.

Three processes on loopback. The sender works like a source broker: it sends the topic's own log segments with
sendfile(2), from the page cache. The relay receives into one 256 KB buffer and sends it on. The receiver reads and
discards. Only the relay is measured, from before the first byte until the receiver has the last.

    python -m bench.copiers.floor relay | receive | send     (started by the harness)
"""

import itertools
import os
import socket
import sys
import time
from pathlib import Path

from bench.copiers.programs import Program, Programs, python_module, wait_for
from bench.measure import Measured

__all__ = ["measure"]

BUFFER_BYTES = 256 * 1024
_DISCARD_BYTES = 1024 * 1024
_SENDFILE_BYTES = 1024 * 1024
LEAST_BYTES = 4_000_000_000
_TIMEOUT_S = 120.0
_LISTENING = "listening on "
_DONE = "received "


def measure(programs: Programs, segments: list[Path]) -> Measured:
    """Relays log segments, repeatedly until they come to 4 GB, and returns the figures of the relay. A relay starts
    slowly as well, and a short measurement would say little.

    Raises:
        BenchError: one of the three processes has failed.
    """
    listing = programs.write("segments.txt", "\n".join(map(str, _until_enough(segments))))
    with programs.running("receiver", python_module("bench.copiers.floor", "receive")) as receiver:
        onward = _port(receiver)
        with programs.running("relay", python_module("bench.copiers.floor", "relay", onward)) as relay:
            port = _port(relay)
            before_cpu_s, began_at = relay.cpu_s(), time.monotonic()
            sender = programs.start("sender", python_module("bench.copiers.floor", "send", port, str(listing)))
            done = wait_for(receiver.log_path, _DONE, _TIMEOUT_S)
            cpu_s = relay.cpu_s() - before_cpu_s
            _, size, seconds = done.split()
            sender.wait(_TIMEOUT_S)
            return Measured(
                bytes=int(size), seconds=float(seconds), cpu_s=cpu_s, start_cpu_s=before_cpu_s,
                peak_rss_bytes=relay.peak_rss_bytes(), all_seconds=time.monotonic() - began_at,
            )  # fmt: skip


def _until_enough(segments: list[Path]) -> list[Path]:
    """Returns as many of the segments, repeated if necessary, as come to at least ``LEAST_BYTES``."""
    chosen, size = [], 0
    for segment in itertools.cycle(segments):
        if size >= LEAST_BYTES:
            break
        chosen.append(segment)
        size += segment.stat().st_size
    return chosen


def relay(port: int) -> None:
    """Accepts one connection, and forwards its bytes to a port. Then waits to be ended."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        _say(f"{_LISTENING}{server.getsockname()[1]}")
        incoming, _ = server.accept()
        with incoming, socket.create_connection(("127.0.0.1", port)) as outgoing:
            buffer = memoryview(bytearray(BUFFER_BYTES))
            while size := incoming.recv_into(buffer):
                outgoing.sendall(buffer[:size])
    time.sleep(_TIMEOUT_S)  # meanwhile the harness reads the CPU and the memory of this process, then ends it


def receive() -> None:
    """Accepts one connection, discards its bytes, and prints their number and the time that they took."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        _say(f"{_LISTENING}{server.getsockname()[1]}")
        incoming, _ = server.accept()
        buffer = bytearray(_DISCARD_BYTES)
        total = incoming.recv_into(buffer)
        began_at = time.monotonic()
        while size := incoming.recv_into(buffer):
            total += size
        _say(f"{_DONE}{total} {time.monotonic() - began_at}")


def send(port: int, listing: Path) -> None:
    """Sends files to a port, one after another. ``listing``: file with the paths, one on each line."""
    with socket.create_connection(("127.0.0.1", port)) as outgoing:
        for name in listing.read_text().splitlines():
            with open(name, "rb") as file:
                at = 0
                while sent := os.sendfile(outgoing.fileno(), file.fileno(), at, _SENDFILE_BYTES):
                    at += sent


def _port(program: Program) -> str:
    return wait_for(program.log_path, _LISTENING, _TIMEOUT_S).removeprefix(_LISTENING)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["relay", onward]:
            relay(int(onward))
        case ["receive"]:
            receive()
        case ["send", port, listing]:
            send(int(port), Path(listing))
        case _:
            sys.exit(f"usage: {__doc__}")
