"""The text of ``/status`` and ``mirror status``: the numbers of ``/metrics``, for people. Pure.

The JSON object of ``/api/v1/status`` (``service.flows.overview``) is the interface. Text and HTML are made only from
it, so that any process can make them.
"""

import base64
import hashlib
import html
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

Status = dict[str, Any]
"""The object of ``/api/v1/status``."""


# -- for people --------------------------------------------------------------------------------------------------------


UNKNOWN = "unknown"


def number_text(value: float | None, absent: str = "-") -> str:
    """Returns a whole number as text."""
    return absent if value is None else f"{value:,.0f}"


def seconds_text(value: float | None, absent: str = "-") -> str:
    """Returns a duration as text, in seconds."""
    return absent if value is None else f"{value:,.1f} s"


def lag_text(now: Status) -> str:
    """Returns the known lag in words, with the number of partitions whose lag is not known."""
    unknown = now["lag_unknown_partitions"]
    if now["lag_records"] is None and not unknown:
        return UNKNOWN
    some = f"{number_text(unknown)} partition{'s' if unknown > 1 else ''}"
    if now["lag_records"] is None:
        return f"{UNKNOWN} ({some})"
    return f"{number_text(now['lag_records'])} records" + (f"; {UNKNOWN} for {some}" if unknown else "") + _whose(now)


def _whose(now: Status) -> str:
    """Returns a phrase that restricts the lag to this machine's partitions, if it is not the lag of the whole flow."""
    here = sum(now["states"].values())
    return f" (of the {here} partitions here)" if here < (now["partitions_of_flow"] or 0) else ""


def size_text(value: float | None) -> str:
    """Returns a number of bytes as text, in units of 1000; a dash if it is not known."""
    if value is None:
        return "-"
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:,.1f} {unit}"
    return f"{value:.0f} B"


def time_text(ms: float) -> str:
    """Returns a time in ms since 1970 as text, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _counts(found: Mapping[str, float]) -> str:
    return ", ".join(f"{number_text(count)} {name}" for name, count in sorted(found.items())) or "none"


LEFT_HALTED = "halted while a worker here had them, and held by none here now"
_HALTED_HEADS = ("FLOW", "TOPIC", "PARTITION", "REASON", "DETAIL", "REMEDY")
Table = tuple[str, Sequence[str], list[list[str]]]
"""A title, the columns' heads, and the rows."""
NOTES = (
    "LAG and SOURCE END are source offsets, POSITION the one up to which all is copied.",
    "AGE: how long the oldest record that is not copied is known to wait.",
    "COMMITTED: the group's offset at the source, for tools that watch groups; a restart goes by POSITION.",
)
"""Beneath the table of partitions."""
_KEPT = "\N{NO-BREAK SPACE}"
"""Takes the place of a space inside a command while a text is wrapped."""


def _summaries(now: Status) -> list[list[tuple[str, str]]]:
    """Returns the summary of each flow, as (name, value) lines."""
    return [_summary(flow) for flow in now["flows"]]


def _summary(now: Status) -> list[tuple[str, str]]:
    return [
        ("flow", f"{now['flow']} (id {now['flow_id']}, group {now['group']})"),
        *(("not ready", each) for each in now["not_ready"]),
        *(("remark", each) for each in now["remarks"]),
        ("clusters", ", ".join(f"{each['cluster']} {'up' if each['up'] else 'away'}" for each in now["clusters"])),
        ("partitions", _partitions(now)),
        ("lag", lag_text(now)),
        (
            "replicated",
            f"{number_text(now['replicated_records'])} records, {number_text(now['replicated_batches'])} batches, "
            f"{size_text(now['replicated_bytes'])}; {number_text(now['filled_offsets'])} offsets filled",
        ),
        ("shallow", shallow_text(now)),
        ("resyncs", _counts(now["resyncs"])),
        ("halts", f"{_counts(now['halts'])} since the start"),
        *([("last audit", audit_text(now["audit"]))] if now["audit"] else []),
    ]


def audit_text(audit: Mapping[str, Any]) -> str:
    """Returns the last audit in words: its result, its time, and when an audit last passed."""
    if audit["problem"]:
        return f"{UNKNOWN}: {audit['problem']}"
    found = f" ({number_text(audit['differences'])} found)" if audit["differences"] else ""
    when = f"{audit['verdict']}{found}, {time_text(audit['at'] * 1000)}"
    if audit["passed"]:
        return when
    passed = audit["success_at"]
    return f"{when}; last passed {'never' if passed is None else time_text(passed * 1000)}"


def shallow_text(now: Status) -> str:
    """Returns the share of the batches that were copied as they are, and why the others were not."""
    copied, built = now["replicated_batches"], now["built_batches"]
    if not now["opened"]:
        return "all batches copied as they are"
    share = max(0, copied - built) / copied if copied else 0.0
    return f"{share:.2%} of the batches copied as they are; opened and rewritten: {_counts(now['opened'])}"


def _partitions(now: Status) -> str:
    unassigned = now["unassigned_partitions"]
    nobody = f", {number_text(unassigned)} held by nobody" if unassigned else ""
    return f"{_counts(now['states'])}; {now['partitions_of_flow']} in the flow{nobody}"


def worker_state(worker: Mapping[str, Any]) -> str:
    """Returns a worker's state in words."""
    if not worker["up"]:
        return "down"
    if worker["quiet"]:
        return "not heard of"
    if worker["joined"]:
        return "in group"
    return "waiting" if worker["waits"] else "out of group" if worker["member"] else "joining"


def _halted(partitions: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    return [
        [one["flow"], one["topic"], str(one["partition"]), one["reason"], one["detail"] or "", one["remedy"] or ""]
        for one in partitions
    ]


def _tables(now: Status) -> list[Table]:
    renamed = any(one["destination_topic"] != one["topic"] for one in now["partitions"])
    tables: list[Table] = [
        (
            "partitions",
            (
                "FLOW",
                "TOPIC",
                "PARTITION",
                *(["INTO"] if renamed else []),
                "STATE",
                "WORKER",
                "LAG",
                "AGE",
                "SOURCE END",
                "POSITION",
                "COMMITTED",
                "BYTES",
            ),
            [
                [
                    one["flow"],
                    one["topic"],
                    str(one["partition"]),
                    *([one["destination_topic"]] if renamed else []),
                    one["state"],
                    str(one["worker"]),
                    number_text(one["lag_records"], UNKNOWN),
                    seconds_text(one["lag_seconds"], UNKNOWN),
                    number_text(one["source_end"]),
                    number_text(one["position"]),
                    number_text(one["committed"]),
                    size_text(one["replicated_bytes"]),
                ]
                for one in now["partitions"]
            ],
        ),
        (
            "not copied for now",
            ("FLOW", "TOPIC", "PARTITION", "STATE", "SINCE", "WHY"),
            [
                [
                    one["flow"],
                    one["topic"],
                    str(one["partition"]),
                    one["state"],
                    time_text(one["waits_since"] * 1000),
                    one["waits"],
                ]
                for one in now["partitions"]
                if one["waits"]
            ],
        ),
        ("halted", _HALTED_HEADS, _halted(one for one in now["partitions"] if one["reason"])),
        (LEFT_HALTED, _HALTED_HEADS, _halted(now["left_halted"])),
        (
            "skipped source offsets",
            ("FLOW", "TOPIC", "PARTITION", "FIRST", "LAST", "AT", "WHY"),
            [
                [
                    each["flow"],
                    each["topic"],
                    str(each["partition"]),
                    str(each["first"]),
                    str(each["next"] - 1),
                    time_text(each["at_ms"]),
                    f"{each['records']:,} of them: {each['why']}" if each["records"] else each["why"],
                ]
                for each in now["skipped"]
            ],
        ),
        (
            "workers",
            ("WORKER", "PID", "STATE", "PARTITIONS", "RESTARTS", "HEARD", "CPU", "MEMORY"),
            [
                [
                    str(each["worker"]),
                    str(each["pid"]),
                    worker_state(each),
                    str(each["partitions"]),
                    str(each["restarts"]),
                    f"{each['heard_s_ago']:.1f} s ago",
                    seconds_text(each["cpu_seconds"]),
                    size_text(each["rss_bytes"]),
                ]
                for each in now["workers"]
            ],
        ),
    ]
    if len(now["flows"]) == 1:  # the column for the flow is not needed
        tables = [
            (title, heads[1:], [row[1:] for row in rows]) if heads[0] == "FLOW" else (title, heads, rows)
            for title, heads, rows in tables
        ]
    return [table for table in tables if table[2]]


def as_text(now: Status, *, width: int = 0) -> str:
    """Returns text for a terminal: a summary and tables. Halted partitions get their own lines, with the remedy.

    Args:
        now: the status.
        width: number of columns to which sentences are wrapped; 0: they are not wrapped.
    """
    blocks = ["\n".join(f"{name + ':':12}{value}" for name, value in each) for each in _summaries(now)]
    out = ["\n\n".join(blocks)]
    for title, heads, rows in _tables(now):
        out += ["", title]
        if "REMEDY" in heads:
            for *flow, topic, partition, reason, detail, remedy in rows:
                whose = "".join(f"{name}, " for name in flow)
                out += [f"  {whose}{topic}-{partition}: {reason}"]
                out += [*_wrapped(detail, width), *_wrapped(f"remedy: {remedy}", width)]
            continue
        out += _aligned(heads, rows)
        if title == "partitions":
            out += ["", *(line for note in NOTES for line in _wrapped(note, width))]
    return "\n".join(out) + "\n"


def _wrapped(sentences: str, width: int) -> list[str]:
    """Returns indented lines. Commands (in backticks) stay whole, so that they can be copied."""
    indent = " " * 4
    if not width:
        return [f"{indent}{sentences}"]
    parts = sentences.split("`")
    kept = "`".join(part.replace(" ", _KEPT) if at % 2 else part for at, part in enumerate(parts))
    lines = textwrap.wrap(
        kept, max(width, 40), initial_indent=indent, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return [line.replace(_KEPT, " ") for line in lines]


def _aligned(heads: Sequence[str], rows: list[list[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    numeric = [all(row[at][:1].isdigit() or row[at] in ("-", UNKNOWN) for row in rows) for at in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        pads: list[Callable[[int], str]] = [
            cell.rjust if right else cell.ljust for cell, right in zip(cells, numeric, strict=True)
        ]
        return "  " + "  ".join(pad(width) for pad, width in zip(pads, widths, strict=True)).rstrip()

    return [line(heads), *(line(row) for row in rows)]


_STYLE = (
    "body{font:14px/1.4 system-ui,sans-serif;margin:2em}table{border-collapse:collapse;margin-bottom:1em}"
    "td,th{padding:.15em .8em;text-align:left;border-bottom:1px solid #ddd}th{color:#555}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}td,th{border-color:#333}th{color:#999}}"
)
POLICY = (
    f"default-src 'none'; style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of the page: nothing but its own style."""


def as_html(now: Status) -> str:
    """Returns an HTML page with the whole status as tables. It has no scripts, and refreshes itself."""
    escape = html.escape
    summaries = "</table><table>".join(
        "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in each)
        for each in _summaries(now)
    )
    flows = ", ".join(each["flow"] for each in now["flows"])
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta http-equiv=refresh content=10>"
        f"<title>mirror {escape(flows)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>mirror {escape(now['version'])}</h1><table>{summaries}</table>"
    ]
    for title, heads, rows in _tables(now):
        head = "".join(f"<th>{escape(each)}</th>" for each in heads)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        parts.append(f"<h2>{escape(title)}</h2><table><tr>{head}</tr>{body}</table>")
        if title == "partitions":
            parts += [f"<p>{escape(note)}</p>" for note in NOTES]
    links = ("/", "/metrics", "/api/v1/status", "/-/healthy", "/-/ready")
    parts.append("<p>" + " · ".join(f'<a href="{link}">{link}</a>' for link in links) + "</p></body></html>")
    return "".join(parts)
