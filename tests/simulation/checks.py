"""What must hold of a partition's copy, whatever happens.

All that a consumer of the destination can see, at any moment, is the source's record of that offset, or nothing; what
halts has a cause, and stays halted.
"""

import asyncio
import sys
from collections.abc import Callable

from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.internal.ledger import Ledger
from mirror.reasons import HaltReason, is_durable
from mirror.relay.halts import Halted
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from tests.simulation.model.broker import Stored
from tests.simulation.model.network import Trace
from tests.simulation.model.site import TOPIC, Site, Unknown
from tests.simulation.source import SourceLog
from tests.simulation.worker import SETTLE_S, Worker

AFTER_STRAYS = frozenset(
    {"overfilled", "not_a_copy", "mid_batch", "sparse_batch", "foreign_writer", "corrupt", "source_truncated"}
)
"""How a partition halts when a marker or a batch has outlived everything that is done about it. Behind the source's end
it cannot be told from what a truncated source has lost."""


LOOK_S = 1.0
"""What is written down so long before a halt was there when its look began."""


class Violation(AssertionError):
    """Something happened that must never happen."""


class Copy:
    """Of one partition. ``here`` and ``there``: its sites; ``located_at``: when a worker found its position last."""

    def __init__(
        self, source: SourceLog, here: Site, there: Site, trace: Trace, located_at: Callable[[str, int], float]
    ) -> None:
        self.index = there.index
        self.here, self.there = here, there
        self.source = source
        """What the source holds now."""
        self.fits = [source]
        """Of what the source has held under this name: that of which what consumers have seen is a copy."""
        self.seen: dict[int, tuple[int, bytes]] = {}
        """Base offset -> (offsets, payload) of each batch that consumers of the destination have seen."""
        self.strays = 0
        """Batches and markers in the log that have outlived everything that is done about them. Each counts from when
        consumers can see it: one that was refused, or that another leader did not have, has done no harm."""
        self.stray_from = sys.maxsize
        """The first one's offset: nothing before it is due to a stray."""
        self.damaged = False
        self.recreated = self.emptied = self.truncated = False
        """Whether the source's topic was made anew, the destination's records have expired, and the source has lost the
        end of its log."""
        self._least_cut = sys.maxsize
        """Where the source has ended after an unclean election."""
        self._trace = trace
        self._located_at = located_at
        self._checked = 0
        self._taken = 0
        self._wrong: list[Stored] = []
        self._of_another_topic: set[tuple[int, int]] = set()
        """Base offset and leader epoch of batches that tell nothing of what the copy is of."""
        self._excused: list[Halted] = []
        self._noted_at: dict[tuple[str | None, int], float] = {}
        """Source topic's id, leader epoch -> when something of it was noted first."""
        self._written = Ledger(lean=True)
        self._read = 0
        self._stays_since: float | None = None
        """It has halted, and that is written down."""
        self._halted_at = float("inf")
        there.on_replicated = self.look_at_new
        there.on_markers = self._markers_come
        there.on_forgotten = self._forgotten_comes
        there.on_unknown = self._unknown_comes

    # -- what is played ------------------------------------------------------------------------------------------------

    def begin_anew(self, source: SourceLog) -> None:
        """The source's topic was made anew."""
        self.source = source
        self.here.model = source.model
        self.here.known = None
        self.recreated = True
        self._stays_since = None
        if not self._checked:
            self.fits.append(source)

    def lose_end(self, former: SourceLog) -> None:
        """The source has lost the end of its log. ``former``: what it was before. A copy of both has none of the
        records that were lost. It may have markers in their place: the source shows in time whether it has records
        there."""
        self.truncated = True
        self._least_cut = min(self._least_cut, self.source.cut_at)
        self.fits = [former if one is self.source else one for one in self.fits]
        if not self._has_lost:
            self.fits.append(self.source)

    @property
    def _has_lost(self) -> bool:
        """Whether consumers of the destination have seen records that the source has no more."""
        written = self.source.written
        return any(base not in written or written[base].payload != payload for base, (_, payload) in self.seen.items())

    def _is_owner(self, who: str) -> bool:
        return self.there.owner is None or self.there.owner[0] == who

    def _markers_come(self, who: str, late_by: float) -> str:
        """The residue that the design names: markers that arrive later than ``settle`` covers, or that were decided on
        by the owner, who had asked for this very hole, and was not the owner any more when they came."""
        site = self.there
        decided = False
        if not self._is_owner(who):
            since = max(self._located_at(who, self.index), site.produced_at.get(who, 0.0))
            decided = site.asked_at.get(who, -1.0) >= since or site.model.tells_unknown
        if late_by > SETTLE_S or decided:
            return "these markers have outlived all that is done about them"
        return ""

    def _forgotten_comes(self, who: str, late_by: float) -> str:
        """Another residue: old records of a worker that is not the owner any more, or records when the broker has
        forgotten the producer, so that it cannot tell a repeat: whether these or the owner's come first."""
        if late_by > SETTLE_S or not self._is_owner(who):
            return "this batch has outlived all that is done about it"
        return ""

    def _unknown_comes(self, unknown: Unknown) -> str:
        """The same, where the leader knows nothing of the producer: what a worker that is not the owner any more has
        appended is deleted, and (before Kafka 2.4) the producer forgotten with it, so that it comes twice, or with the
        next producer id, which such a broker wants then; or the topic was made anew, and the first batch of the one
        before comes later than ``settle``."""
        twice = unknown.gone and not (self._is_owner(unknown.gone) and self._is_owner(unknown.who))
        twice = twice or (self.there.model.tells_unknown and unknown.next_id and not self._is_owner(unknown.who))
        other = self.recreated and unknown.late_by > SETTLE_S
        if other:
            self._of_another_topic.add((unknown.base_offset, unknown.leader_epoch))
        return "nothing shows that this batch is a repeat, or of another topic" if twice or other else ""

    def _count_stray(self, stored: Stored) -> None:
        """If consumers see one now."""
        header = stored.header
        found = self.there.appended_strays.pop((header.base_offset, header.leader_epoch), None)
        if found is None:
            return
        who, what = found
        self.strays += 1
        self.stray_from = min(self.stray_from, header.base_offset)
        self._trace(f"{who}/{self.index}" if self.index else who, "STRAY: {}", what)

    # -- what consumers see --------------------------------------------------------------------------------------------

    def look_at_new(self) -> None:
        """What they see from now on."""
        model = self.there.model
        for stored in model.batches[model.at(self._checked) :]:
            if stored.header.next_offset > model.replicated:
                break
            self._checked = stored.header.next_offset
            self._count_stray(stored)
            self.take(stored)

    def take(self, stored: Stored) -> None:
        """One batch that was not visible before."""
        header = stored.header
        self._taken += header.last_offset_delta + 1
        if not header.is_control:
            self.seen[header.base_offset] = (header.last_offset_delta + 1, stored.payload)
        if (header.base_offset, header.leader_epoch) in self._of_another_topic:
            self._wrong.append(stored)
            return
        if any(not wrong_with(stored, source) for source in self.fits):
            self.fits = [source for source in self.fits if not wrong_for_good(stored, source)]
            return
        wrong = wrong_with(stored, self.fits[0])
        self._trace("run", "WRONG: {}", wrong)
        if header.base_offset < self.stray_from:
            raise Violation(wrong)
        # Not for good if it is a marker, and the source turns out to have a hole there, or has one by compaction.
        self._wrong.append(stored)

    @property
    def shows(self) -> bool:
        """Whether something is wrong with it, and the source has another record in its place, or ends before it. What
        the destination has deleted since, nobody sees."""
        start = self.there.model.start
        there = [stored for stored in self._wrong if stored.header.next_offset > start]
        return all(
            any(wrong_with(stored, origin) and self._overlaps(stored, origin) for stored in there)
            for origin in self.fits
        )

    @staticmethod
    def _overlaps(stored: Stored, origin: SourceLog) -> bool:
        header = stored.header
        return header.base_offset >= origin.model.end or any(
            one.header.base_offset <= header.last_offset and is_record(one, origin)
            for one in origin.model.batches[origin.model.at(header.base_offset) :]
        )

    @property
    def complete(self) -> bool:
        """Whether the destination has all that the source has now."""
        model = self.there.model
        return model.end == model.replicated == self.source.model.end and self.source in self.fits

    def judge(self) -> None:
        """Nothing comes any more: whether what is wrong with it is wrong for good, in each of the logs that it may be a
        copy of. A transaction that was open in the one may be aborted in the next."""
        self.damaged = all(any(wrong_with(stored, source) for stored in self._wrong) for source in self.fits)

    def compare(self) -> None:
        """At the end: the destination's records are the source's, at the same offsets, each once."""
        self.look_at_new()
        source = self.source
        expected, written = source.visible(), source.visible(source.written.values())
        if not expected.items() <= self.seen.items() <= written.items():
            lost = sorted(expected.keys() - self.seen.keys())
            raise Violation(f"records lost at {lost}, or others at {sorted(self.seen.keys() - written.keys())}")
        if self._taken != self.there.model.end:
            raise Violation(f"{self._taken} offsets were taken, and the log ends at {self.there.model.end}")

    # -- halts ---------------------------------------------------------------------------------------------------------

    def check(self, worker: Worker, partition: Partition) -> None:
        """It has not halted without a cause; nor does it go on when it has halted."""
        halted = partition.halted
        if worker.began <= self._halted_at < worker.log.begun_anew_at.get(self.index, -1.0):
            self._stays_since = None  # it ran already when another worker halted, and had nothing copied
        if halted is None:
            if partition.phase is Phase.ACTIVE and self._stays_since is not None and worker.began > self._stays_since:
                raise Violation(f"{worker.name} goes on with {partition.name}, which had halted before it began")
            return
        if halted not in self._excused and not self._is_recalled(halted):
            if not self.excuses(halted.reason, worker.log.halted_at[self.index]):
                raise Violation(f"{worker.name} halted without a cause: {partition.name} {halted}")
            self._excused.append(halted)
        if self._stays_since is None and is_durable(halted.reason) and self._is_written_down():
            self._stays_since = asyncio.get_running_loop().time()
            self._halted_at = worker.log.halted_at[self.index]

    @property
    def stays_halted(self) -> bool:
        """Whether whoever comes next has to halt as well: a halt of the topics of now is written down."""
        return self._stays_since is not None

    def check_written(self, worker: Worker) -> None:
        """At the end, when there was time for it: a halt that nothing but an operator ends is written down, or the next
        worker would go on. One of an earlier topic of this name is not meant: that copy begins anew. Nor is one that a
        worker found which another one had superseded: it must not be written down."""
        if not worker.halt_of(self.index) or self.stays_halted or worker.is_superseded(self.index):
            return
        if worker.log.halted_of[self.index] == self.here.partitions[0].topic_id:
            raise Violation(f"partition {self.index} has halted, and that is not written down")

    def _is_recalled(self, halted: Halted) -> bool:
        """Whether somebody else had halted so before."""
        return halted.at_ms > 0 and any(halted.detail == one.detail for one in self._excused)

    def _is_written_down(self) -> bool:
        """Whether a halt of the topics of now is."""
        halt, topic_id = self._ledger().halt(self._side), self.here.partitions[0].topic_id
        return halt is not None and topic_id is not None and halt.source_id == topic_id.hex()

    def excuses(self, reason: str, at_s: float) -> bool:
        """Whether something was played until then that may halt it so."""
        if reason == HaltReason.UNPROVEN.slug:
            return self.emptied and not self._noted(at_s - LOOK_S)
        if self.recreated and self.source not in self.fits and reason in AFTER_STRAYS:
            return True  # the topic before's first batch came when the one of now had been begun with
        if self.truncated and self._lost(reason):
            return True
        if reason in (HaltReason.RECREATED.slug, HaltReason.TOPIC_MISSING.slug):
            return self.recreated
        self.look_at_new()
        return bool(self.strays) and reason in AFTER_STRAYS

    def _lost(self, reason: str) -> bool:
        """Whether it may halt so because the source has lost its end: records that were copied, or, of all that it has
        lost, only what was filled."""
        self.look_at_new()
        if not self._has_lost:
            filled = reason in (HaltReason.FILLED_RECORD.slug, HaltReason.SOURCE_TRUNCATED.slug)
            return filled and self._checked > self._least_cut
        data = (one for one in self.there.model.batches if not one.header.is_control)
        shared = not self.emptied and any(not wrong_with(one, self.source) for one in data)
        # Where nothing is left that both have, only notes could tell.
        untold = (HaltReason.NOT_A_COPY.slug, HaltReason.FILLED_RECORD.slug)
        return reason == HaltReason.SOURCE_TRUNCATED.slug or (reason in untold and not shared)

    @property
    def _side(self) -> Subject:
        return Subject(TOPIC, self.index, TOPIC)

    def _ledger(self) -> Ledger:
        """What is written down by now."""
        rows = self.there.remembered
        for at_s, (key, value) in zip(self.there.remembered_at[self._read :], rows[self._read :], strict=True):
            self._written.apply(key, value)
            for note in self._written.notes(self._side):
                self._noted_at.setdefault((note.source_id, note.copied.leader_epoch), at_s)
        self._read = len(rows)
        return self._written

    def _noted(self, until_s: float) -> bool:
        """Whether it was written down what was copied last of the source's topic of now, under its leader of now."""
        self._ledger()
        topic_id, epoch = self.here.partitions[0].topic_id, self.here.model.epoch
        return topic_id is not None and self._noted_at.get((topic_id.hex(), epoch), until_s) < until_s


def wrong_with(stored: Stored, source: SourceLog) -> str:
    """Why a batch at the destination is not what this source has there, if so."""
    header, origin = stored.header, source.model
    base, last = header.base_offset, header.last_offset
    if header.is_control:
        at = origin.at(base)
        there = origin.batches[at] if at < len(origin.batches) else None
        if base >= origin.last_stable:
            return f"a marker at offset {base}, and the source is stable to {origin.last_stable} only"
        record = there is not None and there.header.base_offset <= last and is_record(there, source)
        return f"a marker at offset {base}, where the source has a record" if record else ""
    # Compaction may have taken it meanwhile.
    there = source.written.get(base)
    if there is None or not is_record(there, source):
        return f"a record at offset {base}, where the source has none"
    if there.header.last_offset != last or there.payload != stored.payload:
        return f"the batch at offset {base} is not the source's"
    return "" if last < origin.last_stable else f"offset {base} was copied before it was stable"


def wrong_for_good(stored: Stored, source: SourceLog) -> str:
    """The same, unless it is a marker that stands where a log that has lost its end has nothing yet."""
    header = stored.header
    if header.is_control and source.cut_at >= 0 and header.base_offset >= source.model.last_stable:
        return ""
    return wrong_with(stored, source)


def is_record(stored: Stored, source: SourceLog) -> bool:
    """Whether consumers of the source get something of it."""
    header = stored.header
    return not header.is_control and header.record_count > 0 and not source.model.is_aborted(header)
