"""``mirror describe``: everything that the running mirror knows of one topic's partitions."""

import sys
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mirror.cli.formats import FORMAT, show
from mirror.cli.options import AT, CONFIG, ONLY_FLOW, fail, mirror_of
from mirror.service.exits import EXIT_FAILED, EXIT_HALTED, EXIT_OK
from mirror.service.telemetry.status import time_text

if TYPE_CHECKING:
    from mirror.service.telemetry.status import Status

_SKIPPED = ("first", "next", "records", "why", "at_ms")


@click.command()
@CONFIG
@AT
@ONLY_FLOW
@click.argument("topic")
@click.argument("number", metavar="[PARTITION]", type=click.IntRange(min=0), required=False)
@FORMAT
def describe(path: Path, at: str | None, name: str, topic: str, number: int | None, shape: str) -> None:
    """Show everything about a topic's partitions, or one of them: where it is copied to, state, offsets, lag, what it
    waits for, why it halted, and what was skipped.

    It knows the partitions that are copied here. Exit codes: 0 found, 1 no mirror answers or nothing here has it, 2 one
    of them has halted.

    \b
        mirror describe -c mirror.yaml orders
        mirror describe -c mirror.yaml orders 3 --format yaml
    """
    from mirror.service.http import client

    try:
        address, flows, _ = mirror_of(path, at, name)
        now = client.fetch_status(address, flows=flows, flow=name)
    except client.NotAnswered as error:
        fail(str(error), EXIT_FAILED)
    found = described(now, topic, number)
    if not found:
        which = topic if number is None else f"{topic}-{number}"
        fail(
            f"no worker here has {which}; `mirror status` shows what is copied here, and `mirror plan` what would be",
            EXIT_FAILED,
        )
    show(shape, found, lambda width: "\n\n".join(as_lines(each, width=width) for each in found))
    sys.exit(EXIT_HALTED if any(one["reason"] for one in found) else EXIT_OK)


def described(now: "Status", topic: str, number: int | None) -> list[dict[str, Any]]:
    """Returns the status rows of a topic's partitions, each with its ``skipped`` ranges, by partition and flow.

    Partitions that have halted here and that nobody holds now are included. The list is empty if nothing matches.

    Args:
        now: the status.
        topic: name of the topic at the source.
        number: number of the only partition to return; None: all partitions.
    """

    def wanted(one: Mapping[str, Any]) -> bool:
        return one["topic"] == topic and number in (None, one["partition"])

    left = [{"state": "halted, held by nobody now"} | one for one in now["left_halted"]]
    rows = [one for one in (*now["partitions"], *left) if wanted(one)]
    return [
        one | {"skipped": [_range(each) for each in now["skipped"] if _key(each) == _key(one)]}
        for one in sorted(rows, key=lambda one: (one["partition"], one["flow"]))
    ]


def _key(one: Mapping[str, Any]) -> tuple[Any, ...]:
    return one["flow"], one["topic"], one["partition"]


def _range(skipped: Mapping[str, Any]) -> dict[str, Any]:
    return {name: skipped[name] for name in _SKIPPED}


def as_lines(one: Mapping[str, Any], *, width: int = 0) -> str:
    """Returns a partition as text, with one line for each known field. ``width``: column at which lines are wrapped; 0:
    they are not wrapped."""
    lines = [f"{one['topic']}-{one['partition']}"]
    for name, value in one.items():
        if name in ("topic", "partition", "skipped") or value is None:
            continue
        lines.append(f"  {name.replace('_', ' ') + ':':22}{_shown(name, value)}")
    lines += _skipped(one["skipped"])
    return "\n".join(part for line in lines for part in (_wrapped(line, width) if width else [line]))


def _wrapped(line: str, width: int) -> list[str]:
    # Continuation lines are indented to the column in which the value begins.
    return textwrap.wrap(
        line, max(width, 48), subsequent_indent=" " * 24, break_long_words=False, break_on_hyphens=False
    )


def _shown(name: str, value: Any) -> str:
    if name == "waits_since":
        return time_text(value * 1000)
    if name == "lag_seconds":
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) and name != "worker" else str(value)


def _skipped(ranges: Iterable[Mapping[str, Any]]) -> list[str]:
    return [
        f"  {'skipped:':22}{_count(each)} of offsets {each['first']} to {each['next'] - 1}, "
        f"{time_text(each['at_ms'])}: {each['why']}"
        for each in ranges
    ]


def _count(each: Mapping[str, Any]) -> str:
    return f"{each['records']:,}" if each["records"] else "all"
