"""The status page's HTML, made from the status object. Pure.

Without scripts, the page is complete, and is reloaded from time to time. With scripts, ``page.js`` keeps it up to date.
Names of topics, details and remedies come from elsewhere, so everything is escaped, and only the script in this folder
may run.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from typing import Any

from mirror.service.telemetry.status import (
    UNKNOWN,
    Status,
    audit_text,
    lag_text,
    number_text,
    seconds_text,
    shallow_text,
    size_text,
    time_text,
    worker_state,
)

MOST_TOLD = 50
"""Most partitions in each list; ``/status`` has all."""
MOST_BEHIND = 10
"""Most partitions in the list of those with the largest lag."""
REFRESH_S = 10
"""Time after which a browser without scripts loads the page again."""
_TONES = {"active": "good", "halted": "bad", "paused": "look", "doubt": "look"}
_COMMAND = re.compile(r"`([^`]+)`")
_HERE = files("mirror.service.http.page")
_STYLE = (_HERE / "page.css").read_text(encoding="utf-8")
_SCRIPT = (_HERE / "page.js").read_text(encoding="utf-8")
LINKS = ("/status", "/metrics", "/api/v1/status", "/api/v1/openapi.json", "/-/healthy", "/-/ready")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


POLICY = (
    f"default-src 'none'; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of the page. It permits only the page's own script and style, by their hashes, and
requests to the server that it came from."""


def page(now: Status) -> str:
    """Returns the page for a status (``service.flows.overview``)."""
    at = datetime.fromtimestamp(now["time"], UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    sections = "".join(
        f'<section data-part="{name}">{content}</section>'
        for name, content in (
            ("verdict", _verdict(now, at)),
            ("flows", _flows(now)),
            ("halted", _halted(now)),
            ("resting", _resting(now)),
            ("behind", _behind(now)),
            ("workers", _workers(now)),
        )
    )
    links = " · ".join(f'<a href="{link}">{link}</a>' for link in LINKS)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<noscript><meta http-equiv="refresh" content="{REFRESH_S}"></noscript>'
        f'<link rel="icon" href="data:,"><title>{escape(_title(now))}</title><style>{_STYLE}</style></head><body>'
        f'<p id="stale" class="bad" role="alert" hidden></p>'
        f'<main data-at="{now["time"]}">{sections}</main><footer class="quiet"><p>{links}</p></footer>'
        f"<script>{_SCRIPT}</script></body></html>"
    )


def _title(now: Status) -> str:
    halted = now["states"].get("halted", 0)
    told = "ready" if now["ready"] else "not ready"
    return f"mirror: {told}" + (f", {number_text(halted)} halted" if halted else "")


def _verdict(now: Status, at: str) -> str:
    told = '<span class="good">ready</span>' if now["ready"] else '<span class="bad">not ready</span>'
    lines = [("bad", each) for each in now["not_ready"]] + [("look", each) for each in now["remarks"]]
    told_why = "".join(f'<li class="{tone}">{_sentence(text)}</li>' for tone, text in lines)
    return (
        f'<header><h1>mirror</h1><p class="verdict" role="status">{told}</p>'
        + (f"<ul>{told_why}</ul>" if told_why else "")
        + f'<p class="quiet">version {escape(now["version"])}, {escape(now["address"])}, {at}</p></header>'
    )


def _flows(now: Status) -> str:
    return f'<h2>Flows</h2><div class="cards">{"".join(_flow(now, each) for each in now["flows"])}</div>'


def _flow(now: Status, flow: Status) -> str:
    ages = [one["lag_seconds"] for one in now["partitions"] if one["flow"] == flow["flow"]]
    known = [age for age in ages if age is not None]
    states = "".join(
        f'<li class="{_TONES.get(name, "quiet")}">{number_text(count)} {escape(name)}</li>'
        for name, count in sorted(flow["states"].items())
    )
    unassigned = flow["unassigned_partitions"]
    if unassigned:
        states += f'<li class="look">{number_text(unassigned)} held by nobody</li>'
    clusters = ", ".join(_cluster(each["cluster"], up=each["up"]) for each in flow["clusters"])
    copied = f"{number_text(flow['replicated_records'])} records, {size_text(flow['replicated_bytes'])}"
    lag = "" if flow["lag_records"] is None else flow["lag_records"]
    terms = (
        ("Lag", f'{escape(lag_text(flow))}<span class="spark" data-line="lag"></span>'),
        ("Oldest record that waits", escape(seconds_text(max(known), UNKNOWN) if known else UNKNOWN)),
        (
            "Throughput",
            f'<span data-rate>{copied} since the start</span><span class="spark" data-line="rate"></span>',
        ),
        ("Shallow", escape(shallow_text(flow))),
        ("Clusters", clusters or UNKNOWN),
        *([("Last audit", _audit(flow["audit"]))] if flow["audit"] else []),
    )
    return (
        f'<article data-flow data-name="{escape(flow["flow"])}" data-lag="{lag}" '
        f'data-bytes="{flow["replicated_bytes"]}" data-records="{flow["replicated_records"]}">'
        f"<h3>{escape(flow['flow'])}</h3>"
        f'<ul class="states">{states or "<li>no partition here</li>"}</ul>'
        f"<dl>{''.join(f'<dt>{name}</dt><dd>{value}</dd>' for name, value in terms)}</dl>"
        f'<p class="quiet">id {escape(flow["flow_id"])}, group {escape(flow["group"])}</p></article>'
    )


def _audit(audit: Mapping[str, Any]) -> str:
    tone = "good" if audit["passed"] else "bad" if audit["verdict"] == "different" else "look"
    return f'<span class="{tone}">{escape(audit_text(audit))}</span>'


def _cluster(name: str, *, up: bool) -> str:
    tone, told = ("good", "up") if up else ("bad", "away")
    return f'<span class="{tone}">{escape(name)} {told}</span>'


def _halted(now: Status) -> str:
    here = [one for one in now["partitions"] if one["reason"]]
    left = now["left_halted"]
    if not here and not left:
        return ""
    told = [_halt(one, "") for one in here[:MOST_TOLD]]
    told += [_halt(one, ", held by no worker here now") for one in left[: MOST_TOLD - len(told)]]
    return f"<h2>Halted</h2>{''.join(told)}{_more(len(here) + len(left) - len(told))}"


def _halt(one: Mapping[str, Any], where: str) -> str:
    return (
        f'<article class="halt"><h3>{_name(one)}: <span class="bad">{escape(one["reason"])}</span>{where}</h3>'
        f"<p>{_sentence(one['detail'] or '')}</p><p>Remedy: {_sentence(one['remedy'] or '')}</p></article>"
    )


def _resting(now: Status) -> str:
    """Returns the list of partitions that are not copied now although they have not halted: paused or waiting."""
    paused = [one for one in now["partitions"] if one["state"] == "paused"]
    waiting = [one for one in now["partitions"] if one["waits"]]
    out = ""
    if paused:
        names = ", ".join(map(_name, paused[:MOST_TOLD]))
        out += f"<h2>Paused by an operator</h2><p>{names}</p>{_more(len(paused) - MOST_TOLD)}"
    if waiting:
        rows = [
            [_name(one), escape(one["state"]), time_text(one["waits_since"] * 1000), _sentence(one["waits"])]
            for one in waiting[:MOST_TOLD]
        ]
        out += _table("Not copied for now", ("Partition", "State", "Since", "Why"), rows)
        out += _more(len(waiting) - MOST_TOLD)
    return out


def _behind(now: Status) -> str:
    some = [one for one in now["partitions"] if one["lag_records"]]
    some.sort(key=lambda one: -one["lag_records"])
    rows = [
        [
            _name(one),
            escape(one["state"]),
            number_text(one["lag_records"]),
            seconds_text(one["lag_seconds"], UNKNOWN),
            str(one["worker"]),
        ]
        for one in some[:MOST_BEHIND]
    ]
    return _table("Furthest behind", ("Partition", "State", "Lag", "Age", "Worker"), rows) if rows else ""


def _workers(now: Status) -> str:
    rows = [
        [
            str(each["worker"]),
            escape(worker_state(each)),
            str(each["partitions"]),
            str(each["restarts"]),
            f"{each['heard_s_ago']:.1f} s ago",
            seconds_text(each["cpu_seconds"]),
            size_text(each["rss_bytes"]),
        ]
        for each in now["workers"]
    ]
    heads = ("Worker", "State", "Partitions", "Restarts", "Heard of", "CPU", "Memory")
    return _table("Workers", heads, rows) if rows else ""


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table. ``rows``: cells as HTML."""
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in heads)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    # A table that is wider than the screen scrolls by itself, and also with the keyboard.
    return (
        f'<h2>{escape(title)}</h2><div class="scroll" role="region" aria-label="{escape(title)}" tabindex="0">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(html: str) -> str:
    return f'<td class="number">{html}</td>' if html[:1].isdigit() else f"<td>{html}</td>"


def _name(one: Mapping[str, Any]) -> str:
    """Returns a partition's name, with its flow, as HTML."""
    return f'{escape(one["topic"])}-{one["partition"]} <span class="quiet">{escape(one["flow"])}</span>'


def _sentence(text: str) -> str:
    """Returns text as HTML, with its commands (in backticks) as code."""
    return _COMMAND.sub(r"<code>\1</code>", escape(text))


def _more(count: int) -> str:
    return f'<p>and {number_text(count)} more: <a href="/status">all partitions</a></p>' if count > 0 else ""
