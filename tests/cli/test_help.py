"""The help of every command, and the one table of exit codes."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mirror.audit.command import ExitCode
from mirror.cli import main
from mirror.service import exits
from mirror.service.exits import MEANINGS
from tests.shown import parse

ROOT = Path(__file__).resolve().parents[2]
PRINTS = {("completion",), *(("config", name) for name in ("example", "reference", "alerts", "schema"))}
"""They print what comes with the program, and cannot fail."""
LEFT_OUT = {exits.EXIT_USAGE}
"""Every command has it, and none says so."""


def commands(group: click.Group = main, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, *words, name)
        if not isinstance(found, click.Group) or found.invoke_without_command:
            yield (*words, name), found


EVERY = dict(commands())


def told_by(words: tuple[str, ...]) -> str:
    """The help of a command."""
    return inspect.cleandoc(EVERY[words].help or "")


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_each_has_examples(words: tuple[str, ...]) -> None:
    """They are about the command itself, and would be taken."""
    shown = [each for each in told_by(words).split("\n\n") if each.startswith("\b\n")]
    lines = [line.strip() for each in shown for line in each.splitlines()]
    examples = [re.sub(r"^\w+: +", "", line) for line in lines if re.match(r"(\w+: +)?mirror ", line)]
    typed = [re.split(r" [|>&]+ | \|\| ", each)[0].split() for each in examples]
    assert any(each[1 : 1 + len(words)] == list(words) for each in typed), typed
    for each in typed:
        parse(each)


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_each_says_its_exit_codes(words: tuple[str, ...]) -> None:
    """Those of the table, and no others. What reads a configuration finds it wrong, as a rule."""
    told = re.search(r"Exit codes: (.*?)(\.\n|\.$|\n\n|\Z)", told_by(words), re.DOTALL)
    if words in PRINTS and told is None:
        return
    assert told is not None
    codes = {int(code) for code in re.findall(r"(?:^|, )(\d+) ", told[1].replace("\n", " "))}
    assert exits.EXIT_OK in codes
    assert codes <= MEANINGS.keys() - LEFT_OUT


def test_the_table_is_told() -> None:
    """By ``mirror --help``, and by the README; the audit's own codes, whose code shares nothing, are these."""
    shown = " ".join(CliRunner().invoke(main, ["--help"]).output.split())
    assert exits.in_words() in shown
    readme = (ROOT / "README.md").read_text()
    table = readme.partition("| exit code | meaning |")[2].partition("\n\n")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == list(MEANINGS)
    assert set(ExitCode) <= MEANINGS.keys()


def test_no_command_has_codes_of_its_own() -> None:
    """Numbers of exits stand in the table alone; where code may not import it (the sandbox), it is 0 or 1."""
    found = []
    for path in sorted((ROOT / "mirror").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(attr="exit" | "_exit"), args=[ast.Constant(value=int(code))]):
                    found.append((str(path.relative_to(ROOT / "mirror")), code))
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int(code))):
                    if name.startswith("EXIT_"):
                        found.append((str(path.relative_to(ROOT / "mirror")), code))
    others = [(path, code) for path, code in found if path != "service/exits.py"]
    assert all(path.startswith("sandbox/") and code in (0, 1) for path, code in others), others
