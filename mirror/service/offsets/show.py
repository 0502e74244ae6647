"""``mirror offsets``: how far each partition is copied, and where each group would go on at the destination."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from mirror.net.admin.groups import Groups
from mirror.service.offsets.ends import FlowEnds, Missing, PartitionEnds
from mirror.service.offsets.sides import FlowSides
from mirror.service.offsets.translate import Translator
from mirror.service.sync.look import Sync
from mirror.service.sync.plan import GroupPlan, GroupState
from mirror.service.sync.settings import SyncSettings
from mirror.service.texts import aligned

SUFFIX = "-offsets"
"""Suffix of the client ids of this command's connections."""
_PARTITIONS = ("topic", "partition", "into", "source end", "stable", "copied to", "destination end", "lag", "")
_GROUPS = ("group", "topic", "partition", "source", "translated", "destination", "could move", "")
_CARRY = "its offsets are not at the destination yet: `mirror sync` or `mirror cutover` commits them"


async def offsets(flow: FlowSides, settings: SyncSettings) -> dict[str, Any]:
    """Returns all offsets of a flow, for JSON. Changes nothing.

    Args:
        flow: the flow.
        settings: the settings that select the groups.

    Raises:
        NetworkError: a cluster does not answer.
    """
    flow = flow.under(SUFFIX)
    async with Translator(flow, lazy=True) as translator:
        ends = FlowEnds(flow.selection, translator)
        rows = await ends.look()
        async with Sync(flow, settings) as sync:
            seen = await sync.groups(apply=False)
        plans = seen.groups
        members = await Groups(translator.source).in_use([plan.group for plan in plans])
        return as_data(
            flow, rows, plans, members,
            not_covered=ends.not_covered(), missing=ends.missing, absent=seen.absent, unseen=seen.unseen,
            unlisted=f"{seen.failed}; {seen.remedy}" if seen.failed else "",
        )  # fmt: skip


def as_data(
    flow: FlowSides,
    rows: Sequence[PartitionEnds],
    plans: Sequence[GroupPlan],
    members: Collection[str],
    *,
    not_covered: Sequence[str] = (),
    missing: Sequence[Missing] = (),
    unlisted: str = "",
    absent: Mapping[str, str] = MappingProxyType({}),
    unseen: str = "",
) -> dict[str, Any]:
    """Returns the offsets of a flow as an object for JSON. Pure.

    Args:
        flow: the flow.
        rows: its partitions.
        plans: the consumer groups.
        members: names of the groups that have members at the source.
        not_covered: topics of the source that the flow does not mirror.
        missing: topics that the flow has to mirror and of which the source shows no partition.
        unlisted: why groups may be missing (a broker has not listed its groups); empty: none is missing.
        absent: see ``GroupsPlan``.
        unseen: see ``GroupsPlan``.
    """
    return {
        "flow": flow.name,
        "flow_id": flow.id,
        "offsets": "exact" if flow.exact else "mapped",
        "partitions": [_partition(row) for row in rows],
        "groups": [_group(plan, in_use=plan.group in members) for plan in plans],
        "not_covered": list(not_covered),
        "missing": [each._asdict() for each in missing],
        "unlisted": unlisted,
        "absent": dict(absent),
        "unseen": unseen,
    }


def _partition(row: PartitionEnds) -> dict[str, Any]:
    return {
        "topic": row.topic,
        "partition": row.partition,
        "into": row.into,
        "source_start": _known(row.source_start),
        "source_end": _known(row.source_end),
        "source_stable": _known(row.source_stable),
        "copied_to": _known(row.copied_to),
        "destination_end": _known(row.destination_end),
        "lag": row.lag,
        "absent": row.absent,
        "why": row.why,
    }


def _known(offset: int) -> int | None:
    return offset if offset >= 0 else None


def _group(plan: GroupPlan, *, in_use: bool) -> dict[str, Any]:
    why = _in_the_way(plan, in_use=in_use)
    moves = {(move.topic, move.partition): move for move in plan.moves}
    return {
        "group": plan.group,
        "kind": plan.kind or "classic",
        "state": plan.state.value,
        "could_move": not why,
        "why": why,
        "remedy": plan.remedy,
        "offsets": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "into": row.into,
                "source": row.offset,
                "translated": _known(row.spot.offset) if not row.spot.behind else None,
                "destination": move.now if (move := moves.get((row.into, row.partition))) and move.now >= 0 else None,
                "why": row.spot.why or ("not all that it has read is copied yet" if row.spot.behind else ""),
            }
            for row in plan.rows
        ],
    }


def _in_the_way(plan: GroupPlan, *, in_use: bool) -> str:
    """Returns why a consumer of the group could not go on at the destination now without missing or repeating records.
    Empty: it could."""
    if plan.state not in (GroupState.IN_STEP, GroupState.AHEAD):
        return plan.why
    if in_use:
        return "it has members at the source: stop them first"
    return _CARRY if plan.due else ""


def as_text(data: dict[str, Any]) -> str:
    """Returns the object of ``as_data`` as tables for people. Pure."""
    lines = [f"flow {data['flow']} (id {data['flow_id']}), offsets: {data['offsets']}", ""]
    table: list[Sequence[str]] = [_PARTITIONS]
    names = ("source_end", "source_stable", "copied_to", "destination_end", "lag")
    for row in data["partitions"]:
        offsets = [_shown(row[name]) for name in names]
        table.append((row["topic"], str(row["partition"]), row["into"], *offsets, _note(row)))
    lines += aligned(table) if data["partitions"] else ["the flow mirrors no topic of the source"]
    if data["groups"]:
        lines += ["", *aligned([_GROUPS, *(line for group in data["groups"] for line in _group_rows(group))])]
        lines += [f"{group['group']}: {group['remedy']}" for group in data["groups"] if group["remedy"]]
    else:
        lines += ["", "no group of the source that is selected has offsets of these topics"]
    if data["missing"]:
        lines += ["", *(f"not looked at: {each['topic']}: {each['why']}" for each in data["missing"])]
    if data["not_covered"]:
        lines += ["", f"topics of the source that the flow does not have: {', '.join(data['not_covered'])}"]
    absent = (f"group {name}: {why}" for name, why in data["absent"].items())
    notes = [note for note in (data["unlisted"], *absent, data["unseen"]) if note]
    lines += ["", *notes] if notes else []
    return "\n".join(lines)


def _note(row: dict[str, Any]) -> str:
    if row["why"]:
        return str(row["why"])
    if row["absent"]:
        return "the destination does not have it yet"
    if row["lag"] is not None and row["lag"] < 0:
        return "the destination has more than the source"
    waits = row["source_end"] is not None and row["source_stable"] < row["source_end"]
    return "a transaction is open, or not all is replicated" if waits else ""


def _group_rows(group: dict[str, Any]) -> list[tuple[str, ...]]:
    could, why = "yes" if group["could_move"] else "no", group["why"]
    if not group["offsets"]:
        return [(group["group"], "-", "-", "-", "-", "-", could, why)]
    return [
        (
            group["group"], row["topic"], str(row["partition"]), _shown(row["source"]), _shown(row["translated"]),
            _shown(row["destination"]), could, row["why"] or why,
        )
        for row in group["offsets"]
    ]  # fmt: skip


def _shown(offset: int | None) -> str:
    return "-" if offset is None else str(offset)
