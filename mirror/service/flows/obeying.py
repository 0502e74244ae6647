"""Carries out the supervisor's requests about one flow in a worker."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mirror.net.errors import NetworkError
from mirror.relay.assignment import Key
from mirror.service import channel as say
from mirror.service.channel import Message
from mirror.service.group.expel import expel
from mirror.service.resume.resuming import flow_keys, resume

if TYPE_CHECKING:
    from mirror.service.flows.run import FlowRun

STARTING = "the worker is still starting; try again"


def obey(run: "FlowRun", message: Message) -> None:
    """Carries out one of the supervisor's messages about this flow."""
    match message["kind"]:
        case say.JOIN:
            run.may_join.set()
        case say.KEYS:
            run.channel.send(say.REPLY, id=message["id"], keys=flow_keys(run.now.relay))
        case say.RESUME:
            run.spawn(_resume(run, message))
        case say.PAUSE:
            run.spawn(_pause(run, message))
        case say.LIMIT:
            _limit(run, int(message["of_flow"]), message["of_topics"])
        case say.TRACE:
            _trace(run, (str(message["topic"]), int(message["partition"])), float(message["for_s"]))
        case say.EXPEL:
            run.spawn(_expel(run, str(message["member"])))


def _limit(run: "FlowRun", flow: int, topics: Mapping[str, int]) -> None:
    """Changes the limits of the flow, for this attempt and later ones. ``flow``: bytes per second; ``topics``: the same
    for topics."""
    run.handover = run.handover.limited(flow, topics)
    if run.now.relay is not None:
        run.now.relay.limit(flow, run.handover.relay.topic_rate)


def _trace(run: "FlowRun", key: Key, for_s: float) -> None:
    """Traces a partition for ``for_s`` seconds, also if it is assigned to this worker only later, and across
    attempts."""
    partition = run.now.relay.partitions.get(key) if run.now.relay is not None else None
    run.tracer.follow(key, for_s, partition)


async def _resume(run: "FlowRun", message: Message) -> None:
    """Resumes halted partitions at an operator's request, and replies with the outcomes that are known soon."""
    keys = _keys(message)
    why_not = dict.fromkeys(keys, STARTING)
    if run.now.relay is not None and run.now.member is not None:
        try:
            why_not = await resume(run.now.relay, keys, message["accept"], remade=message["remade"])
        except NetworkError as error:
            why_not = dict.fromkeys(keys, str(error))
    _reply(run, message, why_not)


async def _pause(run: "FlowRun", message: Message) -> None:
    """Pauses partitions at an operator's request, and replies with the outcomes that are known soon."""
    keys = _keys(message)
    why_not = dict.fromkeys(keys, STARTING)
    if run.now.relay is not None and run.now.member is not None:
        why_not = await run.now.relay.pause_all(keys)
    _reply(run, message, why_not)


def _reply(run: "FlowRun", message: Message, why_not: Mapping[Key, str]) -> None:
    run.channel.send(say.REPLY, id=message["id"], outcomes=[(*key, why) for key, why in why_not.items()])


async def _expel(run: "FlowRun", member: str) -> None:
    """Removes a dead worker of this machine from the group, which then does not wait for the end of its session."""
    group = run.handover.group
    if run.now.source is None or group.protocol != "classic":
        return
    try:
        await expel(run.now.source, group.group_id, member)
    except NetworkError as error:
        run.log.info("member_not_expelled", member=member, detail=str(error))


def _keys(message: Message) -> list[Key]:
    return [(str(topic), int(partition)) for topic, partition in message["keys"]]
