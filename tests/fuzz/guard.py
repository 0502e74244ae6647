"""Bounds for one input: its processor time and its memory."""

import time

from tests.fuzz.source import Target
from tests.memory import Peak, peak


class TooSlow(AssertionError):
    """An input took more processor time than any should."""


class TooMuchMemory(AssertionError):
    """An input took more memory than any may."""


class Guard:
    """Plays inputs of one target within its bounds.

    The kernel's peak of the whole process is looked at after each input, which costs some 20 microseconds. Only when it
    has grown beyond the bound, by this input or by many before it, is the input played again by itself and measured.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        Peak()  # what this process once had does not count
        self._allowed = peak() + target.most_bytes

    def __call__(self, data: bytes) -> None:
        """Plays one input.

        Raises:
            TooSlow, TooMuchMemory: it took too much.
            Exception: whatever the target raises: a finding.
        """
        started = time.process_time()
        self._target.run(data)
        used_s = time.process_time() - started
        if used_s > self._target.most_s:
            raise TooSlow(f"{used_s:.1f} s of processor time for {len(data)} bytes; {self._target.most_s:g} s allowed")
        if peak() > self._allowed:
            played = Peak()
            self._target.run(data)
            grown = played.grown()
            if grown > self._target.most_bytes:
                raise TooMuchMemory(
                    f"{grown >> 20} MiB for {len(data)} bytes; {self._target.most_bytes >> 20} MiB allowed"
                )
            self._allowed = peak() + self._target.most_bytes
