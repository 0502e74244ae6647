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
"""Tries to write down that partitions are resumed, before the operator is told that it failed."""

Seen = Mapping[Partition, KeptHalt | None]
"""The halt of each partition that was written down when it was resumed, as far as was known here."""


class Pins:
    """Keeps the pins, notes and halts of all partitions of a process.

    Attributes:
        was_empty: True if the internal topic had nothing when it was opened, until a loss was told.
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
        """The halt of each partition that was written down here last, or is being."""
        self.notes = Notes(state, fresh_s=settings.fresh_s)
        self.due = Due(state, self.skips, source=source, destination=destination, settings=settings, log=log)

    def _check_found(self, partition: Partition) -> None:
        """Warns once if the topic was not there although the flow has copied before, by what the group had committed of
        a partition when it was assigned. Another worker that began at the same time has written down what the partition
        is before it copied anything, and so before it committed."""
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
        """Reads what previous owners have written down of the partition.

        Raises:
            PartitionHalted: it halted then, and its topics are still the same; or its source is another cluster.
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
            # ``on.gap: continue``, set since, goes over the halt. A later owner without it is past the gap. Or it is of
            # an earlier version, whose successors can do something about such batches.
            await take_away(self._state, [halted], fresh_s=self._settings.fresh_s)
        pin = ledger.pin(subject)
        partition.claim.keep_pin(pin)
        if pin is None:
            return
        notes, due = ledger.notes(subject), ledger.due(subject)
        copied = [each.copied for each in notes if same_topics(each, pin)]
        copied += [pin.copied] if pin.copied is not None else []
        if due is not None and due.copied.leader_epoch >= 0 and same_topics(due, pin) and not any(map(_digest, copied)):
            copied.append(due.copied)  # it was located when it halted
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
        """Checks that the copy in ``there`` was made under the current settings: others would have copied something
        else.

        Returns:
            The earlier isolation level, if the copy was made under it and an operator has accepted that; else empty.

        Raises:
            PartitionHalted: it was not.
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
            # A pin beside the checkpoint is of an exact copy that an operator has given up.
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
        """Returns True if something was copied by the time of the checkpoint, into the current destination topic."""
        _, destination_id = self.ids(partition)
        same = None in (checkpoint.destination_id, destination_id) or checkpoint.destination_id == destination_id
        return same and any(len(chunk.map) for chunk in self._state.ledger.chunks(partition.subject))

    async def pin(
        self, partition: Partition, *, end: int = 0, fill_to: int = 0, given_up: tuple[int, int] | None = None
    ) -> None:
        """Writes down what the partition is, unless that is known; before anything is written into its log.

        Args:
            partition: the one whose topics are written down.
            end: of the destination's log. If an operator took something before it on trust (``Claim.trusted``), all
                before it is accepted from now on, and the trusted range is written down with it as skipped.
            fill_to: the log is filled up to here next, if that is behind its end.
            given_up: records that will not be copied, by decision: written down as a skipped range, too.

        Raises:
            NetworkError: it is not certain that it was written.
        """
        known = partition.claim.pin
        ids = id_text(partition.claim.source_id), id_text(partition.claim.destination_id)
        same = known is not None and same_ids((known.source_id, known.destination_id), ids)
        if known is not None and same:
            # A broker that is not upgraded yet tells none.
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
        """Returns the offset up to which aborted transactions are filled, although the source is read uncommitted."""
        pin = partition.claim.pin
        if pin is None or self._settings.committed:
            return 0
        # All that there is: an operator has accepted the change of level, or the partition halts before.
        return NEVER if pin.isolation_level == COMMITTED else pin.aborted_to

    @staticmethod
    def unused(partition: Partition) -> bool:
        """Returns True if nothing of it was ever copied, as far as is known from what was written down, from the group,
        and in this process."""
        pin, committed = partition.claim.pin, partition.claim.committed
        return (
            (pin is None or (not pin.accepted and (pin.copied is None or not pin.copied.offset)))
            and (committed is None or (not committed.offset and not committed.digest))
            and partition.position <= 0
            and not partition.counts.batches
            and partition.claim.begun.until < 0
        )

    async def vouch(self, partition: Partition, here: LedSource, unseen: Unseen) -> int:
        """Calls ``relay.locate.evidence.vouch`` with what was written down of this partition, by whomever."""
        # A worker that had it when this one recalled it may have written it down since, and then copied.
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
        # If both sides had lost their end, another batch may have been copied to the same offset: the newest counts.
        copied = [
            LastCopied(each.next_offset, each.leader_epoch, header_digest(each.header), each.next_offset)
            for each in reversed(partition.cursor.marks)
            if each.next_offset <= unseen.end
        ] + self._written(partition)
        replaced = pin is not None and pin.replaced
        if not copied and not replaced and partition.cursor.leader_epoch >= 0 and partition.queue.reached <= unseen.end:
            # Batches were acknowledged here in the middle of a record set, which leaves no mark.
            copied.append(LastCopied(max(0, partition.queue.reached), partition.cursor.leader_epoch))
        pinned = pin is not None or bool(source_id and of_these)
        accepted = pin.accepted if pin is not None else 0
        return await ask(partition, here, unseen, copied, pinned=pinned, accepted=accepted, replaced=replaced)

    async def check_kept(
        self, partition: Partition, here: SourceLog, unseen: Unseen, *, takeover: bool, owns: MayTell
    ) -> None:
        """Calls ``relay.locate.evidence.check_kept`` with what was written down of this partition. Unless it is taken
        over, also with what this process remembers. ``owns``: see ``Owners.owns``.

        Raises:
            PartitionHalted, NetworkError: as that does. Also NetworkError: it is not certain that a note was written.
            NotOurs: the notes of before do not count any more, and another worker has the partition by now.
        """
        end, pin = unseen.end, partition.claim.pin
        copied = self._written(partition)
        if not takeover:
            # Not the marks: no checksum covers a batch's own leader epoch.
            copied += acknowledged_note(partition, end)
        replaced = pin is not None and pin.replaced
        accepted = pin.accepted if pin is not None else 0
        note = await ask_kept(partition, here, unseen, copied, accepted=accepted, replaced=replaced)
        # Without ids, an empty topic may be another one, whose source's epochs have begun again.
        another = not end and not partition.claim.source_id
        if note is not None and note.offset > end and (another or note.leader_epoch < here.leader.epoch):
            if not await owns(partition):
                raise NotOurs(partition.name)
            await self.notes.write_anew(partition, LastCopied(end, here.leader.epoch))

    @staticmethod
    def _written(partition: Partition) -> list[LastCopied]:
        """Returns what was written down of what was copied last, by whomever."""
        pin = partition.claim.pin
        return ([pin.copied] if pin is not None and pin.copied is not None else []) + committed_note(partition)

    async def introduce(self) -> None:
        """Writes down who the flow is, unless that is known.

        Raises:
            StateUnusable: the internal topic is another flow's.
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
        """Writes down that the partition has stopped, however long it takes: a later owner has to know. For reasons
        that heal by themselves, only the note of what was copied last is written. ``due`` writes down what was due.
        ``may_tell``: see ``persistently``. Once another worker has the partition, nothing is written: it would halt
        again, for good, though an operator has resumed it there."""
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
            await persistently(attempt, self._settings, partition, halted, may_tell=may_tell, log=self._log)

    async def unpaused(self, partitions: Collection[Partition], seen: Seen) -> list[Partition]:
        """Forgets that these partitions were paused. What is known of their topics stays as it is. ``seen``, the result
        and the error: see ``resumed``."""
        return await self._go_on(partitions, seen, lambda _: ([], []))

    async def resumed(self, partitions: Collection[Partition], seen: Seen) -> list[Partition]:
        """Lets these partitions go on with the topics as they are now, by an operator's decision: forgets their halts,
        and writes down again what they are.

        Args:
            partitions: the ones that are resumed.
            seen: the halt of each that was written down when the operator said so; see ``kept_halt``.

        Returns:
            Those that go on. The others were let go, or have halted anew elsewhere: that halt is not what was resumed.

        Raises:
            NetworkError: it is not certain that it was written.
        """
        return await self._go_on(partitions, seen, self._renewed)

    def kept_halt(self, partition: Partition) -> KeptHalt | None:
        """Returns the halt of this partition that is written down, as far as is known here."""
        return self._state.ledger.halt(partition.subject)

    async def _go_on(
        self,
        partitions: Collection[Partition],
        seen: Seen,
        renewed: Callable[[Partition], tuple[list[Entry], list[bytes]]],
    ) -> list[Partition]:
        """See ``resumed``. The topic is read before each try: after one without an answer, another worker may have
        taken a partition over, and it may have halted there. ``renewed``: entries that are written, and keys that are
        taken away, besides the halt."""
        # Resumed before that could be written down.
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
        """Returns True if the partition is still ours, and the halt that is written down, if any, is the one that was
        seen, or was written here."""
        kept = self.kept_halt(partition)
        known = {(each.reason, each.at_ms) for each in (seen, self._told.get(partition.subject)) if each is not None}
        return partition.phase is Phase.HALTED and (kept is None or (kept.reason, kept.at_ms) in known)

    def _may_go_on(self, partitions: Iterable[Partition], read_at: float) -> bool:
        return since_boot() - read_at <= self._settings.fresh_s and all(
            each.phase is Phase.HALTED for each in partitions
        )

    def _renewed(self, partition: Partition) -> tuple[list[Entry], list[bytes]]:
        """Returns what is written anew of a partition that is resumed, and the keys that are taken away with that."""
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
            # The checkpoint names the topics of a mapped copy; the pin names those accepted in their place.
            if renewed or not same_ids((checkpoint.source_id, checkpoint.destination_id), ids):
                return [self._pin_of(partition, MAPPED)], []
        elif pin is not None and renewed:
            same = not ids_differ(pin.destination_id, destination_id)
            under = _under(pin) if same else ("", "", "")
            # The destination is shown to be a copy of another topic. For a new one, nothing is shown anyway.
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
        """Returns the ids of the topics that it is known to be copied from and to, also while one is not found."""
        source_id, destination_id = self.ids(partition)
        claim = partition.claim
        return source_id or id_text(claim.source_id), destination_id or id_text(claim.destination_id)

    def ids(self, partition: Partition) -> TopicIds:
        """Returns the current ids of the source and destination topic."""
        return self.due.ids(partition)


def settings_changed(partition: Partition, there: PartitionLog, name: str, before: str, now: str) -> PartitionHalted:
    """Returns the halt for a setting that is not the one under which the copy was made."""
    return halt(
        HaltReason.LEVEL_CHANGED if name == LEVEL else HaltReason.SETTINGS_CHANGED,
        f"{partition.name} was copied under {name}: {before}, and the configuration says {now}; {there.name} has a "
        "copy",
    )


def _under(pin: Pin) -> tuple[str, str, str]:
    """Returns the settings that all of it was copied under."""
    return pin.offsets, pin.identity, pin.isolation_level


def _digest(copied: LastCopied) -> str:
    return copied.digest


def _now_ms() -> int:
    return round(time.time() * 1000)
