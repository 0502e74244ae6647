"""The plan as a JSON object. Its keys are stable: later versions only add to them.

Sizes are in bytes, times in seconds or ms as their names say. A value that is not known is null.
"""

from collections.abc import Mapping
from typing import Any

from mirror.service.commands import Commands
from mirror.service.plan.fix import Act
from mirror.service.plan.model import ClusterFacts
from mirror.service.plan.report import NAMED, PlanRow, Prospect, Report, TopicRow

VERSION = 1


def document(
    reports: list[Report], acts: dict[str, list[Act]], commands: Mapping[str, Commands], *, exit_code: int,
    fixed: bool, not_asked: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    """Returns the plans of all flows as an object for JSON.

    Args:
        reports: plans of the flows whose clusters could be asked.
        acts: flow -> the repairs of ``--fix``.
        commands: flow -> the mirror's commands as they are typed here.
        exit_code: exit code of the command.
        fixed: True if the repairs were done; False if they are only shown.
        not_asked: flow whose clusters could not be asked -> why.
    """
    return {
        "plan": VERSION,
        "exit_code": exit_code,
        "flows": [
            _flow(report, acts.get(report.flow.name, []), commands[report.flow.name], fixed=fixed) for report in reports
        ],
        "not_asked": [{"flow": name, "why": why} for name, why in not_asked.items()],
    }


def _flow(report: Report, acts: list[Act], commands: Commands, *, fixed: bool) -> dict[str, Any]:
    flow, estimate = report.flow, report.estimate
    states = report.partitions
    return {
        "flow": flow.name,
        "flow_id": flow.settings.flow,
        "offsets": flow.settings.offsets,
        "time_ms": flow.now_ms,
        "source": _cluster(flow.source),
        "destination": _cluster(flow.destination),
        "topics": len(report.topics),
        "partitions": {state.value: states[state] for state in Prospect},
        "to_copy": {
            "offsets": estimate.need.offsets,
            "bytes": round(estimate.need.size),
            "markers": round(estimate.need.markers),
            "leading_offsets": estimate.need.leading,
            "disk_bytes": round(estimate.need.disk),
            "unsized_partitions": estimate.need.unsized,
        },
        "at_least_seconds": None if estimate.at_least_s is None else round(estimate.at_least_s, 3),
        "rests_on": estimate.rests_on,
        "sampled": {
            "bytes": flow.sampled_bytes,
            "partitions": flow.sampled_n,
            "partitions_left_out": flow.unsampled_n,
            "bytes_per_second": round(flow.rate),
        },
        "findings": [_row(row, commands) for row in report.rows],
        "by_topic": [_topic(row) for row in report.topics.values()],
        "fix": {"done": fixed, "acts": [act._asdict() for act in acts]},
    }


def _row(row: PlanRow, commands: Commands) -> dict[str, Any]:
    finding = row.finding
    where = row.only
    return {
        "line": finding.line.id,
        "name": finding.line.slug,
        "level": finding.level.name.lower(),
        "topic": row.topic or None,
        "partitions": row.partitions,
        "first_partitions": row.named[:NAMED],
        "reason": finding.reason or None,
        "detail": commands.rendered(finding.detail, row.topic, where),
        "remedy": commands.rendered(row.remedy, row.topic, where) or None,
    }


def _topic(row: TopicRow) -> dict[str, Any]:
    facts = row.facts
    return {
        "topic": facts.name,
        "destination": facts.pair.destination,
        "state": row.state.value,
        "partitions": facts.partitions,
        "states": {state.value: row.states[state] for state in Prospect if row.states[state]},
        "offsets": row.need.offsets,
        "bytes": round(row.need.size),
        "disk_bytes": round(row.need.disk),
    }


def _cluster(cluster: ClusterFacts) -> dict[str, Any]:
    return {
        "cluster": cluster.name,
        "cluster_id": cluster.cluster_id or None,
        "brokers": cluster.brokers,
        "round_trip_seconds": round(cluster.round_trip_s, 6),
        "rights": None if cluster.rights is None else sorted(cluster.rights),
        "brokers_down": sorted(cluster.down),
    }
