"""A change that did not take effect, and a fault that did not strike, fail the soak."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.errors import ChaosError
from chaos.play.mirrors import FLOW
from chaos.soak import play
from chaos.soak.plan import BESIDE, Change, Plan
from chaos.soak.play import Soak, scenario
from lab.evidence import RELOADED, WORKER_ENDED, WORKER_REPLACED, missing
from mirror.service.http import client

UNTOUCHED: dict[str, list[str]] = {
    "added": [], "removed": [], "restarted": [], "limited": [], "untouched": [FLOW, BESIDE], "need_restart": []
}  # fmt: skip


class Played:
    """A stage that keeps the evidence, with a mirror that shows these flows and metrics."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, flows: tuple[str, ...], metrics: str) -> None:
        self.seen: list[object] = []
        self._patch = monkeypatch
        self._stage: Any = SimpleNamespace(look=lambda: None, told=lambda: "said", seen=self.seen.append)
        self._looks: Any = SimpleNamespace(
            address=("127.0.0.1", 9),
            status=lambda: {"flows": [{"flow": flow} for flow in flows]},
            metrics=lambda: metrics,
        )
        monkeypatch.setattr(play, "until", at_once)

    def reload(self, change: Change, answer: object) -> None:
        def answered(_: object) -> object:
            if isinstance(answer, Exception):
                raise answer
            return answer

        self._patch.setattr(client, "reload", answered)
        Soak(Plan())._reload(self._stage, self._looks, change)


def at_once(condition: Any, what: Any, **_: object) -> None:
    """Waits for nothing."""
    if not condition():
        raise ChaosError(what())


def test_a_change_that_took_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, flows=(FLOW, BESIDE), metrics='lag{partition="0"} 1')
    played.reload(Change("limited", FLOW, "partition"), UNTOUCHED | {"limited": [FLOW]})
    played.reload(Change("added", BESIDE, "partition"), UNTOUCHED | {"added": [BESIDE]})
    assert played.seen == [RELOADED, RELOADED]


@pytest.mark.parametrize(
    ("change", "answer", "said"),
    [
        (Change("limited", FLOW, "partition"), UNTOUCHED, "was to be limited"),
        (Change("limited", FLOW, "partition"), UNTOUCHED | {"limited": [BESIDE]}, "was to be limited"),
        (Change("limited", FLOW, "partition"), UNTOUCHED | {"limited": [FLOW], "need_restart": ["workers"]}, "workers"),
        (Change("restarted", FLOW, "partition"), None, "said None"),
        (Change("limited", FLOW, "partition"), client.NotDone("wrong"), "not reloaded: wrong"),
        (Change("limited", FLOW, "topic"), UNTOUCHED | {"limited": [FLOW]}, "to be in effect"),
        (Change("removed", FLOW, "partition"), UNTOUCHED | {"removed": [FLOW]}, "to be in effect"),
        (Change("added", BESIDE, "partition"), UNTOUCHED | {"added": [BESIDE]}, "to be in effect"),
    ],
    ids=["nothing", "another", "at the next start", "drains", "refused", "metrics", "still there", "not there"],
)
def test_a_change_that_did_not(
    monkeypatch: pytest.MonkeyPatch, change: Change, answer: object, said: str
) -> None:  # fmt: skip
    played = Played(monkeypatch, flows=(FLOW,), metrics='lag{partition="0"} 1')
    with pytest.raises(ChaosError, match=said):
        played.reload(change, answer)
    assert played.seen == []


def test_all_that_was_planned_has_to_be_seen() -> None:
    struck = scenario(Soak(Plan(minutes=3))).struck
    seen = Counter({WORKER_ENDED.name: 3, WORKER_REPLACED.name: 3, RELOADED.name: 18})
    assert missing(struck, seen) == []
    for name in seen:
        assert len(missing(struck, seen - Counter({name: 1}))) == 1
