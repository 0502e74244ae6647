"""The screen of ``mirror status --watch``, made from the current status and an earlier one. Pure."""

import textwrap
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from mirror.service.telemetry.status import Status, size_text

_FLOW = ("FLOW", "LAG", "AGE", "RECORDS/S", "BYTES/S", "SHALLOW")
_FLOW_WIDTHS = (26, 13, 10, 10, 11, 8)
_PARTITION = ("FURTHEST BEHIND", "STATE", "LAG", "AGE", "BYTES/S")
_PARTITION_WIDTHS = (36, 10, 13, 10, 11)
_COLOURS = {"halted": "red", "not ready": "red", "paused": "yellow", "remark": "yellow"}
_UNKNOWN = "?"
MOST_TOLD = 5
"""Maximum number of halted partitions that are shown, each with its remedy."""


def as_screen(now: Status, before: Status | None, *, width: int, height: int) -> list[str]:
    """Returns the lines to show, styled for a terminal.

    Args:
        now: the status.
        before: an earlier status of the same mirror, for the rates; None: no rates are shown.
        width: columns of the terminal. The tables are made for 80 columns, and are cut off if there are fewer.
        height: lines of the terminal. If these do not suffice, lines are left out at the end, first those of the
            partitions that lag least.
    """
    at = datetime.fromtimestamp(now["time"], UTC).strftime("%H:%M:%SZ")
    ready = click.style("ready", fg="green") if now["ready"] else click.style("not ready", fg="red", bold=True)
    workers = sum(each["up"] for each in now["workers"])
    up = f"{workers} of {len(now['workers'])} workers up"
    lines = [f"mirror {now['version']} at {now['address']}, {up}, {at}: {ready}"]
    lines += ["", click.style(_columns(_FLOW, _FLOW_WIDTHS, width), bold=True)]
    for flow in now["flows"]:
        earlier = next((each for each in before["flows"] if each["flow"] == flow["flow"]), None) if before else None
        seconds = now["time"] - before["time"] if before else 0.0
        lines.append(_columns(_of_flow(now, flow, earlier, seconds), _FLOW_WIDTHS, width))
        states = ", ".join(f"{count} {name}" for name, count in sorted(flow["states"].items())) or "no partition here"
        lines += _wrapped(f"{states}; {flow['partitions_of_flow']} in the flow", width, "  ")
    lines += _attention(now, width)
    room = height - len(lines) - 3
    behind = _behind(now, before)
    if behind and room > 0:
        lines += ["", click.style(_columns(_PARTITION, _PARTITION_WIDTHS, width), bold=True)]
        lines += [_columns(cells, _PARTITION_WIDTHS, width) for cells in behind[:room]]
    return lines[: max(1, height - 1)]


def _of_flow(now: Status, flow: Status, earlier: Status | None, seconds: float) -> list[str]:
    ages = [one["lag_seconds"] for one in now["partitions"] if one["flow"] == flow["flow"]]
    known = [age for age in ages if age is not None]
    copied, built = flow["replicated_batches"], flow["built_batches"]
    lag = flow["lag_records"]
    return [
        flow["flow"],
        _UNKNOWN if lag is None else f"{lag:,}" + ("+" if flow["lag_unknown_partitions"] else ""),
        f"{max(known):,.1f} s" if known else _UNKNOWN,
        _rate(flow, earlier, "replicated_records", seconds),
        _rate(flow, earlier, "replicated_bytes", seconds, size=True),
        f"{max(0, copied - built) / copied:.2%}" if copied else "-",
    ]


def _rate(one: Status, earlier: Status | None, name: str, seconds: float, *, size: bool = False) -> str:
    """Returns by how much a counter has grown per second, as text; "-" if that is unknown."""
    if earlier is None or seconds <= 0:
        return "-"
    rate = max(0.0, one[name] - earlier[name]) / seconds
    return size_text(rate) if size else f"{rate:,.0f}"


def _attention(now: Status, width: int) -> list[str]:
    """Returns the lines about what needs an operator: reasons not to be ready, remarks, and halted partitions. Empty if
    there is nothing."""
    told = [("not ready", each) for each in now["not_ready"]] + [("remark", each) for each in now["remarks"]]
    lines = [line for name, text in told for line in _wrapped(f"{name}: {text}", width, "", _COLOURS[name])]
    halted = [one for one in now["partitions"] if one["reason"]]
    for one in halted[:MOST_TOLD]:
        lines += _wrapped(f"{one['topic']}-{one['partition']} halted: {one['reason']}", width, "", _COLOURS["halted"])
        lines += _wrapped(one["remedy"] or "", width, "  ")
    if len(halted) > MOST_TOLD:
        lines.append(f"and {len(halted) - MOST_TOLD} more partitions are halted: mirror status shows them")
    return ["", *lines] if lines else []


def _behind(now: Status, before: Status | None) -> list[list[str]]:
    """Returns a table row for each partition that lags, whose lag is unknown, or that is not active. The largest lag
    comes first."""
    earlier = {_key(one): one for one in before["partitions"]} if before else {}
    seconds = now["time"] - before["time"] if before else 0.0
    some = [one for one in now["partitions"] if one["lag_records"] != 0 or one["state"] != "active"]
    some.sort(key=lambda one: (-(one["lag_records"] or 0), _key(one)))
    return [
        [
            f"{one['topic']}-{one['partition']}",
            one["state"],
            _UNKNOWN if one["lag_records"] is None else f"{one['lag_records']:,}",
            _UNKNOWN if one["lag_seconds"] is None else f"{one['lag_seconds']:,.1f} s",
            _rate(one, earlier.get(_key(one)), "replicated_bytes", seconds, size=True),
        ]
        for one in some
    ]


def _key(one: Status) -> tuple[Any, ...]:
    return one["flow"], one["topic"], one["partition"]


def _columns(cells: Sequence[str], widths: Iterable[int], width: int) -> str:
    """Returns a line of a table. The first cell is aligned left, and shortened in its middle if it is too long; the
    others are aligned right."""
    first, *others = zip(cells, widths, strict=True)
    name, room = first
    if len(name) > room:
        name = f"{name[: room - 1 - room // 2]}…{name[-(room // 2) :]}"
    return (name.ljust(room) + "".join(cell.rjust(wide) for cell, wide in others))[:width].rstrip()


def _wrapped(text: str, width: int, indent: str, colour: str | None = None) -> list[str]:
    lines = textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False)
    return [click.style(line, fg=colour) if colour else line for line in lines]
