"""A partition at a cluster of three brokers with one coordinator, as requests find them at one instant.

The leader's log is a ``PartitionModel``; followers are only known by how far they have it. A leader that was deposed
goes on answering from its own log until it learns of it. Every request method takes ``reply`` and calls it once.
A topic's other partitions are sites ``beside`` the first: they share its brokers, coordinator and internal topic.
"""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from mirror.net.coordinator import Ownership
from mirror.net.logs.log import Marker
from mirror.net.metadata import Leader, Topic
from mirror.offsetmap.internal.batches import KeyValue
from mirror.records.header import BatchHeader
from mirror.records.identity import same_owner
from mirror.wire.errors import ErrorCode
from tests.simulation.model.broker import Answer, CoordinatorModel, PartitionModel
from tests.simulation.model.clock import VirtualLoop
from tests.simulation.model.network import Broker, Reply, Trace
from tests.simulation.source import DAY_MS, START_MS

TOPIC = "t"
TOPIC_ID = bytes(range(16))
PRODUCE_TIMEOUT_S = 10.0
"""Brokers are told to answer within it."""
ODD_ERRORS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)
"""What a broker may answer instead of doing anything. (UNKNOWN_PRODUCER_ID is told only when it is so: the model's.)"""
LATE_ERRORS = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
"""What it may answer after it has done everything."""


class _Waiting(NamedTuple):
    """An append whose answer waits for the followers."""

    until: int
    epoch: int
    answer: Answer
    reply: Callable[[Answer], None]


class Unknown(NamedTuple):
    """Data of a producer that the leader does not know, appended."""

    who: str
    base_offset: int
    late_by: float
    gone: str
    """Who had the same appended before, if that is deleted; else empty."""
    next_id: bool
    """Whether the leader knows the flow by another producer id: this one is the next."""
    leader_epoch: int


class Site:
    """See the module's text. ``lag``: (least, most) seconds until the followers have an append."""

    def __init__(
        self,
        name: str,
        loop: VirtualLoop,
        chance: random.Random,
        trace: Trace,
        *,
        lag: tuple[float, float] = (0.0005, 0.01),
        beside: "Site | None" = None,
    ) -> None:
        self.name = name
        self.partitions: list[Site] = [] if beside is None else beside.partitions
        """All of the topic, in order."""
        self.index = len(self.partitions)
        self.partitions.append(self)
        self.brokers: dict[int, Broker] = (
            {node_id: Broker(node_id) for node_id in (1, 2, 3)} if beside is None else beside.brokers
        )
        self.leader = 1
        self.model = PartitionModel()
        self.topic_id: bytes | None = TOPIC_ID
        """None: the topic is deleted. Kept by the first partition."""
        self.fetch_version = 11
        self.coordinator: CoordinatorModel = CoordinatorModel() if beside is None else beside.coordinator
        self.odd = 0.0
        """Share of the appends that are answered with an error, done or not."""
        self.stamps = False
        """Whether the topic has LogAppendTime."""
        self.forgetful = 0.0
        """How likely it is that just before an append old producers are forgotten."""
        self.known: int | None = None
        """The high watermark that a new leader shows while the followers have not told it of a later one."""
        self.stalled = False
        """The followers do not follow."""
        self.owner: tuple[str, Ownership] | None = None
        """Who called InitProducerId last, and what it got."""
        self.remembered: list[KeyValue] = [] if beside is None else beside.remembered
        """What was written into the internal topic."""
        self.remembered_at: list[float] = [] if beside is None else beside.remembered_at
        """When, row by row."""
        self.asked_at: dict[str, float] = {}
        """When a process last asked who the owner is."""
        self.produced_at: dict[str, float] = {}
        """When a process last had a batch appended, or recognised."""
        self.on_markers: Callable[[str, float], str] = lambda who, late_by: ""
        """Called before markers are appended: whose, and how long ago their sender let go of them. Returns why they are
        strays, if they are appended; else empty."""
        self.on_forgotten: Callable[[str, float], str] = lambda who, late_by: ""
        """The same for data of a producer that the leader has forgotten, or will have at its next sweep."""
        self.on_unknown: Callable[[Unknown], str] = lambda unknown: ""
        """Called when data was appended whose producer the leader did not know. Returns the same."""
        self.appended_strays: dict[tuple[int, int], tuple[str, str]] = {}
        """(Base offset, leader epoch) -> whose stray was appended there, and why it is one. Another leader may lack
        it."""
        self._appended: dict[tuple[int, int, int], tuple[str, int]] = {}
        """Producer id, epoch, first sequence -> who had it appended last, and where."""
        self.on_replicated: Callable[[], None] = lambda: None
        self.first_since: Callable[[PartitionModel], int] = lambda model: -1
        """The answer to a look-up by time: an offset; -1: there is no such record."""
        self._deposed: dict[int, PartitionModel] = {}
        self._loop = loop
        self._chance = chance
        self._trace = trace if beside is None else partial(_tell, trace, self.index)
        self._lag = lag
        self._waiting: list[_Waiting] = []
        self._polls: dict[Callable[[], None], asyncio.TimerHandle] = {}

    # -- who answers -------------------------------------------------------------------------------------------------

    @property
    def leadership(self) -> Leader:
        """As the controller knows it."""
        return Leader(self.leader if self.brokers[self.leader].up else -1, self.model.epoch)

    def led_by(self, node_id: int) -> PartitionModel | None:
        """The log that this broker answers from: the leader's, its own if it was the leader, or none."""
        return self.model if node_id == self.leader else self._deposed.get(node_id)

    def _fenced(self, node_id: int, epoch: int) -> tuple[PartitionModel | None, int]:
        """The same for requests that name the leader epoch."""
        model = self.led_by(node_id)
        if self.partitions[0].topic_id is None:
            return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if model is None:
            return None, ErrorCode.NOT_LEADER_OR_FOLLOWER
        if epoch < model.epoch:
            return None, ErrorCode.FENCED_LEADER_EPOCH
        if epoch != model.epoch:
            return None, ErrorCode.UNKNOWN_LEADER_EPOCH
        return model if model.deposed else model.as_known(self.known), ErrorCode.NONE

    def asked(self, who: str) -> None:
        """It asks the coordinator who the owner is."""
        self.asked_at[who] = self._loop.time()

    def remember(self, rows: list[KeyValue]) -> None:
        """A write to the internal topic."""
        self.remembered += rows
        self.remembered_at += [self._loop.time()] * len(rows)

    @property
    def now_ms(self) -> int:
        """The brokers' clock."""
        return START_MS + round((self._loop.time() + self._loop.skipped_s) * 1000)

    def owned(self, who: str, ownership: Ownership) -> None:
        """The coordinator gave the transactional id to this process."""
        self.owner = (who, ownership)
        self._trace(who, "owns it: {}", tuple(ownership))

    @property
    def topics(self) -> dict[str, Topic]:
        """What Metadata says."""
        first = self.partitions[0]
        if first.topic_id is None:
            return {}
        leaders = {one.index: one.leadership for one in self.partitions}
        return {TOPIC: Topic(name=TOPIC, topic_id=first.topic_id, internal=False, leaders=leaders)}

    # -- looking -----------------------------------------------------------------------------------------------------

    def look(self, leader: Leader, what: Callable[[PartitionModel], Any], reply: Reply) -> None:
        """A request that changes nothing: what ``what`` returns, or an error code in an ``Answer``."""
        model, error = self._fenced(*leader)
        reply(Answer(error) if model is None else what(model))

    def look_unfenced(self, leader: Leader, what: Callable[[PartitionModel], Any], reply: Reply) -> None:
        """The same for requests that do not name the epoch."""
        model = self.led_by(leader.node_id)
        reply(Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER) if model is None else what(model))

    def when_grown(self, at: float, look: Callable[[], None]) -> None:
        """A long poll: looks again when there is more, or at a time."""
        timer = self._loop.call_at(at, self._poll_ends, look)
        self._polls[look] = timer

    def _poll_ends(self, look: Callable[[], None]) -> None:
        del self._polls[look]
        look()

    def grown(self) -> None:
        """There is more to fetch."""
        polls, self._polls = self._polls, {}
        for look, timer in polls.items():
            timer.cancel()
            look()

    # -- appending ---------------------------------------------------------------------------------------------------

    def produce(self, who: str, node_id: int, batch: bytes, reply: Reply) -> None:
        """One batch, acks=all."""
        model = self.led_by(node_id)
        header = BatchHeader.read(batch)
        told = f"({header.producer_epoch}, {header.base_sequence}+{header.last_offset_delta + 1})"
        if model is None or self._chance.random() < self.odd:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER if model is None else self._chance.choice(ODD_ERRORS)
            self._trace(who, "data {} at broker {}: {} and not done", told, node_id, error.name)
            reply(Answer(error))
            return
        end = model.end
        if self._chance.random() < self.forgetful:
            model.sweep(self.now_ms - DAY_MS)
        forgotten = header.producer_id in model.swept and header.producer_id not in model.producers
        append_time = self.now_ms if self.stamps else None
        stray = ""
        if forgotten or (append_time or header.max_timestamp) < self.now_ms - DAY_MS:
            stray = self.on_forgotten(who, self.brokers[node_id].late_by)
        known = header.producer_id in model.producers
        answer = model.produce(batch, append_time=append_time)
        new = model.end != end
        if new:
            key = (header.producer_id, header.producer_epoch, header.base_sequence)
            if not known:
                before, base = self._appended.get(key, ("", -1))
                gone = before if 0 <= base < model.start else ""
                owner = header.producer_id
                next_id = any(same_owner(one, owner) for one in model.producers if one != owner)
                unknown = Unknown(who, end, self.brokers[node_id].late_by, gone, next_id, model.epoch)
                stray = self.on_unknown(unknown) or stray
            self._appended[key] = (who, end)
            if stray:
                self.appended_strays[end, model.epoch] = (who, stray)
        self._trace(who, "data {} at broker {}: {}", told, node_id, _told(answer, new=new, deposed=model.deposed))
        if answer.error:
            reply(answer)
            return
        self.produced_at[who] = self._loop.time()
        self._when_replicated(model, answer.base_offset + header.last_offset_delta + 1, answer, reply)

    def write_markers(self, who: str, node_id: int, marker: Marker, count: int, reply: Reply) -> None:
        """A WriteTxnMarkers request with so many equal markers. They are appended one after the other, so that others
        may come in between; the answer has one of their error codes."""
        errors: list[int] = []
        stray = self.on_markers(who, self.brokers[node_id].late_by)

        def one() -> None:
            model = self.led_by(node_id)
            if model is None:
                errors.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                at = model.end
                error = model.write_marker(*marker, now_ms=self.now_ms)
                errors.append(error)
                if stray and not error:
                    self.appended_strays[at, model.epoch] = (who, stray)
                where = " of a deposed leader" if model.deposed else ""
                self._trace(who, "marker {} at {}{}: {}", marker[1:], at, where, ErrorCode(error).name)
            if len(errors) < count:
                self._loop.call_later(self._chance.uniform(0, 0.002), one)
            elif model is None:
                reply(Answer(self._chance.choice(errors)))
            else:
                self._when_replicated(model, model.end, Answer(self._chance.choice(errors)), reply)

        one()

    def delete_before(self, who: str, node_id: int, offset: int, reply: Reply) -> None:
        """DeleteRecords."""
        model = self.led_by(node_id)
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER if model is None else model.delete_before(offset)
        self._trace(who, "delete before {}: {}", offset, ErrorCode(error).name)
        reply(Answer(error))

    # -- replication -------------------------------------------------------------------------------------------------

    def _when_replicated(self, model: PartitionModel, until: int, answer: Answer, reply: Reply) -> None:
        if self._chance.random() < self.odd and not answer.error:
            answer = answer._replace(error=self._chance.choice(LATE_ERRORS))
        if model.replicated >= until:
            reply(answer)
            return
        done = False

        def once(final: Answer) -> None:
            nonlocal done
            if not done:
                done = True
                reply(final)

        self._waiting.append(_Waiting(until, model.epoch, answer, once))
        timed_out = answer._replace(error=ErrorCode.REQUEST_TIMED_OUT)
        self._loop.call_later(PRODUCE_TIMEOUT_S, once, timed_out)
        if not self.stalled and not model.deposed:
            self._loop.call_later(self._chance.uniform(*self._lag), self._replicate, until, model.epoch)

    def _replicate(self, until: int, epoch: int) -> None:
        if not self.stalled and epoch == self.model.epoch:
            self.replicated(until)

    def replicated(self, until: int | None = None) -> None:
        """The followers have everything below ``until`` (None: all there is)."""
        self.model.replicate(until)
        self.on_replicated()
        due = [one for one in self._waiting if one.epoch == self.model.epoch and one.until <= self.model.replicated]
        self._waiting = [one for one in self._waiting if one not in due]
        for one in due:
            one.reply(one.answer)

    def stall(self, *, stalled: bool) -> None:
        """The followers stop, or go on and catch up."""
        self.stalled = stalled
        if not stalled:
            self.replicated()

    # -- leaders come and go -----------------------------------------------------------------------------------------

    def fail_over(self, *, crash: bool, to: int | None = None, lose_from: int | None = None) -> None:
        """Another broker leads. ``crash``: the old one is dead, and what else it led is led by others as well; else it
        may take itself for the leader for a while. ``lose_from``: it was not in sync, and has nothing from there on."""
        old_node = self.leader
        for one in self.partitions if crash else [self]:
            if one.leader == old_node:
                one._elect(crash=crash, to=to, lose_from=lose_from if one is self else None)

    def _elect(self, *, crash: bool, to: int | None, lose_from: int | None) -> None:
        model = self.model
        old_node = self.leader
        # At the very least what is acknowledged survives; of the rest, what the new leader happened to have.
        bases = [stored.header.base_offset for stored in model.batches if stored.header.base_offset >= model.replicated]
        keep = self._chance.choice([*bases, model.end]) if lose_from is None else lose_from
        lost = model.end - keep
        deposed = model.fail_over(keep, unclean=lose_from is not None)
        self.leader = to or self._chance.choice([node for node in self.brokers if node != old_node])
        self.brokers[self.leader].up = True
        self._deposed.pop(self.leader, None)
        self._trace(self.name, "broker {} leads, epoch {}, end {}, {} lost", self.leader, model.epoch, keep, lost)
        if crash and self.brokers[old_node].up:
            self.brokers[old_node].crash()
            self._loop.call_later(self._chance.uniform(0.2, 2), self._up, old_node)
        elif not crash:
            self._deposed[old_node] = deposed
            self._loop.call_later(self._chance.choice([0.01, 3]) * self._chance.random(), self._learn, old_node)
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.reply(one.answer._replace(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        if not self.stalled:
            self._loop.call_later(self._chance.uniform(0.01, 0.5), self._replicate, model.end, model.epoch)

    def learn_all(self) -> None:
        """The leader knows the true high watermark."""
        if self.known is not None:
            self.known = None
            self._trace(self.name, "all of it is shown")
            self.grown()

    def _learn(self, node_id: int) -> None:
        self._deposed.pop(node_id, None)

    def _up(self, node_id: int) -> None:
        self.brokers[node_id].up = True

    def restart(self, *, clean: bool) -> None:
        """Every broker stops and starts again, all at once."""
        for one in self.partitions:
            one.model.replicate()
        for broker in self.brokers.values():
            broker.crash()
            broker.up = True
        for one in self.partitions:
            one._deposed.clear()
            one._waiting.clear()
            one.model.restart(clean=clean)
            one.model.replicate()
        self._trace(self.name, "all brokers {}, epoch {}", "restarted" if clean else "killed", self.model.epoch)


def _tell(trace: Trace, index: int, who: str, text: str, *values: Any) -> None:
    """Of which partition it is."""
    trace(f"{who}/{index}", text, *values)


def _told(answer: Answer, *, new: bool, deposed: bool) -> str:
    if answer.error:
        return ErrorCode(answer.error).name
    where = " of a deposed leader" if deposed else ""
    return f"appended at {answer.base_offset}{where}" if new else f"known since offset {answer.base_offset}"
