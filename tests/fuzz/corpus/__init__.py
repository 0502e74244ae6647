"""The inputs that are kept in the repository: a file for each target, a line of base64 for each input."""

import base64
from pathlib import Path

from hypothesis import strategies as st

FOLDER = Path(__file__).parent
SHARE = 20_000
"""Bytes of one target's file at most: all of them together stay below 200 KB."""


def file_of(target: str) -> Path:
    """Returns a target's file."""
    return FOLDER / f"{target}.txt"


def kept(target: str) -> list[bytes]:
    """Returns the inputs that are kept."""
    return [base64.b64decode(line) for line in file_of(target).read_text(encoding="ascii").split()]


def keep(target: str, inputs: list[bytes]) -> int:
    """Writes inputs into a target's file: in this order, as many as have room. Returns how many."""
    lines: list[str] = []
    size = 0
    for data in inputs:
        line = base64.b64encode(data).decode()
        if line and line not in lines and size + len(line) + 1 <= SHARE:
            lines.append(line)
            size += len(line) + 1
    file_of(target).write_text("".join(f"{line}\n" for line in sorted(lines)), encoding="ascii")
    return len(lines)


def changed(target: str) -> st.SearchStrategy[bytes]:
    """Inputs like those that are kept: with bytes changed, taken out, put in, or with another one's end."""
    one = st.sampled_from(kept(target))
    places = st.floats(0, 1)
    changes = st.lists(st.tuples(places, st.integers(0, 12), st.binary(max_size=12)), max_size=4)

    def apply(data: bytes, made: list[tuple[float, int, bytes]], other: bytes, place: float) -> bytes:
        for at, gone, come in made:
            start = int(at * len(data))
            data = data[:start] + come + data[start + gone :]
        return data[: int(place * len(data))] + other[int(place * len(other)) :] if made and other else data

    return st.builds(apply, one, changes, one | st.just(b""), places)
