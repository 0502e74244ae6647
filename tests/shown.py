"""Commands as documents show them, compared with the command line."""

import re
import shlex

import click

from mirror.cli import main


def console(text: str) -> list[list[str]]:
    """The words of each command in a document's console blocks, without comments."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [shlex.split(line.removeprefix("$ ").split(" # ")[0].rstrip("\\")) for line in lines]


def inline(text: str) -> list[list[str]]:
    """The words of each command of ours in backticks."""
    return [shlex.split(each) for each in re.findall(r"`((?:mirror|make) [^`]+)`", text)]


def cut_off(text: str) -> list[str]:
    """What a shell would take for a redirection in a document's commands of ours, and is meant as a flow's name."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    typed = [line.split(" # ")[0] for block in blocks for line in block.splitlines() if line.startswith("$ mirror ")]
    typed += re.findall(r"`(mirror [^`]+)`", text)
    return [each for each in typed if "->" in re.sub(r"'[^']*'|\"[^\"]*\"", "", each)]


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
    while isinstance(command, click.Group) and (
        rest[:1] == [] or not rest[0].startswith("-") or "show" in command.commands
    ):
        if command.invoke_without_command and not (rest and rest[0] in command.list_commands(context)):
            break
        # Without a sub-command, a group shows something, if it does.
        name = rest.pop(0) if rest and rest[0] in command.list_commands(context) else "show"
        found = command.get_command(context, name)
        assert found is not None, words
        command, context = found, click.Context(found, parent=context, info_name=found.name, **found.context_settings)
    command.make_parser(context).parse_args(rest)
