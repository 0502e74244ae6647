"""Checks that the source still has what was copied last, where the destination's log cannot show that.

A copy whose log was emptied (retention, DeleteRecords) ends above 0 and holds no batch to compare. A source that lost
its end in an unclean election, and has grown past the copy's end since, then looks healthy. So the source is checked
against the note that was written during copying: up to which offset, under which leader epoch, and the last batch's
digest.

A copy that compares as equal is checked against the epoch of the note, too (``check_kept``).

An epoch of the source ends where its next one begins. Records that were read under epoch E, up to offset D, are still
there if E ends at D or later: a log that was truncated below D continues in a later epoch, which begins below D. If E
ends at or after the copy's end, all of the copy was made before the source changed its leader, however old the note is.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from mirror.net.errors import Unreachable
from mirror.net.logs.leader_requests import EpochEnd
from mirror.offsetmap.entries.pins import LastCopied, header_digest
from mirror.reasons import HaltReason
from mirror.records.header import DELETE_HORIZON, NO_LEADER_EPOCH, BatchHeader
from mirror.relay.halts import halt


class StaleLeader(Unreachable):
    """The leader that was asked has an earlier epoch than the leader that was copied from. It has been deposed, or the
    brokers that named it do not know of the newer leader yet."""


class EvidenceSource(Protocol):
    """The source's log. See ``net.logs.log.PartitionLog``."""

    async def batch_at(self, offset: int) -> tuple[BatchHeader, bytes] | None:
        """Returns the header and the bytes of the batch that holds ``offset``, or of the next one; None if there is
        none."""

    async def end_of_epoch(self, epoch: int) -> EpochEnd | None:
        """Returns the offset at which the records of this leader epoch end; None if that cannot be asked."""


class Unseen(NamedTuple):
    """The part of the destination's log that a resync could not compare: everything before ``end``."""

    why: str
    """Why it could not be compared, for messages."""
    end: int
    """The destination's end."""
    source_start: int
    log_start: int
    """The destination's log start offset."""
    data: bool
    """True if the destination's log holds a data batch."""
    cleaned: bool = False
    """True if the source has that batch as well and only its cleaner has changed it, or if only offsets that are not
    copied follow it."""
    differs: bool = False
    """True if the destination has something else than the source. Then no operator may take it on trust."""
    unshown: bool = False
    """True if the source has nothing that shows where it had the last copies. Then ``end`` may be wrong, and the copies
    may come from an end that the source has lost. That is excluded only if the source has had the same leader since the
    note."""


class Known(NamedTuple):
    """The facts about the partition that come from outside both logs."""

    name: str
    """topic-partition, for messages."""
    pinned: bool
    """True if the topics are those that were written down."""
    has_ids: bool
    """True if the source's topics have ids (Kafka 2.8 or later). Without ids, a recreated topic may have the same
    leader epochs."""
    copied: tuple[LastCopied, ...]
    """Notes of what was copied last, about these topics."""
    accepted: int
    """An operator has accepted what the destination holds before this offset."""
    compacted: bool
    """True if the source's cleaner may have changed its batches."""
    leader_epoch: int = NO_LEADER_EPOCH
    """Epoch of the source's leader that is asked; -1: not known, or to be ignored."""
    replaced: bool = False
    """True if an operator has resumed over another source topic than the one that was copied. Until a copy of the new
    topic is noted, nothing counts as harmless: the destination holds records of the previous topic."""


async def vouch(here: EvidenceSource, known: Known, unseen: Unseen) -> int:
    """Checks that the source still has what was copied, where the destination cannot show that.

    Returns:
        Leader epoch of the source's batch that ends at ``unseen.end``; -1 if it is not known.

    Raises:
        PartitionHalted: source_truncated if the source has lost some of it; unproven if nothing shows that this is the
            source that was copied.
        NetworkError: cannot be determined now.
    """
    if known.accepted >= unseen.end:
        return NO_LEADER_EPOCH
    if not unseen.data and unseen.source_start >= unseen.log_start and known.pinned:
        # From the source's start on, only markers were ever written. The resync checks each of them.
        return NO_LEADER_EPOCH
    note = _newest(known.copied, known.accepted)
    # Records that the source no longer has cannot be missed. Those that its cleaner has changed are still there.
    harmless = known.pinned and (unseen.cleaned or unseen.source_start >= unseen.end)
    if note is None and known.replaced:
        detail = (
            "the source topic was recreated, and as far as is known, the destination holds records of the former one"
        )
        raise halt(HaltReason.UNPROVEN, _told(known, unseen, detail))
    if note is None:
        if harmless:
            return NO_LEADER_EPOCH
        raise halt(HaltReason.UNPROVEN, _told(known, unseen, "nothing is written down of what was copied last"))
    covered = await _ask_epoch(here, known, unseen, note)
    epoch, same = await _compare(here, known, unseen, note)
    if harmless:
        return epoch
    if not known.pinned and (known.has_ids or not same):
        raise halt(HaltReason.UNPROVEN, _told(known, unseen, "the topics' ids were not written down"))
    if not known.has_ids and not same:
        raise halt(HaltReason.UNPROVEN, _told(known, unseen, "the topic has no id, and the last batch copied is gone"))
    if not covered and (unseen.unshown or not (same and note.digest_at >= unseen.end)):
        detail = f"what was written down of it ends at {note.offset}, and the source has changed its leader since"
        raise halt(HaltReason.UNPROVEN, _told(known, unseen, detail))
    return epoch


async def check_kept(here: EvidenceSource, known: Known, unseen: Unseen) -> LastCopied | None:
    """Checks that no leader of the source has lost what was copied, where the last batches compare as equal. Equal
    batches do not show everything. A producer that got no response sends its batch again: after an unclean election,
    the same bytes may land at the same offset, with other records before them. And a lost marker leaves no trace among
    data.

    Returns:
        The newest note of the copy; None if none counts.

    Raises:
        PartitionHalted: source_truncated if the source's records of the note's epoch end before what was copied.
        NetworkError: cannot be determined now.
    """
    note = None if known.replaced else _newest(known.copied, known.accepted)
    if note is not None and min(note.offset, unseen.end) > unseen.source_start:
        await _ask_epoch(here, known, unseen, note)
    return note


def _newest(copied: Iterable[LastCopied], accepted: int) -> LastCopied | None:
    counting = (one for one in copied if one.offset > accepted or not accepted)
    return max(counting, key=lambda one: one.rank, default=None)


def _told(known: Known, unseen: Unseen, detail: str) -> str:
    return f"{known.name}: {unseen.why}, so nothing before offset {unseen.end} can be compared; {detail}"


async def _ask_epoch(here: EvidenceSource, known: Known, unseen: Unseen, note: LastCopied) -> bool:
    """Returns True if the epoch of the note ends at or after the end of everything that was copied, not only of what
    the note covers. If that end is not certain (``Unseen.unshown``), the epoch must be the current one.

    Raises:
        PartitionHalted: source_truncated if the epoch ends before the note's offset.
        StaleLeader: the leader's epoch is earlier than the note's.
        NetworkError: cannot be determined now.
    """
    if note.leader_epoch < 0:
        return False
    if 0 <= known.leader_epoch < note.leader_epoch:
        if not known.has_ids:
            return False  # it may be a recreated topic, whose epochs begin again
        raise StaleLeader(
            f"{known.name}: copied under leader epoch {note.leader_epoch}, and the source's leader is of epoch "
            f"{known.leader_epoch}"
        )
    found = await here.end_of_epoch(note.leader_epoch)
    if found is None:
        return False
    copied = min(note.offset, unseen.end)
    if found.offset < 0:
        last = await here.batch_at(copied - 1)
        if last is None:
            raise Unreachable(f"{known.name}: offset {copied - 1} is there at the source, and not to be read yet")
        if last[0].leader_epoch > note.leader_epoch or not await _knows_epochs(here, last[0]):
            return False  # brokers before 2.0 give this answer also for epochs whose records are all gone
    if found.offset < copied:
        raise halt(
            HaltReason.SOURCE_TRUNCATED,
            f"{known.name}: copied up to offset {copied} under leader epoch {note.leader_epoch}, and the source's "
            + (f"records of that epoch end at {found.offset}" if found.offset >= 0 else "log does not know that epoch"),
        )
    return found.offset >= unseen.end and (not unseen.unshown or note.leader_epoch == known.leader_epoch)


async def _knows_epochs(here: EvidenceSource, header: BatchHeader) -> bool:
    """Returns True if the source's log knows the epoch of this batch. Brokers know no epochs of old messages, nor of
    any batch while ``message.format.version`` is below 0.11."""
    if header.is_stand_in:
        return False
    found = await here.end_of_epoch(header.leader_epoch)
    return found is not None and found.offset >= 0


async def _compare(here: EvidenceSource, known: Known, unseen: Unseen, note: LastCopied) -> tuple[int, bool]:
    """Returns ``(epoch, same)``. ``epoch``: the leader epoch of the source's batch that ends at ``unseen.end``, if that
    is the batch copied last; otherwise -1. ``same``: True if the source still has the batch copied last.

    Raises:
        PartitionHalted: source_truncated if another batch stands there, and no cleaner explains it.
        NetworkError: cannot be determined now.
    """
    last = note.digest_at - 1
    if not note.digest or not unseen.source_start <= last < unseen.end:
        return NO_LEADER_EPOCH, False
    found = await here.batch_at(last)
    if found is None:
        raise Unreachable(f"{known.name}: offset {last} is there at the source, and not to be read yet")
    header, batch = found
    if header.next_offset == note.digest_at and header_digest(batch) == note.digest:
        return header.leader_epoch if note.digest_at == unseen.end else NO_LEADER_EPOCH, True
    cleaned = header.next_offset != note.digest_at or not header.is_dense or bool(header.attributes & DELETE_HORIZON)
    cleaned = cleaned or header.is_stand_in  # a cleaner leaves no trace in an old message
    if known.compacted and cleaned:
        return NO_LEADER_EPOCH, False
    raise halt(
        HaltReason.SOURCE_TRUNCATED,
        f"{known.name}: the source's batch at offset {last} is not the one that was copied there",
    )
