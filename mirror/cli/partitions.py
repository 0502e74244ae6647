"""``mirror pause`` and ``mirror resume``: requests to the mirror that runs here."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mirror.cli.options import AT, CONFIG, ONLY_FLOW, Running, fail, mirror_of
from mirror.service.exits import EXIT_FAILED, EXIT_HALTED, EXIT_OK

if TYPE_CHECKING:
    from mirror.service.resume.resumption import Resumed

_TOPIC = click.argument("topic", required=False)
_PARTITION = click.argument("number", metavar="[PARTITION]", type=click.IntRange(min=0), required=False)


@click.command()
@CONFIG
@AT
@ONLY_FLOW
@_TOPIC
@_PARTITION
@click.option("--all", "everything", is_flag=True, help="Every partition that is copied here.")
def pause(path: Path, at: str | None, name: str, topic: str | None, number: int | None, everything: bool) -> None:
    """Pause a partition, all of a topic, or --all: what was fetched is copied, then nothing more until `mirror resume`.

    A pause outlives restarts, and holds for whoever gets the partition. Partitions that come later are not paused. The
    source has to keep its records meanwhile: what it deletes is not copied.

    --all means all flows of this mirror, unless --flow names one. A flow of which no worker answers is named: it is not
    paused. Partitions that other machines have are named, too, and are paused there.

    Exit codes: 0 all of them are paused, 1 none of them, 2 some are not. With --all, partitions that other machines
    have do not count; those that perhaps nobody has do.

    \b
        mirror pause -c mirror.yaml orders
        mirror pause -c mirror.yaml orders 3
        mirror pause -c mirror.yaml --all
    """
    from mirror.service.http import client

    found = _asked(
        "paused", path, at, name, topic, everything,
        lambda it: client.pause(it.address, topic, number, flows=it.flows, flow=name, token=it.token),
    )  # fmt: skip
    _tell(found, "paused", "there is nothing to pause", one=number is not None, everything=everything)


@click.command()
@CONFIG
@AT
@ONLY_FLOW
@_TOPIC
@_PARTITION
@click.option("--all", "everything", is_flag=True, help="Every partition that is halted or paused.")
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
    """Resume paused partitions, and halted ones once their reason is dealt with: one, those of a topic, or --all.

    --all means all flows of this mirror, unless --flow names one. A flow of which no worker answers is named: nothing
    of it is resumed. Partitions that other machines have are named, too, and are resumed there.

    Exit codes: 0 all of them are resumed, 1 none of them, 2 some are still halted or paused. With --all, partitions
    that other machines have do not count; those that perhaps nobody has do.

    \b
        mirror resume -c mirror.yaml orders 3
        mirror resume -c mirror.yaml orders 3 --accept-gap
        mirror resume -c mirror.yaml --all
    """
    from mirror.service.http import client

    accept = [each for each, wanted in accepted.items() if wanted]
    found = _asked(
        "resumed", path, at, name, topic, everything,
        lambda it: client.resume(
            it.address, topic, number, accept=accept, flows=it.flows, flow=name, token=it.token
        ),
    )  # fmt: skip
    _tell(found, "resumed", "nothing is halted or paused", one=number is not None, everything=everything)


def _asked(
    done: str,
    path: Path,
    at: str | None,
    name: str,
    topic: str | None,
    everything: bool,
    ask: "Callable[[Running], Resumed]",
) -> "Resumed":
    """Sends the request and returns the mirror's answer. On failure, prints the error and exits with ``EXIT_FAILED``.
    ``done``: the participle for messages, "paused" or "resumed"."""
    from mirror.service.http import client

    if everything is (topic is not None):
        raise click.UsageError("give TOPIC, TOPIC and PARTITION, or --all")
    try:
        return ask(mirror_of(path, at, name))
    except (client.NotAnswered, client.NotDone) as error:
        fail(f"nothing is {done}: {error}" if isinstance(error, client.NotDone) else str(error), EXIT_FAILED)


def _tell(found: "Resumed", done: str, nothing: str, *, one: bool, everything: bool) -> None:
    """Prints what was done with each partition, and exits with the code for that.

    Args:
        found: the mirror's answer.
        done: the participle for messages, "paused" or "resumed".
        nothing: the message if the answer is about no partition and no flow.
        one: True if the request named a single partition. Then it is a failure if the answer is about none.
        everything: True for ``--all``. Then partitions that other machines have are no failure.
    """
    for each in found.outcomes:
        which = f"{each.flow}: {each.topic}-{each.partition}" if each.flow else f"{each.topic}-{each.partition}"
        said = f"{which} is not {done}: {each.why_not}" if each.why_not else f"{which} is {done}"
        click.echo(said, err=bool(each.why_not))
    if found.elsewhere:
        names = ", ".join(f"{topic}-{index}" for topic, index in found.elsewhere)
        why = (
            "perhaps nobody holds them now, and they stay as they are: try again once `mirror status` shows them"
            if found.nobody
            else "ask where they are copied"
        )
        click.echo(f"no worker here has {names}: {why}", err=True)
    for flow, why in found.unasked:
        click.echo(f"flow {flow}: nothing is {done}: {why}", err=True)
    if not found.outcomes and not found.elsewhere and not found.unasked:
        click.echo(nothing)
    failed = sum(bool(each.why_not) for each in found.outcomes)
    if found.unasked:
        sys.exit(EXIT_HALTED if failed < len(found.outcomes) else EXIT_FAILED)
    if found.elsewhere and not found.outcomes and (found.nobody or not everything):
        sys.exit(EXIT_FAILED)
    if failed == len(found.outcomes) and (failed or one):
        sys.exit(EXIT_FAILED)
    missed = bool(found.elsewhere) and (found.nobody or not everything)
    sys.exit(EXIT_HALTED if failed or missed else EXIT_OK)
