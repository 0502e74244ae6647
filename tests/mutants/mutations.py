"""Every change that Cosmic Ray can make to a file, and that Python evaluates."""

from pathlib import Path
from typing import Any, NamedTuple

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from tests.mutants.unevaluated import is_in, unevaluated

__all__ = ["Mutation", "changed", "mutations_of"]


class Mutation(NamedTuple):
    """One change. ``occurrence``: of the places in the file that the operator could change, which."""

    path: str
    """From the project's root."""
    operator: str
    occurrence: int
    line: int


def mutations_of(root: Path, path: str) -> list[Mutation]:
    """All of a file's."""
    code = (root / path).read_text()
    tree, nowhere = get_ast(code), unevaluated(code)
    found = []
    for name in operator_names():
        operator = _operator(name)
        if operator is not None:
            starts = [start for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node)]
            found += [
                Mutation(path, name, at, start[0]) for at, start in enumerate(starts) if not is_in(nowhere, start)
            ]
    return found


def changed(code: str, mutation: Mutation) -> str:
    """The file's text with the change in it.

    Raises:
        ValueError: it is of another text.
    """
    made = mutate_code(code, _operator(mutation.operator), mutation.occurrence)
    if made is None or made == code:
        raise ValueError(f"{mutation.path} has no place for {mutation.operator}, occurrence {mutation.occurrence}")
    return str(made)


def _operator(name: str) -> Any:
    """None for the operators that need to be told what to change into what."""
    made = get_operator(name)
    return None if made.arguments() else made()
