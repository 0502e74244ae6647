"""Commands as documents show them, compared with the command line."""

import re

import click

from mirror.cli import main


def console(text: str) -> list[list[str]]:
    """The words of each command in a document's console blocks, without comments."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [line.removeprefix("$ ").split(" # ")[0].split() for line in lines]


def inline(text: str) -> list[list[str]]:
    """The words of each command of ours in backticks."""
    return [each.split() for each in re.findall(r"`((?:mirror|make) [^`]+)`", text)]


def parse(words: list[str]) -> None:
    """Parses a command that begins with ``mirror``, without running it.

    Raises:
        click.UsageError: there is no such option.
        AssertionError: there is no such command.
    """
    command: click.Command = main
    # With its own settings: a command remembers the names of its help option from the first context that it is given.
    context = click.Context(command, info_name="mirror", **command.context_settings)
    rest = words[1:]
    while isinstance(command, click.Group) and not rest[0].startswith("-"):
        found = command.get_command(context, rest.pop(0))
        assert found is not None, words
        command, context = found, click.Context(found, parent=context, info_name=found.name, **found.context_settings)
    command.make_parser(context).parse_args(rest)
