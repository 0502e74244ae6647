"""``mirror offsets``: how far each partition is copied, and where each group would go on."""

import sys
from dataclasses import replace
from pathlib import Path

import click

from mirror.cli.formats import FORMAT, show
from mirror.cli.moving.options import GROUPS, NAMED, groups_of, named
from mirror.cli.options import CONFIG, asking, fail, load
from mirror.service.exits import EXIT_FAILED, EXIT_OK


@click.command("show")
@CONFIG
@NAMED
@GROUPS
@FORMAT
def show_offsets(path: Path, name: str, groups: tuple[str, ...], shape: str) -> None:
    """Show each partition's offsets at both clusters, and those of consumer groups: committed, translated, and whether
    a consumer could move now.

    It asks both clusters and changes nothing, whether the mirror runs or not. SOURCE END is the source's log end,
    STABLE its last stable offset; all of the source before COPIED TO is at the destination.

    Exit codes: 0 shown, 1 not everything is known.

    \b
        mirror offsets show -c mirror.yaml
        mirror offsets show -c mirror.yaml --group billing
        mirror offsets show -c mirror.yaml --format json | jq .groups
    """
    import asyncio

    from mirror.service.commands import Commands
    from mirror.service.config import resolve
    from mirror.service.offsets.show import as_text, offsets

    config = load(path)
    flow = named(config, name)
    commands = replace(Commands.of(path), flow=flow.name)
    with asking(commands):
        found = asyncio.run(offsets(resolve.flow_sides(flow), groups_of(flow, config, groups)))
    show(shape, found, lambda _: commands.rendered(as_text(found)))
    unread = any(group["state"] in ("failed", "unsupported") for group in found["groups"])
    # A topic that was retired at the source is shown for as long as its copy exists, which may be years: no failure.
    unseen = any(not each["gone"] for each in found["missing"])
    unknown = unread or any(row["why"] for row in found["partitions"]) or unseen or found["unlisted"]
    absent = set(groups) - {group["group"] for group in found["groups"]}
    if own := sorted(absent - found["absent"].keys()):
        fail(f"the mirror's own group, which is never carried over: {', '.join(own)}", EXIT_FAILED)
    sys.exit(EXIT_FAILED if unknown or absent else EXIT_OK)


@click.command("take-over")
@CONFIG
@NAMED
@click.option(
    "--offsets-topic", metavar="NAME", default="",
    help="Kafka Connect's topic of source offsets (offset.storage.topic) at the destination.  "
    "[default: mm2-offsets.SOURCE.internal]",
)  # fmt: skip
@click.option(
    "--cluster", metavar="ALIAS", default="",
    help="The source's alias in MirrorMaker 2's configuration.  [default: the flow's]",
)  # fmt: skip
@click.option("--apply", is_flag=True, help="Commit the offsets for start.group at the source.")
@click.option(
    "--accept-unproven", is_flag=True,
    help="Also where the copy's last record is not found at the source: from what MirrorMaker 2 had noted.",
)  # fmt: skip
@FORMAT
def take_over(
    path: Path, name: str, offsets_topic: str, cluster: str, apply: bool, accept_unproven: bool, shape: str
) -> None:
    """Have a flow go on where a MirrorMaker 2 has ended that was stopped: finds that place for each partition, by the
    offsets that MirrorMaker 2 has noted and by the last record of its copies.

    The flow needs offsets: mapped, the names that MirrorMaker 2 gave its copies, start.from: committed and start.group.
    Nothing is written without --apply.

    Exit codes: 0 shown or committed, 1 not everything is known.

    \b
        mirror offsets take-over -c mirror.yaml
        mirror offsets take-over -c mirror.yaml --apply
        mirror offsets take-over -c mirror.yaml --offsets-topic mirrormaker2-cluster-offsets --cluster west
    """
    import asyncio

    from mirror.service.commands import Commands
    from mirror.service.config import resolve
    from mirror.service.offsets.mirrormaker import Found, TakenOver, TakeOver, TakeOverError, as_data, as_text

    config = load(path)
    flow = named(config, name, disabled=True)
    group = flow.settings.start_group
    if flow.settings.offsets != "mapped" or not group:
        fail(
            f"flow {flow.name} cannot go on in MirrorMaker 2's copies: set offsets: mapped, start.from: committed and "
            "start.group, a name for a new consumer group at the source",
            EXIT_FAILED,
        )

    async def work() -> tuple[list[TakenOver], bool]:
        sides = resolve.flow_sides(flow).under("-offsets")
        async with TakeOver(sides, offsets_topic=offsets_topic, cluster=cluster) as one:
            rows = await one.look()
            sure = accept_unproven or all(row.found is not Found.UNSURE for row in rows)
            if apply and sure:
                await one.commit(group, rows)
            return rows, sure

    with asking(replace(Commands.of(path), flow=name), TakeOverError):
        rows, sure = asyncio.run(work())
    data = as_data(flow.name, group, rows, committed=apply and sure)
    show(shape, data, lambda _: as_text(data))
    if not sure:
        fail(
            "nothing was committed: where the copy's last record is not found, records may come to be there twice, or "
            "be missing; look at both sides, then decide with --accept-unproven",
            EXIT_FAILED,
        )
    if apply:
        click.echo(f"committed for group {group} at {flow.name.partition('->')[0]}; now start the mirror", err=True)
    sys.exit(EXIT_OK)
