"""``mirror offsets translate`` and ``mirror sync``: what consumer groups need at the destination."""

import sys
from dataclasses import replace
from pathlib import Path

import click

from mirror.cli.options import CONFIG, FLOW, chosen, fail, load
from mirror.service.exits import EXIT_FAILED, EXIT_OK


@click.group()
def offsets() -> None:
    """Translate offsets between source and destination (offsets: mapped)."""


@offsets.command()
@CONFIG
@FLOW
@click.option("--topic", help="The topic, by its name at the source.")
@click.option("--partition", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--offset", type=click.IntRange(min=0), help="The offset to translate.")
@click.option(
    "--direction",
    type=click.Choice(["source-to-destination", "destination-to-source"]),
    help="[default: source-to-destination; with --group, the only one]",
)
@click.option(
    "--group",
    help="Translate all offsets that this consumer group has committed at the source, and say what --apply commits.",
)
@click.option(
    "--apply", is_flag=True, help="With --group: commit them at the destination, for a group that is idle there."
)
def translate(
    path: Path,
    name: str,
    topic: str | None,
    partition: int,
    offset: int | None,
    direction: str | None,
    group: str | None,
    apply: bool,
) -> None:
    """Translate one offset, or those of a consumer group.

    An offset without a record on the other side becomes that of the next record, as a consumer would find it.
    """
    import asyncio

    from mirror.net.errors import NetworkError
    from mirror.offsetmap.compare.alignment import Differs
    from mirror.service.commands import Commands
    from mirror.service.config import resolve
    from mirror.service.offsets import translate as offsets

    flow = resolve.flow_sides(chosen(load(path), name)).under("-offsets")
    if group is not None and (topic is None and offset is None) and direction != "destination-to-source":
        work = offsets.translate_group(flow, group, apply=apply, tell=click.echo)
    elif group is None and topic is not None and offset is not None and not apply:
        back = direction == "destination-to-source"
        work = offsets.translate_offset(flow, topic, partition, offset, to_source=back)
    else:
        raise click.UsageError(
            "give --topic and --offset (and --partition, --direction), or --group (and --apply), whose offsets are "
            "translated from the source to the destination"
        )
    try:
        click.echo(asyncio.run(work))
    except (offsets.NotTranslated, offsets.GroupError, NetworkError, Differs) as error:
        fail(replace(Commands.of(path), flow=name).rendered(str(error)), EXIT_FAILED)


@click.command()
@CONFIG
@FLOW
@click.option("--dry-run", is_flag=True, help="Change nothing, and show both, whether they are enabled or not.")
@click.option("--format", "shape", type=click.Choice(["text", "json"]), default="text", show_default=True)
def sync(path: Path, name: str, dry_run: bool, shape: str) -> None:
    """Carry consumer groups' offsets over to the destination, and create the ACLs of mirrored topics there: once, what
    mirror run does regularly.

    It does what sync.group.offsets.enabled and sync.topic.acls.enabled say. It may run beside the mirror.

    Exit codes: 0 done, 1 something could not be done.
    """
    import asyncio
    import json

    from mirror.net.errors import NetworkError
    from mirror.service.commands import Commands
    from mirror.service.config import resolve
    from mirror.service.sync import report
    from mirror.service.sync.look import look_once

    config = load(path)
    flow = chosen(config, name)
    settings = resolve.sync_settings(flow, resolve.group_settings(flow, config).group_id)
    if not dry_run and not settings.anything:
        fail(
            f"flow {flow.name} copies no offsets or ACLs: set sync.group.offsets.enabled or sync.topic.acls.enabled; "
            "--dry-run shows what they would do",
            EXIT_FAILED,
        )
    try:
        groups, acls = asyncio.run(look_once(resolve.flow_sides(flow), settings, dry_run=dry_run))
    except NetworkError as error:
        fail(replace(Commands.of(path), flow=name).rendered(str(error)), EXIT_FAILED)
    if shape == "json":
        click.echo(json.dumps(report.as_data(groups, acls, applied=not dry_run), indent=2))
    else:
        click.echo(report.as_text(groups, acls, applied=not dry_run))
    sys.exit(EXIT_FAILED if report.failed(groups, acls) else EXIT_OK)
