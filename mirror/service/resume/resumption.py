"""Handles an operator's request to pause partitions, or to resume those that are halted or paused: finds them, asks
their workers, collects the outcomes."""

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
"""Findings that an operator may accept, once: keyword arguments of ``Relay.resume``, options of the command line."""
RECREATED = HaltReason.RECREATED.slug
ANSWER_S = 60.0
"""Longest wait for a worker's answer; after that, the request counts as not answered."""
KEYS_S = 10.0
"""The same where any worker can tell: then the next one is asked."""

_LOOK = "; `mirror status` shows what is copied here, and `mirror plan` what would be"


class ResumeOutcome(NamedTuple):
    """The outcome for one partition. ``why_not`` is empty if it was done; ``flow`` if only one was asked."""

    topic: str
    partition: int
    why_not: str
    flow: str = ""


class Resumed(NamedTuple):
    """The outcome of a request."""

    outcomes: list[ResumeOutcome]
    elsewhere: list[Key]
    """Requested partitions that no worker here has at present."""
    nobody: bool = False
    """True if nobody holds some of the flow's partitions, so that those in ``elsewhere`` may be among them."""
    unasked: tuple[tuple[str, str], ...] = ()
    """(flow, why): the flows of which no worker could be asked, so that their partitions go on as they are."""


class NotAsked(Exception):
    """Nothing was done; the message says why."""


class Child(Protocol):
    """One worker, as far as this module needs it (``service.child.Child``)."""

    def send(self, kind: str, **fields: object) -> bool:
        """Sends the worker a message. Returns False if it is not running."""


class Resumption:
    """Asks the workers and waits for their answers."""

    def __init__(self, fleet: Fleet, children: Mapping[int, Child]) -> None:
        self._fleet = fleet
        self._children = children
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._asked = 0
        self._paused: set[Key] = set()
        """Partitions that somebody wanted paused here. Reports on them may be a second old."""

    async def resume(self, topic: str | None, partition: int | None, accept: Iterable[str]) -> Resumed:
        """Has halted and paused partitions resumed by the workers that have them.

        Args:
            topic: only partitions of this topic; None: of all topics.
            partition: this one alone, halted or not; None: all halted and paused ones. If a topic was recreated, also
                those of its partitions that have not halted for that yet.
            accept: some of ``ACCEPTABLE``.

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
        """Has partitions paused by the workers that have them: what was fetched is copied first.

        Args:
            topic: only partitions of this topic; None: of all topics.
            partition: this one alone; None: all of them. Of those that have halted, the outcome says so.

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
        """Returns what is known of a partition, None if no worker here has it; and whether nobody at all holds some of
        the flow's partitions.

        Raises:
            NotAsked: as ``resume``.
        """
        _, here = await self._chosen(topic, partition)
        found = here.get((topic, partition))
        return (None if found is None else found[1]), bool(self._fleet.unassigned)

    async def _chosen(
        self, topic: str | None, partition: int | None
    ) -> tuple[set[Key], dict[Key, tuple[int, PartitionRow]]]:
        """Returns the partitions that a request is about, and the worker and row of each that is copied here.

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
        """Asks the workers, all at once, and returns what came of it."""
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
        """Returns True if the flow has this topic, as far as its workers know. Raises NotAsked: none can tell."""
        flow = await self._flow_keys()
        return any(name == topic for name, _ in flow) or any(row.topic == topic for _, row in self._fleet.rows)

    async def _flow_keys(self) -> set[Key]:
        """Returns every partition of the flow, as the first worker that is ready and answers reports them."""
        ready = [worker for worker in self._fleet.workers.values() if worker.ready]
        why = NotAsked("no worker is ready; see `mirror status`, and try again")
        if ready:
            least_s = min(worker.quiet_s for worker in ready)
            why = NotAsked(f"no worker was heard of for {least_s:.0f} s; see `mirror status`, and try again")
        for worker in ready:
            if worker.quiet_s:  # stopped or stuck: it would be waited for in vain
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
        """Hands a worker's answer to the request that waits for it."""
        answer = self._answers.get(message["id"])
        if answer is not None and not answer.done():
            answer.set_result(message)


Act = Callable[[Resumption], Awaitable[Resumed]]
"""``pause`` or ``resume``, with what it is about."""


async def act_on(flows: Mapping[str, Resumption], topic: str | None, act: Act) -> Resumed:
    """Has partitions of one flow paused or resumed, or without a topic those of each of these flows.

    Args:
        flows: by name, those that may be meant.
        topic: what ``act`` is about.
        act: what to do with the flow that is meant.

    Raises:
        NotAsked: nothing was done. If several flows have the topic, or may have it, none of them is chosen.
    """
    if topic is None and len(flows) > 1:
        return await _each(flows, act)
    return await act(flows[await flow_of(flows, topic)])


async def flow_of(flows: Mapping[str, Resumption], topic: str | None) -> str:
    """Returns the name of the flow that a request about a topic is for; None: of the only one.

    Raises:
        NotAsked: there is none, or not only one.
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
    """Does it to every partition of each flow, as far as its workers can be asked."""
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
    """Returns True if the flow has the topic, or if nobody can tell, as while it waits for a cluster."""
    try:
        return await flow.has(topic)
    except NotAsked:
        return True
