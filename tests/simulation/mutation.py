"""A rule of the protocol that is taken away: some seed has to show why it is there."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from tests.simulation.checks import Violation


class Mutation(NamedTuple):
    """What is replaced by what; ``within``: so many seeds must show it, from ``first`` on."""

    rule: str
    patches: tuple[tuple[Any, str, Any], ...]
    within: int
    first: int = 1


def find(mutation: Mutation, play: Callable[[int], object]) -> None:
    """Plays seed after seed without the rule, until one ends in a violation. Fails if none does."""
    with ExitStack() as stack:
        for owner, name, replacement in mutation.patches:
            stack.enter_context(patch.object(owner, name, replacement))
        for seed in range(mutation.first, mutation.first + mutation.within):
            try:
                play(seed)
            except Violation:
                return
    pytest.fail(f"no violation in {mutation.within} runs from {mutation.first} on without the rule: {mutation.rule}")
