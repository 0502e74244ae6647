"""``mirror trace``: each step of one partition, for a while."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from mirror.cli.formats import FORMAT
from mirror.cli.options import AT, CONFIG, ONLY_FLOW, fail, mirror_of, terminal_width
from mirror.cli.tracing.lines import as_text
from mirror.service.exits import EXIT_FAILED, EXIT_HALTED, EXIT_OK
from mirror.service.tracing.following import DEFAULT_S, MOST_S


@click.command()
@CONFIG
@AT
@ONLY_FLOW
@click.argument("topic")
@click.argument("number", metavar="PARTITION", type=click.IntRange(min=0))
@click.option(
    "--seconds",
    type=click.IntRange(min=1, max=MOST_S),
    default=DEFAULT_S,
    show_default=True,
    help="How long; Ctrl-C ends it earlier.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="Also if it is halted, paused or not held here now: to see what follows `mirror resume` or a rebalance.",
)
@FORMAT
def trace(path: Path, at: str | None, name: str, topic: str, number: int, seconds: int, wait: bool, shape: str) -> None:
    """Show each step of one partition as it is done: phases and why they change, answers to Fetch and Produce requests
    with offsets, sizes and errors, holes that are filled, what it waits for, commits. Never keys or values of records.

    Nothing changes about copying. The mirror ends the trace by itself, also if this command is killed. In JSON, each
    step is an object on a line of its own.

    Exit codes: 0 traced, 1 no mirror answers or nothing happens with it here, 2 it has halted, before or meanwhile.

    \b
        mirror trace -c mirror.yaml orders 3
        mirror trace -c mirror.yaml orders 3 --seconds 600 --format json > orders-3.jsonl
        mirror trace -c mirror.yaml orders 3 --wait
    """
    from mirror.service.http import client

    halted = False
    try:
        it = mirror_of(path, at, name)
        steps = client.trace(
            it.address, topic, number, seconds=seconds, wait=wait, flows=it.flows, flow=name, token=it.token
        )
        for step in steps:
            click.echo(as_text(step, shape, width=terminal_width()))
            sys.stdout.flush()
            halted = _is_halted(step, before=halted)
    except KeyboardInterrupt:
        pass
    except client.Halted as error:
        fail(str(error), EXIT_HALTED)
    except (client.NotAnswered, client.NotDone) as error:
        fail(f"nothing is traced: {error}" if isinstance(error, client.NotDone) else str(error), EXIT_FAILED)
    sys.exit(EXIT_HALTED if halted else EXIT_OK)


def _is_halted(step: Mapping[str, Any], *, before: bool) -> bool:
    """Returns True if the partition is halted after this step. A pause is not a halt. ``before``: True if it was halted
    before the step."""
    if step["step"] == "event" and step["event"] in ("halted", "paused"):
        return bool(step["event"] == "halted")
    return before and not (step["step"] in ("here", "phase") and step["phase"] != "halted")
