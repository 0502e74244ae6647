"""A worker of mirror that died, and was replaced, fails the row: its copy is not the one that an operator has."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.cases import latency, many
from bench.copiers.programs import Program
from bench.copiers.shallow import Mirror
from bench.data.stored import Stored
from bench.errors import BenchError
from bench.plan import CASES

DIED = "2026-01-01T00:00:00Z [warning  ] worker_died  detail='exit code 1' pid=7 restart_s=1.0 worker=0\n"


class Ended:
    """A process that stops at once, with exit code 0."""

    pid = 1

    def signal(self, _: int) -> None:
        """It is told to stop."""

    def wait(self, _: float) -> int:
        """It has."""
        return 0


@pytest.mark.parametrize(("log", "fails"), [("started\n", False), (DIED + "stopped\n", True)])
def test_a_worker_that_died(log: str, fails: bool, tmp_path: Path) -> None:
    """However cleanly the mirror stops, and however much comes behind it in the log."""
    path = tmp_path / "1-mirror.log"
    path.write_text(log + "other\n" * 50)
    program = Program("mirror", Ended(), path, supervises=True)  # type: ignore[arg-type]
    failing = pytest.raises(BenchError, match=r"(?s)lost a worker.*worker_died") if fails else contextlib.nullcontext()
    with failing:
        Mirror().end(program)


class Stopped(Exception):
    """The case has started its copier, and this is all that is of interest."""


def _latency(**sides: Any) -> None:
    latency.measure(Mirror(), **sides)


def _many(**sides: Any) -> None:
    case = next(case for case in CASES if case.many)
    many.measure(case, Stored(bytes=1, batches=1, records=1), flow={}, **sides)


@pytest.mark.parametrize("case", [_latency, _many])
def test_its_workers_are_the_ones_that_copy(case: Callable[..., None]) -> None:
    started: list[tuple[str, bool]] = []

    @contextlib.contextmanager
    def running(name: str, _: list[str], *, supervises: bool = False) -> Iterator[Any]:
        started.append((name, supervises))
        if name == "mirror":
            raise Stopped
        yield None

    side = SimpleNamespace(bootstrap_servers="127.0.0.1:1", delete_all=lambda: None, create=lambda *_: None)
    programs = SimpleNamespace(running=running, write=lambda name, _: Path(name))
    with pytest.raises(Stopped):
        case(source=side, destination=side, programs=programs, say=lambda _: None)
    assert started[-1] == ("mirror", True)
