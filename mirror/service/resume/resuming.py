"""A worker's part when halted partitions are resumed (``service.resume.resumption`` is the supervisor's)."""

import asyncio
from collections.abc import Collection, Iterable

from mirror.reasons import HaltReason
from mirror.relay.assignment import Key
from mirror.relay.partition import Partition
from mirror.relay.phases import Phase
from mirror.relay.relay import Relay

WATCH_S = 10.0
"""What is resumed is watched for so long, to tell whether it goes on; it may take longer to be located."""
LOOK_EVERY_S = 0.02
SEEKING = frozenset({Phase.LOCATING, Phase.DOUBT})


def flow_keys(relay: Relay | None) -> dict[str, list[int]]:
    """Every partition of the flow, whoever copies it: topic -> indices."""
    found: dict[str, list[int]] = {}
    for topic, partition in relay.keys if relay is not None else ():
        found.setdefault(topic, []).append(partition)
    return found


async def resume(
    relay: Relay, keys: list[Key], accept: Iterable[str], *, remade: Collection[str] = ()
) -> dict[Key, str]:
    """Has partitions looked at anew, and waits a moment for what comes of it.

    Args:
        relay: which has them, or had them until just now.
        keys: of the partitions.
        accept: what an operator accepts, as keyword arguments of ``Relay.resume``.
        remade: topics that were made anew and that the operator resumes as a whole: partitions of them that halt for
            that only now are resumed as well, as long as the topic is the one that it was at the beginning.

    Returns:
        Partition -> why it does not go on; empty: it does.

    Raises:
        NetworkError: a cluster does not answer.
    """
    why_not = await relay.resume_all(keys, **dict.fromkeys(accept, True))
    loop = asyncio.get_running_loop()
    until = loop.time() + WATCH_S
    resumed = {key: relay.partitions[key] for key, why in why_not.items() if not why and key in relay.partitions}
    # The look for topics has put them in doubt.
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
    """Whether it has halted because one of its topics was made anew."""
    return partition.halted is not None and partition.halted.reason == HaltReason.RECREATED.slug


def _undecided(partition: Partition, begun: dict[Partition, int]) -> bool:
    """Whether it is not known yet if the partition goes on: it is located, or what comes next is not acknowledged. What
    it halted for may be that very batch. ``begun``: where each was located."""
    if partition.phase in SEEKING:
        return True
    if partition.phase is not Phase.ACTIVE or not partition.lag:
        return False
    return partition.acknowledged <= begun.setdefault(partition, partition.acknowledged)
