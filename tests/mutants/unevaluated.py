"""Code that Python does not evaluate: annotations of names in functions, whose mutants no test could see."""

import ast
from typing import NamedTuple

__all__ = ["Part", "is_in", "unevaluated"]


class Part(NamedTuple):
    """From one (line, column) up to another."""

    start: tuple[int, int]
    end: tuple[int, int]


def unevaluated(code: str) -> list[Part]:
    """Returns the annotations of assignments in functions; those of arguments and of classes' fields are evaluated."""
    found = []

    def look(node: ast.AST, *, in_function: bool) -> None:
        if in_function and isinstance(node, ast.AnnAssign):
            of = node.annotation
            found.append(Part((of.lineno, of.col_offset), (of.end_lineno or 0, of.end_col_offset or 0)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            in_function = not isinstance(node, ast.ClassDef)
        for child in ast.iter_child_nodes(node):
            look(child, in_function=in_function)

    look(ast.parse(code), in_function=False)
    return found


def is_in(parts: list[Part], place: tuple[int, int]) -> bool:
    """Whether a place is in one of these parts."""
    return any(part.start <= place < part.end for part in parts)
