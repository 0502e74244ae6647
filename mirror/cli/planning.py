"""``mirror plan``: what the mirror would do, before it copies the first byte."""

import sys
from pathlib import Path

import click

from mirror.cli.formats import FORMAT, show
from mirror.cli.options import CONFIG, ONLY_FLOW, Bytes, chosen, fail, load


@click.command()
@CONFIG
@ONLY_FLOW
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Only this topic, by its name at the source.")
@FORMAT
@click.option("--all", "everything", is_flag=True, help="Show every row and every topic, also those that are well.")
@click.option(
    "--sample-bytes",
    metavar="SIZE",
    type=Bytes(),
    default="32MiB",
    show_default=True,
    help="About how much is read of the source, to look at batches and to measure.",
)
@click.option(
    "--fix",
    is_flag=True,
    help="Do what is safe: create topics and add partitions as the mirror would, raise max.message.bytes, set "
    "compression.type and message.timestamp.type of destination topics that hold no record.",
)
@click.option("--dry-run", is_flag=True, help="With --fix: only show what it would do.")
def plan(
    path: Path, name: str, topics: tuple[str, ...], shape: str, everything: bool, sample_bytes: int, fix: bool,
    dry_run: bool,
) -> None:  # fmt: skip
    """Before the first byte: ask both clusters what would be copied, created and refused, and what it would take.

    Nothing is changed without --fix, and a mirror that runs is not disturbed.

    Exit codes: 0 nothing is refused, 1 something could not be asked, 2 some partition would halt, or nothing be copied.

    \b
        mirror plan -c mirror.yaml
        mirror plan -c mirror.yaml --topic orders --all
        mirror plan -c mirror.yaml --fix --dry-run
    """
    from mirror.service.commands import Commands
    from mirror.service.plan import command

    if dry_run and not fix:
        raise click.UsageError("--dry-run is for --fix")
    config = load(path)
    try:
        code = command.plan(
            config,
            Commands.of(path),
            flows=[chosen(config, name)] if name else config.enabled_flows(),
            topics=topics,
            sample_bytes=sample_bytes,
            everything=everything or shape == "wide",
            fix=fix,
            dry_run=dry_run,
            tell=lambda data, text: show(shape, data, lambda _: text),
        )
    except command.NotMirrored as error:
        raise click.BadParameter(str(error), param_hint="--topic") from error
    except command.NotPlanned as error:
        fail(str(error), error.code)
    sys.exit(code)
