"""Somebody who has nothing but the command ``mirror``, an editor and a browser."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.lifecycle.verbs import verbs
from tests.net.test_cluster import free_port
from tests.service.day.stage.application import wait_for
from tests.service.stage.running import MIRROR, fetch
from tests.service.telemetry.stage.alerts import samples

CONFIG, REVERSE = "mirror.yaml", "mirror.reverse.yaml"
_LONGEST_S = 400.0
"""For a command: one of them starts Spark."""


class Operator:
    """Commands as they are typed in a folder, where the configuration is."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.config = CONFIG
        """The file that commands name."""
        self.address = f"127.0.0.1:{free_port()}"
        self.typed: list[list[str]] = []
        """Every command so far, word by word."""
        self._environment = environment

    def types(self, command: str, *, code: int = 0, to: str = "") -> str:
        """Types a command without its ``mirror``; ``FILE`` stands for the configuration. What it says, on stdout and
        stderr. ``code``: how it has to end. ``to``: stdout goes into this file."""
        words = [self.config if word == "FILE" else word for word in command.split()]
        self.typed.append(["mirror", *words, *([">", to] if to else [])])
        done = subprocess.run(
            [str(MIRROR), *words], cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False,
            timeout=_LONGEST_S,
        )  # fmt: skip
        said = done.stdout + done.stderr
        print(f"$ mirror {' '.join(words)}\n{'' if to else said}")  # which pytest shows if the day goes wrong
        assert done.returncode == code, f"mirror {' '.join(words)}: exit code {done.returncode}\n{said}"
        assert "Traceback" not in said, said
        if to:
            (self.folder / to).write_text(done.stdout)
        return said

    def edits(self, *changes: tuple[str, str], file: str = CONFIG) -> None:
        """Replaces lines of a file: a regular expression that matches exactly one line, blanks in front included, and
        what is there instead."""
        path = self.folder / file
        text = path.read_text()
        for line, instead in changes:
            text, count = re.subn(rf"^{line}$", lambda _, instead=instead: instead, text, flags=re.MULTILINE)  # type: ignore[misc]
            assert count == 1, f"{count} lines of {file} match {line}"
        path.write_text(text)

    def status(self) -> dict[str, Any]:
        """What programs get of ``mirror status``, whatever its exit code."""
        done = subprocess.run(
            [str(MIRROR), "status", "-c", self.config, "--format", "json"],
            cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
        return found

    def until_status(self, condition: Callable[[dict[str, Any]], object], what: str) -> None:
        """Waits until ``mirror status`` shows it."""
        wait_for(lambda: (found := self.status()) and condition(found), f"{what} in `mirror status`")

    def opens(self, path: str) -> str:
        """A page of the mirror's, which is there."""
        code, text = fetch(self.address, path)
        assert code == 200, text
        return text

    def metric(self, name: str, **labels: str) -> list[float]:
        """The values of a metric's series that have these labels."""
        found = samples(self.opens("/metrics")).get(name, [])
        return [value for its, value in found if labels.items() <= its.items()]


def missing(shown: list[list[str]], typed: list[list[str]]) -> list[list[str]]:
    """Commands of a list that were not typed after those before them: all from the first such one on; others may stand
    in between."""
    rest = iter(typed)
    for number, command in enumerate(shown):
        if command not in rest:
            return shown[number:]
    return []


@contextmanager
def at_work(folder: Path) -> Iterator[Operator]:
    """Begins in a folder; what was started there has ended afterwards, however that goes."""
    with verbs(folder) as ending:
        yield Operator(folder, ending.environment)
