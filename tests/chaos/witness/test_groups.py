"""A group's members, as a coordinator's answer has them."""

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.witness import groups

NOT_COORDINATOR = 16
ASSIGNMENT = struct.pack(">hi", 0, 1) + struct.pack(">h6sii", 6, b"orders", 1, 3) + struct.pack(">i", -1)


def _side(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any]) -> Any:
    """A cluster whose brokers answer like this: an error code, the members, or an exception to raise."""

    def ask(address: str, *_: Any, **__: Any) -> Any:
        answer = answers[address]
        if isinstance(answer, Exception):
            raise answer
        error_code, found = (answer, []) if isinstance(answer, int) else (0, answer)
        return SimpleNamespace(groups=[SimpleNamespace(error_code=error_code, members=found)])

    monkeypatch.setattr(groups, "ask", ask)
    return SimpleNamespace(awake=[SimpleNamespace(address=address) for address in answers])


def _member(name: str, assignment: bytes) -> Any:
    return SimpleNamespace(member_id=name, member_assignment=assignment)


def test_only_the_coordinator_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that is given partitions has them; one that waits for the group's leader has none."""
    listed = [_member("a", ASSIGNMENT), _member("b", b"")]
    side = _side(monkeypatch, {"one": NOT_COORDINATOR, "two": TimeoutError(), "three": listed})
    assert groups.members(side, "g") == {"a": frozenset({("orders", 3)}), "b": frozenset()}
    assert [groups.has_member(side, "g", name) for name in ("a", "c")] == [True, False]


def test_no_answer_is_not_an_empty_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that is judged by who has left must not be believed where nobody answered."""
    silent = _side(monkeypatch, {"one": NOT_COORDINATOR, "two": ConnectionResetError()})
    assert (groups.members(silent, "g"), groups.has_member(silent, "g", "a")) == (None, None)
    empty = _side(monkeypatch, {"one": []})
    assert (groups.members(empty, "g"), groups.has_member(empty, "g", "a")) == ({}, False)
