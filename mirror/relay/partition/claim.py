"""The claim of this process on a partition: who owns it, what the internal topic has of it, and what is in doubt.

Mostly locating changes it (``relay.locate``, ``relay.mapped``, ``relay.durable``); the lane and the relay report doubt.
All of them call methods: nothing outside this module assigns the attributes (``tests/relay/partition/test_parts.py``).
"""

import time
from typing import NamedTuple

from mirror.net.coordinator import Ownership
from mirror.net.metadata import Leader
from mirror.offsetmap.entries.pins import Pin
from mirror.offsetmap.fields import ids_differ
from mirror.relay.halts import Suspicion
from mirror.relay.leading.filler import Begun
from mirror.relay.mapped.fence import Before
from mirror.relay.partition.location import Location


class Committed(NamedTuple):
    """What the flow's group had committed at the source when the partition was assigned. The fields are those of
    ``relay.assignment.Committable``."""

    offset: int
    topic_id: str = ""
    """Hexadecimal; empty: not known."""
    epoch: int = -1
    digest: str = ""
    digest_at: int = -1
    leader_epoch: int = -1

    def is_of(self, topic_id: str | None) -> bool:
        """Returns True if it was committed for this topic, as far as is known.

        Args:
            topic_id: the topic's id (``id_text``); None: topics have no ids.

        Returns:
            False if it was committed for another topic. A commit without an id and a digest need not be the mirror's:
            it counts only while topics have no ids.
        """
        if not self.topic_id and not self.digest:
            return topic_id is None
        return not ids_differ(self.topic_id or None, topic_id)


class LateArrival(NamedTuple):
    """Requests that a broker may not have read yet when their connection was lost, because it throttled us or was busy
    with earlier requests."""

    until_s: float
    """The time by which the broker has read them (monotonic clock)."""
    node_id: int
    """The broker that they were sent to. They cannot reach any other leader."""


class Claim:
    """The ownership of a partition, and what the next look at its logs has to know."""

    __slots__ = (
        "accept_gap",
        "accept_settings",
        "accept_unproven",
        "before",
        "begun",
        "committed",
        "coordinator_epoch",
        "destination_id",
        "destination_leader",
        "doubts",
        "forgotten",
        "inherited",
        "late",
        "missing",
        "otherwise",
        "overtaken",
        "ownership",
        "pin",
        "source_id",
        "stale_asked",
        "suspected",
        "taken_over",
        "trusted",
        "unanswered",
        "unheard",
        "unowned",
        "unread",
        "unsettled",
    )

    def __init__(self) -> None:
        self.source_id: bytes | None = None
        self.destination_id: bytes | None = None
        """The ids of both topics, 16 bytes each. None: not known, or the brokers have no topic ids (before 2.8)."""
        self.destination_leader = -1
        """Node id of the destination's leader as of the last position; -1: the partition was never located."""
        self.ownership: Ownership | None = None
        """What the coordinator granted at the takeover. It is compared before each hole. None: it granted nothing."""
        self.unanswered = False
        """True if a renewal had no answer: the owner that the coordinator names from then on may be us."""
        self.coordinator_epoch = 0
        """The coordinator epoch of our markers. It is above any in the destination's log, so that late markers of a
        predecessor are refused."""
        self.taken_over = False
        """True if another worker has taken the partition over. It is left alone for a while, and then taken over
        again."""
        self.unowned = False
        """True if the coordinator has forgotten the transactional id. Then nobody owns the partition, and it need not
        be left alone."""
        self.unsettled = False
        """True if something that was sent may still arrive and do harm. The next position is then settled first."""
        self.late: LateArrival | None = None
        """Requests sent before a connection was lost that may arrive later than ``settle.ms`` after that; None: there
        are none."""
        self.unread = -1
        """Base offset of a batch that a broker has acknowledged, but whose copy may not be what was sent. The next look
        compares it. -1: there is none."""
        self.stale_asked = 0
        """Consecutive looks at which the source's leader had an earlier epoch than what was copied."""
        self.forgotten = False
        """True if the broker has forgotten our producer id and accepts it only with a new epoch (error 59, Kafka 1.0 to
        2.4)."""
        self.doubts = 0
        """Consecutive doubts without an acknowledgement in between."""
        self.otherwise = 0
        """Consecutive batches that were read back in another form than they were sent in."""
        self.missing = 0
        """Consecutive looks at which a cluster did not know the topic."""
        self.unheard = 0
        """Consecutive looks at which the brokers' topic ids mattered and not all brokers answered."""
        self.suspected: Suspicion | None = None
        """A verdict for which the partition halts if the topics' current configs confirm it. The next look finds that
        out."""
        self.pin: Pin | None = None
        """What the internal topic has of the partition, as read at the takeover or written since
        (``relay.durable.pins``)."""
        self.committed: Committed | None = None
        """None: nothing was committed, or it is not known."""
        self.inherited = -1
        """The offset up to which the last owner had copied, according to its commit; -1: not known."""
        self.begun = Begun()
        """Progress of filling the offsets before the source's first record."""
        self.before: Before | None = None
        """With ``offsets: mapped``: the destination's state before a fence that no checkpoint follows yet."""
        self.accept_gap = False
        """True if an operator allows skipping what the source has deleted or lacks, this once. With ``offsets:
        mapped``, this also allows choosing one of several possible positions, and rebuilding a lost map."""
        self.accept_unproven = False
        """True if an operator declares that the destination's content is a copy although nothing shows it, this
        once."""
        self.accept_settings = False
        """True if an operator allows continuing the copy under the current isolation level, this once."""
        self.trusted: tuple[int, int] | None = None
        """First and next source offset that were accepted that way, because nothing shows that they were copied."""
        self.overtaken: list[tuple[int, int]] = []
        """Ranges (first and next source offset) that were due at a halt and that the source has deleted since. They are
        reported once the copy goes on."""

    # -- positions -----------------------------------------------------------------------------------------------------

    def start(self, location: Location) -> None:
        """Takes over the facts of a new position, which settles what was in doubt. What an operator has accepted is
        used up."""
        self.destination_leader = location.destination_leader.node_id
        self.coordinator_epoch = location.coordinator_epoch
        self.unsettled = self.forgotten = False
        self.unread = -1
        self.stale_asked = self.unheard = 0
        self.late = None
        self.accept_gap = self.accept_unproven = self.accept_settings = False
        self.trusted = None
        self.overtaken = []

    def resume(self, *, accept_gap: bool, accept_unproven: bool, accept_settings: bool) -> None:
        """Notes what an operator accepts; see ``Partition.resume``. The current topics count from now on. An earlier
        suspicion is dropped: if it is still right, it comes up again."""
        self.accept_gap = accept_gap
        self.accept_unproven = accept_unproven
        self.accept_settings = accept_settings
        self.source_id = self.destination_id = None
        self.suspected = None
        self.doubts = self.missing = self.unheard = 0

    def doubt(self) -> None:
        """Counts a doubt."""
        self.doubts += 1

    def believe(self) -> None:
        """Resets the count of consecutive doubts, because an acknowledgement was believed."""
        self.doubts = 0

    def read_as_sent(self) -> None:
        """Notes that a batch was read back as it was sent."""
        self.otherwise = 0

    def read_otherwise(self) -> None:
        """Notes that a batch was read back in another form than it was sent in."""
        self.otherwise += 1

    def ask_stale(self) -> None:
        """Counts a look at which the source's leader had an earlier epoch than what was copied."""
        self.stale_asked += 1

    def leave_late(self, late: "LateArrival") -> None:
        """Notes what was sent and may still arrive. Of several, the latest counts."""
        if self.late is None or self.late.until_s < late.until_s:
            self.late = late

    def waits_for_late(self, leader: Leader | None) -> float:
        """Returns the seconds for which earlier requests may still arrive at this leader, regardless of ``settle.ms``;
        0 if none can."""
        if self.late is None or leader is None or self.late.node_id != leader.node_id:
            return 0.0
        return max(0.0, self.late.until_s - time.monotonic())

    # -- ownership -----------------------------------------------------------------------------------------------------

    def own(self, ownership: Ownership | None) -> None:
        """Notes what the coordinator granted; None: nothing."""
        self.ownership, self.unanswered = ownership, False

    def renew(self, before: Ownership, after: Ownership) -> None:
        """Replaces the ownership ``before`` by ``after``, unless the partition was taken over again since
        ``before``."""
        if self.ownership == before:
            self.own(after)

    def ask_to_renew(self) -> None:
        """Notes that the ownership is about to be renewed."""
        self.unanswered = self.ownership is not None

    def leave(self, *, taken_over: bool = True, unsettled: bool = False) -> None:
        """Notes reasons for a doubt.

        Args:
            taken_over: another worker has taken the partition over.
            unsettled: something that was sent may still arrive.
        """
        self.taken_over = self.taken_over or taken_over
        self.unsettled = self.unsettled or unsettled

    def unsettle(self) -> None:
        """Notes that something that was sent may still arrive and do harm."""
        self.unsettled = True

    def leave_unread(self, base_offset: int) -> None:
        """Notes that the batch that a broker has acknowledged at this offset may not be what was sent. Of several, the
        first counts."""
        self.unread = base_offset if self.unread < 0 else min(self.unread, base_offset)

    def return_to(self) -> None:
        """Ends leaving the partition alone: it is located as if it were new."""
        self.taken_over = self.unowned = False

    def described(self, *, unowned: bool) -> None:
        """Notes that the coordinator was asked for the owner.

        Args:
            unowned: True if it has forgotten the transactional id.
        """
        self.unowned = unowned

    def forget_producer(self) -> None:
        """Notes that the broker has forgotten our producer id. Batches that were sent may still arrive."""
        self.forgotten = self.unsettled = True

    def next_coordinator_epoch(self, reserved: int) -> int:
        """Returns the least coordinator epoch for markers behind the next position. If markers of ours may still
        arrive, it is above theirs: the log need not show any of them yet.

        Args:
            reserved: number of coordinator epochs that each owner has.
        """
        owner = self.ownership.epoch * reserved if self.ownership is not None else 0
        return max(owner, self.coordinator_epoch + 1 if self.unsettled else 0)

    # -- what is known of it -------------------------------------------------------------------------------------------

    def inherit(self, committed: Committed | None, offset: int) -> None:
        """Notes what the group had committed.

        Args:
            committed: the commit; None: there is none, or it does not count.
            offset: up to where the last owner had copied, according to it; -1: not known.
        """
        self.committed, self.inherited = committed, offset

    def keep_pin(self, pin: Pin | None) -> None:
        """Notes what the internal topic has of the partition."""
        self.pin = pin

    def identify(self, source_id: bytes | None, destination_id: bytes | None) -> None:
        """Notes the ids of its topics."""
        self.source_id, self.destination_id = source_id, destination_id

    def found(self) -> None:
        """Notes that both clusters know its topics."""
        self.missing = 0

    def miss(self) -> int:
        """Counts a look at which a cluster did not know one of its topics. Returns the number of such looks in a
        row."""
        self.missing += 1
        return self.missing

    def hear(self, *, all_told: bool) -> int:
        """Notes that the brokers were asked for the ids of its topics. Returns how often in a row not all of them
        answered."""
        self.unheard = 0 if all_told else self.unheard + 1
        return self.unheard

    def suspect(self, suspicion: Suspicion | None) -> None:
        """Notes a verdict for which the partition halts if the topics' configs confirm it; None: there is none any
        more."""
        self.suspected = suspicion

    def trust(self, offsets: tuple[int, int] | None) -> None:
        """Notes the first and next source offset that an operator accepted without proof; None: none."""
        self.trusted = offsets

    def remember_before(self, before: Before | None) -> None:
        """Notes the destination's state before a fence that no checkpoint follows yet; None: a checkpoint follows."""
        self.before = before
