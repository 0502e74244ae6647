"""``mirror config`` and ``mirror validate``: the files that come with this version, and the operator's own."""

from pathlib import Path

import click

from mirror.cli.options import CONFIG, load


@click.group()
def config() -> None:
    """Print the files that come with this version: an example, every key, alert rules."""


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


def _shipped(name: str) -> str:
    from importlib.resources import files

    return (files("mirror") / "configs" / f"{name}.yaml").read_text(encoding="utf-8")


@click.command()
@CONFIG
def validate(path: Path) -> None:
    """Check the configuration file, without connecting to anything."""
    for flow in load(path).enabled_flows():
        click.echo(f"{path}: flow {flow.name} is valid")
