"""Handles an operator's request to resume halted partitions: finds them, asks their workers, collects the outcomes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mirror.reasons import HaltReason
from mirror.service import channel as say
from mirror.service.channel import Message
from mirror.service.telemetry.fleet import Fleet

if TYPE_CHECKING:
    from mirror.relay.assignment import Key

ACCEPTABLE = frozenset({"accept_gap", "accept_unproven", "accept_settings"})
"""Findings that an operator may accept, once: keyword arguments of ``Relay.resume``, options of the command line."""
RECREATED = HaltReason.RECREATED.slug
ANSWER_S = 60.0
"""Longest wait for a worker's answer; after that, the request counts as not answered."""


class ResumeOutcome(NamedTuple):
    """The outcome for one partition. ``why_not`` is empty if the partition goes on; ``flow`` if only one was asked."""

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

    async def resume(self, topic: str | None, partition: int | None, accept: Iterable[str]) -> Resumed:
        """Has halted partitions resumed by the workers that have them.

        Args:
            topic: only partitions of this topic; None: of all topics.
            partition: this one alone, halted or not; None: all halted ones. If a topic was recreated, also those of its
                partitions that have not halted for that yet.
            accept: some of ``ACCEPTABLE``.

        Raises:
            NotAsked: the flow has no such partition, or no worker can tell which partitions the flow has.
        """
        flow = await self._flow_keys()
        wanted = {key for key in flow if topic in (None, key[0]) and partition in (None, key[1])}
        here = {row.key: (worker.number, row) for worker, row in self._fleet.rows}
        wanted |= {key for key in here if topic in (None, key[0]) and partition in (None, key[1])}
        if not wanted and topic is not None:
            name = topic if partition is None else f"{topic}-{partition}"
            raise NotAsked(
                f"the flow has no partition {name}" if partition is not None else f"the flow has no topic {name}"
            )
        by_worker: dict[int, list[Key]] = defaultdict(list)
        halted = [here[key][1] for key in wanted & here.keys() if here[key][1].state == "halted"]
        remade = {row.topic for row in halted if row.reason == RECREATED} if partition is None else set()
        for key in sorted(wanted & here.keys()):
            number, row = here[key]
            if partition is not None or row.state == "halted":
                by_worker[number].append(key)
            elif row.topic in remade:
                by_worker[number] += []  # the worker is asked too: it will halt for the same reason in a moment
        wish = {"accept": sorted(accept), "remade": sorted(remade)}
        found = await asyncio.gather(*(self._resume(number, keys, wish) for number, keys in by_worker.items()))
        elsewhere = sorted(wanted - here.keys())
        return Resumed(
            sorted(each for some in found for each in some), elsewhere, bool(elsewhere and self._fleet.unassigned)
        )

    async def _resume(self, number: int, keys: list[Key], wish: Mapping[str, list[str]]) -> list[ResumeOutcome]:
        try:
            answer = await self._ask(number, say.RESUME, keys=keys, **wish)
        except NotAsked as error:
            return [ResumeOutcome(*key, str(error)) for key in keys]
        return [ResumeOutcome(topic, partition, why_not) for topic, partition, why_not in answer["outcomes"]]

    async def has(self, topic: str) -> bool:
        """Returns True if the flow has this topic, as far as its workers know. Raises NotAsked: none can tell."""
        flow = await self._flow_keys()
        return any(name == topic for name, _ in flow) or any(row.topic == topic for _, row in self._fleet.rows)

    async def _flow_keys(self) -> set[Key]:
        """Returns every partition of the flow, as the first worker that is ready reports them."""
        for worker in self._fleet.workers.values():
            if worker.ready:
                answer = await self._ask(worker.number, say.KEYS)
                return {(topic, index) for topic, indices in answer["keys"].items() for index in indices}
        raise NotAsked("no worker is ready; see `mirror status`, and try again")

    async def _ask(self, number: int, kind: str, **fields: object) -> Message:
        self._asked += 1
        asked = self._asked
        answer = self._answers[asked] = asyncio.get_running_loop().create_future()
        try:
            if not self._children[number].send(kind, id=asked, **fields):
                raise NotAsked("the worker is not running at the moment; try again")
            return await asyncio.wait_for(answer, ANSWER_S)
        except TimeoutError:
            raise NotAsked(f"the worker did not answer within {ANSWER_S:.0f} s") from None
        finally:
            self._answers.pop(asked, None)

    def answered(self, message: Message) -> None:
        """Hands a worker's answer to the request that waits for it."""
        answer = self._answers.get(message["id"])
        if answer is not None and not answer.done():
            answer.set_result(message)


async def resume(
    flows: Mapping[str, Resumption], topic: str | None, partition: int | None, accept: Iterable[str]
) -> Resumed:
    """Has halted partitions resumed of one flow, or without a topic of each of these flows.

    Args:
        flows: by name, those that may be meant.
        topic, partition, accept: see ``Resumption.resume``.

    Raises:
        NotAsked: nothing was done. A topic that several flows have, or may have, is not resumed.
    """
    accepted = list(accept)
    if not flows:
        raise NotAsked("no flow runs at the moment; try again")
    if len(flows) == 1:
        (only,) = flows.values()
        return await only.resume(topic, partition, accepted)
    if topic is None:
        return await _resume_each(flows, accepted)
    have = [name for name, each in flows.items() if await _may_have(each, topic)]
    if not have:
        raise NotAsked(f"no flow has topic {topic}")
    if len(have) > 1:
        names = ", ".join(have)
        raise NotAsked(f"{len(have)} flows have topic {topic}, or may have it: name one with --flow ({names})")
    return await flows[have[0]].resume(topic, partition, accepted)


async def _resume_each(flows: Mapping[str, Resumption], accept: list[str]) -> Resumed:
    """Resumes every halted partition of each flow. A flow without a worker that is ready has none here."""
    outcomes: list[ResumeOutcome] = []
    elsewhere: list[Key] = []
    nobody, refused = False, list[NotAsked]()
    for name, each in flows.items():
        try:
            found = await each.resume(None, None, accept)
        except NotAsked as error:
            refused.append(error)
            continue
        outcomes += [one._replace(flow=name) for one in found.outcomes]
        elsewhere += found.elsewhere
        nobody = nobody or found.nobody
    if len(refused) == len(flows):
        raise refused[0]
    return Resumed(outcomes, elsewhere, nobody)


async def _may_have(flow: Resumption, topic: str) -> bool:
    """Returns True if the flow has the topic, or if nobody can tell, as while it waits for a cluster."""
    try:
        return await flow.has(topic)
    except NotAsked:
        return True
