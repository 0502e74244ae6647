"""Reads an input: choices off its front, then bytes."""

from typing import NamedTuple, Protocol


class Source:
    """Zeros when the input is used up."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, size: int, *, signed: bool = False) -> int:
        """An integer of so many bytes."""
        piece = self._data[self._at : self._at + size]
        self._at += size
        return int.from_bytes(piece.ljust(size, b"\0"), "big", signed=signed)

    def rest(self) -> bytes:
        """All that is left."""
        piece, self._at = self._data[self._at :], len(self._data)
        return piece


class Run(Protocol):
    """Plays one input. Whatever it raises is a finding."""

    def __call__(self, data: bytes, /) -> None: ...


class Target(NamedTuple):
    """Something that reads bytes.

    Attributes:
        run: plays one input.
        most_bytes: memory that an input may take, beyond what the process had before.
        most_s: processor time that it may take, in seconds: much more than any should.
    """

    run: Run
    most_bytes: int = 64 << 20
    most_s: float = 5.0


MOST_INPUT = 8192
"""Bytes of an input. Nothing that is read here has a case that needs more."""
