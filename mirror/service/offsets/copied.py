"""Tells whether an offset of the source is the same record in a topic of the destination, according to the flow's
internal topic. The topic's name alone proves nothing: anybody may have written to a topic of that name. Pure."""

from mirror.net.logs.log import PartitionLog
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.fields import id_shown, id_text, ids_differ, same_ids
from mirror.offsetmap.internal.ledger import Ledger
from mirror.reasons import ELSEWHERE

NOT_YET = "not copied yet"


def why_no_copy(ledger: Ledger, subject: Subject, here: PartitionLog, there: PartitionLog) -> str:
    """Returns why a destination log is not known as the flow's copy with ``offsets: exact``.

    Args:
        ledger: the content of the flow's internal topic.
        subject: the partition.
        here: the source's log.
        there: the destination's log.

    Returns:
        The reason; ``NOT_YET`` if the internal topic has no pin of the partition; empty if the log is the copy.
    """
    pin = ledger.pin(subject)
    if pin is None:
        return NOT_YET
    if pin.offsets not in ("", "exact"):
        return f"{there.name} was copied with offsets: {pin.offsets}"
    for log, known in ((here, pin.source_id), (there, pin.destination_id)):
        now = id_text(log.topic.topic_id)
        if ids_differ(now, known):
            return f"{log.name} has topic id {id_shown(now)}, and what was copied is of {id_shown(known)}"
    return ""


def why_elsewhere(ledger: Ledger, subject: Subject, here: PartitionLog, there: PartitionLog) -> str:
    """Returns the halt of the partition, in words, if it is one after which an offset may be another record in
    ``there`` than in ``here``. Empty: there is no such halt of these two topics. Arguments: as ``why_no_copy``."""
    halt, ids = ledger.halt(subject), (id_text(here.topic.topic_id), id_text(there.topic.topic_id))
    if halt is None or halt.reason not in ELSEWHERE or not same_ids((halt.source_id, halt.destination_id), ids):
        return ""
    return f"{subject.topic}-{subject.partition} has halted: {halt.reason}"
