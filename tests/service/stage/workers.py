"""A supervisor without processes: its workers' words are the test's."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mirror.service.config import load
from mirror.service.config.resolve import supervision
from mirror.service.supervisor import Supervisor
from tests.service.stage.running import config_text


class Workers:
    """A supervisor whose workers are words: what it tells them is kept."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        *,
        top: Mapping[str, object] | None = None,
        **options: Any,
    ) -> None:
        path = folder / "mirror.yaml"
        path.write_text(config_text("127.0.0.1:1", "127.0.0.1:2", ["t"], top=top))
        self.told: list[tuple[int, str]] = []
        self.supervisor = Supervisor(supervision(load(path), **options))
        (self.flow,) = self.supervisor.flows.values()
        for number, child in self.supervisor._children.items():
            monkeypatch.setattr(child, "send", partial(self._send, number))
            child.pid = 1000 + number
            self.supervisor._begun(child)

    def _send(self, number: int, kind: str, **_: object) -> bool:
        self.told.append((number, kind))
        return True

    def say(self, number: int, kind: str, **fields: object) -> None:
        self.supervisor._hear(self.supervisor._children[number], {"kind": kind, "flow": self.flow.name, **fields})

    def ready(self, number: int) -> None:
        self.say(number, "ready", partitions=1, source_id="s", destination_id="d")

    def dies(self, number: int) -> None:
        self.flow.ended(self.supervisor._children[number])
