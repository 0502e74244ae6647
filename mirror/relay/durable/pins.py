"""Keeps in the internal topic what a partition is and why it halted, and checks that against the current topics.

Topic ids, halts and notes of what was copied last are written down, so that they outlive every process and every owner.
Call ``recall`` before a partition is taken over, and ``pin`` before anything is written into its log.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial

from mirror.net.backoff import Backoff
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.logs.log import PartitionLog, SourceLog
from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import FlowEntry, KeptHalt, LastCopied, Pin, halt_key, header_digest
from mirror.offsetmap.fields import TopicIds, id_shown, id_text, ids_differ, same_ids
from mirror.offsetmap.internal.memory import May, Memory
from mirror.reasons import GAPS, PAUSED, HaltReason, is_durable
from mirror.relay.durable.due import Due, MayTell, persistently, take_away
from mirror.relay.durable.notes import (
    LedSource,
    Notes,
    acknowledged_note,
    ask,
    ask_kept,
    committed_note,
    same_topics,
)
from mirror.relay.durable.passed import PassedOverRecords
from mirror.relay.durable.skips import ON_GAP, UNPROVEN, Skips
from mirror.relay.events import EventLog
from mirror.relay.halts import Halted, PartitionHalted, halt
from mirror.relay.locate.evidence import Unseen
from mirror.relay.outcome import NotOurs
from mirror.relay.partition.clock import since_boot
from mirror.relay.partition.location import NEVER
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.settings import RelaySettings

COMMITTED = "read_committed"
MAPPED = "mapped"
LEVEL = "isolation.level"
RESUME_TRIES = 6
"""Attempts to write down a resume, before the operator is told that it failed."""

Seen = Mapping[Partition, KeptHalt | None]
"""For each partition, the halt that was written down when the operator resumed it, as far as this process knew."""


class Pins:
    """Keeps the pins, notes and halts of all partitions of a process.

    Attributes:
        was_empty: True if the internal topic named no flow when it was opened, and ``state_lost`` was not logged for
            that yet.
    """

    def __init__(
        self, state: Memory, *, source: Cluster, destination: Cluster, settings: RelaySettings, log: EventLog
    ) -> None:
        self.state = self._state = state
        self.skips = Skips(state, log)
        self.passed = PassedOverRecords(state, fresh_s=settings.fresh_s)
        self._source = source
        self._destination = destination
        self._settings = settings
        self.was_empty = False
        self._log = log
        self._told: dict[Subject, KeptHalt] = {}
        """The halt of each partition that this process has written down last, or is writing."""
        self.notes = Notes(state, fresh_s=settings.fresh_s)
        self.due = Due(state, self.skips, source=source, destination=destination, settings=settings)

    def _check_found(self, partition: Partition) -> None:
        """Logs ``state_lost`` once if the internal topic was empty when it was opened, although the flow has copied
        before. The group's commit shows that, as of when the partition was assigned. A worker that began at the same
        time is not mistaken for that: it writes its pin before it copies, and so before it commits."""
        committed, ledger, subject = partition.claim.committed, self._state.ledger, partition.subject
        if not self.was_empty or committed is None or not committed.digest:
            return
        if ledger.pin(subject) is None and ledger.checkpoint(subject) is None and ledger.halt(subject) is None:
            self.was_empty = False
            self._log.warning(
                "state_lost",
                topic=self._state.topic,
                detail="the flow has copied before, and this topic had nothing of it: it was deleted or recreated "
                "while the mirror was stopped; what was skipped or halted before is not known any more",
            )

    # -- what is written down ------------------------------------------------------------------------------------------

    async def recall(self, partition: Partition) -> None:
        """Reads what previous owners have written down about the partition.

        Raises:
            PartitionHalted: it has halted, and its topics are still the same; or the source is another cluster than
                before.
            NetworkError: the internal topic cannot be read now.
        """
        await self._state.load()
        ledger, subject = self._state.ledger, partition.subject
        self._check_found(partition)
        halted = ledger.halt(subject)
        if halted is not None and same_ids((halted.source_id, halted.destination_id), self.ids(partition)):
            accepted = halted.reason in GAPS and self._settings.accept_gaps
            if is_durable(halted.reason) and not accepted:
                raise PartitionHalted(Halted(halted.reason, halted.detail, halted.remedy, halted.at_ms))
            # Either ``on.gap: continue`` was set since, which ends this halt. A later owner without that setting finds
            # the copy behind the gap. Or an earlier version wrote this halt, for a reason that heals without an
            # operator in this version.
            await take_away(self._state, [halted], fresh_s=self._settings.fresh_s)
        pin = ledger.pin(subject)
        partition.claim.keep_pin(pin)
        if pin is None:
            return
        notes, due = ledger.notes(subject), ledger.due(subject)
        copied = [each.copied for each in notes if same_topics(each, pin)]
        copied += [pin.copied] if pin.copied is not None else []
        if due is not None and due.copied.leader_epoch >= 0 and same_topics(due, pin) and not any(map(_digest, copied)):
            copied.append(due.copied)  # the partition was located when it halted
        pin = replace(pin, copied=max(copied, key=lambda one: one.rank, default=None))
        partition.claim.keep_pin(pin)
        cluster_id = self._source.cluster_id
        if pin.source_cluster and cluster_id and pin.source_cluster != cluster_id:
            raise halt(
                HaltReason.RECREATED,
                f"{partition.name} was copied from cluster {pin.source_cluster}; {self._source.name} is {cluster_id}",
            )
        partition.claim.identify(
            bytes.fromhex(pin.source_id) if pin.source_id else None,
            bytes.fromhex(pin.destination_id) if pin.destination_id else None,
        )

    async def check_settings(self, partition: Partition, there: PartitionLog) -> str:
        """Checks that the copy in ``there`` was made under the current settings. Other settings would have copied
        something else.

        Returns:
            The isolation level of the earlier copy, if it is another one and an operator has accepted that; otherwise
            empty.

        Raises:
            PartitionHalted: a setting has changed, and the destination has a copy.
            NetworkError: the log's end cannot be determined now.
        """
        changed = self._changed(partition)
        if not changed or not await there.true_end():
            return ""
        (name, before, now), *_ = changed
        if name == LEVEL and partition.claim.accept_settings:
            return before
        raise settings_changed(partition, there, name, before, now)

    def _changed(self, partition: Partition) -> list[tuple[str, str, str]]:
        """Returns the settings that have changed: name, value before, value now."""
        pin, settings = partition.claim.pin, self._settings
        checkpoint = self._state.ledger.checkpoint(partition.subject)
        if checkpoint is not None and (settings.mapped or pin is None):
            # A pin beside a checkpoint belongs to an exact copy that an operator has given up.
            of_it = self._is_of(checkpoint, partition)
            before = (MAPPED, "", checkpoint.isolation_level) if of_it else ("", "", "")
        else:
            before = _under(pin) if pin is not None else ("", "", "")
        told = [
            ("offsets", before[0], settings.offsets),
            ("identity", before[1], settings.identity),
            (LEVEL, before[2], settings.isolation_level),
        ]
        return [each for each in told if each[1] not in ("", each[2])]

    def _is_of(self, checkpoint: Checkpoint, partition: Partition) -> bool:
        """Returns True if something was copied by the time of the checkpoint, and into the current destination
        topic."""
        _, destination_id = self.ids(partition)
        same = None in (checkpoint.destination_id, destination_id) or checkpoint.destination_id == destination_id
        return same and any(len(chunk.map) for chunk in self._state.ledger.chunks(partition.subject))

    async def pin(
        self, partition: Partition, *, end: int = 0, fill_to: int = 0, given_up: tuple[int, int] | None = None
    ) -> None:
        """Writes down what the partition is, unless that is already written. Must be called before anything is written
        into its log.

        Args:
            partition: the partition whose topics are written down.
            end: the destination's log end. If an operator took something before it on trust (``Claim.trusted``),
                everything before it is accepted from now on, and the trusted range is written down as skipped.
            fill_to: the log is filled up to here next, if that is behind its end.
            given_up: first and next offset of records that will not be copied, by decision. The range is written down
                as skipped.

        Raises:
            NetworkError: it is not certain that it was written.
        """
        known = partition.claim.pin
        ids = id_text(partition.claim.source_id), id_text(partition.claim.destination_id)
        same = known is not None and same_ids((known.source_id, known.destination_id), ids)
        if known is not None and same:
            # A broker that is not upgraded yet names no ids.
            ids = ids[0] or known.source_id, ids[1] or known.destination_id
        settings = self._settings
        under = (settings.offsets, settings.identity, settings.isolation_level)
        trusted = partition.claim.trusted
        accepted = end if trusted is not None else known.accepted if known is not None and same else 0
        gaps_to = max(given_up[1] if given_up is not None else 0, known.gaps_to if known is not None and same else 0)
        aborted_to = known.aborted_to if known is not None and same else 0
        if known is not None and same and known.isolation_level == COMMITTED and not settings.committed:
            aborted_to = max(end, fill_to)
        written = known is not None and (known.source_id, known.destination_id, *_under(known)) == (*ids, *under)
        if known is not None and same and written and accepted <= known.accepted and given_up is None:
            return
        pin = Pin(
            subject=partition.subject,
            source_id=ids[0],
            destination_id=ids[1],
            source_cluster=self._source.cluster_id,
            copied=known.copied if known is not None and same and trusted is None else None,
            accepted=accepted,
            offsets=settings.offsets,
            isolation_level=settings.isolation_level,
            identity=settings.identity,
            gaps_to=gaps_to,
            aborted_to=aborted_to,
            replaced=known is not None and same and known.replaced and trusted is None,
            adopted=known.adopted if known is not None and same else 0,
            adopted_epoch=known.adopted_epoch if known is not None and same else -1,
            at_ms=_now_ms(),
        )
        if trusted is None and given_up is None:
            await self._state.put(pin)
        else:
            without = [
                (*taken, cause) for cause, taken in ((UNPROVEN, trusted), (ON_GAP, given_up)) if taken is not None
            ]
            notes = self._state.ledger.notes(partition.subject) if trusted is not None else []
            await self.skips.write(partition.subject, without, pin)
            await take_away(self._state, notes, fresh_s=self._settings.fresh_s)
        partition.claim.keep_pin(pin)

    def aborted_to(self, partition: Partition) -> int:
        """Returns the offset before which aborted transactions are filled although the source is read uncommitted. 0:
        there is none."""
        pin = partition.claim.pin
        if pin is None or self._settings.committed:
            return 0
        # No limit: an operator has accepted the change of level, or else the partition halts before this matters.
        return NEVER if pin.isolation_level == COMMITTED else pin.aborted_to

    @staticmethod
    def unused(partition: Partition) -> bool:
        """Returns True if nothing of the partition was ever copied, according to the internal topic, the group and this
        process."""
        pin, committed = partition.claim.pin, partition.claim.committed
        return (
            (pin is None or (not pin.accepted and (pin.copied is None or not pin.copied.offset)))
            and (committed is None or (not committed.offset and not committed.digest))
            and partition.position <= 0
            and not partition.counts.batches
            and partition.claim.begun.until < 0
        )

    async def vouch(self, partition: Partition, here: LedSource, unseen: Unseen) -> int:
        """Calls ``relay.locate.evidence.vouch`` with all notes of what was copied last of this partition, whoever wrote
        them.

        Raises:
            PartitionHalted: as ``vouch``; or the group's commit names another source topic.
            NetworkError: as ``vouch``.
        """
        # When this worker recalled the partition, another one may have had it, and may have written its pin and copied
        # since.
        await self.recall(partition)
        pin, committed = partition.claim.pin, partition.claim.committed
        source_id = id_text(partition.claim.source_id) or ""
        of_these = committed is not None and committed.topic_id == source_id
        another = pin is None and committed is not None and committed.topic_id and source_id and not of_these
        if another and committed is not None and not partition.claim.accept_unproven:
            raise halt(
                HaltReason.RECREATED,
                f"source topic of {partition.name}: id {id_shown(source_id)}, when it was copied "
                f"{id_shown(committed.topic_id)}",
            )
        # If both sides had lost their end, another batch may have been copied to the same offset since: the newest
        # counts.
        copied = [
            LastCopied(each.next_offset, each.leader_epoch, header_digest(each.header), each.next_offset)
            for each in reversed(partition.cursor.marks)
            if each.next_offset <= unseen.end
        ] + self._written(partition)
        replaced = pin is not None and pin.replaced
        if not copied and not replaced and partition.cursor.leader_epoch >= 0 and partition.queue.reached <= unseen.end:
            # Batches were acknowledged in the middle of a record set, which leaves no mark.
            copied.append(LastCopied(max(0, partition.queue.reached), partition.cursor.leader_epoch))
        pinned = pin is not None or bool(source_id and of_these)
        accepted = pin.accepted if pin is not None else 0
        return await ask(partition, here, unseen, copied, pinned=pinned, accepted=accepted, replaced=replaced)

    async def check_kept(
        self, partition: Partition, here: SourceLog, unseen: Unseen, *, takeover: bool, owns: MayTell
    ) -> None:
        """Calls ``relay.locate.evidence.check_kept`` with all notes of what was copied last of this partition, and,
        unless it is taken over, with what this process remembers. ``owns``: see ``Owners.owns``.

        Raises:
            PartitionHalted: as ``check_kept``.
            NetworkError: as ``check_kept``; or it is not certain that a note was written.
            NotOurs: the earlier notes no longer count, and another worker has the partition by now.
        """
        end, pin = unseen.end, partition.claim.pin
        copied = self._written(partition)
        if not takeover:
            # Marks are not used: no checksum covers a batch's own leader epoch.
            copied += acknowledged_note(partition, end)
        replaced = pin is not None and pin.replaced
        accepted = pin.accepted if pin is not None else 0
        note = await ask_kept(partition, here, unseen, copied, accepted=accepted, replaced=replaced)
        # Without ids, an empty destination topic may be a new one, whose source's epochs have begun again.
        another = not end and not partition.claim.source_id
        if note is not None and note.offset > end and (another or note.leader_epoch < here.leader.epoch):
            if not await owns(partition):
                raise NotOurs(partition.name)
            await self.notes.write_anew(partition, LastCopied(end, here.leader.epoch))

    @staticmethod
    def _written(partition: Partition) -> list[LastCopied]:
        """Returns the notes of what was copied last from the pin and from the group's commit, whoever wrote them."""
        pin = partition.claim.pin
        return ([pin.copied] if pin is not None and pin.copied is not None else []) + committed_note(partition)

    async def introduce(self) -> None:
        """Writes down which flow the internal topic belongs to, unless that is already written.

        Raises:
            StateUnusable: the internal topic belongs to another flow.
            NetworkError: it is not certain that it was written.
        """
        flow = FlowEntry(
            flow=self._settings.flow,
            source_cluster=self._source.cluster_id,
            destination_cluster=self._destination.cluster_id,
            at_ms=_now_ms(),
        )
        await self._state.claim(flow)

    # -- halts ---------------------------------------------------------------------------------------------------------

    async def halted(self, partition: Partition, halted: Halted, may_tell: MayTell) -> None:
        """Writes down that the partition has halted, so that later owners know. Tries until it succeeds, but stops once
        another worker has the partition: an operator may have resumed it there, and it would halt again for good. For
        reasons that heal by themselves, only the note of what was copied last is written. ``Due`` writes the note of
        what was due. ``may_tell``: see ``persistently``."""
        entries: list[Entry] = []
        if is_durable(halted.reason):
            source_id, destination_id = self.known_ids(partition) if halted.reason == PAUSED else self.ids(partition)
            kept = self._told[partition.subject] = KeptHalt(
                subject=partition.subject,
                reason=halted.reason,
                detail=halted.detail,
                remedy=halted.remedy,
                at_ms=halted.at_ms or _now_ms(),
                source_id=source_id,
                destination_id=destination_id,
            )
            entries.append(kept)
        note = None if self._settings.mapped else self.notes.note_of(partition)
        if note is not None:
            entries.append(note)

        async def attempt(may: May) -> None:
            await self._state.save(entries, may=may)

        if entries:
            await persistently(attempt, self._settings, partition, halted, may_tell=may_tell)

    async def unpaused(self, partitions: Collection[Partition], seen: Seen) -> list[Partition]:
        """Removes the pauses of these partitions. What is written down about their topics stays as it is. For ``seen``,
        the result and the error, see ``resumed``."""
        return await self._go_on(partitions, seen, lambda _: ([], []))

    async def resumed(self, partitions: Collection[Partition], seen: Seen) -> list[Partition]:
        """Lets these partitions go on with the current topics, by an operator's decision: removes their halts, and
        writes their pins again.

        Args:
            partitions: the partitions that are resumed.
            seen: the halt of each that was written down when the operator gave the command; see ``kept_halt``.

        Returns:
            The partitions that go on. The others were let go, or have halted again in another worker since: the
            operator has not resumed that halt.

        Raises:
            NetworkError: it is not certain that it was written.
        """
        return await self._go_on(partitions, seen, self._renewed)

    def kept_halt(self, partition: Partition) -> KeptHalt | None:
        """Returns the halt of this partition that is written down, as far as this process knows; None: there is
        none."""
        return self._state.ledger.halt(partition.subject)

    async def _go_on(
        self,
        partitions: Collection[Partition],
        seen: Seen,
        renewed: Callable[[Partition], tuple[list[Entry], list[bytes]]],
    ) -> list[Partition]:
        """Does the work of ``resumed``. The internal topic is read before each attempt: after an attempt without an
        answer, another worker may have taken a partition over, and it may have halted there. ``renewed``: returns the
        entries to write and the keys to remove for a partition, besides its halt."""
        # These were resumed before their notes of what was due could be written.
        due = {each: await self.due.now(each) for each in partitions if self.due.at_halt(each) < 0}
        settings = self._settings
        backoff = Backoff(least_ms=settings.backoff_ms, most_ms=settings.backoff_max_ms)
        while partitions:
            read_at = since_boot()
            await self._state.load()
            going = [each for each in partitions if self._is_as_seen(each, seen.get(each))]
            entries: list[Entry] = []
            forget: list[bytes] = []
            for each in going:
                written, gone = renewed(each)
                entries += [*due.get(each, []), *written]
                forget += [halt_key(each.subject), *gone]
            try:
                if going:
                    await self._state.save(entries, forget=forget, may=partial(self._may_go_on, going, read_at))
                return going
            except NetworkError:
                if backoff.tries >= RESUME_TRIES - 1:
                    raise
            await asyncio.sleep(backoff.next_s())
        return []

    def _is_as_seen(self, partition: Partition, seen: KeptHalt | None) -> bool:
        """Returns True if the partition is still ours and halted, and nobody has written another halt of it. The halt
        that ``seen`` names, and the one that this process has written, are the ones that may be there."""
        kept = self.kept_halt(partition)
        known = {(each.reason, each.at_ms) for each in (seen, self._told.get(partition.subject)) if each is not None}
        return partition.phase is Phase.HALTED and (kept is None or (kept.reason, kept.at_ms) in known)

    def _may_go_on(self, partitions: Iterable[Partition], read_at: float) -> bool:
        return since_boot() - read_at <= self._settings.fresh_s and all(
            each.phase is Phase.HALTED for each in partitions
        )

    def _renewed(self, partition: Partition) -> tuple[list[Entry], list[bytes]]:
        """Returns the entries to write for a partition that is resumed, and the keys to remove with that."""
        pin = self._state.ledger.pin(partition.subject)
        source_id, destination_id = ids = self.ids(partition)
        if ids_differ(id_text(partition.claim.source_id), source_id):
            partition.cursor.forget_source()
        if ids_differ(id_text(partition.claim.destination_id), destination_id):
            partition.claim.remember_before(None)
        renewed = pin is not None and (
            pin.source_cluster != self._source.cluster_id or not same_ids((pin.source_id, pin.destination_id), ids)
        )
        checkpoint = self._state.ledger.checkpoint(partition.subject) if self._settings.mapped else None
        if checkpoint is not None:
            # The checkpoint names the topics of a mapped copy. The pin names the topics that were accepted in their
            # place.
            if renewed or not same_ids((checkpoint.source_id, checkpoint.destination_id), ids):
                return [self._pin_of(partition, MAPPED)], []
        elif pin is not None and renewed:
            same = not ids_differ(pin.destination_id, destination_id)
            under = _under(pin) if same else ("", "", "")
            # The destination must be shown to be a copy of the new source topic. If it is new itself, there is nothing
            # to show.
            replaced = (same and ids_differ(pin.source_id, source_id)) or (same and pin.replaced)
            notes = [each.key() for each in self._state.ledger.notes(partition.subject)]
            return [replace(self._pin_of(partition, *under), replaced=replaced)], notes
        return [], []

    def _pin_of(self, partition: Partition, offsets: str, identity: str = "", isolation_level: str = "") -> Pin:
        """Returns a pin with the current topics and these settings."""
        source_id, destination_id = self.ids(partition)
        return Pin(
            subject=partition.subject,
            source_id=source_id,
            destination_id=destination_id,
            source_cluster=self._source.cluster_id,
            offsets=offsets,
            identity=identity,
            isolation_level=isolation_level,
            at_ms=_now_ms(),
        )

    def known_ids(self, partition: Partition) -> TopicIds:
        """Returns the ids of the topics that the partition is copied from and to; the last known id for a topic that is
        not found."""
        source_id, destination_id = self.ids(partition)
        claim = partition.claim
        return source_id or id_text(claim.source_id), destination_id or id_text(claim.destination_id)

    def ids(self, partition: Partition) -> TopicIds:
        """Returns the current ids of the source and destination topic; None for an id that is not known."""
        return self.due.ids(partition)


def settings_changed(partition: Partition, there: PartitionLog, name: str, before: str, now: str) -> PartitionHalted:
    """Returns the halt for a setting that differs from the one under which the copy was made."""
    return halt(
        HaltReason.LEVEL_CHANGED if name == LEVEL else HaltReason.SETTINGS_CHANGED,
        f"{partition.name} was copied under {name}: {before}, and the configuration says {now}; {there.name} has a "
        "copy",
    )


def _under(pin: Pin) -> tuple[str, str, str]:
    """Returns the settings under which all of the partition was copied: offsets, identity, isolation level."""
    return pin.offsets, pin.identity, pin.isolation_level


def _digest(copied: LastCopied) -> str:
    return copied.digest


def _now_ms() -> int:
    return round(time.time() * 1000)
