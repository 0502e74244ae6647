"""``mirror offsets``: how far each partition is copied, and where each group would go on."""

import sys
from dataclasses import replace
from pathlib import Path

import click

from mirror.cli.formats import FORMAT, show
from mirror.cli.moving.options import GROUPS, NAMED, groups_of, named
from mirror.cli.options import CONFIG, fail, load
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

    from mirror.net.errors import NetworkError
    from mirror.service.commands import Commands
    from mirror.service.config import resolve
    from mirror.service.offsets.show import as_text, offsets

    config = load(path)
    flow = named(config, name)
    commands = replace(Commands.of(path), flow=flow.name)
    try:
        found = asyncio.run(offsets(resolve.flow_sides(flow), groups_of(flow, config, groups)))
    except NetworkError as error:
        fail(commands.rendered(str(error)), EXIT_FAILED)
    show(shape, found, lambda _: commands.rendered(as_text(found)))
    unknown = any(row["why"] for row in found["partitions"]) or found["missing"]
    absent = sorted(set(groups) - {group["group"] for group in found["groups"]})
    if absent:
        fail(f"no offsets of these topics at the source: group {', '.join(absent)}", EXIT_FAILED)
    sys.exit(EXIT_FAILED if unknown else EXIT_OK)
