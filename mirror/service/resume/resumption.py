"""Handles an operator's request to pause partitions, or to resume halted or paused ones: finds them, sends requests to
their workers, and collects the outcomes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mirror.reasons import HaltReason
from mirror.service import channel as say
from mirror.service.channel import Message
from mirror.service.telemetry.fleet import RESTING, Fleet

if TYPE_CHECKING:
    from mirror.relay.assignment import Key
    from mirror.service.telemetry.rows import PartitionRow

ACCEPTABLE = frozenset({"accept_gap", "accept_unproven", "accept_settings"})
"""Findings that an operator may accept: keyword arguments of ``Relay.resume``, and options of the command line."""
RECREATED = HaltReason.RECREATED.slug
ANSWER_S = 60.0
"""Longest wait for a worker's answer; after that, the request counts as not answered."""
KEYS_S = 10.0
"""The same for a question that any worker can answer: after that, the next worker is asked."""

_LOOK = "; `mirror status` shows what is copied here, and `mirror plan` what would be"


class ResumeOutcome(NamedTuple):
    """The outcome for one partition. ``why_not``: why it was not done; empty: it was done. ``flow``: name of the flow;
    empty if the request was for a single flow."""

    topic: str
    partition: int
    why_not: str
    flow: str = ""


class Resumed(NamedTuple):
    """The outcome of a request."""

    outcomes: list[ResumeOutcome]
    elsewhere: list[Key]
    """Requested partitions that no worker of this mirror has at present."""
    nobody: bool = False
    """True if some of the flow's partitions are assigned to no worker at all. Those in ``elsewhere`` may be among
    them."""
    unasked: tuple[tuple[str, str], ...] = ()
    """(flow, why): flows of which no worker could be asked. Nothing has changed for their partitions."""


class NotAsked(Exception):
    """The request was not sent to any worker, or a worker did not answer; the message says why."""


class Child(Protocol):
    """A worker process: what this module needs of ``service.child.Child``."""

    def send(self, kind: str, **fields: object) -> bool:
        """Sends the worker a message. Returns False if it is not running."""


class Resumption:
    """Sends requests to the workers of one flow, and waits for their answers."""

    def __init__(self, fleet: Fleet, children: Mapping[int, Child]) -> None:
        self._fleet = fleet
        self._children = children
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._asked = 0
        self._paused: set[Key] = set()
        """Partitions that a request to this mirror has paused. A worker's report may be a second old and not show it
        yet."""

    async def resume(self, topic: str | None, partition: int | None, accept: Iterable[str]) -> Resumed:
        """Resumes halted and paused partitions.

        Args:
            topic: name of the topic; None: all topics.
            partition: number of the only partition, which is resumed whatever its state is; None: all halted and paused
                ones. Of a recreated topic, these include the partitions that have not halted for that yet.
            accept: findings that the operator accepts, from ``ACCEPTABLE``.

        Raises:
            NotAsked: the flow has no such partition, or no worker can tell which partitions the flow has.
        """
        wanted, here = await self._chosen(topic, partition)
        by_worker: dict[int, list[Key]] = defaultdict(list)
        halted = [here[key][1] for key in wanted & here.keys() if here[key][1].state == "halted"]
        remade = {row.topic for row in halted if row.reason == RECREATED} if partition is None else set()
        for key in sorted(wanted & here.keys()):
            number, row = here[key]
            if partition is not None or row.state in RESTING or key in self._paused:
                by_worker[number].append(key)
            elif row.topic in remade:
                by_worker[number] += []  # the worker is asked too: it will halt for the same reason in a moment
        wish = {"accept": sorted(accept), "remade": sorted(remade)}
        found = await self._done(say.RESUME, by_worker, wanted - here.keys(), wish)
        self._paused -= {(each.topic, each.partition) for each in found.outcomes if not each.why_not}
        return found

    async def pause(self, topic: str | None, partition: int | None) -> Resumed:
        """Pauses partitions, after the batches that are fetched already have been copied.

        Args:
            topic: name of the topic; None: all topics.
            partition: number of the only partition; None: all partitions. The outcome of a halted one says that it has
                halted.

        Raises:
            NotAsked: as ``resume``.
        """
        wanted, here = await self._chosen(topic, partition)
        by_worker: dict[int, list[Key]] = defaultdict(list)
        for key in sorted(wanted & here.keys()):
            by_worker[here[key][0]].append(key)
        found = await self._done(say.PAUSE, by_worker, wanted - here.keys(), {})
        self._paused |= {(each.topic, each.partition) for each in found.outcomes}
        return found

    async def find(self, topic: str, partition: int) -> tuple[PartitionRow | None, bool]:
        """Returns the status row of a partition (None: no worker here has it), and whether some of the flow's
        partitions are assigned to no worker at all.

        Raises:
            NotAsked: as ``resume``.
        """
        _, here = await self._chosen(topic, partition)
        found = here.get((topic, partition))
        return (None if found is None else found[1]), bool(self._fleet.unassigned)

    async def _chosen(
        self, topic: str | None, partition: int | None
    ) -> tuple[set[Key], dict[Key, tuple[int, PartitionRow]]]:
        """Returns the partitions that a request is about; and for every partition that a worker here has, the number of
        that worker and the partition's status row.

        Raises:
            NotAsked: as ``resume``.
        """
        flow = await self._flow_keys()
        here = {row.key: (worker.number, row) for worker, row in self._fleet.rows}
        wanted = {key for key in flow | here.keys() if topic in (None, key[0]) and partition in (None, key[1])}
        if not wanted and topic is not None:
            what = f"topic {topic}" if partition is None else f"partition {topic}-{partition}"
            raise NotAsked(f"the flow has no {what}{_LOOK}")
        return wanted, here

    async def _done(
        self, kind: str, by_worker: Mapping[int, list[Key]], elsewhere: Iterable[Key], wish: Mapping[str, list[str]]
    ) -> Resumed:
        """Sends a request to several workers in parallel, and returns the outcome.

        Args:
            kind: kind of the message.
            by_worker: number of a worker -> its partitions that the request is about.
            elsewhere: requested partitions that no worker here has.
            wish: further fields of the message.
        """
        found = await asyncio.gather(*(self._one(kind, number, keys, wish) for number, keys in by_worker.items()))
        away = sorted(elsewhere)
        return Resumed(sorted(each for some in found for each in some), away, bool(away and self._fleet.unassigned))

    async def _one(self, kind: str, number: int, keys: list[Key], wish: Mapping[str, list[str]]) -> list[ResumeOutcome]:
        try:
            answer = await self._ask(number, kind, ANSWER_S, keys=keys, **wish)
        except NotAsked as error:
            return [ResumeOutcome(*key, str(error)) for key in keys]
        return [ResumeOutcome(topic, partition, why_not) for topic, partition, why_not in answer["outcomes"]]

    async def has(self, topic: str) -> bool:
        """Returns True if the flow has this topic, as far as its workers know. Raises NotAsked if no worker answers."""
        flow = await self._flow_keys()
        return any(name == topic for name, _ in flow) or any(row.topic == topic for _, row in self._fleet.rows)

    async def _flow_keys(self) -> set[Key]:
        """Returns all partitions of the flow, according to the first ready worker that answers. Raises NotAsked if none
        does."""
        ready = [worker for worker in self._fleet.workers.values() if worker.ready]
        why = NotAsked("no worker is ready; see `mirror status`, and try again")
        if ready:
            least_s = min(worker.quiet_s for worker in ready)
            why = NotAsked(f"no worker was heard of for {least_s:.0f} s; see `mirror status`, and try again")
        for worker in ready:
            if worker.quiet_s:  # the worker is stopped or stuck, so no answer would come
                continue
            try:
                answer = await self._ask(worker.number, say.KEYS, KEYS_S)
            except NotAsked as error:
                why = error
                continue
            return {(topic, index) for topic, indices in answer["keys"].items() for index in indices}
        raise why

    async def _ask(self, number: int, kind: str, within_s: float, **fields: object) -> Message:
        self._asked += 1
        asked = self._asked
        answer = self._answers[asked] = asyncio.get_running_loop().create_future()
        try:
            if not self._children[number].send(kind, id=asked, **fields):
                raise NotAsked("the worker is not running at the moment; try again")
            return await asyncio.wait_for(answer, within_s)
        except TimeoutError:
            raise NotAsked(f"the worker did not answer within {within_s:.0f} s") from None
        finally:
            self._answers.pop(asked, None)

    def answered(self, message: Message) -> None:
        """Passes a worker's answer to the request that waits for it. An answer that comes too late is dropped."""
        answer = self._answers.get(message["id"])
        if answer is not None and not answer.done():
            answer.set_result(message)


Act = Callable[[Resumption], Awaitable[Resumed]]
"""A call of ``Resumption.pause`` or ``Resumption.resume`` with its arguments bound."""


async def act_on(flows: Mapping[str, Resumption], topic: str | None, act: Act) -> Resumed:
    """Pauses or resumes partitions of the flow that has the topic; without a topic, those of all these flows.

    Args:
        flows: name -> the flows that the request may be about.
        topic: name of the topic that ``act`` is about; None: all topics.
        act: the request, to be made of one flow.

    Raises:
        NotAsked: nothing was done. This includes that several flows have the topic, or may have it.
    """
    if topic is None and len(flows) > 1:
        return await _each(flows, act)
    return await act(flows[await flow_of(flows, topic)])


async def flow_of(flows: Mapping[str, Resumption], topic: str | None) -> str:
    """Returns the name of the flow that a request is for.

    Args:
        flows: name -> the flows that the request may be about.
        topic: name of the topic; may be None only if there is at most one flow.

    Raises:
        NotAsked: no flow, or more than one, has the topic or may have it.
    """
    if not flows:
        raise NotAsked("no flow runs at the moment; try again")
    if len(flows) == 1:
        return next(iter(flows))
    assert topic is not None
    have = [name for name, each in flows.items() if await _may_have(each, topic)]
    if not have:
        raise NotAsked(f"no flow has topic {topic}{_LOOK}")
    if len(have) > 1:
        names = ", ".join(have)
        raise NotAsked(f"{len(have)} flows have topic {topic}, or may have it: name one with --flow ({names})")
    return have[0]


async def _each(flows: Mapping[str, Resumption], act: Act) -> Resumed:
    """Makes the request of each flow. Flows of which no worker can be asked are in ``Resumed.unasked``.

    Raises:
        NotAsked: no worker of any flow can be asked.
    """
    outcomes: list[ResumeOutcome] = []
    elsewhere: list[Key] = []
    nobody, unasked = False, list[tuple[str, str]]()
    for name, each in flows.items():
        try:
            found = await act(each)
        except NotAsked as error:
            if len(unasked) == len(flows) - 1:
                raise
            unasked.append((name, str(error)))
            continue
        outcomes += [one._replace(flow=name) for one in found.outcomes]
        elsewhere += found.elsewhere
        nobody = nobody or found.nobody
    return Resumed(outcomes, elsewhere, nobody, tuple(unasked))


async def _may_have(flow: Resumption, topic: str) -> bool:
    """Returns True if the flow has the topic, or if no worker can tell, for example while it waits for a cluster."""
    try:
        return await flow.has(topic)
    except NotAsked:
        return True
