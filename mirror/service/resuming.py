"""A worker's part when halted partitions are resumed (``service.resumption`` is the supervisor's)."""

import asyncio
from collections.abc import Iterable

from mirror.relay.assignment import Key
from mirror.relay.partition import Phase
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


async def resume(relay: Relay, keys: list[Key], accept: Iterable[str]) -> dict[Key, str]:
    """Has partitions looked at anew, and waits a moment for what comes of it.

    Args:
        relay: which has them, or had them until just now.
        keys: of the partitions.
        accept: what an operator accepts, as keyword arguments of ``Relay.resume``.

    Returns:
        Partition -> why it does not go on; empty: it does.

    Raises:
        NetworkError: a cluster does not answer.
    """
    why_not = await relay.resume_all(keys, **dict.fromkeys(accept, True))
    loop = asyncio.get_running_loop()
    until = loop.time() + WATCH_S
    resumed = {key: relay.partitions[key] for key, why in why_not.items() if not why and key in relay.partitions}
    while loop.time() < until and any(each.phase in SEEKING for each in resumed.values()):  # noqa: ASYNC110
        await asyncio.sleep(LOOK_EVERY_S)
    for key, partition in resumed.items():
        if partition.halted is not None:
            why_not[key] = f"halts again, {partition.halted.reason}: {partition.halted.detail}"
    return why_not
