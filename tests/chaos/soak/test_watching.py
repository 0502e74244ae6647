"""What a soak sees of a mirror from outside, without brokers."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from chaos.soak.watching import LIVES, RESTARTED, Looks, granularity, workers
from lab import procfs
from mirror.service.http import client

_SLEEPS = "import time; time.sleep(600)"
_STARTS = (
    "import subprocess, sys; [subprocess.Popen([sys.executable, '-c', sys.argv[1], each]) for each in sys.argv[2:]]; "
)
NOW: dict[str, Any] = {"ready": True, "partitions": [{"state": "active"}, {"state": "active"}]}


class Supervisor:
    """A process with children of these names, which end with it."""

    def __init__(self, *names: str) -> None:
        command = [sys.executable, "-c", f"{_STARTS}print(1, flush=True); input()", _SLEEPS, *names]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self.pid = self._process.pid

    def of(self, event: str) -> list[dict[str, Any]]:
        return [{"event": event, "address": "127.0.0.1:9"}]

    def close(self) -> None:
        for pid in procfs.descendants(self.pid):
            subprocess.run(["kill", "-9", str(pid)], check=False)
        self._process.communicate(b"\n")


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def started(closing: ExitStack, *names: str) -> Supervisor:
    supervisor = Supervisor(*names)
    closing.callback(supervisor.close)
    return supervisor


def test_workers_by_their_numbers(closing: ExitStack) -> None:
    """Not what reads the configuration, nor what keeps groups in step."""
    supervisor = started(closing, "mirror-worker-2", "mirror-worker-11", "mirror-reload", "mirror-sync-1")
    found = workers(supervisor.pid)
    assert found.keys() == {2, 11}
    assert set(found.values()) < set(procfs.descendants(supervisor.pid))


def test_granularity_by_the_labels() -> None:
    assert granularity('mirror_lag_records{topic="a",partition="0"} 1.0') == "partition"
    assert granularity('mirror_lag_records{topic="a"} 1.0') == "topic"


def test_it_is_quiet_only_if_all_is_copied_and_nothing_else_runs(
    closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror: Any = started(closing, f"mirror-worker-{RESTARTED}", f"mirror-worker-{LIVES}")
    looks = Looks(mirror)
    assert looks.lives_on()
    mine = [{"pid": pid, "up": True, "joined": True} for pid in workers(mirror.pid).values()]

    def quiet(**changed: object) -> bool:
        monkeypatch.setattr(client, "fetch_status", lambda _: NOW | {"workers": mine} | changed)
        return looks.quiet()

    assert quiet()
    assert not quiet(ready=False)
    assert not quiet(workers=mine[:1])
    assert not quiet(workers=[mine[0] | {"joined": False}, mine[1]])
    assert not quiet(partitions=[{"state": "active"}, {"state": "locating"}])
    assert not quiet(partitions=[])


def test_it_is_not_quiet_while_the_configuration_is_read(closing: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror: Any = started(closing, "mirror-worker-1", "mirror-worker-2", "mirror-reload")
    looks = Looks(mirror)
    mine = [{"pid": pid, "up": True, "joined": True} for pid in workers(mirror.pid).values()]
    monkeypatch.setattr(client, "fetch_status", lambda _: NOW | {"workers": mine})
    assert not looks.quiet()


def test_a_sample_has_all_of_them(closing: ExitStack) -> None:
    mirror: Any = started(closing, "mirror-worker-1", "mirror-worker-2")
    looks = Looks(mirror)
    one = looks.sample(minute=3, phase=4, at_s=5.0)
    assert (one.minute, one.phase, one.at_s) == (3, 4, 5.0)
    parts = [procfs.rss_bytes(pid) for pid in (mirror.pid, *workers(mirror.pid).values())]
    assert one.total_bytes == pytest.approx(sum(parts), rel=0.2)
    assert one.total_bytes > one.supervisor_bytes + one.worker_bytes
    assert one.supervisor_descriptors == procfs.descriptors(mirror.pid)


def test_another_worker_in_its_place_is_seen(closing: ExitStack) -> None:
    mirror: Any = started(closing, "mirror-worker-2")
    looks = Looks(mirror)
    assert looks.restarted() == 0
    looks.lives += 1
    assert not looks.lives_on()
