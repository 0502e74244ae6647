"""Each part of a partition's state is assigned in its own module only; everybody else calls a method of it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirror.relay.partition.claim import Claim
from mirror.relay.partition.cursor import Cursor
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.queue import Queue

ROOT = Path(__file__).resolve().parents[3]
ROOM = "mirror/relay/partition"
PARTS: dict[str, type] = {"cursor": Cursor, "queue": Queue, "claim": Claim, "partition": Partition}
TWINS = {"mirror/relay/hot/acks.py", "mirror/relay/hot/gather.py"}
"""The Python forms of the compiled code, which writes a queue's attributes by name: they do what it does."""
COMPILED = "mirror/relay/hot/c"
WRITTEN_BY_TWINS = {"acknowledged", "frames", "queued"}
HOMONYMS = {"here.floor", "worker.heard_at", "facts.due", "facts.halted", "sums.old"}
"""Attributes of other classes (``SourceLog``, the fleet's ``Worker``, the plan's ``PartitionFacts`` and
``Sample``) with a name that a part has, too."""


def owned() -> dict[str, str]:
    """Attribute -> the part that has it."""
    found: dict[str, str] = {}
    for part, kind in PARTS.items():
        slots: tuple[str, ...] = kind.__slots__  # type: ignore[attr-defined]
        for name in slots:
            assert name not in found or name == "index", f"{name} is in {found[name]} and in {part}"
            found[name] = part
    return found


def assigned(source: str) -> Iterator[tuple[int, str]]:
    """Line and attribute of every assignment to an attribute of something else than ``self``: also augmented ones,
    deletions, loop variables, and calls of ``setattr`` with a name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            whole = ast.unparse(node)
            if not any(whole == each or whole.endswith(f".{each}") for each in {f"self.{node.attr}", *HOMONYMS}):
                yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "object.__setattr__"):
            name = node.args[1] if len(node.args) > 1 else None
            yield node.lineno, name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else "?"


def trespasses(file: str, source: str) -> list[str]:
    """Assignments in ``file`` of what it does not own."""
    names = owned()
    return [
        f"{file}:{line} assigns {name}, which is {ROOM}/{names[name]}.py's"
        for line, name in assigned(source)
        if name in names and not (file in TWINS and name in WRITTEN_BY_TWINS)
    ]


def test_each_part_is_assigned_in_its_own_module() -> None:
    found = []
    for path in sorted(path for room in ("relay", "service") for path in (ROOT / "mirror" / room).rglob("*.py")):
        found += trespasses(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    assert found == []


def test_each_part_has_a_module() -> None:
    for part, kind in PARTS.items():
        assert kind.__module__ == f"mirror.relay.partition.{part}"


@pytest.mark.parametrize(
    "source",
    [
        "partition.cursor.due = 5",
        "self._partition.claim.pin = None",
        "queue.acknowledged += 1",
        "a, partition.queue.window = 1, 2",
        "for each.parked in (): pass",
        "with frame as queue.lane: pass",
        "del cursor.ahead",
        "partition.phase = Phase.ACTIVE",
        "setattr(queue, 'window', 5)",
    ],
)
def test_it_sees_an_assignment(source: str) -> None:
    assert len(trespasses("mirror/relay/fetch/answers.py", source)) == 1


def assigned_in_c(source: str) -> set[str]:
    """Attributes that C code sets: by a name of ``intern``, directly or by way of ``set_number``."""
    names = re.findall(r"\b(?:PyObject_SetAttr|PyObject_SetAttrString|set_number)\(\s*\w+, (\w+|\"\w+\")", source)
    return {name.strip('"').removeprefix("name_") for name in names} - {"PyObject", "name"}


def test_what_the_compiled_code_assigns() -> None:
    found = {path.name: assigned_in_c(path.read_text(encoding="utf-8")) for path in (ROOT / COMPILED).glob("*.c")}
    assert set().union(*found.values()) == WRITTEN_BY_TWINS, found


def test_it_sees_an_assignment_in_c() -> None:
    source = "PyObject_SetAttr(partition, name_window, one); set_number(partition, name_due, 1);"
    assert assigned_in_c(source + ' PyObject_SetAttrString(it, "claim", other)') == {"window", "due", "claim"}


def test_it_sees_the_twins_go_too_far() -> None:
    (twin, *_) = TWINS
    assert trespasses(twin, "queue.queued = True") == []
    assert len(trespasses(twin, "queue.window = 1")) == 1


def test_reading_is_free() -> None:
    assert (
        trespasses(
            "mirror/relay/fetch/answers.py", "due = partition.cursor.due; self.due = due; cursor.marks.append(1)"
        )
        == []
    )
