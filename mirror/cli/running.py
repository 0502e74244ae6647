"""``mirror run``, and what is asked of a mirror that runs: ``status`` and ``partition resume``."""

import sys
from pathlib import Path

import click

from mirror.cli.options import AT, CONFIG, ONLY_FLOW, fail, load, mirror_of, terminal_width
from mirror.service.exits import EXIT_FAILED, EXIT_HALTED, EXIT_OK


@click.command()
@CONFIG
@click.option(
    "--workers",
    type=click.IntRange(min=1, max=256),
    help="Number of worker processes that flows share. Overrides the key workers at the top.",
)
@click.option(
    "--fail-fast",
    is_flag=True,
    help="For scripts: do not wait. Exit with code 1 at the first obstacle to starting, and with 2 once every "
    "partition has halted.",
)
def run(path: Path, workers: int | None, fail_fast: bool) -> None:
    """Mirror in the foreground until SIGTERM or SIGINT; a second signal does not wait for the drain.

    What can heal is waited for: a cluster that cannot be reached, a pattern that no topic matches yet, a missing right.
    A second machine that runs the same configuration joins: the partitions are shared out among all workers. SIGHUP
    reloads the configuration: flows are added, removed and restarted, and those that did not change go on untouched.
    """
    from mirror.service import first

    first.hold_signals()
    from mirror.service import supervisor
    from mirror.service.commands import Commands
    from mirror.service.config import resolve
    from mirror.service.log.outlet import keep_standard_descriptors

    keep_standard_descriptors()
    told = resolve.supervision(load(path), workers=workers, fail_fast=fail_fast)
    if workers and all(flow.own_workers for flow in told.flows):
        raise click.UsageError("--workers is for flows that share workers, and here each has workers of its own")
    supervisor.become(told, commands=Commands.of(path))


@click.command()
@CONFIG
@AT
@ONLY_FLOW
@click.option("--format", "shape", type=click.Choice(["text", "json"]), default="text", show_default=True)
def status(path: Path, at: str | None, name: str, shape: str) -> None:
    """Show the state of the mirror that runs here with this configuration: partitions, lag, halts, workers. Of all its
    flows, or with --flow of one.

    POSITION is the source offset up to which a partition is copied: a restart goes by that. COMMITTED is what the
    flow's consumer group has of it at the source, for tools that watch groups. AGE is how long the oldest record that
    is not copied is known to wait.

    Exit codes: 0 all is well, 1 no mirror answers or it is not ready, 2 a partition is halted.
    """
    import json

    from mirror.service.http import client
    from mirror.service.telemetry.status import as_text

    try:
        address, flows = mirror_of(path, at, name)
        now = client.fetch_status(address, flows=flows, flow=name)
    except client.NotAnswered as error:
        fail(str(error), EXIT_FAILED)
    click.echo(
        json.dumps(now, indent=2) if shape == "json" else as_text(now, width=terminal_width()), nl=shape == "json"
    )
    if any(one["reason"] for one in now["partitions"]):
        sys.exit(EXIT_HALTED)
    sys.exit(EXIT_OK if now["ready"] else EXIT_FAILED)


@click.group()
def partition() -> None:
    """Act on partitions of the mirror that runs here."""


@partition.command()
@CONFIG
@AT
@ONLY_FLOW
@click.argument("topic", required=False)
@click.argument("number", metavar="[PARTITION]", type=click.IntRange(min=0), required=False)
@click.option("--all", "everything", is_flag=True, help="Every halted partition.")
@click.option(
    "--accept-gap",
    is_flag=True,
    help="Skip what the source has deleted or lacks, this time only. The halt's remedy says what that means.",
)
@click.option(
    "--accept-unproven",
    is_flag=True,
    help="Accept without proof, this time only, that the destination holds a copy of the source, or that a flow the "
    "other way has ended.",
)
@click.option(
    "--accept-settings",
    is_flag=True,
    help="Continue a copy that was made with another isolation.level, with the current one from here on.",
)
def resume(
    path: Path,
    at: str | None,
    name: str,
    topic: str | None,
    number: int | None,
    everything: bool,
    **accepted: bool,
) -> None:
    """Resume halted partitions, once their reason is dealt with: one, those of a topic, or --all.

    Exit codes: 0 all of them are resumed, 1 none of them, 2 some are still halted.
    """
    from mirror.service.http import client

    if everything is (topic is not None):
        raise click.UsageError("give TOPIC, TOPIC and PARTITION, or --all")
    accept = [each for each, wanted in accepted.items() if wanted]
    try:
        address, flows = mirror_of(path, at, name)
        found = client.resume(address, topic, number, accept=accept, flows=flows, flow=name)
    except (client.NotAnswered, client.NotDone) as error:
        fail(f"nothing is resumed: {error}" if isinstance(error, client.NotDone) else str(error), EXIT_FAILED)
    for each in found.outcomes:
        which = f"{each.flow}: {each.topic}-{each.partition}" if each.flow else f"{each.topic}-{each.partition}"
        said = f"{which} is not resumed: {each.why_not}" if each.why_not else f"{which} is resumed"
        click.echo(said, err=bool(each.why_not))
    if found.elsewhere:
        names = ", ".join(f"{topic}-{index}" for topic, index in found.elsewhere)
        why = (
            "perhaps nobody holds them now, and they stay halted: resume them once `mirror status` shows them"
            if found.nobody
            else "ask where they are copied"
        )
        click.echo(f"no worker here has {names}: {why}", err=True)
    if not found.outcomes and not found.elsewhere:
        click.echo("nothing is halted")
    failed = sum(bool(each.why_not) for each in found.outcomes)
    if found.elsewhere and not found.outcomes:
        sys.exit(EXIT_FAILED)
    if failed == len(found.outcomes) and (failed or number is not None):
        sys.exit(EXIT_FAILED)
    sys.exit(EXIT_HALTED if failed else EXIT_OK)
