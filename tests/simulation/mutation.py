"""A rule of the protocol that is taken away: some seed has to show why it is there."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from tests.simulation.checks import Violation
from tests.simulation.seeds import DEEP

Patch = tuple[Any, str, Any]


class Mutation(NamedTuple):
    """What is replaced by what.

    Attributes:
        rule: that is taken away.
        patches: owner, name and replacement of what it consists of. What is replaced of the simulation is no rule: it
            makes runs of a kind that shows the rule sooner.
        within: so many seeds must show it, from ``first`` on.
        first: of them.
        known: seeds that have shown it, which are played before those, to save time. By night they are not. A change to
            the relay or to the simulation makes other runs of them: if they show it no more, the test takes longer and
            says (``--capture=no``) which seed does.
    """

    rule: str
    patches: tuple[Patch, ...]
    within: int
    first: int = 1
    known: tuple[int, ...] = ()

    @property
    def kept(self) -> tuple[Patch, ...]:
        """What is replaced of the simulation."""
        return tuple(each for each in self.patches if not _module(each[0]).startswith("mirror."))

    def seeds(self) -> Iterator[int]:
        """Yields those to be played, in their order."""
        if not DEEP:
            yield from self.known
        yield from range(self.first, self.first + self.within)


def _module(owner: Any) -> str:
    """The name of the module that an owner is, or is in."""
    return str(owner.__name__ if isinstance(owner, ModuleType) else owner.__module__)


def find(mutation: Mutation, play: Callable[[int], object], *, shown_by: type[AssertionError] = Violation) -> None:
    """Plays seed after seed without the rule, until one ends in a violation; then that one with the rule. Fails if none
    does, or if that one is violated with the rule, too: then it shows nothing of the rule.

    Args:
        mutation: the rule.
        play: one run of a seed.
        shown_by: what counts as a violation. ``AssertionError``: also an assertion of the relay itself.
    """
    with patched(mutation.patches):
        seed = next((seed for seed in mutation.seeds() if _violated(seed, play, shown_by)), None)
    if seed is None:
        pytest.fail(
            f"no violation in {mutation.within} runs from {mutation.first} on without the rule: {mutation.rule}"
        )
    if seed not in mutation.known:
        print(f"shown by seed {seed}: {mutation.rule}")
    with patched(mutation.kept):
        if (error := _violated(seed, play, AssertionError)) is not None:
            pytest.fail(f"seed {seed} is violated with the rule, too: {mutation.rule}\n{error}")


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    """All of it is replaced."""
    with ExitStack() as stack:
        for owner, name, replacement in patches:
            stack.enter_context(patch.object(owner, name, replacement))
        yield


def _violated(seed: int, play: Callable[[int], object], shown_by: type[AssertionError]) -> AssertionError | None:
    try:
        play(seed)
    except shown_by as error:
        return error
    return None
