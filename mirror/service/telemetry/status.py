"""The content of ``/api/v1/status``, ``/status`` and ``mirror status``: the numbers of ``/metrics``, for people. Pure.

The JSON object is the interface. Text and HTML are made from it alone, so that any process can make them.
"""

import html
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from mirror.offsetmap.records import in_words
from mirror.service.commands import Commands
from mirror.service.telemetry.fleet import Fleet
from mirror.service.telemetry.readiness import remarks, unready

Status = dict[str, Any]
"""The object that ``status`` returns."""
LATE_S = 60.0
"""A worker whose event loop was not heard of for this long is stuck or stopped."""


def status(
    fleet: Fleet, *, version: str, started: bool, group: str, address: str, pid: int, commands: Commands
) -> Status:
    """Returns the whole status, for JSON. Times are seconds since 1970 or durations in seconds, sizes are bytes."""
    now = time.time()
    totals, replicated = fleet.totals(), fleet.replicated
    reasons = [commands.rendered(each) for each in unready(fleet, started=started)]
    return {
        "version": version,
        "flow": fleet.flow,
        "flow_id": fleet.flow_id,
        "group": group,
        "pid": pid,
        "address": address,
        "ready": not reasons,
        "not_ready": reasons,
        "remarks": remarks(fleet),
        "time": now,
        "states": fleet.states,
        "partitions_of_flow": fleet.flow_partitions,
        "unassigned_partitions": fleet.unassigned,
        "clusters": [{"cluster": name, "up": up} for name, up in fleet.clusters.items()],
        "lag_records": fleet.lag_records,
        "lag_unknown_partitions": fleet.lag_unknown,
        "replicated_records": replicated.records,
        "replicated_batches": replicated.batches,
        "replicated_bytes": replicated.bytes,
        "filled_offsets": replicated.filled,
        "resyncs": fleet.labelled("resyncs"),
        "halts": fleet.labelled("halts"),
        "partitions": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "state": row.state,
                "worker": worker.number,
                "lag_records": row.lag_records,
                "lag_seconds": fleet.lag_seconds(row, now),
                "source_end": row.source_end if row.source_end >= 0 else None,
                "position": row.position if row.position >= 0 else None,
                "committed": row.committed if row.committed >= 0 else None,
                "replicated_records": totals[row.key][0],
                "replicated_batches": totals[row.key][1],
                "replicated_bytes": totals[row.key][2],
                "filled_offsets": totals[row.key][3],
                "waits": commands.rendered(row.waits, row.topic, row.partition) or None,
                "waits_since": row.waits_since or None,
                "reason": row.reason or None,
                "detail": commands.rendered(row.detail, row.topic, row.partition) or None,
                "remedy": commands.remedy(row.remedy, row.reason, row.topic, row.partition) or None,
            }
            for worker, row in sorted(fleet.rows, key=lambda each: each[1].key)
        ],
        "left_halted": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "reason": row.reason,
                "detail": commands.rendered(row.detail, row.topic, row.partition),
                "remedy": commands.remedy(row.remedy, row.reason, row.topic, row.partition),
            }
            for row in fleet.left_halted
        ],
        "skipped": [each._asdict() | {"why": in_words(each.reason)} for each in fleet.skipped],
        "workers": [
            {
                "worker": worker.number,
                "pid": worker.pid,
                "up": worker.up,
                "joined": worker.joined and not worker.quiet_s,
                "quiet": bool(worker.quiet_s),
                "waits": worker.waits or None,
                "silent_brokers": [
                    {"broker": broker, "request": what, "seconds": seconds} for broker, what, seconds in worker.silent
                ],
                "member": worker.member,
                "partitions": len(worker.rows),
                "started_at": worker.started_at,
                "heard_s_ago": max(0.0, now - worker.heard_at),
                "restarts": worker.restarts,
                "cpu_seconds": worker.counter("cpu_s"),
                "rss_bytes": worker.gauges.get("rss_bytes"),
            }
            for worker in fleet.workers.values()
        ],
    }


def late_workers(fleet: Fleet, now: float) -> list[int]:
    """Returns the workers that run but were not heard of for ``LATE_S``: stuck or stopped, whatever brokers do."""
    return [worker.number for worker in fleet.workers.values() if worker.up and now - worker.heard_at > LATE_S]


# -- for people --------------------------------------------------------------------------------------------------------


UNKNOWN = "unknown"


def _number(value: float | None, absent: str = "-") -> str:
    return absent if value is None else f"{value:,.0f}"


def _seconds(value: float | None, absent: str = "-") -> str:
    return absent if value is None else f"{value:,.1f} s"


def _lag(now: Status) -> str:
    """Returns the known lag in words, with the number of partitions whose lag is not known."""
    unknown = now["lag_unknown_partitions"]
    if now["lag_records"] is None and not unknown:
        return UNKNOWN
    some = f"{_number(unknown)} partition{'s' if unknown > 1 else ''}"
    if now["lag_records"] is None:
        return f"{UNKNOWN} ({some})"
    return f"{_number(now['lag_records'])} records" + (f"; {UNKNOWN} for {some}" if unknown else "") + _whose(now)


def _whose(now: Status) -> str:
    """Returns whose lag it is, if not the whole flow's: with several machines, each sees only its own partitions."""
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


def _time(ms: float) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _counts(found: Mapping[str, float]) -> str:
    return ", ".join(f"{_number(count)} {name}" for name, count in sorted(found.items())) or "none"


LEFT_HALTED = "halted when a worker here had them last, and not held here now"
_HALTED_HEADS = ("TOPIC", "PARTITION", "REASON", "DETAIL", "REMEDY")
Table = tuple[str, Sequence[str], list[list[str]]]
"""A title, the columns' heads, and the rows."""


def _summary(now: Status) -> list[tuple[str, str]]:
    return [
        ("flow", f"{now['flow']} (id {now['flow_id']}, group {now['group']})"),
        *(("not ready", each) for each in now["not_ready"]),
        *(("remark", each) for each in now["remarks"]),
        ("clusters", ", ".join(f"{each['cluster']} {'up' if each['up'] else 'away'}" for each in now["clusters"])),
        ("partitions", _partitions(now)),
        ("lag", _lag(now)),
        (
            "replicated",
            f"{_number(now['replicated_records'])} records, {_number(now['replicated_batches'])} batches, "
            f"{size_text(now['replicated_bytes'])}; {_number(now['filled_offsets'])} offsets filled",
        ),
        ("resyncs", _counts(now["resyncs"])),
        ("halts", f"{_counts(now['halts'])} since the start"),
    ]


def _partitions(now: Status) -> str:
    unassigned = now["unassigned_partitions"]
    nobody = f", {_number(unassigned)} held by nobody" if unassigned else ""
    return f"{_counts(now['states'])}; {now['partitions_of_flow']} in the flow{nobody}"


def _worker_state(worker: Mapping[str, Any]) -> str:
    if not worker["up"]:
        return "down"
    if worker["quiet"]:
        return "not heard of"
    if worker["joined"]:
        return "in group"
    return "waiting" if worker["waits"] else "out of group" if worker["member"] else "joining"


def _halted(partitions: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    return [
        [one["topic"], str(one["partition"]), one["reason"], one["detail"] or "", one["remedy"] or ""]
        for one in partitions
    ]


def _tables(now: Status) -> list[Table]:
    tables: list[Table] = [
        (
            "partitions",
            ("TOPIC", "PARTITION", "STATE", "WORKER", "LAG", "AGE", "SOURCE END", "POSITION", "COMMITTED", "BYTES"),
            [
                [
                    one["topic"],
                    str(one["partition"]),
                    one["state"],
                    str(one["worker"]),
                    _number(one["lag_records"], UNKNOWN),
                    _seconds(one["lag_seconds"], UNKNOWN),
                    _number(one["source_end"]),
                    _number(one["position"]),
                    _number(one["committed"]),
                    size_text(one["replicated_bytes"]),
                ]
                for one in now["partitions"]
            ],
        ),
        (
            "not copied for now",
            ("TOPIC", "PARTITION", "STATE", "SINCE", "WHY"),
            [
                [
                    one["topic"],
                    str(one["partition"]),
                    one["state"],
                    _time(one["waits_since"] * 1000),
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
            ("TOPIC", "PARTITION", "FIRST", "LAST", "AT", "WHY"),
            [
                [
                    each["topic"],
                    str(each["partition"]),
                    str(each["first"]),
                    str(each["next"] - 1),
                    _time(each["at_ms"]),
                    each["why"],
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
                    _worker_state(each),
                    str(each["partitions"]),
                    str(each["restarts"]),
                    f"{each['heard_s_ago']:.1f} s ago",
                    _seconds(each["cpu_seconds"]),
                    size_text(each["rss_bytes"]),
                ]
                for each in now["workers"]
            ],
        ),
    ]
    return [table for table in tables if table[2]]


def as_text(now: Status) -> str:
    """Returns text for a terminal: a summary and tables. Halted partitions get their own lines, with the remedy."""
    out = [f"{name + ':':12}{value}" for name, value in _summary(now)]
    for title, heads, rows in _tables(now):
        out += ["", title]
        if heads is _HALTED_HEADS:
            for topic, partition, reason, detail, remedy in rows:
                out += [f"  {topic}-{partition}: {reason}", f"    {detail}", f"    remedy: {remedy}"]
            continue
        out += _aligned(heads, rows)
    return "\n".join(out) + "\n"


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
    "body{font:14px/1.4 system-ui,sans-serif;margin:2em}table{border-collapse:collapse}"
    "td,th{padding:.15em .8em;text-align:left;border-bottom:1px solid #ddd}th{color:#555}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}td,th{border-color:#333}th{color:#999}}"
)


def as_html(now: Status) -> str:
    """Returns an HTML page without scripts that refreshes itself."""
    escape = html.escape
    summary = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in _summary(now))
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta http-equiv=refresh content=10>"
        f"<title>mirror {escape(now['flow'])}</title><style>{_STYLE}</style></head><body>"
        f"<h1>mirror {escape(now['version'])}</h1><table>{summary}</table>"
    ]
    for title, heads, rows in _tables(now):
        head = "".join(f"<th>{escape(each)}</th>" for each in heads)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        parts.append(f"<h2>{escape(title)}</h2><table><tr>{head}</tr>{body}</table>")
    links = ("/metrics", "/api/v1/status", "/-/healthy", "/-/ready")
    parts.append("<p>" + " · ".join(f'<a href="{link}">{link}</a>' for link in links) + "</p></body></html>")
    return "".join(parts)
