"""``mirror config`` and ``mirror validate``: the files that come with this version, and the operator's own."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mirror.cli import formats
from mirror.cli.formats import SHAPES
from mirror.cli.options import CONFIG, fail, load
from mirror.service.exits import EXIT_CONFIG

if TYPE_CHECKING:
    from mirror.service.importing.command import Format
    from mirror.service.importing.make.flows import Offsets

RUNBOOKS = "https://runbooks.example/mirror"
"""Placeholder in the shipped alert rules for the address of the operators' runbooks. The top-level domain .example is
reserved (RFC 2606)."""


@click.group()
def config() -> None:
    """Show what is configured, and print the files that come with this version: an example, every key, alert rules."""


@config.command()
def example() -> None:
    """Print the smallest configuration that works.

    \b
        mirror config example > mirror.yaml
    """
    click.echo(_shipped("example"), nl=False)


@config.command()
def reference() -> None:
    """Print a configuration with every key, its default, unit and meaning.

    \b
        mirror config reference | less
    """
    click.echo(_shipped("reference"), nl=False)


@config.command()
@click.option(
    "--runbooks",
    metavar="URL",
    default=RUNBOOKS,
    show_default=True,
    help="Where your operators find the pages of docs/runbooks: each rule's runbook_url is this with /ALERT.md.",
)
def alerts(runbooks: str) -> None:
    """Print alert rules for Prometheus.

    \b
        mirror config alerts --runbooks https://YOUR-SITE/runbooks > mirror-alerts.yaml
    """
    if not re.fullmatch(r"https?://[^\s\"'{}]+", runbooks):
        raise click.BadParameter(f"{runbooks!r} is no address that begins with https://", param_hint="--runbooks")
    click.echo(_shipped("alerts").replace(f"{RUNBOOKS}/", f"{runbooks.rstrip('/')}/"), nl=False)


@config.command()
@CONFIG
@click.option("--given", is_flag=True, help="Only the keys that the file has; the others are marked as default.")
@click.option(
    "--format",
    "shape",
    type=click.Choice(SHAPES),
    default="yaml",
    show_default=True,
    help="yaml, as the file, or json; table (or wide): a line for each key.",
)
def show(path: Path, given: bool, shape: str) -> None:
    """Print the configuration in effect: every key and its value.

    Secrets, and whatever came out of ${env:NAME} or ${file:PATH}, are shown as ***. Nothing is connected to.

    \b
        mirror config show -c mirror.yaml
        mirror config show -c mirror.yaml --given
        mirror config show -c mirror.yaml --format table | grep linger

    Exit codes: 0 it is shown, 78 it is wrong.
    """
    from mirror.cli.effective import as_table, as_yaml, in_effect

    found = load(path)
    if shape == "yaml":
        click.echo(as_yaml(found, given=given), nl=False)  # with the comments that mark defaults
    else:
        formats.show(shape, in_effect(found, given=given), lambda _: as_table(found, given=given))


@config.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "properties", "strimzi"]),
    default="auto",
    show_default=True,
    help="What the file is: an mm2.properties, or Strimzi's KafkaMirrorMaker2 in YAML. auto: by its content.",
)
@click.option(
    "--offsets",
    type=click.Choice(["exact", "mapped"]),
    help="The kind of offsets of all flows. By default it is chosen for each flow, and the reason stands beside it.",
)
def import_(file: Path, form: "Format", offsets: "Offsets | None") -> None:
    """Read a configuration of MirrorMaker 2, and print ours. Nothing is connected to.

    Each key of FILE is in what is printed: behind the setting that it became, or in a comment that says why it is
    not needed, or what has to be decided. Secrets are not printed: references to environment variables or files
    stand in their place. A summary goes to stderr.

    \b
        mirror config import mm2.properties > mirror.yaml
        mirror validate -c mirror.yaml
        mirror plan -c mirror.yaml

    Exit codes: 0 a configuration was printed, whatever is left to decide, 78 FILE cannot be read as either format.
    """
    from mirror.service.config import ConfigError
    from mirror.service.importing.command import read

    try:
        found = read(str(file), form=form, offsets=offsets)
    except ConfigError as error:
        fail(str(error), EXIT_CONFIG)
    click.echo(found.text, nl=False)
    click.echo(f"{file}: {found.summary}", err=True)
    for each in found.decisions:
        click.echo(f"  {each}", err=True)


@config.command()
def schema() -> None:
    """Print the JSON Schema of the configuration, for editors that complete and check YAML files.

    \b
        mirror config schema > mirror.schema.json
    """
    from mirror.service.config.load import json_schema

    click.echo(json.dumps(json_schema(), indent=2))


def _shipped(name: str) -> str:
    from importlib.resources import files

    return (files("mirror") / "configs" / f"{name}.yaml").read_text(encoding="utf-8")


@click.command()
@CONFIG
def validate(path: Path) -> None:
    """Check the configuration file, without connecting to anything. Every mistake is told at once, with file and line.

    \b
        mirror validate -c mirror.yaml

    Exit codes: 0 it is valid, 78 it is wrong.
    """
    for flow in load(path).enabled_flows():
        click.echo(f"{path}: flow {flow.name} is valid")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what has a shell complete the commands and options of mirror with the tab key.

    \b
    bash: mirror completion bash > ~/.local/share/bash-completion/completions/mirror
    zsh:  mirror completion zsh > a folder of $fpath, as _mirror
    fish: mirror completion fish > ~/.config/fish/completions/mirror.fish
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    assert made is not None, "click knows these shells"
    click.echo(made(root, {}, "mirror", "_MIRROR_COMPLETE").source())
