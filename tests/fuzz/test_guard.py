"""The bounds of an input can be broken, and then are seen."""

import subprocess
import sys
import time

import pytest

from tests.fuzz.guard import Guard, TooMuchMemory, TooSlow
from tests.fuzz.source import Source, Target

MIB = 1 << 20


def test_within_the_bounds() -> None:
    played: list[bytes] = []
    Guard(Target(played.append))(b"x")
    assert played == [b"x"]


def test_too_much_memory() -> None:
    def fill(data: bytes) -> None:
        _fill(len(data) * MIB)

    fill(bytes(200))  # what the process once had does not count
    guard = Guard(Target(fill, most_bytes=32 * MIB))
    guard(bytes(8))
    with pytest.raises(TooMuchMemory, match="for 100 bytes; 32 MiB allowed"):
        guard(bytes(100))


def test_what_is_freed_meanwhile_hides_nothing() -> None:
    """A process that gets smaller after the guard was made has no more room for its inputs."""

    def fill(data: bytes) -> None:
        _fill(len(data) * MIB)

    held = [_fill(200 * MIB)]
    guard = Guard(Target(fill, most_bytes=32 * MIB))
    held.clear()
    guard(bytes(8))
    with pytest.raises(TooMuchMemory, match="for 100 bytes; 32 MiB allowed"):
        guard(bytes(100))


def test_what_malloc_keeps_hides_nothing() -> None:
    """What was freed amid the heap is still the process's, for the kernel: whoever takes it makes nothing grow."""

    def fill(data: bytes) -> None:
        _fill(len(data) * MIB)

    held = [_fill(30 * MIB)]
    held.clear()  # malloc learns: blocks up to this size come from its heap, not each from the kernel
    held = [_fill(20 * MIB) for _ in range(10)]
    end = _fill(MIB)
    held.clear()
    with pytest.raises(TooMuchMemory, match="for 100 bytes; 32 MiB allowed"):
        Guard(Target(fill, most_bytes=32 * MIB))(bytes(100))
    assert len(end) == MIB


CHILD = f"""
from tests.fuzz.guard import Guard, TooMuchMemory
from tests.fuzz.source import Target
try:
    Guard(Target(lambda data: b"\\1" * (100 * {MIB}), most_bytes=32 * {MIB}))(b"")
except TooMuchMemory:
    print("seen")
"""


def test_the_memory_of_the_parent_does_not_count() -> None:
    """The kernel gives a child its parent's peak as its own, for getrusage."""
    held = _fill(300 * MIB)
    said = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True).stdout
    assert (said, len(held)) == ("seen\n", 300 * MIB)


def test_memory_of_many_inputs_is_not_that_of_one() -> None:
    """What is kept from one input to the next, as a cache does, is no input's own."""
    cache: list[bytes] = []
    guard = Guard(Target(lambda data: cache.append(_fill(4 * MIB)), most_bytes=16 * MIB))
    for _ in range(12):
        guard(b"")


def test_too_slow() -> None:
    def spin(data: bytes) -> None:
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass

    Guard(Target(spin, most_s=60))(b"")
    with pytest.raises(TooSlow, match=r"for 3 bytes; 0\.01 s allowed"):
        Guard(Target(spin, most_s=0.01))(b"abc")


def test_what_is_raised_is_a_finding() -> None:
    with pytest.raises(ZeroDivisionError):
        Guard(Target(lambda data: print(1 / len(data))))(b"")


def test_choices_come_off_the_front() -> None:
    source = Source(b"\x01\xff\xfe\x07rest")
    assert (source.number(1), source.number(2, signed=True), source.number(1)) == (1, -2, 7)
    assert (source.rest(), source.rest(), source.number(4)) == (b"rest", b"", 0)


def _fill(size: int) -> bytes:
    return b"\1" * size
