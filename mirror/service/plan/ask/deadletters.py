"""Asks the destination for the dead letter topic of a flow (``oversize.record: deadletter``)."""

from mirror.net.cluster import Cluster
from mirror.relay.settings import DEADLETTER, RelaySettings
from mirror.relay.topics.describing import describe_topics
from mirror.relay.topics.limits import MAX_MESSAGE_BYTES
from mirror.service.plan.ask.clusters import topic_rights
from mirror.service.plan.model import DeadLetterFacts


async def dead_letters(destination: Cluster, settings: RelaySettings) -> DeadLetterFacts | None:
    """Returns the facts about the flow's dead letter topic; None: the flow writes no dead letters.

    Raises:
        NetworkError: the destination does not answer.
    """
    if settings.oversize_record != DEADLETTER:
        return None
    name = settings.dead_letter_topic
    rights, entries = await topic_rights(destination, [name])
    if name not in entries:
        await destination.check_denied([name])
        return DeadLetterFacts(name=name, exists=False, hidden=name in destination.denied)
    entry = (await describe_topics(destination, [name])).get(name, {}).get(MAX_MESSAGE_BYTES)
    most = entry.value if entry is not None else None
    return DeadLetterFacts(name=name, rights=rights.get(name), most=int(most) if most else None)
