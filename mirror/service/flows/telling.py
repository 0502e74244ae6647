"""The regular reports of a flow in a worker to the supervisor: signs of life, and snapshots once it copies."""

import asyncio

from mirror.relay.relay import Relay
from mirror.service import channel as say
from mirror.service.channel import FlowChannel
from mirror.service.flows.attempt import Attempt, Member


async def breathe(channel: FlowChannel, attempt: Attempt, interval_ms: int) -> None:
    """Regularly tells the supervisor that the event loop runs, until snapshots take over."""
    while attempt.member is None:
        watching = attempt.watching
        channel.send(
            say.ALIVE,
            clusters=watching.clusters,
            counters=watching.counters,
            silent=watching.silent,
            unreached=watching.unreached.now,
            unmatched=attempt.relay.refresh.unmatched if attempt.relay is not None else None,
        )
        await asyncio.sleep(interval_ms / 1000)


async def keep_telling(channel: FlowChannel, attempt: Attempt, relay: Relay, member: Member, interval_ms: int) -> None:
    """Sends a snapshot regularly, until cancelled. While the supervisor does not read, none is made. ``interval_ms``:
    time between two."""
    while True:
        if not channel.full:  # otherwise the next snapshot will have all changes since the last one
            send_snapshot(channel, attempt, relay, member)
        await asyncio.sleep(interval_ms / 1000)


def send_snapshot(channel: FlowChannel, attempt: Attempt, relay: Relay, member: Member) -> None:
    """Sends a snapshot of what has changed since the last one."""
    snapshot = attempt.snapshots.take(relay, member.committed, joined=int(member.joined))
    snapshot["counters"] |= member.counters | attempt.watching.counters
    snapshot["counters"]["dropped_messages"] = channel.dropped
    if attempt.sync is not None:
        snapshot["counters"] |= attempt.sync.counters
        snapshot["gauges"] |= attempt.sync.gauges
    snapshot["clusters"] = attempt.watching.clusters
    snapshot["unassigned"] = attempt.watching.unassigned
    snapshot["silent"] = attempt.watching.silent
    snapshot["unreached"] = attempt.watching.unreached.now
    channel.send(say.SNAPSHOT, **snapshot)
