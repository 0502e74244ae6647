"""Bounds for one input: its processor time and its memory."""

import time

from tests.fuzz.source import Target
from tests.memory import Peak


class TooSlow(AssertionError):
    """An input took more processor time than any should."""


class TooMuchMemory(AssertionError):
    """An input took more memory than any may."""


class Guard:
    """Plays inputs of one target within its bounds.

    The peak of the whole process is the kernel's. Each input is measured by itself: against what the process had when
    the guard was made, an input could hide in what was freed since. An input beyond the bound is played again, after
    the garbage of those before is collected.
    """

    def __init__(self, target: Target) -> None:
        self._target = target

    def __call__(self, data: bytes) -> None:
        """Plays one input.

        Raises:
            TooSlow, TooMuchMemory: it took too much.
            Exception: whatever the target raises: a finding.
        """
        first = Peak(collect=False)
        started = time.process_time()
        self._target.run(data)
        used_s = time.process_time() - started
        if used_s > self._target.most_s:
            raise TooSlow(f"{used_s:.1f} s of processor time for {len(data)} bytes; {self._target.most_s:g} s allowed")
        if first.grown() > self._target.most_bytes:
            again = Peak()
            self._target.run(data)
            grown = again.grown()
            if grown > self._target.most_bytes:
                raise TooMuchMemory(
                    f"{grown >> 20} MiB for {len(data)} bytes; {self._target.most_bytes >> 20} MiB allowed"
                )
