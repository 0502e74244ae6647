"""What was copied last, asked of the source, where the destination's log cannot show it.

A copy whose log was emptied (retention, DeleteRecords) ends above 0 and holds no batch to compare. A source that lost
its end in an unclean election, and has grown past where the copy ends, then looks healthy. So the source is asked for
what was written down while it was copied: up to which offset, under which leader epoch, and the last batch's digest.

An epoch of the source ends where its next one begins. What was read under epoch E, up to offset D, is still there if E
ends at D or later: a log that was truncated below D goes on in a later epoch, which begins there. And where E ends at
or behind the copy's end, all of the copy was made before the source changed its leader, however old the note is.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from mirror.net.errors import Unreachable
from mirror.net.leader_requests import EpochEnd
from mirror.offsetmap.pins import LastCopied, header_digest
from mirror.reasons import HaltReason
from mirror.records.header import DELETE_HORIZON, NO_LEADER_EPOCH, BatchHeader
from mirror.relay.halts import halt


class Asked(Protocol):
    """The source's log. See ``net.log.PartitionLog``."""

    async def batch_at(self, offset: int) -> tuple[BatchHeader, bytes] | None:
        """The batch that holds it, or the next."""

    async def end_of_epoch(self, epoch: int) -> EpochEnd | None:
        """Where the records of this leader epoch end."""


class Unseen(NamedTuple):
    """What a resync could not compare: everything before ``end``."""

    why: str
    """For messages."""
    end: int
    """The destination's."""
    source_start: int
    log_start: int
    """The destination's."""
    data: bool
    """Whether the destination's log holds a data batch."""
    cleaned: bool = False
    """Whether the source has that batch as well, only that its cleaner has changed it, or that nothing but offsets that
    are not copied come behind it."""
    differs: bool = False
    """Whether the destination has something else than the source: nobody takes that on trust."""


class Known(NamedTuple):
    """What is known of the partition beside both logs."""

    name: str
    """topic-partition, for messages."""
    pinned: bool
    """Whether the topics are the ones that were written down."""
    has_ids: bool
    """Whether the source's topics have ids (Kafka 2.8). Without, a topic made anew may have the same leader epochs."""
    copied: tuple[LastCopied, ...]
    """Notes of what was copied last, of these topics."""
    accepted: int
    """Up to here an operator has accepted what stands at the destination."""
    compacted: bool
    """Whether the source's cleaner may have changed its batches."""
    replaced: bool = False
    """Whether an operator has resumed over another source topic than the one that was copied. Until something of the
    new one is noted as copied, nothing is harmless: what stands at the destination is of the topic before."""


async def vouch(here: Asked, known: Known, unseen: Unseen) -> int:
    """That the source still has what was copied, though the destination cannot show it.

    Returns:
        Leader epoch of the source's batch before ``unseen.end``; -1: not known.

    Raises:
        PartitionHalted: source_truncated where the source has lost some of it; unproven where nothing says that this is
            the source that was copied.
        NetworkError: not to be known now.
    """
    if known.accepted >= unseen.end:
        return NO_LEADER_EPOCH
    if not unseen.data and unseen.source_start >= unseen.log_start and known.pinned:
        # Only markers were ever written from the source's start on, and each is looked at by the resync.
        return NO_LEADER_EPOCH
    note = _newest(known.copied, known.accepted)
    # What the source has no more before the end nobody can miss; what its cleaner has changed, it still has.
    harmless = known.pinned and (unseen.cleaned or unseen.source_start >= unseen.end)
    if note is None and known.replaced:
        detail = (
            "the source topic was made anew, and what the destination holds is of the one before, as far as is known"
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
    if not covered and not (same and note.digest_at >= unseen.end):
        detail = f"what was written down of it ends at {note.offset}, and the source has changed its leader since"
        raise halt(HaltReason.UNPROVEN, _told(known, unseen, detail))
    return epoch


def _newest(copied: Iterable[LastCopied], accepted: int) -> LastCopied | None:
    counting = (one for one in copied if one.offset > accepted or not accepted)
    return max(counting, key=lambda one: (one.offset, one.leader_epoch), default=None)


def _told(known: Known, unseen: Unseen, detail: str) -> str:
    return f"{known.name}: {unseen.why}, so nothing before offset {unseen.end} can be compared; {detail}"


async def _ask_epoch(here: Asked, known: Known, unseen: Unseen, note: LastCopied) -> bool:
    """Whether the epoch under which it was read ends behind all that was copied, and not only behind the note."""
    if note.leader_epoch < 0:
        return False
    found = await here.end_of_epoch(note.leader_epoch)
    if found is None:
        return False
    copied = min(note.offset, unseen.end)
    if found.offset < copied:
        raise halt(
            HaltReason.SOURCE_TRUNCATED,
            f"{known.name}: copied up to offset {copied} under leader epoch {note.leader_epoch}, and the source's "
            + (f"records of that epoch end at {found.offset}" if found.offset >= 0 else "log does not know that epoch"),
        )
    return found.offset >= unseen.end


async def _compare(here: Asked, known: Known, unseen: Unseen, note: LastCopied) -> tuple[int, bool]:
    """(leader epoch of the source's batch before the end, if that is it, and -1 else; whether the last batch copied is
    still at the source)."""
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
    if known.compacted and cleaned:
        return NO_LEADER_EPOCH, False
    raise halt(
        HaltReason.SOURCE_TRUNCATED,
        f"{known.name}: the source's batch at offset {last} is not the one that was copied there",
    )
