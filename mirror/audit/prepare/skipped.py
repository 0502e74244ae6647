"""Source offsets that somebody decided to skip or to take on trust. The flow's internal topic records them.

They are not differences: what the source no longer has cannot be compared. But a verdict is incomplete without them.
"""

from collections.abc import Iterable
from typing import NamedTuple

from mirror.audit.model import AuditRequest, Bounds, Skipped, Span
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.offsetmap.entries.checkpoint import in_words
from mirror.offsetmap.entries.entry import StateError
from mirror.offsetmap.internal.topic import State


class Decisions(NamedTuple):
    """Decisions on the audited partitions. ``unknown``: the reason why they are not known, or an empty string."""

    ranges: tuple[Skipped, ...] = ()
    unknown: str = ""


async def skipped(destination: Cluster, bounds: Iterable[Bounds], request: AuditRequest) -> Decisions:
    """Returns what the flow's internal topic at the destination says about the audited partitions."""
    state = State(destination, request.flow, lean=True)
    try:
        if not await state.open(create=False):
            return Decisions()
    except (NetworkError, StateError) as error:
        return Decisions(
            unknown=f"whether offsets were skipped or taken on trust is not known: topic {state.topic} of cluster "
            f"{destination.name} cannot be read: {error}"
        )
    audited = {known.key for known in bounds}
    return Decisions(
        tuple(
            Skipped(side.topic, side.partition, Span(each.start, each.end), in_words(each.cause), each.at_ms)
            for each in state.ledger.skipped()
            for side in [each.side]
            if (side.topic, side.partition) in audited and side.destination == request.destination_of(side.topic)
        )
    )
