"""The output formats of commands: ``--format``."""

import io
import json
import re
from collections.abc import Callable
from typing import Any

import click

SHAPES = ("table", "wide", "json", "yaml")
_PLAIN = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)\Z)[A-Za-z][^:#]*", re.IGNORECASE)
"""Text that every version of YAML reads as text without quotes."""

FORMAT = click.option(
    "--format",
    "shape",
    type=click.Choice(SHAPES),
    default="table",
    show_default=True,
    help="For people: table, or wide, which wraps and leaves out nothing. For programs: json or yaml, the same data.",
)


def show(shape: str, data: Any, table: Callable[[int], str]) -> None:
    """Prints data in the chosen format.

    Args:
        shape: one of ``SHAPES``.
        data: the data, of types that JSON can hold.
        table: returns the data as text for people. It gets the column at which lines are wrapped; 0: they are not
            wrapped.
    """
    if shape == "json":
        click.echo(json.dumps(data, indent=2))
    elif shape == "yaml":
        click.echo(yaml_text(data), nl=False)
    else:
        from mirror.cli.options import terminal_width

        click.echo(table(0 if shape == "wide" else terminal_width()).rstrip("\n"))


def yaml_text(data: Any) -> str:
    """Returns data as YAML text that means the same in YAML 1.1 and 1.2."""
    from ruamel.yaml import YAML

    yaml, text = YAML(), io.StringIO()
    yaml.width = 1 << 16
    yaml.dump(_quoted(data), text)
    return text.getvalue()


def _quoted(data: Any) -> Any:
    """Returns the data with quotes around text that some version of YAML would not read as text."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(data, dict):
        return {_quoted(str(name)): _quoted(each) for name, each in data.items()}
    if isinstance(data, list | tuple):
        return [_quoted(each) for each in data]
    if isinstance(data, str) and not _PLAIN.fullmatch(data):
        return DoubleQuotedScalarString(data)
    return data
