"""``make audit-large``: millions of batches that differ, on real brokers: the audit has to find what is due in bounded
memory. ``python -m tests.audit.faults.large BATCHES [SHAPE...]``."""

import json
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import psutil
from crc32c import crc32c

from mirror.audit.model.places import Side
from mirror.records.content.opening import Record as Old
from mirror.records.header import CRC_AT, CRC_FROM, MAGIC_AT
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import create
from tests.audit.faults.segments import folder
from tests.legacy.samples import messages_of
from tests.patience import PATIENT
from tests.records.builders import Record, kafka_batch
from tests.records.cleaner import cleaned

BATCHES = 5_000_000
OLD_CRC_AT = 12
MOST_BYTES = 2 << 30
"""What the command and all that it starts may hold at any time (PSS: what processes share counts once)."""
SAMPLE_S = 0.5
KINDS = {
    "value": {"value changed", "wholesale difference"}, "shift": {"missing"}, "cleaned": set[str](),
    "old": set[str](), "old-value": {"value changed", "wholesale difference"}, "old-cleaned": set[str](),
}  # fmt: skip
"""The kinds of findings that are due for each shape of a copy.

``value``: every batch has another payload. ``shift``: the first batch was lost, so that no other is where it belongs.
``cleaned``: the destination's cleaner has rewritten every second batch; nothing differs that must not. ``old``: nothing
but single messages of magic 1, which the copy has gathered; it is a true one. ``old-value``: each has another value
there. ``old-cleaned``: the destination's cleaner has taken every second one. These three are tried when they are asked
for: each message is a row.
"""
OLD_VERSION, OLD_FORMAT = "2.8.2", "0.10.2"
GATHERED = 1_000
"""Messages that one batch of a copy holds."""


class Template:
    """A batch of which each copy has an offset of its own, and a number in its records.

    ``raw`` has the number as ``MARK`` once.
    """

    MARK = b"################"

    def __init__(self, raw: bytes) -> None:
        self._raw = bytearray(raw)
        self._at = raw.index(self.MARK)

    def batch(self, offset: int, number: int) -> bytes:
        """That copy."""
        raw = self._raw
        struct.pack_into(">q", raw, 0, offset)
        raw[self._at : self._at + len(self.MARK)] = b"%016d" % number
        struct.pack_into(">I", raw, CRC_AT, crc32c(memoryview(raw)[CRC_FROM:]))
        return bytes(raw)


class OldTemplate(Template):
    """The same for a message of magic 1."""

    def batch(self, offset: int, number: int) -> bytes:
        """That copy."""
        raw = self._raw
        struct.pack_into(">q", raw, 0, offset)
        raw[self._at : self._at + len(self.MARK)] = b"%016d" % number
        struct.pack_into(">I", raw, OLD_CRC_AT, zlib.crc32(memoryview(raw)[MAGIC_AT:]))
        return bytes(raw)


def _record(at: int, number: int) -> Record:
    return Record(at, 1_700_000_000_000, b"k", b"%016d" % number)


def _gathered(shape: str, messages: int) -> Iterator[bytes]:
    """The copy of messages on their own."""
    for first in range(0, messages, GATHERED):
        count = min(GATHERED, messages - first)
        numbers = range(first, first + count)
        if shape == "old-value":
            numbers = range(messages + first, messages + first + count)
        records = [_record(at, number) for at, number in enumerate(numbers)]
        raw = kafka_batch(records, base_offset=first)
        if shape == "old-cleaned":
            raw = cleaned(raw, [one._replace(offset=first + one.offset) for one in records[1::2]], codec=0)
        yield raw


def _plain() -> Template:
    return Template(kafka_batch([Record(0, 1_700_000_000_000, b"k", Template.MARK)]))


def _pairs() -> tuple[Template, Template]:
    """Two records of a key, and what a cleaner leaves of them."""
    records = [Record(at, 1_700_000_000_000, b"k", value) for at, value in enumerate((b"old", Template.MARK))]
    raw = kafka_batch(records)
    return Template(raw), Template(cleaned(raw, records[1:], codec=0))


def logs(shape: str, batches: int) -> dict[Side, Iterator[bytes]]:
    """Both sides' logs, of which so many batches differ."""
    plain, (whole, rewritten) = _plain(), _pairs()
    if shape.startswith("old"):
        (at, time, key, _) = _record(0, 0)[:4]
        message = OldTemplate(messages_of(1, [Old(at, time, key, Template.MARK, ())]))
        return {
            Side.SOURCE: (message.batch(at, at) for at in range(batches)),
            Side.DESTINATION: _gathered(shape, batches),
        }
    if shape == "value":
        return {
            Side.SOURCE: (plain.batch(at, at) for at in range(batches)),
            Side.DESTINATION: (plain.batch(at, batches + at) for at in range(batches)),
        }
    if shape == "shift":
        return {
            Side.SOURCE: (plain.batch(at, at) for at in range(batches + 1)),
            Side.DESTINATION: (plain.batch(at, at + 1) for at in range(batches)),
        }
    return {
        Side.SOURCE: (whole.batch(2 * at, at) for at in range(2 * batches)),
        Side.DESTINATION: ((whole, rewritten)[at % 2].batch(2 * at, at) for at in range(2 * batches)),
    }


def lay(cluster: SandboxCluster, topic: str, log: Iterator[bytes]) -> None:
    """The log in the file of the topic's only partition, while the broker is down."""
    policy = "compact" if topic.endswith("cleaned") else "delete"
    old: Any = {"message_format_version": OLD_FORMAT} if cluster.version == OLD_VERSION else {}
    create(cluster, topic, cleanup_policy=policy, segment_bytes="2147483647", **old)
    (broker,) = cluster.brokers
    broker.stop()
    where = folder(broker, topic)
    for path in [*where.glob("*index"), *where.glob("*.snapshot")]:
        path.unlink()
    with (where / f"{0:020}.log").open("wb") as file:
        _write(file, log)
    broker.start()


def _write(file: BinaryIO, log: Iterator[bytes]) -> None:
    some: list[bytes] = []
    for batch in log:
        some.append(batch)
        if len(some) == 10_000:
            file.write(b"".join(some))
            some.clear()
    file.write(b"".join(some))


class Taken(NamedTuple):
    """What a command took. ``most``: bytes that it and its descendants held when that was most, by their names."""

    code: int
    most: Counter[str]
    seconds: float


def watched(command: list[str]) -> Taken:
    """Runs the command."""
    began_at = time.monotonic()
    most = Counter[str]()
    with subprocess.Popen(command) as process:
        try:
            tree = psutil.Process(process.pid)
            while process.poll() is None:
                held = Counter[str]()
                for each in (tree, *_children(tree)):
                    with suppress(psutil.Error):  # it has just ended
                        held["the command" if each == tree else each.name()] += each.memory_full_info().pss
                most = max(most, held, key=Counter.total)
                time.sleep(SAMPLE_S)
        finally:
            process.kill()
    return Taken(process.returncode, most, time.monotonic() - began_at)


def _children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return process.children(recursive=True)
    return []


def tried(shape: str, batches: int) -> str:
    """Audits a copy of this shape.

    Returns:
        What is wrong with what it said or took; empty: nothing.
    """
    versions: Any = {"version": OLD_VERSION} if shape.startswith("old") else {}
    with (
        SandboxCluster(name="source", properties=PATIENT, quick=True, **versions) as source,
        SandboxCluster(name="destination", properties=PATIENT, quick=True) as destination,
        tempfile.TemporaryDirectory() as name,
    ):
        both = {Side.SOURCE: source, Side.DESTINATION: destination}
        for side, log in logs(shape, batches).items():
            lay(both[side], shape, log)
        config, results = Path(name) / "mirror.yaml", Path(name) / "out"
        config.write_text(
            f"clusters:\n"
            f"  source: {{bootstrap.servers: '{source.bootstrap_servers}'}}\n"
            f"  destination: {{bootstrap.servers: '{destination.bootstrap_servers}'}}\n"
            f"flows:\n  'source->destination': {{topics: [{shape}]}}\n"
        )
        command = [sys.executable, "-m", "mirror", "audit", "-c", str(config), "--out", str(results)]
        taken = watched(command)
        most = taken.most.total()
        held = ", ".join(f"{name} {size / 2**20:,.0f}" for name, size in taken.most.most_common())
        summary = results / "summary.json"
        findings = json.loads((results / "findings.json").read_text()) if summary.exists() else []
        told = {one["kind"] for one in findings}
        print(
            f"{shape}: {batches:,} batches differ; exit code {taken.code}, {len(findings):,} findings "
            f"({', '.join(sorted(told)) or 'none'}), at most {most / 2**20:,.0f} MiB ({held}), {taken.seconds:.0f} s",
            flush=True,
        )
        if not summary.exists():
            return "no verdict"
        due = KINDS[shape]
        if (taken.code, told) != (2 if due else 0, due):
            return f"due were exit code {2 if due else 0} and {sorted(due)}"
        return "" if most <= MOST_BYTES else f"more than {MOST_BYTES / 2**20:,.0f} MiB"


def main(batches: int, shapes: list[str]) -> int:
    """See the module's text.

    Returns:
        The exit code: 1 if anything is wrong.
    """
    by_default = [shape for shape in KINDS if not shape.startswith("old")]
    wrong = {shape: problem for shape in shapes or by_default if (problem := tried(shape, batches))}
    for shape, problem in wrong.items():
        print(f"{shape}: {problem}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else BATCHES, sys.argv[2:]))
