"""The copies of the project that a session tries its mutants in.

Tests that fail there without any mutant judge nothing: what is known of them may have been measured on another day, or
the disk may have become full meanwhile.
"""

import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.mutants.trial import check

__all__ = ["Copies"]


class Copies:
    """Lends each of them to one mutant at a time."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._free: queue.Queue[Path] = queue.Queue()
        for root in roots:
            self._free.put(root)
        self._last: dict[Path, tuple[list[str], Sequence[float]]] = {}

    @contextmanager
    def lent(self, tests: list[str], seconds: Sequence[float]) -> Iterator[Path]:
        """Waits for a copy that is free. Yields it for one mutant, which is judged by ``tests``. Before a copy's first
        mutant, they pass there without it.

        Raises:
            RuntimeError: they do not.
        """
        copy = self._free.get()
        try:
            if tests:
                if copy not in self._last:
                    check(copy, tests, seconds)
                self._last[copy] = (tests, seconds)
            yield copy
        finally:
            self._free.put(copy)

    def check(self) -> None:
        """At the end, the tests of each copy's last mutant pass there without it.

        Raises:
            RuntimeError: they do not.
        """
        for copy, (tests, seconds) in self._last.items():
            check(copy, tests, seconds)
