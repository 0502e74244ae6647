"""The worker's side of resuming halted partitions (``service.resume.resumption`` is the supervisor's side)."""

import asyncio
from collections.abc import Collection, Iterable

from mirror.reasons import HaltReason
from mirror.relay.assignment import Key
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.relay import Relay

WATCH_S = 10.0
"""How long resumed partitions are watched, to report whether they go on. Locating them may take longer."""
LOOK_EVERY_S = 0.02
SEEKING = frozenset({Phase.LOCATING, Phase.DOUBT})


def flow_keys(relay: Relay | None) -> dict[str, list[int]]:
    """Returns all partitions of the flow, whichever worker has them: topic -> partition numbers. Empty without a
    relay."""
    found: dict[str, list[int]] = {}
    for topic, partition in relay.keys if relay is not None else ():
        found.setdefault(topic, []).append(partition)
    return found


async def resume(
    relay: Relay, keys: list[Key], accept: Iterable[str], *, remade: Collection[str] = ()
) -> dict[Key, str]:
    """Resumes partitions, and watches for up to ``WATCH_S`` whether they go on.

    Args:
        relay: the relay that has the partitions, or had them until just now.
        keys: the partitions.
        accept: findings that the operator accepts: names of keyword arguments of ``Relay.resume``.
        remade: recreated topics that the operator resumes as a whole. Partitions of these topics that halt as
            ``recreated`` only while they are watched are resumed as well, unless the topics' ids change once more.

    Returns:
        Partition -> why it does not go on; empty: it goes on.

    Raises:
        NetworkError: a cluster does not answer.
    """
    why_not = await relay.resume_all(keys, **dict.fromkeys(accept, True))
    loop = asyncio.get_running_loop()
    until = loop.time() + WATCH_S
    resumed = {key: relay.partitions[key] for key, why in why_not.items() if not why and key in relay.partitions}
    # ``resume_all`` has looked for topics, so the other partitions of recreated topics are in doubt now. They halt
    # next.
    late = {key: each for key, each in relay.partitions.items() if key[0] in remade and key not in why_not}
    ids = {key: relay.pins.ids(each) for key, each in late.items()}
    begun: dict[Partition, int] = {}
    while loop.time() < until:
        again = [key for key, each in late.items() if _is_remade(each) and relay.pins.ids(each) == ids[key]]
        why_not |= await relay.resume_all(again) if again else {}
        resumed |= {key: late.pop(key) for key in again if not why_not[key]}
        sought = any(each.phase in SEEKING for each in late.values())
        if not sought and not any([_undecided(each, begun) for each in resumed.values()]):
            break
        await asyncio.sleep(LOOK_EVERY_S)
    for key, partition in resumed.items():
        if partition.halted is not None:
            why_not[key] = f"halts again, {partition.halted.reason}: {partition.halted.detail}"
    return why_not


def _is_remade(partition: Partition) -> bool:
    """Returns True if the partition has halted because one of its topics was recreated."""
    return partition.halted is not None and partition.halted.reason == HaltReason.RECREATED.slug


def _undecided(partition: Partition, begun: dict[Partition, int]) -> bool:
    """Returns True if it is not known yet whether a resumed partition goes on: it is still being located, or the first
    batch since then is not acknowledged. That batch may be the one for which the partition had halted.

    Args:
        partition: the partition.
        begun: partition -> its position at the first look after it was located; this function adds to it.
    """
    if partition.phase in SEEKING:
        return True
    if partition.phase is not Phase.ACTIVE or not partition.lag:
        return False
    return partition.queue.acknowledged <= begun.setdefault(partition, partition.queue.acknowledged)
