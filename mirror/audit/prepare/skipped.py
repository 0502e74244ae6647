"""Offsets that somebody decided to skip, take on trust, pass over or adopt. The flow's internal topic has them.

What is skipped or taken on trust is no difference: what the source no longer has cannot be compared. But a verdict is
incomplete without it. Records that were passed over as too large are still at the source: where the destination has a
marker in their place, that is a finding of its own kind. What was adopted was at the destination before the flow
(``mirror cutover --reverse``): it is compared as all else, but may have been written by others.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from mirror.audit.model.places import Adopted, Bounds, Side, Span, TopicPartition
from mirror.audit.model.request import AuditRequest
from mirror.audit.model.result import SkippedRange, Undecided
from mirror.net.cluster import Cluster
from mirror.offsetmap.entries.checkpoint import in_words
from mirror.offsetmap.entries.entry import StateError
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.fields import same_ids
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.internal.memory import UNREADABLE
from mirror.offsetmap.internal.topic import InternalTopic


class Decisions(NamedTuple):
    """Decisions on the audited partitions. ``unknown``: the reason why they are not known, or an empty string.
    ``passed``: the offsets of records that were passed over, each with what became of it, in words. ``adopted``: what
    the destination had before the flow."""

    ranges: tuple[SkippedRange, ...] = ()
    unknown: str = ""
    passed: Mapping[TopicPartition, Mapping[int, str]] = MappingProxyType({})
    adopted: Mapping[TopicPartition, Adopted] = MappingProxyType({})


async def skipped(
    destination: Cluster,
    bounds: Iterable[Bounds],
    request: AuditRequest,
    ids: tuple[Mapping[str, str], Mapping[str, str]] = (MappingProxyType({}), MappingProxyType({})),
) -> Decisions:
    """Returns what the flow's internal topic at the destination says about the audited partitions. ``ids``: of the
    topics at source and destination, where they have some; what was passed over or adopted does not count if it is
    known to be of other topics (``fields.same_ids``).

    Raises:
        NetworkError: the destination does not answer. Without an answer, records that were passed over would count as
            lost.
    """
    state = InternalTopic(destination, request.flow, lean=True)
    try:
        if not await state.open(create=False):
            return Decisions()
    except (*UNREADABLE, StateError) as error:
        return Decisions(
            unknown="whether offsets were skipped or taken on trust, or were there before the flow, is not known: "
            f"topic {state.topic} of cluster {destination.name} cannot be read: {error}"
        )
    audited = {known.key for known in bounds}
    return Decisions(
        tuple(
            SkippedRange(side.topic, side.partition, Span(each.start, each.end), in_words(each.cause), each.at_ms)
            for each in state.ledger.skipped()
            for side in [each.subject]
            if (side.topic, side.partition) in audited and side.destination == request.destination_of(side.topic)
        ),
        passed={
            key: found
            for key in sorted(audited)
            if (found := _passed(state.ledger, key, request.destination_of(key.topic), ids))
        },
        adopted={
            key: before
            for key in sorted(audited if not request.mapped else ())
            if (before := _adopted(state.ledger, key, request, ids)) is not None
        },
    )


def _adopted(
    ledger: Ledger, key: TopicPartition, request: AuditRequest, ids: tuple[Mapping[str, str], Mapping[str, str]]
) -> Adopted | None:
    """Returns what the destination had of this partition before the flow; None: nothing."""
    into = request.destination_of(key.topic)
    pin = ledger.pin(Subject(*key, into))
    these = ids[0].get(key.topic), ids[1].get(into)
    if pin is None or not pin.adopted or not same_ids((pin.source_id, pin.destination_id), these):
        return None
    return Adopted(pin.adopted, pin.adopted_epoch, request.committed)


def decided(
    adopted: Mapping[TopicPartition, Adopted], undecided: Iterable[Undecided], request: AuditRequest
) -> dict[TopicPartition, Adopted]:
    """Returns what the destination had before the flow, up to the first transaction that is open there. When the flow
    began, none was open. So this one was written since, and whether the data behind it is aborted is not known."""
    opens = {(one.topic, one.partition): one.span.start for one in undecided if one.side is Side.DESTINATION}
    return {
        key: one._replace(end=min(one.end, opens.get((request.destination_of(key.topic), key.partition), one.end)))
        for key, one in adopted.items()
    }


def _passed(
    ledger: Ledger, key: TopicPartition, into: str, ids: tuple[Mapping[str, str], Mapping[str, str]]
) -> dict[int, str]:
    """Returns the offsets of the records of this partition that were passed over, in order, with their causes in
    words."""
    these = ids[0].get(key.topic), ids[1].get(into)
    return dict(
        sorted(
            (offset, in_words(each.cause))
            for each in ledger.passed(Subject(*key, into))
            if same_ids((each.source_id, each.destination_id), these)
            for offset in each.offsets
        )
    )
