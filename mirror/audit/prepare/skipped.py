"""Reads from the flow's internal topic which offsets were skipped, taken on trust, passed over or adopted.

Offsets that were skipped or taken on trust are no difference: what the source no longer has cannot be compared. But the
verdict has to name them. Records that were passed over as too large are still at the source. If the destination has a
marker in the place of one, that is a finding of its own kind. Adopted offsets were at the destination before the flow
(``mirror cutover --reverse``). They are compared like all others, but other producers may have written them.
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
    """Decisions on the audited partitions. ``ranges``: offsets that were skipped or taken on trust. ``unknown``: the
    reason why the decisions are not known; empty if they are. ``passed``: the offsets of records that were passed over,
    each with what became of it, in words. ``adopted``: the part of each destination log that was there before the flow.
    """

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
    """Returns the decisions on the audited partitions, from the flow's internal topic at the destination.

    Args:
        destination: the cluster with the internal topic.
        bounds: the audited partitions.
        request: the request of the audit.
        ids: the topic ids at the source and at the destination, by name, as far as the clusters have ids. What was
            passed over or adopted does not count if it is known to be of other topics (``fields.same_ids``).

    Raises:
        NetworkError: the destination does not answer. (Without an answer, records that were passed over would count as
            lost.)
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
    """Returns the part of the destination's log that was there before the flow; None if there was none."""
    into = request.destination_of(key.topic)
    pin = ledger.pin(Subject(*key, into))
    these = ids[0].get(key.topic), ids[1].get(into)
    if pin is None or not pin.adopted or not same_ids((pin.source_id, pin.destination_id), these):
        return None
    return Adopted(pin.adopted, pin.adopted_epoch, request.committed)


def decided(
    adopted: Mapping[TopicPartition, Adopted], undecided: Iterable[Undecided], request: AuditRequest
) -> dict[TopicPartition, Adopted]:
    """Returns the adopted parts, each cut off at the first transaction that is open at the destination. No transaction
    was open when the flow began. So such a transaction was written since, and behind it, it is not known yet which data
    is aborted."""
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
