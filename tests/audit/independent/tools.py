"""What the comparisons share: Kafka's own tools, what they print of a record, and a fault in the shared code."""

import random
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kafka.record.util import encode_varint

from mirror.records.scan import BatchPlace, scan
from mirror.sandbox.jvm import Jvm
from mirror.sandbox.kafka import jars
from tests.vectors.load import TOOLS

KAFKA = "4.3.0"
SEED = 20_261_124
JVM_S = 300

Told = tuple[int, int, bytes | None, bytes | None, tuple[str, ...]]
"""A record: offset, timestamp, key, value, names of headers."""


def text(chance: random.Random, most: int) -> bytes:
    """Printable, as DumpLogSegments prints it."""
    return bytes(chance.choice(b"abcdefghijklmnopqrstuvwxyz 0123456789:[],|") for _ in range(chance.randint(1, most)))


def dump(files: Sequence[Path], folder: Path) -> list[str]:
    """The lines that DumpLogSegments prints of these segments."""
    command = Jvm().command(
        f"{jars.classpath(KAFKA)}:{jars.classpath_of([TOOLS])}", "org.apache.kafka.tools.DumpLogSegments",
        ["--files", ",".join(file.name for file in files), "--deep-iteration", "--print-data-log"],
        folder=folder, small=True,
    )  # fmt: skip
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=JVM_S, check=True)
    return done.stdout.decode().splitlines()


def record_of(found: re.Match[str]) -> Told:
    """Names of headers come first, in brackets, and may hold whatever; key and value come with their sizes."""
    rest, sizes = found["rest"].encode(), (int(found["key"]), int(found["value"]))
    value = None
    if sizes[1] >= 0:
        value = rest[len(rest) - sizes[1] :]
        rest = rest[: len(rest) - sizes[1]].removesuffix(b" payload: ")
    key = None
    if sizes[0] >= 0:
        key = rest[len(rest) - sizes[0] :]
        rest = rest[: len(rest) - sizes[0]].removesuffix(b" key: ")
    names = rest.decode().removeprefix("[").removesuffix("]")
    return int(found["offset"]), int(found["time"]), key, value, (names,)


def all_but(at: int) -> Callable[..., list[BatchPlace]]:
    """In place of ``scan``: passes over a batch."""

    def some(*arguments: Any) -> list[BatchPlace]:
        places = list(scan(*arguments))
        return places[:at] + places[at:][1:] if len(places) > 1 else places

    return some


def stored(part: bytes | None) -> bytes:
    """As it stands in a batch."""
    return varint(-1) if part is None else varint(len(part)) + part


def varint(value: int) -> bytes:
    """By kafka-python's encoder."""
    out = bytearray()
    encode_varint(value, out.append)
    return bytes(out)
