"""What must hold in a run with ``offsets: mapped``: what stands at the destination, what the map says of it, and that
nobody halts without its cause in the world.

A *stray* is the one thing that is excused: a batch that was appended under an epoch that a marker in the log had
fenced before, by a leader that has forgotten the producer since (``DestinationSite.strays``: old records do that). It
may stand where its source has nothing due, or where the owner's copy of the same comes behind it; then the partition
must halt. Nothing else is excused by it: no other batch, and no other source.
"""

from collections.abc import Mapping
from typing import NamedTuple

from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.fields import id_text
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.runs import OffsetMap
from tests.simulation.mapped.cluster import DestinationSite
from tests.simulation.mapped.source import Source, generation, name_in, same
from tests.simulation.model.broker import Stored
from tests.simulation.model.cluster import TOPIC
from tests.simulation.run import Violation


def side_of(name: str) -> Subject:
    """The only partition of a source topic."""
    return Subject(name, 0, TOPIC)


class Seen(NamedTuple):
    """A copy at the destination. ``at``: index of its original among what the source has to be copied."""

    at: int
    stored: Stored
    stray: bool


class Copies:
    """What consumers of the destination have seen: of each source, its batches in their order, each once."""

    def __init__(self, site: DestinationSite, sources: Mapping[str, Source], gone: "Gone") -> None:
        self._site = site
        self._sources = sources
        self._gone = gone
        self.own: dict[str, list[Seen]] = {name: [] for name in sources}
        self.misplaced: dict[str, list[Stored]] = {name: [] for name in sources}
        """Strays that stand where they should not."""
        self.seen_at: dict[int, float] = {}
        """Base offset -> when it was seen first."""
        self.must_halt: set[str] = set()
        """Those that the destination topic before has copies of, and that have noted it; or that have sent more since,
        before they have noticed."""
        self.dropped: dict[str, dict[int, int]] = {name: {} for name in sources}
        """Source offset -> destination offset of copies that both sides have lost."""
        self._checked = 0

    def remade(self, known: Ledger) -> None:
        """The destination topic is another one. ``known``: what stands in the internal topic."""
        for name, own in self.own.items():
            checkpoint = known.checkpoint(side_of(name))
            if checkpoint is not None and not checkpoint.unused:
                self.must_halt.add(name)
            own.clear()
        self.seen_at.clear()
        self._checked = 0

    def _is_in_former(self, name: str) -> bool:
        """Whether a copy was sent to the topic before, and stands in the one of now."""
        if not generation(self._site.model) or name in self.must_halt:
            return name in self.must_halt
        begun = Ledger()
        for key, value in self._site.rows:
            begun.apply(key, value)
        return all(one.destination_id != self.topic_id for one in begun.checkpoints(side_of(name)))

    @property
    def topic_id(self) -> str | None:
        """Of the destination topic of now, as it is written down."""
        return id_text(self._site.topics[TOPIC].topic_id)

    def look(self, now: float) -> None:
        """At what consumers see from now on."""
        model = self._site.model
        for stored in model.batches[model.at(self._checked) :]:
            header = stored.header
            if header.next_offset > model.replicated:
                break
            if header.base_offset < self._checked:
                continue
            self._checked = header.next_offset
            self.seen_at[header.base_offset] = now
            if header.is_control:
                fences = self._site.fences
                fences[header.producer_id] = max(header.producer_epoch, fences.get(header.producer_id, -1))
            elif (name := self._name_of(stored)) in self._sources:
                self._take(name, stored)

    def _name_of(self, stored: Stored) -> str:
        """Whose copy it is, by what is in it."""
        return name_in(stored.payload)

    def _of_a_log_before(self, name: str, copy: Stored) -> int | None:
        """As ``_fits``, where the copy was under way when its topic was made anew, or lost its end: it is of the log
        before, and nothing was copied that the two do not share."""
        source, upto = self._sources[name], self.upto(name)
        now = vars(source).copy() | {"former": source.former.copy()}
        while source.former and upto <= source.former[-1].end:
            source.go_back()
            at = self._fits(name, copy)
            if at is not None:
                return at
        vars(source).update(now)
        return None

    def _take(self, name: str, copy: Stored) -> None:
        if self._is_in_former(name):
            self.must_halt.add(name)
            return
        own, misplaced = self.own[name], self.misplaced[name]
        stray = (copy.header.base_offset, copy.header.leader_epoch) in self._site.strays
        at = self._fits(name, copy)
        if at is None:
            at = self._of_a_log_before(name, copy)
        if at is None and self._go_on(name):
            at = self._fits(name, copy)
        if at is not None:
            own.append(Seen(at, copy, stray))
        elif stray:
            misplaced.append(copy)
        else:
            # The owner had it under way as well: the newest stray that seemed to belong there is the one too many.
            counted = max((index for index, one in enumerate(own) if one.stray), default=-1)
            if counted < 0:
                due = self._sources[name].copied()[own[-1].at + 1 if own else 0 :]
                what = f"{due[0].header.base_offset} is due" if due else "nothing is due"
                raise Violation(f"at offset {copy.header.base_offset} stands {copy.payload!r}, of {name} {what}")
            misplaced.append(own[counted].stored)
            behind = [one.stored for one in own[counted + 1 :]]
            del own[counted:]
            for each in [*behind, copy]:
                self._take(name, each)

    def _go_on(self, name: str) -> bool:
        """Where the source has lost its end, and the destination all copies of that: nobody has it any more, and the
        source of now may be copied."""
        left = self._left_of_both(name)
        if left is None:
            return False
        self.dropped[name] |= self.offsets(name)
        self.own[name][:] = left
        self._sources[name].go_on()
        return True

    def _left_of_both(self, name: str) -> list[Seen] | None:
        """The copies of what the source has kept, if it has lost its end and no copy of that is left."""
        source, own = self._sources[name], self.own[name]
        if not source.truncated:
            return None
        originals = source.copied()
        kept = sum(originals[one.at].header.next_offset <= source.agreed for one in own)
        return own[:kept] if all(self._gone.has(one.stored) for one in own[kept:]) else None

    def _fits(self, name: str, copy: Stored) -> int | None:
        """The next of its source, but for what the source's cleaner took before it was copied."""
        own, originals = self.own[name], self._sources[name].copied()
        at = own[-1].at + 1 if own else 0
        while at < len(originals) and not same(originals[at], copy) and self._may_lack(name, originals[at]):
            at += 1
        return at if at < len(originals) and same(originals[at], copy) else None

    def _may_lack(self, name: str, original: Stored) -> bool:
        """The source's cleaner took it, or it was deleted before the first copy was made."""
        source, base = self._sources[name], original.header.base_offset
        return base in source.cleaned or (not self.own[name] and base < source.origin.start)

    def upto(self, name: str) -> int:
        """All source offsets below are at the destination."""
        own = self.own[name]
        return self._sources[name].copied()[own[-1].at].header.next_offset if own else 0

    def is_whole(self, name: str) -> bool:
        """Whether the source is copied to its end. One that is not the copied topic any more has to be halted, but for
        one of which both sides have lost the same: its log of now counts. Which one is copied is not decided here: a
        batch of the log before may still be under way, and must halt it."""
        source, left = self._sources[name], self._left_of_both(name)
        own, originals = (self.own[name], source.copied()) if left is None else (left, source.copied_now())
        seen = {one.at for one in own}
        first = min(seen, default=0)
        return (
            source.finished
            and not source.recreated
            and (left is not None or not source.truncated)
            and name not in self.must_halt
            and all(at in seen or at < first or self._may_lack(name, stored) for at, stored in enumerate(originals))
        )

    def offsets(self, name: str) -> dict[int, int]:
        """Source offset -> destination offset of all that was copied."""
        originals = self._sources[name].copied()
        return {
            originals[one.at].header.base_offset + delta: one.stored.header.base_offset + delta
            for one in self.own[name]
            for delta in range(one.stored.header.last_offset_delta + 1)
        }

    def check_map(self, name: str, found: OffsetMap, upto: int, *, complete: bool) -> None:
        """What it says is so; ``complete``: up to the checkpoint, it says all."""
        copies = self.offsets(name)
        for run in found:
            for delta in range(run.length):
                source, there = run.source + delta, run.destination + delta
                if there not in (copies.get(source), self.dropped[name].get(source)):
                    raise Violation(f"the map of {name} has {run}, and {source} is elsewhere")
        missing = [
            offset for offset in copies if offset < upto and found.to_destination(offset) != (copies[offset], True)
        ]
        if complete and missing:
            raise Violation(f"the map of {name} lacks {missing}")


class Gone:
    """What is not at the destination any more."""

    def __init__(self) -> None:
        self.before = 0
        """All offsets below were deleted, whether or not a broker that was killed has some of them again."""
        self.cleaned: list[Stored] = []

    def __bool__(self) -> bool:
        return bool(self.before or self.cleaned)

    def has(self, stored: Stored) -> bool:
        """Whether this batch is."""
        return stored.header.next_offset <= self.before or stored in self.cleaned

    def within(self, start: int, end: int | None) -> bool:
        """Whether anything from ``start`` up to ``end`` (None: the log's) is gone."""
        return self.before > start or any(
            one.header.next_offset > start and (end is None or one.header.base_offset < end) for one in self.cleaned
        )

    def behind(self, offset: int) -> bool:
        """Whether anything at or behind this offset is gone."""
        return self.before > offset or any(one.header.next_offset > offset for one in self.cleaned)


class Causes:
    """Whether the world is as a halted partition says."""

    def __init__(self, site: DestinationSite, sources: Mapping[str, Source], copies: Copies, gone: Gone) -> None:
        self._site = site
        self._sources = sources
        self._copies = copies
        self._gone = gone

    def of(self, who: str, name: str, reason: str) -> str:
        """What made a worker's partition halt, at this moment; empty: nothing that the reason claims. What it went by
        is what the internal topic had at some time since the worker took the partition over."""
        ledger, site = Ledger(), self._site
        taken_at = max((at for (by, id_), at in site.taken_at.items() if by == who and f".{name}." in id_), default=0)
        for key, value in site.rows[:taken_at]:
            ledger.apply(key, value)
        causes = [self._by(name, reason, ledger)]
        for key, value in site.rows[taken_at:]:
            ledger.apply(key, value)
            causes.append(self._by(name, reason, ledger))
        return next(filter(None, causes), "")

    def _by(self, name: str, reason: str, known: Ledger) -> str:
        source, checkpoint = self._sources[name], known.checkpoint(side_of(name))
        if reason == "recreated":
            return "made anew" if generation(source.model) or generation(self._site.model) else ""
        if reason == "source_truncated":
            if source.lost_copies:
                return "copies were lost"
            if source.passed_over(self._copies.upto(name)):
                return "what was passed over was lost"
            return "stray" if source.model.epoch and name in self._site.strays.values() else ""
        if reason == "unproven":
            return self._unproven(name) if source.model.epoch else ""
        if reason in ("not_a_copy", "never_arrived"):
            if name in self._site.strays.values():
                return "stray"
            return "originals are back, and others gone" if self._sources[name].taken_since else ""
        if checkpoint is None:
            return ""
        if reason == "retention_overtook":
            return self._overtaken(name, checkpoint)
        if reason == "ambiguous_position":
            return self._ambiguous(name, checkpoint)
        if reason == "checkpoint_behind":
            return self._behind(name, checkpoint, known)
        return ""

    def _unproven(self, name: str) -> str:
        """The destination has nothing left of the last copy; or the source's cleaner took its original, so that nothing
        shows where it stood."""
        source, own = self._sources[name], self._copies.own[name]
        if not own or self._gone.has(own[-1].stored):
            return "the last copy is gone"
        cleaned = source.copied()[own[-1].at].header.base_offset in source.cleaned
        return "its original is gone" if cleaned else ""

    def _overtaken(self, name: str, checkpoint: Checkpoint) -> str:
        """The source has deleted offsets behind the checkpoint of which there is no copy: records that were due, or
        what is not copied, since nobody can tell the two when they are gone."""
        source, copied = self._sources[name], self._copies.offsets(name)
        start = source.origin.start
        if any(
            base not in copied and base not in source.cleaned
            for base in (one.header.base_offset for one in source.copied())
            if checkpoint.source_offset <= base < start
        ):
            return "records were due"
        behind = range(checkpoint.source_offset, start)
        if any(offset not in copied for offset in behind):
            return "what is not copied"
        # The original was cleaned away, and its copy deleted; or the original was deleted, and every copy of such is
        # gone: nobody can tell that there was one.
        cleaned = [one.header for one in source.kept if one.header.base_offset in source.cleaned]
        both = any(
            header.base_offset in behind and copied[header.base_offset] < self._gone.before for header in cleaned
        )
        originals = source.copied()
        copies = [one.stored for one in self._copies.own[name] if originals[one.at].header.base_offset in behind]
        both = both or (bool(copies) and all(map(self._gone.has, copies)))
        return "gone on both sides" if both else ""

    def _ambiguous(self, name: str, checkpoint: Checkpoint) -> str:
        """The source has deleted or cleaned away offsets behind the checkpoint, in which there was room for what was
        copied behind it."""
        source, at = self._sources[name], checkpoint.source_offset
        cleaned = [one for one in source.kept if one.header.base_offset in source.cleaned]
        first = max(at, source.origin.start)
        room = max(0, source.origin.start - at) + sum(
            one.header.next_offset - max(first, one.header.base_offset)
            for one in cleaned
            if one.header.next_offset > first
        )
        originals = source.copied()
        copied = [originals[one.at].header for one in self._copies.own[name]]
        behind = [header for header in copied if header.base_offset >= at]
        if not any(header.last_offset_delta < room for header in behind):
            return ""
        if source.equal:
            return "batches look alike"
        gone = any(one.base_offset < source.origin.start or one.base_offset in source.cleaned for one in behind)
        return "copied originals are gone" if gone else "what is not copied is gone"

    def _behind(self, name: str, checkpoint: Checkpoint, known: Ledger) -> str:
        """Something behind the checkpoint is gone; and the leader has forgotten the producer, or it went before a look
        that is certain was over."""
        gone, identity = self._gone, checkpoint.identity
        if not gone.behind(checkpoint.destination_offset):
            return ""
        if identity.producer_id in self._site.model.swept:
            return "the producer is forgotten"
        fences = [
            one.header.base_offset
            for one in self._site.model.batches
            if one.header.is_control
            and one.header.producer_id == identity.producer_id
            and one.header.producer_epoch > identity.epoch
        ]
        # One that is deleted itself tells nobody what stood before it.
        until = min((at for at in fences if at >= self._site.model.start), default=None)
        noted = known.remembered(side_of(name))
        if noted is not None and (noted.producer_id, noted.epoch) == (identity.producer_id, identity.epoch):
            within = not noted.fenced and gone.within(noted.end, until)
        else:
            # Whoever has fenced it before had noted what the leader remembers for the account before this one.
            within = len(fences) + self._later(checkpoint) > 1 and gone.within(checkpoint.destination_offset, until)
        return "deleted between two fences" if within else ""

    def _later(self, checkpoint: Checkpoint) -> int:
        """Fences behind it of those who have got another producer id."""
        ids, own = self._site.ids, checkpoint.identity.producer_id
        return sum(
            one.header.is_control and one.header.producer_id != own and ids.get(one.header.producer_id) == ids[own]
            for one in self._site.model.batches
            if one.header.base_offset >= checkpoint.destination_offset
        )
