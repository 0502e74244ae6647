"""`mirror run` and `mirror audit` as the demo sees them: their configuration is valid, their failures are told."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mirror.demo.data.topics import TOPICS
from mirror.demo.demo import PATTERNS
from mirror.demo.errors import DemoError
from mirror.demo.watch.daemon import Daemon, write_config
from mirror.demo.watch.proof import Audit
from mirror.sandbox.children.process import Processes
from mirror.service.config import load


@pytest.fixture
def processes() -> Iterator[Processes]:
    with closing(Processes()) as started:
        yield started


def test_the_configuration_is_valid_and_selects_the_topics(tmp_path: Path) -> None:
    path = tmp_path / "mirror.yaml"
    write_config(path, {"source": "127.0.0.1:9092", "destination": "127.0.0.1:9192,127.0.0.1:9193"}, PATTERNS)
    flow = load(path).enabled_flow()
    assert flow.name == "source->destination"
    assert all(flow.settings.selects(plan.name) for plan in TOPICS)
    assert not flow.settings.selects("orders")


def test_an_end_before_its_time_is_told_with_exit_code_and_words(tmp_path: Path, processes: Processes) -> None:
    path = tmp_path / "mirror.yaml"
    path.write_text("nonsense: true\n")
    daemon = Daemon(path, processes=processes)
    with pytest.raises(DemoError, match=r"(?s)exit code 78.*nonsense.*remedy"):
        watch(daemon)


def test_a_killed_one_is_told(tmp_path: Path, processes: Processes) -> None:
    path = tmp_path / "mirror.yaml"
    write_config(path, {"source": "127.0.0.1:1", "destination": "127.0.0.1:2"}, PATTERNS)
    daemon = Daemon(path, processes=processes)
    daemon.look()
    assert daemon.progress is None
    with pytest.raises(DemoError, match=r"exit code -?\d+"):
        daemon.stop()


def test_an_audit_that_cannot_finish_is_told_with_exit_code_and_words(tmp_path: Path) -> None:
    path = tmp_path / "mirror.yaml"
    path.write_text("nonsense: true\n")
    audit = Audit(path, out=tmp_path / "out", folder=tmp_path)
    with pytest.raises(DemoError, match=r"(?s)mirror audit could not finish \(exit code 78\).*nonsense.*remedy"):
        audit.wait(lambda said: None)


def test_an_audit_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "mirror.yaml"
    write_config(path, {"source": "127.0.0.1:1", "destination": "127.0.0.1:2"}, PATTERNS)
    audit = Audit(path, out=tmp_path / "out", folder=tmp_path)
    with pytest.raises(DemoError, match="did not end in time"):
        audit.wait(lambda said: None, timeout_s=0)


def watch(daemon: Daemon) -> None:
    deadline_at = time.monotonic() + 60
    while time.monotonic() < deadline_at:
        daemon.look()
        time.sleep(0.02)
