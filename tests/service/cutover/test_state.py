"""What is done, over several runs, in a file that is whole."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mirror.service.cutover.state import State, StateUnreadable
from tests.service.cutover.worlds import SUBJECT, row

ENDS = {"orders": {"0": 10, "11": 5}}
ROWS = [row(0), row(11, end=5)]


def written(folder: Path) -> dict[str, Any]:
    state = State(subject=SUBJECT)
    state.begin_again(ROWS)
    state.note("stopped", stood_still_s=5.0)
    state.write(folder)
    found: dict[str, Any] = json.loads((folder / "state.json").read_text())
    return found


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert State.read(tmp_path, SUBJECT) == State(subject=SUBJECT)
    written(tmp_path)
    found = State.read(tmp_path, SUBJECT)
    assert (found.ends, found.done["stopped"]["stood_still_s"]) == (ENDS, 5.0)
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_what_has_changed_since(tmp_path: Path) -> None:
    """The source's ends, and which topics they are of: by their ids, and by where they go."""
    written(tmp_path)
    state = State.read(tmp_path, SUBJECT)
    assert state.changed(ROWS) == []
    assert state.changed([row(0), row(11, end=6)]) == ["orders-11: from 5 to 6"]
    for changes, told in (
        ({"source_id": "c" * 32}, "orders was deleted and created again at the source"),
        ({"destination_id": "c" * 32}, "orders was deleted and created again at the destination"),
        ({"into": "others"}, "orders goes into others, and went into orders"),
        ({"source_id": None, "destination_id": None}, ""),
    ):
        assert state.changed([row(0, **changes), row(11, end=5, **changes)]) == [told] * bool(told)


def test_a_state_of_an_earlier_version(tmp_path: Path) -> None:
    """It does not say which topics these were."""
    data = written(tmp_path)
    del data["topics"]
    (tmp_path / "state.json").write_text(json.dumps(data))
    assert State.read(tmp_path, SUBJECT).changed([row(0, source_id="c" * 32), row(11, end=5)]) == []


@pytest.mark.parametrize(
    "broken",
    [
        {"done": {"flown": {}}}, {"done": []}, {"ends": {"orders": {"first": 1}}}, {"ends": {"orders": [1]}},
        {"ends": None}, {"topics": [1]}, {"topics": {"orders": {"into": 1}}},
        {"version": None, "flow": None, "done": None},
    ],
)  # fmt: skip
def test_what_nobody_wrote(tmp_path: Path, broken: dict[str, Any]) -> None:
    (tmp_path / "state.json").write_text(json.dumps(written(tmp_path) | broken))
    with pytest.raises(StateUnreadable, match=r"state\.json cannot be read .* all steps are then done again"):
        State.read(tmp_path, SUBJECT)


def test_it_is_cut_off(tmp_path: Path) -> None:
    written(tmp_path)
    text = (tmp_path / "state.json").read_text()
    (tmp_path / "state.json").write_text(text[:-20])
    with pytest.raises(StateUnreadable, match="cannot be read"):
        State.read(tmp_path, SUBJECT)


def test_another_version(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps(written(tmp_path) | {"version": 9}))
    with pytest.raises(StateUnreadable, match="another version"):
        State.read(tmp_path, SUBJECT)


def test_another_cluster(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(StateUnreadable, match=r"another cutover \(source_cluster WEST\)"):
        State.read(tmp_path, replace(SUBJECT, source_cluster="NORTH"))
