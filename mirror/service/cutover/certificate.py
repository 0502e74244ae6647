"""The certificate of a cutover: what was moved, where both logs ended, and what the audit says of it. Pure."""

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from mirror.service.cutover.state import Subject
from mirror.service.offsets.ends import PartitionEnds
from mirror.service.sync.plan import GroupPlan, GroupState

VERSION = 1
FILE = "certificate.json"
SKIPPED = "skipped"
"""The verdict if there was no audit (``--skip-audit``)."""
MOVED = (GroupState.IN_STEP, GroupState.AHEAD)


class Audit(NamedTuple):
    """The result of the audit. ``verdict``: that of its summary, for example ``identical``, ``accepted`` or
    ``unverifiable``; ``skipped``: there was no audit. ``code``: its exit code; -1: there was no audit."""

    verdict: str
    code: int = -1


def group_data(plan: GroupPlan) -> dict[str, Any]:
    """Returns a group for the certificate, with its offsets at the source and those that it has at the destination
    now."""
    moves = {(move.topic, move.partition): move for move in plan.moves}
    return {
        "group": plan.group,
        "kind": plan.kind or "classic",
        "state": plan.state.value,
        "offsets": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "source": row.offset,
                "into": row.into,
                "destination": max(move.to.offset, move.now) if move is not None else None,
            }
            for row in plan.rows
            for move in (moves.get((row.into, row.partition)),)
        ],
    }


def certificate(
    subject: Subject,
    rows: Iterable[PartitionEnds],
    *,
    program: str,
    exact: bool,
    audit: Audit,
    groups: list[dict[str, Any]],
    not_covered: list[str],
    stood_still_s: float,
    at: float | None = None,
) -> dict[str, Any]:
    """Returns the certificate, for JSON.

    Args:
        subject: the flow.
        rows: the ends of all its partitions. Each is copied to its end.
        program: the mirror's version.
        exact: True if offsets are the same on both sides.
        audit: the result of the audit.
        groups: the groups, as ``group_data`` returns them.
        not_covered: topics of the source that the flow does not copy.
        stood_still_s: how long the source's ends were seen to stand still.
        at: time of the certificate in seconds since 1970; None: now.
    """
    now = time.time() if at is None else at
    return {
        "version": VERSION,
        "time": datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds"),
        "mirror": program,
        **subject.data(),
        "offsets": "exact" if exact else "mapped",
        "stood_still_s": stood_still_s,
        "partitions": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "into": row.into,
                "source_id": row.source_id,
                "destination_id": row.destination_id,
                "source_end": row.source_end,
                "destination_end": row.destination_end,
                "source_epoch": row.source_epoch,
                "destination_epoch": row.destination_epoch,
            }
            for row in rows
        ],
        "audit": {"verdict": audit.verdict, "exit_code": audit.code if audit.code >= 0 else None},
        "groups": groups,
        "not_covered": not_covered,
    }


class CertificateUnreadable(Exception):
    """The data is not a certificate that this version can read; the message says what is wrong with it."""


def certified(data: Any) -> tuple[Subject, dict[tuple[str, int], PartitionEnds], Audit]:
    """Reads a certificate.

    Args:
        data: the certificate, parsed from JSON.

    Returns:
        The flow, the ends of each partition, and the result of the audit.

    Raises:
        CertificateUnreadable: the data is not a certificate, or was written by a version with another format.
    """
    try:
        if data["version"] != VERSION:
            raise CertificateUnreadable("it was written by another version of the mirror")
        subject = Subject(
            flow=_text(data, "flow"),
            flow_id=_text(data, "flow_id"),
            source_cluster=_text(data, "source_cluster"),
            destination_cluster=_text(data, "destination_cluster"),
        )
        rows = {}
        for row in data["partitions"]:
            ends = PartitionEnds(
                topic=_text(row, "topic"),
                partition=int(row["partition"]),
                into=_text(row, "into"),
                source_id=row["source_id"],
                destination_id=row["destination_id"],
                source_end=int(row["source_end"]),
                destination_end=int(row["destination_end"]),
                copied_to=int(row["source_end"]),
                source_epoch=int(row.get("source_epoch", -1)),  # earlier versions did not note it
                destination_epoch=int(row.get("destination_epoch", -1)),
            )
            rows[ends.key] = ends
        audit = Audit(_text(data["audit"], "verdict"), data["audit"]["exit_code"] if _had(data) else -1)
    except (KeyError, TypeError, ValueError) as error:
        raise CertificateUnreadable(f"it has not what a certificate has ({error!r})") from error
    return subject, rows, audit


def _had(data: Mapping[str, Any]) -> bool:
    return isinstance(data["audit"]["exit_code"], int)


def _text(data: Mapping[str, Any], name: str) -> str:
    found = data[name]
    if not isinstance(found, str):
        raise ValueError(f"{name} is not text")
    return found
