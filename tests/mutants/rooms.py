"""Which tests judge which package: its own, in rooms. The reach of a room is measured by itself, and again only after a
change to it, to the code, or to a helper."""

import hashlib
from pathlib import Path
from typing import NamedTuple

from tests.mutants.project import SEEDS

__all__ = ["PACKAGES", "Room", "digest", "rooms_of"]

QUICK = "not broker and not long"
"""Spark's are among them: a session starts in seconds, and nothing else runs what only it does."""
SWEEPS = tuple(
    f"tests/simulation/{test}"
    for test in (
        "sweeps/test_simulation.py::test_records_keep_their_offsets_whatever_goes_wrong",
        "sweeps/test_pieces.py::test_records_keep_their_offsets_through_every_cut",
        "sweeps/test_rebatching.py::test_records_keep_their_offsets_in_larger_batches",
        "mapped/test_mapped.py::test_every_record_is_there_once_whatever_goes_wrong",
        "mapped/test_pieces.py::test_records_are_there_once_through_every_cut",
        "mapped/test_starting.py::test_copies_begin_where_it_was_decided",
    )
)
"""The long tests of the simulation that take no rule away. ``environment`` says how few seeds each of them has here."""
PACKAGES = {
    "mirror/records": ("tests/records",),
    "mirror/offsetmap": ("tests/offsetmap",),
    "mirror/relay": ("tests/relay", *SWEEPS),
    "mirror/audit": ("tests/audit",),
}


class Room(NamedTuple):
    """Some tests. ``names``: files or node ids, from the project's root. ``marks``: as for ``pytest -m``."""

    name: str
    names: tuple[str, ...]
    marks: str


def rooms_of(root: Path, package: str) -> list[Room]:
    """Of each folder that judges the package: every folder inside is a room, and so are the files beside these. The
    sweeps of the simulation are one room."""
    found = []
    for name in PACKAGES[package]:
        folder = root / name
        if folder.is_dir():
            for each in [folder, *sorted(child for child in folder.iterdir() if child.is_dir())]:
                files = each.glob("test_*.py") if each == folder else each.glob("**/test_*.py")
                names = tuple(sorted(str(file.relative_to(root)) for file in files))
                if names:
                    found.append(Room(str(each.relative_to(root)).replace("/", "-"), names, QUICK))
    sweeps = tuple(name for name in PACKAGES[package] if "::" in name)
    return [*found, Room("sweeps", sweeps, "long")] if sweeps else found


def digest(root: Path, room: Room) -> str:
    """Of the code, of every helper of the tests but this package, and of this room's test files."""
    own = {root / name.partition("::")[0] for name in room.names}
    ours = root / "tests" / "mutants"
    helpers = {file for file in root.glob("tests/**/*.py") if not file.name.startswith("test_") and file.parent != ours}
    made = hashlib.sha256(repr((room, SEEDS)).encode())
    for path in sorted({*root.glob("mirror/**/*.py"), *helpers, *own}):
        made.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return made.hexdigest()
