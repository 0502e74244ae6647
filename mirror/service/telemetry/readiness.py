"""Decides whether the mirror does its work, with the reasons if not: for ``/-/ready``, status and command line.
Pure."""

import time

from mirror.reasons import PAUSED
from mirror.service.telemetry.fleet import QUIET_S, RESTING, Fleet

MOST = 5
"""Most missing topics, and most held-back partitions, that are listed."""
HELD_S = 60.0
"""A transaction is mentioned when it has been open for this long. By default, brokers abort transactions after the same
time."""


def _silent(fleet: Fleet) -> list[str]:
    """Returns a reason for each broker that keeps workers from starting because it does not answer at all."""
    found: dict[str, tuple[float, str]] = {}
    for worker in fleet.workers.values():
        for broker, what, seconds in worker.silent if worker.up and not worker.ready else ():
            found[broker] = max(found.get(broker, (0.0, "")), (seconds, what))
    return [f"{broker} has not answered {what} for {seconds:.0f} s" for broker, (seconds, what) in found.items()]


def _idle(fleet: Fleet) -> list[str]:
    """Returns a reason if no partition is being copied for a while, because locating them takes too long."""
    rows = [row for _, row in fleet.rows if row.state not in RESTING]
    since_s = max((row.waits_since for row in rows if row.state != "active"), default=0.0)
    if not rows or any(row.state == "active" for row in rows) or time.time() - since_s < QUIET_S:
        return []
    why = next((row.waits for row in rows if row.waits), "")
    return [f"no partition is copied, {len(rows)} wait{why and f': {why}'}"]


def remarks(fleet: Fleet) -> list[str]:
    """Returns remarks: things that need attention but do not stop the work, such as a broker that is down, or an entry
    that matches no topic."""
    source, _, _ = fleet.flow.partition("->")
    down = [f"{broker} cannot be reached: {why}" for broker, why in fleet.unreached.items()]
    unmatched = [f"no topic of cluster {source} matches {entry}: check its spelling" for entry in fleet.unmatched]
    gone = [
        f"cluster {source} has no topic {topic} any more. Its copy stays. If the topic is gone for good, delete the "
        f"copy or add {topic} to exclude; this message then goes away. (If the mirror only lacks the right to describe "
        "the topic, the log has topic_hidden.)"
        for topic in fleet.gone_topics
    ]
    more = [f"and {len(gone) - MOST} more topics"] if len(gone) > MOST else []
    return [*down, *unmatched, *gone[:MOST], *more, *_paused(fleet), *_held_back(fleet, source)]


def _paused(fleet: Fleet) -> list[str]:
    """Returns a remark on partitions that an operator has paused, and may have forgotten."""
    keys = sorted(row.key for _, row in fleet.rows if row.state == PAUSED)
    names = [f"{topic}-{index}" for topic, index in keys]
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return [f"paused by an operator until they are resumed: {', '.join(names[:MOST])}{more}"] if names else []


def _held_back(fleet: Fleet, source: str) -> list[str]:
    """Returns a remark on each partition with a transaction that stays open. The partition's lag does not show it: the
    lag counts only records that a read_committed consumer can read."""
    now = time.time()
    held = (row for _, row in fleet.rows if 0 < row.held_since < now - HELD_S)
    rows = sorted(held, key=lambda row: row.held_since)
    told = [
        f"{row.topic}-{row.partition}: a transaction that is open at cluster {source} for {now - row.held_since:.0f} s "
        f"or longer keeps back {row.held_back:,} offsets from {row.source_end:,} on, for the mirror and for every "
        "read_committed consumer; kafka-transactions find-hanging names it"
        for row in rows[:MOST]
    ]
    return [*told, *([f"and {len(rows) - MOST} more partitions"] if len(rows) > MOST else [])]


def unready(fleet: Fleet, *, started: bool) -> list[str]:
    """Returns the reasons why the mirror is not ready; empty if it is.

    Args:
        fleet: what is known about the workers.
        started: True once the workers have begun to copy.
    """
    reasons = list(dict.fromkeys(worker.waits for worker in fleet.workers.values() if worker.waits))
    if not started and not reasons:
        reasons.append("the workers are starting")
    reasons += _silent(fleet)
    if fleet.none_goes_on:
        paused = sum(row.state == PAUSED for _, row in fleet.rows)
        some = f", {paused} paused" if paused else ""
        reasons.append(f"every partition here is halted ({len(fleet.halted)}{some})")
    if started:
        reasons += _idle(fleet)
        reasons += [f"cluster {name} does not answer" for name, up in fleet.clusters.items() if not up]
        reasons += [
            f"worker {worker.number} has not reported for {worker.quiet_s:.0f} s: it is stopped or stuck"
            if worker.quiet_s
            else f"worker {worker.number} is not in the group"
            for worker in fleet.workers.values()
            if worker.up and not worker.waits and (worker.quiet_s or not worker.joined)
        ]
    return reasons
