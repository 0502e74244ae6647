"""``mirror config`` and ``mirror validate``: the files that come with this version, and the operator's own."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mirror.cli.options import CONFIG, fail, load
from mirror.service.exits import EXIT_CONFIG

if TYPE_CHECKING:
    from mirror.service.importing.command import Format
    from mirror.service.importing.make.flows import Offsets


@click.group()
def config() -> None:
    """Show what is configured, and print the files that come with this version: an example, every key, alert rules."""


@config.command()
def example() -> None:
    """Print the smallest configuration that works."""
    click.echo(_shipped("example"), nl=False)


@config.command()
def reference() -> None:
    """Print a configuration with every key, its default, unit and meaning."""
    click.echo(_shipped("reference"), nl=False)


@config.command()
def alerts() -> None:
    """Print alert rules for Prometheus."""
    click.echo(_shipped("alerts"), nl=False)


@config.command()
@CONFIG
@click.option("--given", is_flag=True, help="Only the keys that the file has; the others are marked as default.")
@click.option(
    "--format", "form", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="The notation."
)
def show(path: Path, given: bool, form: str) -> None:
    """Print the configuration in effect: every key and its value.

    Secrets, and whatever came out of ${env:NAME} or ${file:PATH}, are shown as ***. Nothing is connected to.
    """
    from mirror.cli.effective import as_yaml, in_effect

    found = load(path)
    if form == "json":
        click.echo(json.dumps(in_effect(found, given=given), indent=2))
    else:
        click.echo(as_yaml(found, given=given), nl=False)


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
    """Print the JSON Schema of the configuration, for editors that complete and check YAML files."""
    from mirror.service.config.load import json_schema

    click.echo(json.dumps(json_schema(), indent=2))


def _shipped(name: str) -> str:
    from importlib.resources import files

    return (files("mirror") / "configs" / f"{name}.yaml").read_text(encoding="utf-8")


@click.command()
@CONFIG
def validate(path: Path) -> None:
    """Check the configuration file, without connecting to anything."""
    for flow in load(path).enabled_flows():
        click.echo(f"{path}: flow {flow.name} is valid")
