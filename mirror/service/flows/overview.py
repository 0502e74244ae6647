"""The numbers of ``/api/v1/status``: of each flow, and of all flows together. Pure.

The object has the same keys for any number of flows. With several flows, ``flow``, ``flow_id`` and ``group`` are null;
``flows`` has them for each flow.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from mirror.audited import Look
from mirror.offsetmap.entries.checkpoint import in_words
from mirror.service.commands import Commands
from mirror.service.telemetry.fleet import Fleet, WorkerView
from mirror.service.telemetry.readiness import remarks, unready

Status = dict[str, Any]
"""The object that ``status`` returns."""
LATE_S = 60.0
"""A worker that has not reported for this long is stuck or stopped."""
_SUMS = (
    "replicated_records", "replicated_batches", "replicated_bytes", "filled_offsets", "built_batches",
    "partitions_of_flow",
)  # fmt: skip
_LISTS = ("partitions", "left_halted", "skipped")
"""Lists in a flow's status that are combined for all flows, with the flow's name in each row."""


class Shown(Protocol):
    """The parts of a flow that are needed here (``service.flows.flow.RunningFlow``)."""

    fleet: Fleet
    started: bool

    @property
    def group(self) -> str:
        """Name of the flow's consumer group."""

    @property
    def commands(self) -> Commands:
        """The mirror's commands about this flow, as they are typed here."""


def not_ready(flows: Iterable[Shown], *, several: bool) -> list[str]:
    """Returns the reasons why these flows are not ready; empty if they are. ``several``: True if each reason has to
    name its flow."""
    return [
        _of_flow(flow, flow.commands.rendered(reason), several=several)
        for flow in flows
        for reason in unready(flow.fleet, started=flow.started)
    ]


def to_look_at(flows: Iterable[Shown], *, several: bool) -> list[str]:
    """Returns remarks: things that need attention but do not stop these flows. ``several``: True if each remark has to
    name its flow."""
    return [_of_flow(flow, remark, several=several) for flow in flows for remark in remarks(flow.fleet)]


def _of_flow(flow: Shown, text: str, *, several: bool) -> str:
    return f"{flow.fleet.flow}: {text}" if several else text


def status(
    flows: Sequence[Shown],
    processes: Mapping[int, WorkerView],
    *,
    version: str,
    address: str,
    pid: int,
) -> Status:
    """Returns the whole status, for JSON. Times are seconds since 1970 or durations in seconds, sizes are bytes.

    Args:
        flows: the flows in the status.
        processes: number -> worker process.
        version: version of the program.
        address: host:port of the HTTP server.
        pid: the supervisor's process id.
    """
    now = time.time()
    each = [_flow_status(flow, now) for flow in flows]
    only = each[0] if len(each) == 1 else {}
    reasons = not_ready(flows, several=len(flows) > 1)
    found: Status = {
        "version": version,
        "flow": only.get("flow"),
        "flow_id": only.get("flow_id"),
        "group": only.get("group"),
        "pid": pid,
        "address": address,
        "ready": not reasons,
        "not_ready": reasons,
        "remarks": to_look_at(flows, several=len(flows) > 1),
        "time": now,
        "states": _sum(one["states"] for one in each),
        "unassigned_partitions": _sum_known([one["unassigned_partitions"] for one in each]),
        "clusters": _clusters(each),
        "lag_records": _lag([one["lag_records"] for one in each]),
        "lag_unknown_partitions": sum(one["lag_unknown_partitions"] for one in each),
        **{name: sum(one[name] for one in each) for name in _SUMS},
        "opened": _sum(one["opened"] for one in each),
        "resyncs": _sum(one["resyncs"] for one in each),
        "halts": _sum(one["halts"] for one in each),
        **{name: [row | {"flow": one["flow"]} for one in each for row in one[name]] for name in _LISTS},
        "workers": [_worker(worker, flows, now) for worker in processes.values() if _runs(worker, flows)],
        "flows": [{name: value for name, value in one.items() if name not in _LISTS} for one in each],
    }
    return found


def headline(flows: Sequence[Shown]) -> str:
    """Returns one line about these flows: the first reason why they are not ready, partitions by state, and their
    lag."""
    fleets = [flow.fleet for flow in flows]
    states = _sum(fleet.states for fleet in fleets)
    reasons = not_ready(flows, several=len(flows) > 1)
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    ready = f"not ready: {reasons[0]}{more}" if reasons else "ready"
    counts = ", ".join(f"{count:,} {state}" for state, count in sorted(states.items())) or "none"
    lag = _lag([fleet.lag_records for fleet in fleets])
    return f"{ready}; partitions: {counts}; lag: {'unknown' if lag is None else f'{lag:,} records'}"


def _flow_status(flow: Shown, now: float) -> Status:
    fleet, commands = flow.fleet, flow.commands
    totals, replicated = fleet.totals(), fleet.replicated
    reasons = not_ready([flow], several=False)
    return {
        "flow": fleet.flow,
        "flow_id": fleet.flow_id,
        "group": flow.group,
        "ready": not reasons,
        "not_ready": reasons,
        "remarks": remarks(fleet),
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
        "built_batches": round(fleet.counter("built_batches")),
        "opened": fleet.labelled("opened"),
        "resyncs": fleet.labelled("resyncs"),
        "halts": fleet.labelled("halts"),
        "audit": _audit(fleet.last_audit),
        "partitions": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "destination_topic": row.destination,
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
    }


def _audit(look: Look | None) -> Status | None:
    """Returns the last audit; None if the configuration names no file for it."""
    if look is None:
        return None
    last = look.audit
    return {
        "file": look.path,
        "problem": look.problem or None,
        "verdict": last.verdict if last else None,
        "passed": last is not None and last.passed,
        "at": last.at_s if last else None,
        "success_at": last.success_at_s if last else None,
        "differences": last.differences if last else None,
    }


def _runs(process: WorkerView, flows: Sequence[Shown]) -> bool:
    return any(process.number in flow.fleet.workers for flow in flows)


def _worker(process: WorkerView, flows: Sequence[Shown], now: float) -> Status:
    """Returns the status of a process with the flows that it runs. It counts as a group member if it is one in the
    group of each flow."""
    views = [
        (flow.fleet.flow, flow.fleet.workers[process.number])
        for flow in flows
        if process.number in flow.fleet.workers
    ]  # fmt: skip
    waits = [view.waits if len(flows) == 1 else f"{flow}: {view.waits}" for flow, view in views if view.waits]
    silent = {(broker, what): seconds for _, view in views for broker, what, seconds in view.silent}
    return {
        "worker": process.number,
        "pid": process.pid,
        "up": process.up,
        "joined": all(view.joined for _, view in views) and not process.quiet_s,
        "quiet": bool(process.quiet_s),
        "waits": "; ".join(waits) or None,
        "silent_brokers": [
            {"broker": broker, "request": what, "seconds": seconds} for (broker, what), seconds in silent.items()
        ],
        "member": ", ".join(view.member for _, view in views if view.member),
        "flows": [flow for flow, _ in views],
        "partitions": sum(len(view.rows) for _, view in views),
        "started_at": process.started_at,
        "heard_s_ago": max(0.0, now - process.heard_at),
        "restarts": process.restarts,
        "cpu_seconds": process.counter("cpu_s"),
        "rss_bytes": process.gauges.get("rss_bytes"),
    }


def _sum(counts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: Counter[str] = Counter()
    for each in counts:
        found.update(each)
    return dict(found)


def _sum_known(values: Sequence[int | None]) -> int | None:
    """Returns the sum; None if one of them is not known."""
    return None if None in values else sum(value or 0 for value in values)


def _lag(lags: Sequence[int | None]) -> int | None:
    """Returns the sum of the known lags. It is 0 only if all are known; otherwise None."""
    known = sum(lag or 0 for lag in lags)
    return known if known or None not in lags else None


def _clusters(flows: Sequence[Status]) -> list[Status]:
    """Returns the status of each cluster, once. A cluster is up if it answers the workers of every flow."""
    up: dict[str, bool] = {}
    for flow in flows:
        for each in flow["clusters"]:
            up[each["cluster"]] = up.get(each["cluster"], True) and each["up"]
    return [{"cluster": name, "up": answers} for name, answers in up.items()]


def late_workers(processes: Mapping[int, WorkerView], now: float) -> list[int]:
    """Returns the numbers of workers that run but have not reported for ``LATE_S``. They are stuck or stopped; brokers
    have no influence on this. ``now``: in seconds since 1970."""
    return [worker.number for worker in processes.values() if worker.up and now - worker.heard_at > LATE_S]
