"""Stages and clusters that nothing is started for, and what a run prints."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from chaos.errors import ChaosError
from chaos.scenario import Scenario, Shape
from chaos.suite import results
from chaos.suite.outcome import Outcome

NAMES = "worker-kill", "supervisor-kill", "two-groups"
"""The scenarios of ``conftest.plan``."""


class Told:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def step(self, text: str) -> None: ...

    def detail(self, text: str) -> None: ...

    def line(self, text: str) -> None:
        self.lines.append(text)


class FakeStage:
    """Of a scenario that holds, or raises."""

    def __init__(self, scenario: Scenario, folder: Path, *, raises: bool, strikes: bool = True) -> None:
        self.scenario = scenario
        self.prefix = scenario.name
        self.repetitions = 1
        self.outcome = Outcome(
            repetitions=int(strikes), tries=1, missed=[] if strikes else ["worker killed was seen 0 times"],
            lacked=[] if strikes else ["worker killed was seen 0 times"],
            audited=[f"topic-{scenario.name}"], topics=2, was_compared=True,
        )  # fmt: skip
        self.processes = SimpleNamespace(folder=folder)
        (log := folder / "broker.log").write_text("what the coordinator did")
        self.pair = SimpleNamespace(sides=[SimpleNamespace(name="source", broker_logs=lambda: {2: log})])
        self.raises = raises

    def prepare(self) -> None: ...

    def close(self) -> None: ...

    def play(self, *_: Any, **__: Any) -> Outcome:
        if self.raises:
            raise ChaosError("the brokers are gone")
        return self.outcome

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class FakeClusters:
    """Nothing is started."""

    def __init__(self) -> None:
        side = SimpleNamespace(delete=lambda topics: None)
        self.current = SimpleNamespace(version="4.3.0", sides=(side, side), heal=lambda: None)

    def pair(self, _: Shape) -> Any:
        return self.current

    def drop(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def rows_of(out: Path) -> Iterator[tuple[str, bool, str]]:
    for row in results.load(out / "alone.json"):
        yield row.scenario, row.held, row.audit
