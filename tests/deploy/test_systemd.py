"""The unit of ``deploy/systemd``, judged by systemd's own tool (the Debian package systemd), and against the mirror."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mirror.service.config.model import Config
from mirror.service.exits import EXIT_CONFIG, EXIT_USAGE
from mirror.service.supervisor import STOP_MARGIN_S
from tests.service.stage.running import MIRROR, Mirror, config_text

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "systemd" / "mirror@.service"
PROGRAM = "/opt/mirror/bin/mirror"
EXPOSURE_MOST = 20
"""systemd's measure of what a service may do, times ten."""


def unit(folder: Path, *, text: str = "") -> Path:
    """The unit with the program that is here, since systemd looks whether it is there."""
    path = folder / UNIT.name
    path.write_text((text or UNIT.read_text()).replace(PROGRAM, str(MIRROR)))
    return path


def analyze(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, timeout=120, check=False)


def verify(path: Path) -> tuple[int, str]:
    """What systemd finds wrong with a unit. It prints what it does not know, and then takes the unit for right."""
    found = analyze("verify", "--man=no", path)
    return found.returncode, found.stderr


def settings() -> dict[str, list[str]]:
    """The unit's settings, each with its values."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def test_systemd_takes_it_as_it_is(tmp_path: Path) -> None:
    assert verify(unit(tmp_path)) == (0, "")


def test_its_example_of_a_secret_is_right(tmp_path: Path) -> None:
    text = UNIT.read_text()
    with_secret, count = re.subn(r"^#(?=(?:LoadCredential|BindReadOnlyPaths)=)", "", text, flags=re.MULTILINE)
    assert count == 2
    assert verify(unit(tmp_path, text=with_secret)) == (0, "")


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("LockPersonality=yes", "LockPersonalty=yes", "Unknown key 'LockPersonalty'"),
        ("Type=notify", "Type=notified", "Failed to parse service type"),
        ("WatchdogSec=30", "WatchdogSec=soon", "Failed to parse"),
        (PROGRAM, "/opt/mirror/bin/nothing", "is not executable"),
    ],
)
def test_a_mistake_is_seen(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    assert right in UNIT.read_text()
    assert said in verify(unit(tmp_path, text=UNIT.read_text().replace(right, wrong)))[1]


def test_it_may_do_little(tmp_path: Path) -> None:
    """Within the bound, which a unit can exceed."""

    def exposed(path: Path) -> int:
        return analyze("security", "--offline=true", f"--threshold={EXPOSURE_MOST}", "--no-pager", path).returncode

    assert exposed(unit(tmp_path)) == 0
    assert exposed(unit(tmp_path, text=UNIT.read_text().replace("CapabilityBoundingSet=\n", ""))) == 1


def test_it_agrees_with_the_mirror() -> None:
    """Exit codes that no restart helps with; enough time to drain; and what older versions of systemd misread."""
    found = settings()
    assert found["RestartPreventExitStatus"] == [f"{EXIT_USAGE} {EXIT_CONFIG}"]
    drain_s = Config.model_fields["drain_timeout_ms"].default / 1000
    assert int(found["TimeoutStopSec"][0]) > drain_s + STOP_MARGIN_S
    assert found["Type"] == ["notify"]
    assert "ProcSubset" not in found, "without /proc/stat, prometheus_client has no process_* metrics"


DENIED = """
import ctypes, os, sys
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
if ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0):
    sys.exit("prctl")
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a program that gets no memory to write and execute: the kernel's own form of MemoryDenyWriteExecute."""


@pytest.mark.skipif(
    tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < (6, 3), reason="Linux 6.3 has the flag"
)
def test_it_runs_without_memory_to_write_and_execute(tmp_path: Path) -> None:
    """The supervisor and a worker with all that they load, the compiled loop included; and it is denied to them."""
    denied = [sys.executable, "-c", DENIED]
    code = "from mmap import *; mmap(-1, 4096, prot=PROT_READ | PROT_WRITE | PROT_EXEC)"
    found = subprocess.run([*denied, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "PermissionError" in found.stderr
    found = subprocess.run([*denied, str(MIRROR), "--version"], capture_output=True, text=True, check=False)
    plain = subprocess.run([str(MIRROR), "--version"], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == (plain.stdout, "")
    config = tmp_path / "mirror.yaml"
    config.write_text(config_text("127.0.0.1:1", "127.0.0.1:2", ["t"]))
    with Mirror(config, program=[*denied, str(MIRROR)]) as process:
        process.wait_event("waiting")
        assert process.stop() == 0
