"""Translates offsets with the map in the internal topic and what the flow has copied since.

It only reads. It is used by ``mirror offsets``, by group synchronization and by the audit.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from mirror.net.logs.log import PartitionLog
from mirror.offsetmap.compare.alignment import Differs
from mirror.offsetmap.compare.lockstep import LockStep
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.fields import id_shown, id_text
from mirror.offsetmap.internal.maps import whole_map
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.offsetmap.runs import MappedOffset, OffsetMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """The translation for one partition of a flow with ``offsets: mapped``.

    Attributes:
        map: every offset that is on both sides.
        source_end: all of the source's offsets below this one are at the destination, or are holes.
        destination_end: the offset behind the last copy. Batches of other writers may follow.
        noted: the offset behind the last copy that the internal topic has; 0 if there is none. Whether the destination
            still has that copy is not checked here (``offsetmap.compare.lockstep.lost_from`` does that).
        seen: the destination was read up to this offset, so the next copy comes here or behind it.
        log_start: the start of the destination's log.
    """

    map: OffsetMap
    source_end: int
    destination_end: int
    noted: int
    seen: int
    log_start: int

    def to_destination(self, offset: int) -> MappedOffset | None:
        """Returns where a consumer that has reached ``offset`` at the source continues at the destination. None: the
        record that it would read next may not be copied yet."""
        if offset > self.source_end:
            return None
        return self.map.to_destination(offset) or MappedOffset(self.seen, exact=False)

    def to_source(self, offset: int) -> MappedOffset:
        """Returns where a consumer that has reached ``offset`` at the destination continues at the source."""
        return self.map.to_source(offset) or MappedOffset(self.source_end, exact=False)


async def translation(
    state: InternalTopic, source: PartitionLog, destination: PartitionLog, *, committed: bool, own: Iterable[int] = ()
) -> Translation | None:
    """Returns the translation for a partition, whether the mirror runs or not.

    Args:
        state: the internal topic, opened and not lean.
        source: the partition's log at the source.
        destination: the log into which the partition is copied.
        committed: True if the flow's ``isolation.level`` is read_committed; for checkpoints that do not have a level.
        own: producer ids that the flow may have used besides those in its checkpoints.

    Returns:
        The translation; None if the internal topic has no checkpoint of this partition.

    Raises:
        Differs: the flow's batches at the destination are not the source's, or a topic is not the one that was copied.
        StateUnusable: the internal topic has lost a part of the map.
        NetworkError: a cluster does not answer.
    """
    subject = Subject(source.topic.name, source.index, destination.topic.name)
    checkpoint = state.ledger.checkpoint(subject)
    if checkpoint is None:
        return None
    for log, known in ((source, checkpoint.source_id), (destination, checkpoint.destination_id)):
        topic_id = id_text(log.topic.topic_id)
        if None not in (known, topic_id) and known != topic_id:
            ids = f"its topic has id {id_shown(topic_id)}, and what is known of the copy is of {id_shown(known)}"
            raise Differs(f"{log.name}: {ids}")
    source_start, log_start = await source.start(), await destination.start()
    found = whole_map(state.topic, state.ledger, subject, gone_to=log_start)
    end = await destination.visible_end()
    step = LockStep(
        source,
        destination,
        source_offset=checkpoint.source_offset,
        # The checkpoint's offset may lie behind batches of other writers that the log has lost since.
        destination_offset=min(checkpoint.destination_offset, end),
        identity=checkpoint.identity,
        own=state.ledger.own(subject).union(own),
        # Copies behind a checkpoint were made under its isolation level, even if the flow has another one now.
        committed=checkpoint.isolation_level == "read_committed" if checkpoint.isolation_level else committed,
        source_start=source_start,
        log_start=log_start,
        may_be_cut=True,
        append_times=True,  # the mirror and the audit check whether append times are allowed
    )
    await step.advance(end)
    step.decide()
    found.truncate(checkpoint.source_offset)
    noted = found.destination_end
    found.extend(step.map)
    coming = await step.next_of_source()
    # Holes up to the next record count as copied.
    source_end = coming.header.base_offset if coming is not None else step.source_seen
    return Translation(
        map=found,
        source_end=max(step.source_offset, source_end),
        destination_end=max(min(checkpoint.destination_offset, end), found.destination_end),
        noted=noted,
        seen=step.destination_offset,
        log_start=log_start,
    )
