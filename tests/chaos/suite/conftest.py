"""A run without clusters: its plan, its commit, and what of it breaks or does not strike."""

from pathlib import Path
from typing import Any

import pytest

from chaos.scenario import Scenario
from chaos.suite import audits
from chaos.suite.plan import Plan
from mirror.sandbox.kafka import jars
from tests.chaos.suite.fakes import NAMES, FakeClusters, FakeStage


@pytest.fixture
def misses() -> dict[str, int]:
    """How many tries of a scenario do not strike."""
    return {}


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would have been fetched: versions of Kafka, then the names of jars."""
    names: list[str] = []
    monkeypatch.setattr(jars, "classpath", names.append)
    monkeypatch.setattr(jars, "classpath_of", lambda asked: names.extend(name for _, name, _ in asked))
    return names


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, misses: dict[str, int], fetched: list[str]) -> set[str]:
    """The scenarios whose clusters break."""
    names: set[str] = set()

    def made(self: object, one: Scenario, pair: Any, *, done: int, tries: int) -> FakeStage:
        return FakeStage(one, tmp_path, raises=one.name in names, strikes=tries >= misses.get(one.name, 0))

    monkeypatch.setattr("chaos.suite.run.Clusters", FakeClusters)
    monkeypatch.setattr("chaos.suite.run._Suite._made", made)
    monkeypatch.setattr(audits, "audit", lambda *_, **__: (audits.IDENTICAL, ""))
    return names


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return Plan(quick=True, only=f"^({'|'.join(NAMES)})$", out=tmp_path)


@pytest.fixture
def commit(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commit that the files are of; the last one counts."""
    commits = ["abc1234"]
    monkeypatch.setattr("chaos.suite.run.of_now", lambda *_: commits[-1])
    return commits


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The report of an earlier complete run, in the folder in which this one works."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "docs/results/failures.md"
    path.parent.mkdir(parents=True)
    path.write_text("the last complete run")
    return path
