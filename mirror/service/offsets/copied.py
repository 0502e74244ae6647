"""Whether an offset of the source means the same record in a topic of the destination, by what the mirror has written
down. A topic that only has the name of a copy may be anybody's. Pure."""

from mirror.net.logs.log import PartitionLog
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.fields import id_shown, id_text, ids_differ, same_ids
from mirror.offsetmap.internal.ledger import Ledger
from mirror.reasons import ELSEWHERE

NOT_YET = "not copied yet"


def why_no_copy(ledger: Ledger, subject: Subject, here: PartitionLog, there: PartitionLog) -> str:
    """Returns why ``there`` is not known as the flow's copy of ``here``, with ``offsets: exact``; empty: it is.
    ``NOT_YET``: nothing is written down of it."""
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
    """Returns the halt of the partition, if with that an offset of ``here`` need not be the same record in ``there``;
    empty: there is none."""
    halt, ids = ledger.halt(subject), (id_text(here.topic.topic_id), id_text(there.topic.topic_id))
    if halt is None or halt.reason not in ELSEWHERE or not same_ids((halt.source_id, halt.destination_id), ids):
        return ""
    return f"{subject.topic}-{subject.partition} has halted: {halt.reason}"
