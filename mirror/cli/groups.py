"""``mirror offsets translate`` and ``mirror sync``: what consumer groups need at the destination."""

import sys
from dataclasses import replace
from pathlib import Path

import click

from mirror.cli.formats import FORMAT, show
from mirror.cli.moving.offsets import show_offsets, take_over
from mirror.cli.options import CONFIG, FLOW, asking, chosen, fail, load
from mirror.service.exits import EXIT_FAILED, EXIT_OK


class _Offsets(click.Group):
    """Runs ``show`` if the first argument is not a sub-command: ``mirror offsets -c mirror.yaml FLOW``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] not in ([], ["-h"], ["--help"], *([name] for name in self.commands)):
            args = [show_offsets.name or "", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Offsets)
def offsets() -> None:
    """Show offsets at both clusters: how far partitions are copied, and where groups would go on. Or translate some.

    `mirror offsets -c FILE FLOW` is short for `mirror offsets show -c FILE FLOW`.
    """


offsets.add_command(show_offsets)
offsets.add_command(take_over)


@offsets.command()
@CONFIG
@FLOW
@click.option("--topic", help="The topic, by its name at the source.")
@click.option("--partition", type=click.IntRange(min=0), help="Of the topic. [default: 0]")
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
@click.option(
    "--allow-rewind", is_flag=True,
    help="With --group: also lower offsets than the group has at the destination. It reads records again.",
)  # fmt: skip
def translate(
    path: Path,
    name: str,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    direction: str | None,
    group: str | None,
    apply: bool,
    allow_rewind: bool,
) -> None:
    """Translate one offset, or those of a consumer group.

    An offset without a record on the other side becomes that of the next record, as a consumer would find it.
    Nothing is committed for a group that has read further at the destination, as one that has moved already.

    \b
        mirror offsets translate -c mirror.yaml --topic orders --partition 3 --offset 12345
        mirror offsets translate -c mirror.yaml --group billing
        mirror offsets translate -c mirror.yaml --group billing --apply

    Exit codes: 0 translated, 1 it could not be.
    """
    import asyncio

    from mirror.offsetmap.compare.alignment import Differs
    from mirror.service.commands import Commands
    from mirror.service.config import resolve
    from mirror.service.offsets import translate as offsets

    if group is not None and partition is not None:
        raise click.UsageError("--partition is for --topic and --offset: of a group, all partitions are translated")
    flow = resolve.flow_sides(chosen(load(path), name)).under("-offsets")
    if group is not None and (topic is None and offset is None) and direction != "destination-to-source":
        work = offsets.translate_group(flow, group, apply=apply, tell=click.echo, allow_rewind=allow_rewind)
    elif group is None and topic is not None and offset is not None and not (apply or allow_rewind):
        back = direction == "destination-to-source"
        work = offsets.translate_offset(flow, topic, partition or 0, offset, to_source=back)
    else:
        raise click.UsageError(
            "give --topic and --offset (and --partition, --direction), or --group (and --apply, --allow-rewind), whose "
            "offsets are translated from the source to the destination"
        )
    with asking(replace(Commands.of(path), flow=name), offsets.NotTranslated, offsets.GroupError, Differs):
        click.echo(asyncio.run(work))


@click.command()
@CONFIG
@FLOW
@click.option("--dry-run", is_flag=True, help="Change nothing, and show both, whether they are enabled or not.")
@FORMAT
def sync(path: Path, name: str, dry_run: bool, shape: str) -> None:
    """Carry consumer groups' offsets over to the destination, and create the ACLs of mirrored topics there: once, what
    mirror run does regularly.

    It does what sync.group.offsets.enabled and sync.topic.acls.enabled say. It may run beside the mirror.

    Exit codes: 0 done, 1 something could not be done.

    \b
        mirror sync -c mirror.yaml --dry-run
        mirror sync -c mirror.yaml
    """
    import asyncio

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
    with asking(replace(Commands.of(path), flow=name)):
        groups, acls = asyncio.run(look_once(resolve.flow_sides(flow), settings, dry_run=dry_run))
    data = report.as_data(groups, acls, applied=not dry_run)
    show(shape, data, lambda _: report.as_text(groups, acls, applied=not dry_run))
    sys.exit(EXIT_FAILED if report.failed(groups, acls) else EXIT_OK)
