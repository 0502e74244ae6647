"""Renders the result of a look at groups and ACLs, as text for people and as data for programs."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mirror.service.sync.acls import AclsPlan
from mirror.service.sync.plan import NO_GROUP, GroupPlan, GroupsPlan, GroupState, Move, WantedOffset
from mirror.service.texts import aligned, many

TO_MOVE, IN_STEP = "to_move", GroupState.IN_STEP.value
"""States of a group in reports: its offsets would be committed (``--dry-run``); its offsets are in step."""
NO_COPY = (
    "by the flow's internal topic, no topic has a copy at the destination yet, so that no ACL was looked at; "
    "start the mirror first"
)
_TITLES = ("group", "topic", "partition", "source", "into", "destination", "there now", "")


def as_text(groups: GroupsPlan | None, acls: AclsPlan | None, *, applied: bool) -> str:
    """Returns tables and a summary. ``groups``, ``acls``: None for a part that was not looked at. ``applied``: False
    after a dry run."""
    lines: list[str] = []
    if groups is not None:
        lines += _groups(groups, applied=applied)
    if acls is not None:
        lines += ["", *_acls(acls, applied=applied)] if lines else _acls(acls, applied=applied)
    return "\n".join(lines)


def as_data(groups: GroupsPlan | None, acls: AclsPlan | None, *, applied: bool) -> dict[str, Any]:
    """Returns the same as ``as_text``, as data for JSON."""
    found: dict[str, Any] = {"applied": applied}
    if groups is not None:
        found["groups"] = [_group_data(plan, applied=applied) for plan in groups.groups]
        found["groups_failed"] = groups.failed
        found["groups_absent"] = dict(groups.absent)
        found["groups_unseen"] = groups.unseen
    if acls is not None:
        found["acls"] = {
            "wanted": len(acls.wanted),
            "missing": [acl.text for acl in acls.lacking],
            "created": acls.created,
            "topics": acls.topics,
            "authorizer": not acls.off,
            "failed": acls.failed,
            "remedy": acls.remedy,
        }
    return found


def failed(groups: GroupsPlan | None, acls: AclsPlan | None) -> bool:
    """Returns True if something could not be done."""
    of_groups = groups is not None and (
        bool(groups.failed) or any(plan.state is GroupState.FAILED for plan in groups.groups)
    )
    return of_groups or (acls is not None and bool(acls.failed) and not acls.off)


# -- groups ------------------------------------------------------------------------------------------------------------


def _groups(found: GroupsPlan, *, applied: bool) -> list[str]:
    plans = found.groups
    more = [f"{found.failed}; {found.remedy}"] if found.failed else []
    if not plans:
        return [*(more or [NO_GROUP]), *found.notes]
    table: list[Sequence[str]] = [_TITLES]
    for plan in plans:
        moves = {(move.topic, move.partition): move for move in plan.moves}
        if not plan.rows:
            table.append((plan.group, "-", "-", "-", "-", "-", "-", plan.why))
        table += [_row(plan, row, moves.get((row.into, row.partition)), applied=applied) for row in plan.rows]
    lines = aligned(table)
    lines += [f"{plan.group}: {plan.remedy}" for plan in plans if plan.remedy]
    counts = Counter(_state(plan, applied=applied) for plan in plans)
    order = [state.value for state in GroupState if state is not GroupState.IN_STEP]
    told = ", ".join(
        f"{counts[state]} {state.replace('_', ' ')}" for state in (*order, TO_MOVE, IN_STEP) if counts[state]
    )
    offsets = sum(plan.carried if applied else len(plan.due) for plan in plans)
    done = f"{many(offsets, 'offset')} committed"
    if not applied:
        done = f"nothing was committed; {many(offsets, 'offset')} would be"
    lines.append(f"{many(len(plans), 'group')} ({told}): {done}")
    return [*lines, *more, *found.notes]


def _state(plan: GroupPlan, *, applied: bool) -> str:
    """Returns the group's state for the report. In a dry run, a group with offsets to commit is ``TO_MOVE``, not in
    step."""
    return TO_MOVE if plan.state is GroupState.IN_STEP and plan.due and not applied else plan.state.value


def _row(plan: GroupPlan, row: WantedOffset, move: Move | None, *, applied: bool) -> tuple[str, ...]:
    there, now = (str(move.to.offset), str(move.now) if move.now >= 0 else "-") if move else ("-", "-")
    return (
        plan.group, row.topic, str(row.partition), str(row.offset), row.into, there, now,
        _note(plan, row, move, applied=applied),
    )  # fmt: skip


def _note(plan: GroupPlan, row: WantedOffset, move: Move | None, *, applied: bool) -> str:
    if move is None or plan.state in (GroupState.FAILED, GroupState.ACTIVE):
        return row.spot.why or plan.why
    if move.to.offset == move.now:
        return "the same"
    if not move.is_due:
        return "further there: left alone"
    note = "committed" if applied else "would be committed"
    if row.spot.behind:
        note += ", as far as it is copied"
    if move.of > 1:
        note += f", the least of {move.of} topics"
    return note


def _group_data(plan: GroupPlan, *, applied: bool) -> dict[str, Any]:
    moves = {(move.topic, move.partition): move for move in plan.moves}
    return {
        "group": plan.group,
        "kind": plan.kind or "classic",
        "state": _state(plan, applied=applied),
        "why": plan.why,
        "remedy": plan.remedy,
        "committed": plan.carried,
        "offsets": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "source": row.offset,
                "into": row.into,
                "destination": move.to.offset if (move := moves.get((row.into, row.partition))) else None,
                "there_now": move.now if move and move.now >= 0 else None,
                "note": _note(plan, row, move, applied=applied),
            }
            for row in plan.rows
        ],
    }


# -- ACLs --------------------------------------------------------------------------------------------------------------


def _acls(plan: AclsPlan, *, applied: bool) -> list[str]:
    lines = [f"{'+' if not applied else ' '} {acl.text}" for acl in plan.lacking]
    if plan.failed:
        lines.append(plan.failed + (f"; {plan.remedy}" if plan.remedy else ""))
    if plan.off or (plan.failed and not plan.wanted):
        return lines
    if not plan.topics:
        lines.append(NO_COPY)
        return lines
    done = f"{plan.created} created" if applied else f"{len(plan.lacking)} would be created"
    lines.append(f"{many(len(plan.wanted), 'ACL')} of {many(plan.topics, 'mirrored topic')}: {done}")
    return lines
