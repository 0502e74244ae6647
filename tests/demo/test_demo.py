"""The whole demo, small; and that nothing of it is left, however it ends."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mirror.audit.folder import FILES
from mirror.demo.data.topics import ALL_TOPICS, TOPICS

pytestmark = pytest.mark.broker

DEADLINE_S = 480
"""Where a demo hangs, not where it is slow: with another on the same two cores it takes five minutes."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: below it the demo has room for Spark's sockets, as it has in /tmp."""
    with tempfile.TemporaryDirectory(prefix="d-", dir="/tmp") as made:
        yield Path(made)


PLAIN, SECURED = ("mirror", "demo"), ("tests.demo.secured",)


@contextmanager
def demo(folder: Path, *options: str, program: tuple[str, ...] = PLAIN) -> Iterator[subprocess.Popen[str]]:
    """A demo whose temporary files all lie in ``folder``, so that what it leaves can be seen."""
    with subprocess.Popen(
        [sys.executable, "-m", *program, *options],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def lines_until(process: subprocess.Popen[str], *signs: str) -> list[str]:
    """Its output up to the first line with one of ``signs``."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if any(sign in line for sign in signs):
            return lines
    pytest.fail(f"no line with any of {signs}:\n{''.join(lines)}")


def processes_of(folder: Path) -> list[str]:
    """Command lines of the processes that name ``folder``: brokers, producers, the mirror, the audit."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in command:
            found.append(command)
    return found


def assert_nothing_is_left(folder: Path) -> None:
    deadline_at = time.monotonic() + 30
    while (left := [*processes_of(folder), *map(str, folder.iterdir())]) and time.monotonic() < deadline_at:
        time.sleep(0.05)
    assert left == []


@pytest.mark.spark
@pytest.mark.parametrize("program", [(*PLAIN, "--size"), SECURED], ids=["plain", "secured"])
def test_a_small_demo_proves_every_topic_identical(folder: Path, program: tuple[str, ...]) -> None:
    """Without security, and over mTLS and SCRAM with an authorizer and no more rights than docs/GUIDE.md lists."""
    with demo(folder, "20MB", program=program) as process:
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, output
    for plan in TOPICS:
        (row,) = [line for line in output.splitlines() if line.startswith(f"│ {plan.name} ")]
        assert row.rstrip(" │").endswith("identical"), row
    assert "IDENTICAL" in output
    assert "No batch was opened" in output
    assert_nothing_is_left(folder)


@pytest.mark.spark
def test_what_stays_is_the_report_and_a_valid_certificate(folder: Path, tmp_path: Path) -> None:
    """Of a copy on real brokers, both sides' roots are the same in each partition."""
    out = tmp_path / "audit"
    with demo(folder, "--size", "2MB", "--out", str(out)) as process:
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, output
    told = " ".join(output.split())
    assert f"report: {out}/report.html" in told
    assert f"(mirror audit verify {out})" in told
    assert {path.name for path in out.iterdir()} == set(FILES)
    done = subprocess.run(
        [sys.executable, "-m", "mirror", "audit", "verify", str(out)], capture_output=True, text=True, check=False
    )
    partitions = sum(plan.partitions for plan in ALL_TOPICS)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "valid"), done
    assert f"{partitions} partitions, " in done.stdout
    assert f"the same root (xxh3_128) in {partitions} of them" in done.stdout
    assert "Nothing is missing, nothing is doubled, nothing is changed." in (out / "report.html").read_text()
    assert_nothing_is_left(folder)


@pytest.mark.parametrize(
    ("number", "step"),
    [
        (signal.SIGTERM, "clusters starting"),
        (signal.SIGHUP, "clusters Kafka"),
        (signal.SIGINT, "load     librdkafka and Java producers fill"),
    ],
)
def test_a_signal_ends_everything_with_one_message(folder: Path, number: signal.Signals, step: str) -> None:
    with demo(folder) as process:
        lines_until(process, step)
        process.send_signal(number)
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert "interrupted; everything it started has been ended and removed" in output
    assert "Traceback" not in output
    assert_nothing_is_left(folder)


def test_nothing_survives_a_kill_of_the_demo(folder: Path) -> None:
    with demo(folder, "--size", "2MB") as process:
        # On a fast machine the backlog is copied before the first look.
        lines_until(process, "mirror   copying", "mirror   following")
        assert len(processes_of(folder)) > 3
        process.kill()
    assert_nothing_is_left(folder)
