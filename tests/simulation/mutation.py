"""A rule of the protocol that is taken away: some seed has to show why it is there."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from tests.simulation.checks import Violation
from tests.simulation.seeds import DEEP


class Mutation(NamedTuple):
    """What is replaced by what.

    Attributes:
        rule: that is taken away.
        patches: owner, name and replacement of what it consists of.
        within: so many seeds must show it, from ``first`` on.
        first: of them.
        known: seeds that have shown it, which are played before those, to save time. By night they are not. A change to
            the relay or to the simulation makes other runs of them: if they show it no more, the test takes longer and
            says (``--capture=no``) which seed does.
    """

    rule: str
    patches: tuple[tuple[Any, str, Any], ...]
    within: int
    first: int = 1
    known: tuple[int, ...] = ()

    def seeds(self) -> Iterator[int]:
        """Yields those to be played, in their order."""
        if not DEEP:
            yield from self.known
        yield from range(self.first, self.first + self.within)


def find(mutation: Mutation, play: Callable[[int], object], *, shown_by: type[AssertionError] = Violation) -> None:
    """Plays seed after seed without the rule, until one ends in a violation. Fails if none does.

    Args:
        mutation: the rule.
        play: one run of a seed.
        shown_by: what counts as a violation. ``AssertionError``: also an assertion of the relay itself.
    """
    with ExitStack() as stack:
        for owner, name, replacement in mutation.patches:
            stack.enter_context(patch.object(owner, name, replacement))
        for seed in mutation.seeds():
            try:
                play(seed)
            except shown_by:
                if seed not in mutation.known:
                    print(f"shown by seed {seed}: {mutation.rule}")
                return
    pytest.fail(f"no violation in {mutation.within} runs from {mutation.first} on without the rule: {mutation.rule}")
