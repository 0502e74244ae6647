"""The kept inputs do what they should not be able to prevent; the corpus stays small."""

import pytest

from tests.fuzz.corpus import FOLDER, kept
from tests.fuzz.guard import Guard
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_replayed(name: str) -> None:
    guard = Guard(TARGETS[name])
    inputs = kept(name)
    assert len(inputs) > 5
    for data in inputs:
        guard(data)


@pytest.mark.parametrize("name", TARGETS)
def test_the_first_inputs(name: str) -> None:
    """What brokers send, and the edges that were once wrong."""
    guard = Guard(TARGETS[name])
    for data in seeds(name):
        guard(data)


def test_it_is_small_and_whole() -> None:
    """A file for each target and no other, 200 KB in all."""
    files = sorted(FOLDER.glob("*.txt"))
    assert {file.stem for file in files} == set(TARGETS)
    assert sum(file.stat().st_size for file in files) < 200_000
