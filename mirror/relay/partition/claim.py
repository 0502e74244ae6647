"""The claim of this process on a partition: who owns it, what was written down of it, and what is in doubt.

Mostly locating changes it (``relay.locate``, ``relay.mapped``, ``relay.durable``); the lane and the relay report doubt.
All use the methods; nothing outside this module assigns the attributes (``tests/relay/partition/test_parts.py``).
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
    """What the flow's group had committed at the source when the partition was assigned; see ``relay.assignment``."""

    offset: int
    topic_id: str = ""
    """Hexadecimal; empty: not known."""
    epoch: int = -1
    digest: str = ""
    digest_at: int = -1
    leader_epoch: int = -1

    def is_of(self, topic_id: str | None) -> bool:
        """Returns True if it was not committed for another topic than this one (``id_text``), as far as is known.
        Without an id and a digest it need not be ours: that counts only while topics have no ids."""
        if not self.topic_id and not self.digest:
            return topic_id is None
        return not ids_differ(self.topic_id or None, topic_id)


class LateArrival(NamedTuple):
    """Requests that a broker may not have read when their connection was lost: it throttled us, or was busy with those
    before them."""

    until_s: float
    """It has read them by then, by the monotonic clock."""
    node_id: int
    """The broker that they were sent to. Any other leader does not have them."""


class Claim:
    """What makes the partition ours, and what the next look at it has to know."""

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
        "unheard",
        "unowned",
        "unread",
        "unsettled",
    )

    def __init__(self) -> None:
        self.source_id: bytes | None = None
        self.destination_id: bytes | None = None
        """The ids of both topics, 16 bytes each. None: not known, or the brokers have none (before 2.8)."""
        self.destination_leader = -1
        """Node id, as of the last position."""
        self.ownership: Ownership | None = None
        """What the coordinator gave us at takeover; compared before each hole. None: the coordinator gave nothing."""
        self.coordinator_epoch = 0
        """Of our markers: above all that the destination's log has, so that a predecessor's late ones are refused."""
        self.taken_over = False
        """True if another worker has taken the partition over: it is left alone for a while, and then taken over."""
        self.unowned = False
        """True if nobody owns it any more: the coordinator has forgotten the id, so it need not be left to anybody."""
        self.unsettled = False
        """True if something was sent that may still arrive and do harm: the next position is settled first."""
        self.late: LateArrival | None = None
        """What was sent before a connection was lost, and may arrive longer after that than ``settle.ms``."""
        self.unread = -1
        """Base offset of a batch that a broker has acknowledged, and that may not be there as it was sent: the next
        look compares it. -1: there is none."""
        self.stale_asked = 0
        """Consecutive looks at which the source's leader was of an earlier epoch than what was copied."""
        self.forgotten = False
        """True if the broker has forgotten our producer id, and takes only a new epoch (error 59, Kafka 1.0 to 2.4)."""
        self.doubts = 0
        """Consecutive doubts without an acknowledgement in between."""
        self.otherwise = 0
        """Consecutive batches that were read back and stood there in another form than was sent."""
        self.missing = 0
        """Consecutive looks at which a cluster did not know the topic."""
        self.unheard = 0
        """Consecutive looks at which not all brokers told the topics' ids, while it mattered."""
        self.suspected: Suspicion | None = None
        """The partition halts for this if the topics' configs of now confirm it, which the next look finds out."""
        self.pin: Pin | None = None
        """What was written down of the partition, as of the takeover (``relay.durable.pins``)."""
        self.committed: Committed | None = None
        """None: nothing, or not known."""
        self.inherited = -1
        """The offset up to which the former owner had copied, by its commit; -1: not known."""
        self.begun = Begun()
        """Fills the offsets before the source's first record."""
        self.before: Before | None = None
        """With ``offsets: mapped``: the destination before a fence that no checkpoint follows yet."""
        self.accept_gap = False
        """An operator has said: skip what the source has deleted or lacks, this once. With ``offsets: mapped``, also:
        choose where several positions fit, and rebuild a lost map."""
        self.accept_unproven = False
        """An operator has said: what stands at the destination is a copy, though nothing shows it; this once."""
        self.accept_settings = False
        """An operator has said: the copy continues under the isolation level of now, this once."""
        self.trusted: tuple[int, int] | None = None
        """First and next source offset that were accepted that way, because nothing shows that they were copied."""
        self.overtaken: list[tuple[int, int]] = []
        """Likewise of those that were due at a halt and that the source has deleted since; told once it continues."""

    # -- positions -----------------------------------------------------------------------------------------------------

    def start(self, location: Location) -> None:
        """The position was found: what was accepted and what was doubtful is settled by it."""
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
        """An operator's word: see ``Partition.resume``. The topics are the ones of now. What was suspected before is
        found again if it is still so."""
        self.accept_gap = accept_gap
        self.accept_unproven = accept_unproven
        self.accept_settings = accept_settings
        self.source_id = self.destination_id = None
        self.suspected = None
        self.doubts = self.missing = self.unheard = 0

    def doubt(self) -> None:
        """The position is not certain any more."""
        self.doubts += 1

    def believe(self) -> None:
        """An acknowledgement was believed: no doubts in a row any more."""
        self.doubts = 0

    def read_as_sent(self) -> None:
        """A batch that was read back stands there as it was sent."""
        self.otherwise = 0

    def read_otherwise(self) -> None:
        """A batch that was read back stands there in another form."""
        self.otherwise += 1

    def ask_stale(self) -> None:
        """The source's leader is of an earlier epoch than what was copied."""
        self.stale_asked += 1

    def leave_late(self, late: "LateArrival") -> None:
        """What was sent may still arrive, until then at the latest."""
        if self.late is None or self.late.until_s < late.until_s:
            self.late = late

    def waits_for_late(self, leader: Leader | None) -> float:
        """Returns for how many seconds what was sent before may still arrive at this leader, besides ``settle.ms``."""
        if self.late is None or leader is None or self.late.node_id != leader.node_id:
            return 0.0
        return max(0.0, self.late.until_s - time.monotonic())

    # -- ownership -----------------------------------------------------------------------------------------------------

    def own(self, ownership: Ownership | None) -> None:
        """What the coordinator gave us; None: nothing."""
        self.ownership = ownership

    def renew(self, before: Ownership, after: Ownership) -> None:
        """The coordinator gave us ``after``, unless the partition was taken over again since ``before``."""
        if self.ownership == before:
            self.ownership = after

    def leave(self, *, taken_over: bool = True, unsettled: bool = False) -> None:
        """Another worker has taken it over (``taken_over``), or what was sent may still arrive (``unsettled``)."""
        self.taken_over = self.taken_over or taken_over
        self.unsettled = self.unsettled or unsettled

    def unsettle(self) -> None:
        """Something was sent that may still arrive and do harm."""
        self.unsettled = True

    def leave_unread(self, base_offset: int) -> None:
        """What a broker has acknowledged there may not be what was sent."""
        self.unread = base_offset if self.unread < 0 else min(self.unread, base_offset)

    def return_to(self) -> None:
        """It was left alone long enough, and is looked for like a new one."""
        self.taken_over = self.unowned = False

    def described(self, *, unowned: bool) -> None:
        """The coordinator was asked for the owner; ``unowned``: it has forgotten the id."""
        self.unowned = unowned

    def forget_producer(self) -> None:
        """The broker has forgotten our producer id; what was sent may still arrive."""
        self.forgotten = self.unsettled = True

    def next_coordinator_epoch(self, reserved: int) -> int:
        """Returns the least coordinator epoch for the markers behind the next position. ``reserved``: for each owner.
        If markers of ours may still arrive, it is above theirs: the log need not show any of them yet."""
        owner = self.ownership.epoch * reserved if self.ownership is not None else 0
        return max(owner, self.coordinator_epoch + 1 if self.unsettled else 0)

    # -- what is known of it -------------------------------------------------------------------------------------------

    def inherit(self, committed: Committed | None, offset: int) -> None:
        """What the group had committed, and the offset up to which the former owner had copied by that; -1: unknown."""
        self.committed, self.inherited = committed, offset

    def keep_pin(self, pin: Pin | None) -> None:
        """This is written down of it."""
        self.pin = pin

    def identify(self, source_id: bytes | None, destination_id: bytes | None) -> None:
        """The ids of its topics."""
        self.source_id, self.destination_id = source_id, destination_id

    def found(self) -> None:
        """Both clusters know its topics."""
        self.missing = 0

    def miss(self) -> int:
        """A cluster does not know a topic of it. Returns how often in a row."""
        self.missing += 1
        return self.missing

    def hear(self, *, all_told: bool) -> int:
        """The brokers were asked for the ids of its topics. Returns how often in a row not all of them told any."""
        self.unheard = 0 if all_told else self.unheard + 1
        return self.unheard

    def suspect(self, suspicion: Suspicion | None) -> None:
        """The partition halts for this if the topics' configs confirm it; None: it does not."""
        self.suspected = suspicion

    def trust(self, offsets: tuple[int, int] | None) -> None:
        """First and next source offset that an operator accepted without proof; None: none."""
        self.trusted = offsets

    def remember_before(self, before: Before | None) -> None:
        """The destination before a fence that no checkpoint follows yet; None: one follows."""
        self.before = before
